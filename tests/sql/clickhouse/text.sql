# Text, patterns, JSON, URLs and IP addresses.

SELECT upper(name), lower(name), length(name), lengthUTF8(name), char_length(name) FROM 'users.csv' ORDER BY user_id
--> fault: row 3: `CHLOÉ,chloé,5,5,5` came, `CHLOé,chloé,6,5,5` was wanted
--> clickhouse
ANN LEE,ann lee,7,7,7
BOB O'NEIL,bob o'neil,10,10,10
CHLOé,chloé,6,5,5
DAN,dan,3,3,3
EVE ADAMS,eve adams,9,9,9
FINN,finn,4,4,4

SELECT substring(name, 1, 3), substr(name, 2), left(name, 2), right(name, 2), mid(name, 2, 2) FROM 'users.csv' ORDER BY user_id LIMIT 2
--> clickhouse
Ann,nn Lee,An,ee,nn
Bob,ob O'Neil,Bo,il,ob

SELECT position('hello', 'l'), locate('hello', 'l'), positionCaseInsensitive('Hello', 'L'), position('l' IN 'hello')
--> clickhouse
3,0,3,3

SELECT splitByChar(',', 'a,b,c'), splitByString(', ', 'a, b'), splitByRegexp('\\d+', 'a1b22c')
--> pending: unknown function `splitbychar` (no hint)
--> clickhouse
"[""a"",""b"",""c""]","[""a"",""b""]","[""a"",""b"",""c""]"

SELECT splitByChar('|', assumeNotNull(tags))[1] FROM 'users.csv' WHERE tags IS NOT NULL ORDER BY user_id
--> pending: unknown function `splitbychar` (no hint)
--> clickhouse
new
beta
vip
mobile
new

SELECT arrayStringConcat(['a', 'b'], '-'), arrayStringConcat(splitByChar('.', 'a.b'), '/')
--> pending: unknown function `splitbychar` (no hint)
--> clickhouse
a-b,a/b

SELECT match(url, '/v\\d/') AS m, count() FROM 'requests.csv' GROUP BY m ORDER BY m
--> fault: row 1: `false,15` came, `0,13` was wanted
--> clickhouse
0,13
1,2

SELECT extract(url, 'https?://([^/:]+)') AS host, count() AS n FROM 'requests.csv' GROUP BY host ORDER BY n DESC, host
--> pending: `https?://([^/:]+)` does not fit TIMESTAMP
--> clickhouse
shop.example.com,12
api.example.com,2
blog.example.org,1

SELECT extractAll('a1b22', '\\d+'), extractGroups('k=v', '(\\w)=(\\w)')
--> pending: unknown function `extractall` (no hint)
--> clickhouse
"[""1"",""22""]","[""k"",""v""]"

SELECT replaceOne('abab', 'a', 'x'), replaceAll('abab', 'a', 'x'), replace('abab', 'b', 'y')
--> pending: unknown function `replaceone` (no hint)
--> clickhouse
xbab,xbxb,ayay

SELECT replaceRegexpOne('a1b2', '\\d', 'X'), replaceRegexpAll('a1b2', '\\d', 'X'), REGEXP_REPLACE('a1b2', '\\d', 'X')
--> fault: row 1: `a1b2,a1b2,a1b2` came, `aXb2,aXbX,aXbX` was wanted
--> clickhouse
aXb2,aXbX,aXbX

SELECT replaceRegexpAll('John Smith', '(\\w+) (\\w+)', '\\2 \\1')
--> fault: row 1: `John Smith` came, `Smith John` was wanted
--> clickhouse
Smith John

SELECT countSubstrings('abcabc', 'bc'), countMatches('a1b22', '\\d+'), hasToken('a b c', 'b'), multiSearchAny('hello', ['x', 'll']), multiSearchFirstIndex('hello', ['x', 'll'])
--> pending: unknown function `countsubstrings` (no hint)
--> clickhouse
2,2,1,1,2

SELECT startsWith(url, 'https://'), endsWith(url, '.html') FROM 'requests.csv' WHERE id = 10
--> clickhouse
0,1

SELECT name FROM 'users.csv' WHERE name LIKE 'A%' OR name ILIKE 'd%' ORDER BY name
--> clickhouse duckdb
Ann Lee
dan

SELECT name FROM 'users.csv' WHERE like(name, '%n%') AND notLike(name, '%L%') ORDER BY name
--> clickhouse
Finn
dan

SELECT concat('a', 'b'), 'a' || 'b', concatWithSeparator('-', 'a', 'b'), concat_ws('-', 'a', 'b'), format('{} {}', 'a', 'b'), format('{1}{0}', 'a', 'b')
--> pending: unknown function `concatwithseparator` (no hint)
--> clickhouse
ab,ab,a-b,a-b,a b,ba

SELECT trim('  a '), trimLeft('  a'), trimRight('a  '), trim(BOTH 'x' FROM 'xax'), leftPad('7', 3, '0'), rightPad('a', 3, '-'), lpad('7', 3, '0')
--> clickhouse
a,a,a,a,007,a--,007

SELECT reverse('abc'), repeat('ab', 2), initcap('hello world'), ascii('A'), char(66), empty(''), notEmpty('a'), reverseUTF8('é1')
--> pending: unknown function `notempty` (no hint)
--> clickhouse
cba,abab,Hello World,65,B,1,1,1é

SELECT base64Encode('abc'), base64Decode('YWJj'), hex('abc'), unhex('616263'), hex(255), bin(5)
--> pending: unknown function `hex`
--> clickhouse
YWJj,abc,616263,abc,FF,00000101

SELECT lower(hex(MD5('abc'))), lower(hex(SHA256('abc'))), lower(hex(SHA1('abc')))
--> pending: unknown function `hex`
--> clickhouse
900150983cd24fb0d6963f7d28e17f72,ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad,a9993e364706816aba3e25717850c26c9cd0d89d

SELECT cityHash64('abc') > 0, sipHash64('abc') > 0, xxHash64('abc') > 0, CRC32('abc')
--> pending: unknown function `cityhash64` (no hint)
--> clickhouse
1,1,1,891568578

SELECT encodeURLComponent('a b&c=é'), decodeURLComponent('a%20b%26c'), encodeURLFormComponent('a b')
--> pending: unknown function `encodeurlcomponent` (no hint)
--> clickhouse
a%20b%26c%3D%C3%A9,a b&c,a+b

SELECT domain(url), count() AS n FROM 'requests.csv' GROUP BY domain(url) ORDER BY n DESC, 1
--> pending: unknown function `domain` (no hint)
--> clickhouse
shop.example.com,12
api.example.com,2
blog.example.org,1

SELECT protocol('https://a.b/c'), domainWithoutWWW('http://www.a.com/x'), topLevelDomain('http://a.co.uk/'), port('http://a.b:8080/'), path('http://a.b/c/d?x=1'), pathFull('http://a.b/c?x=1#f')
--> pending: unknown function `protocol` (no hint)
--> clickhouse
https,a.com,uk,8080,/c/d,/c?x=1#f

SELECT queryString('http://a.b/?x=1&y=2#f'), fragment('http://a.b/#f'), extractURLParameter('http://a.b/?x=1&y=2', 'y'), extractURLParameters('http://a.b/?x=1&y=2'), cutQueryString('http://a.b/?x=1')
--> pending: unknown function `querystring` (no hint)
--> clickhouse
x=1&y=2,f,2,"[""x=1"",""y=2""]",http://a.b/

SELECT extractURLParameter(url, 'q') AS q, count() FROM 'requests.csv' WHERE url LIKE '%?q=%' GROUP BY q ORDER BY q
--> pending: unknown function `extracturlparameter` (no hint)
--> clickhouse
hats,1
red+shoes,1

SELECT cutToFirstSignificantSubdomain('https://news.example.co.uk/'), firstSignificantSubdomain('https://news.example.com/'), cutWWW('http://www.a.com/'), URLHierarchy('http://a.b/c/d'), URLPathHierarchy('http://a.b/c/d')
--> pending: unknown function `cuttofirstsignificantsubdomain` (no hint)
--> clickhouse
example.co.uk,example,http://a.com/,"[""http://a.b/"",""http://a.b/c/"",""http://a.b/c/d""]","[""/c/"",""/c/d""]"

SELECT IPv4StringToNum('10.0.0.7'), IPv4NumToString(167772167), isIPv4String('10.0.0.7'), isIPv6String('::1'), isIPAddressInRange('10.0.0.7', '10.0.0.0/8')
--> pending: unknown function `ipv4stringtonum` (no hint)
--> clickhouse
167772167,10.0.0.7,1,1,1

SELECT count() FROM 'requests.csv' WHERE isIPAddressInRange(assumeNotNull(ip), '192.168.0.0/16')
--> pending: unknown function `isipaddressinrange` (no hint)
--> clickhouse
4

SELECT toIPv4('10.0.0.7'), IPv4CIDRToRange(toIPv4('10.0.0.7'), 8).1, toIPv4OrNull('x')
--> pending: SQL is not understood: Expected: end of statement, found: .1 at Line: 1, Column: 66
--> clickhouse
10.0.0.7,10.0.0.0,NULL

SELECT JSONExtractString(detail, 'ship', 'city') FROM 'orders.csv' WHERE order_id IN (101, 104) ORDER BY order_id
--> pending: unknown function `jsonextractstring` (no hint)
--> clickhouse
Berlin
Lyon

SELECT JSONExtractInt('{"a": 5}', 'a'), JSONExtractFloat('{"a": 2.5}', 'a'), JSONExtractBool('{"a": true}', 'a'), JSONHas('{"a": 1}', 'b'), JSONLength('[1, 2]'), JSONType('{"a": "x"}', 'a')
--> pending: unknown function `jsonextractint` (no hint)
--> clickhouse
5,2.5,1,0,2,String

SELECT JSONExtractRaw('{"a": [1,2]}', 'a'), JSONExtractArrayRaw('{"a": [1,2]}', 'a'), JSONExtract('{"a": [1, 2]}', 'a', 'Array(Int64)'), JSONExtractKeys('{"a": 1, "b": 2}')
--> pending: unknown function `jsonextractraw` (no hint)
--> clickhouse
"[1,2]","[""1"",""2""]","[1,2]","[""a"",""b""]"

SELECT simpleJSONExtractString('{"a":"x"}', 'a'), visitParamExtractInt('{"a":5}', 'a'), isValidJSON('{'), JSON_VALUE('{"a": {"b": "x"}}', '$.a.b'), toJSONString([1, 2])
--> pending: unknown function `simplejsonextractstring` (no hint)
--> clickhouse
x,5,0,x,"[1,2]"

SELECT visitParamExtractString(detail, 'city') FROM 'orders.csv' WHERE order_id = 101
--> pending: unknown function `visitparamextractstring` (no hint)
--> clickhouse
Berlin

SELECT formatReadableSize(123456), formatReadableQuantity(1234567), formatReadableTimeDelta(3725), formatReadableDecimalSize(1500)
--> pending: unknown function `formatreadablesize` (no hint)
--> clickhouse
120.56 KiB,1.23 million,"1 hour, 2 minutes and 5 seconds",1.50 KB

SELECT tokens('Hello, world 5'), alphaTokens('ab1cd'), ngrams('abcd', 2), splitByNonAlpha('a,b c'), splitByWhitespace('a b')
--> pending: unknown function `tokens` (no hint)
--> clickhouse
"[""Hello"",""world"",""5""]","[""ab"",""cd""]","[""ab"",""bc"",""cd""]","[""a"",""b"",""c""]","[""a"",""b""]"

SELECT stringJaccardIndex('ab', 'ab'), editDistance('kitten', 'sitting'), levenshteinDistance('ab', 'ac'), byteHammingDistance('ab', 'ac'), soundex('Robert')
--> pending: unknown function `stringjaccardindex` (no hint)
--> clickhouse
1,3,1,1,R163

SELECT substringIndex('www.example.com', '.', 2), translate('abc', 'ab', 'xy'), appendTrailingCharIfAbsent('a', '/'), left('abc', -1)
--> pending: unknown function `substringindex`; did you mean `substring_index`? (no hint)
--> clickhouse
www.example,xyc,a/,ab

SELECT isNull(email), isNotNull(email), toTypeName(1), toString(5) || 'x' FROM 'users.csv' WHERE user_id = 5
--> pending: unknown function `totypename` (no hint)
--> clickhouse
1,0,UInt8,5x

SELECT `name` AS `the name` FROM 'users.csv' ORDER BY `the name` LIMIT 1
--> clickhouse duckdb
Ann Lee

SELECT 'it\'s', 'a\tb', "name" FROM 'users.csv' WHERE user_id = 1
--> pending: SQL is not understood: Unterminated string literal at Line: 1, Column: 47 (no hint)
--> clickhouse
it's,a	b,Ann Lee
