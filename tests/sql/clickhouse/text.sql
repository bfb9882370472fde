# Text, patterns, JSON, URLs and IP addresses.

SELECT lower(name), lengthUTF8(name), char_length(name) FROM 'users.csv' ORDER BY user_id
--> clickhouse
ann lee,7,7
bob o'neil,10,10
chloé,5,5
dan,3,3
eve adams,9,9
finn,4,4

SELECT upper(name) FROM 'users.csv' ORDER BY user_id
--> differs: upper knows the letters of all languages; upperUTF8 there
--> tidemill
ANN LEE
BOB O'NEIL
CHLOÉ
DAN
EVE ADAMS
FINN
--> clickhouse
ANN LEE
BOB O'NEIL
CHLOé
DAN
EVE ADAMS
FINN

SELECT length(name) FROM 'users.csv' ORDER BY user_id
--> differs: length counts characters; lengthUTF8 there
--> tidemill
7
10
5
3
9
4
--> clickhouse
7
10
6
3
9
4

SELECT substring(name, 1, 3), substr(name, 2), left(name, 2), right(name, 2), mid(name, 2, 2) FROM 'users.csv' ORDER BY user_id LIMIT 2
--> clickhouse
Ann,nn Lee,An,ee,nn
Bob,ob O'Neil,Bo,il,ob

SELECT position('hello', 'l'), locate('hello', 'l'), positionCaseInsensitive('Hello', 'L'), position('l' IN 'hello')
--> clickhouse
3,0,3,3

SELECT splitByChar(',', 'a,b,c')
--> clickhouse
"[""a"",""b"",""c""]"

SELECT splitByString(', ', 'a, b')
--> clickhouse
"[""a"",""b""]"

SELECT splitByRegexp('[0-9]+', 'a1b22c')
--> clickhouse
"[""a"",""b"",""c""]"

SELECT splitByChar('|', assumeNotNull(tags))[1] FROM 'users.csv' WHERE tags IS NOT NULL ORDER BY user_id
--> clickhouse
new
beta
vip
mobile
new

SELECT arrayStringConcat(['a', 'b'], '-')
--> clickhouse
a-b

SELECT arrayStringConcat(splitByChar('.', 'a.b'), '/')
--> clickhouse
a/b

SELECT match(url, '/v\\d/') AS m, count() FROM 'requests.csv' GROUP BY m ORDER BY m
--> differs: a backslash in quotes is itself, as SQL has it: '\d'
--> tidemill
false,15
--> clickhouse
0,13
1,2

SELECT extract(url, 'https?://([^/:]+)') AS host, count() AS n FROM 'requests.csv' GROUP BY host ORDER BY n DESC, host
--> clickhouse
shop.example.com,12
api.example.com,2
blog.example.org,1

SELECT extractAll('a1b22', '[0-9]+')
--> clickhouse
"[""1"",""22""]"

SELECT extractGroups('k=v', '([a-z])=([a-z])')
--> clickhouse
"[""k"",""v""]"

SELECT replaceAll('abab', 'a', 'x'), replace('abab', 'b', 'y')
--> clickhouse
xbxb,ayay

SELECT replaceOne('abab', 'a', 'x')
--> clickhouse
xbab

SELECT replaceRegexpOne('a1b2', '\\d', 'X')
--> differs: a backslash in quotes is itself, as SQL has it: '\d'
--> tidemill
a1b2
--> clickhouse
aXb2

SELECT replaceRegexpAll('a1b2', '\\d', 'X')
--> differs: a backslash in quotes is itself, as SQL has it: '\d'
--> tidemill
a1b2
--> clickhouse
aXbX

SELECT REGEXP_REPLACE('a1b2', '\\d', 'X')
--> differs: a backslash in quotes is itself, as SQL has it: '\d'
--> tidemill
a1b2
--> clickhouse
aXbX

SELECT replaceRegexpAll('John Smith', '(\\w+) (\\w+)', '\\2 \\1')
--> differs: a backslash in quotes is itself, as SQL has it: '\d'
--> tidemill
John Smith
--> clickhouse
Smith John

SELECT countSubstrings('abcabc', 'bc')
--> clickhouse
2

SELECT countMatches('a1b22', '[0-9]+')
--> clickhouse
2

SELECT hasToken('a b c', 'b')
--> clickhouse
1

SELECT multiSearchAny('hello', ['x', 'll'])
--> clickhouse
1

SELECT multiSearchFirstIndex('hello', ['x', 'll'])
--> clickhouse
2

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

SELECT concat('a', 'b'), 'a' || 'b', concat_ws('-', 'a', 'b')
--> clickhouse duckdb
ab,ab,a-b

SELECT concatWithSeparator('-', 'a', 'b')
--> clickhouse
a-b

SELECT format('{} {}', 'a', 'b')
--> clickhouse duckdb
a b

SELECT format('{1}{0}', 'a', 'b')
--> clickhouse duckdb
ba

SELECT trim('  a '), trimLeft('  a'), trimRight('a  '), trim(BOTH 'x' FROM 'xax'), leftPad('7', 3, '0'), rightPad('a', 3, '-'), lpad('7', 3, '0')
--> clickhouse
a,a,a,a,007,a--,007

SELECT reverse('abc'), repeat('ab', 2), initcap('hello world'), ascii('A'), char(66)
--> clickhouse
cba,abab,Hello World,65,B

SELECT notEmpty('a')
--> clickhouse
1

SELECT reverseUTF8('é1')
--> clickhouse
1é

SELECT base64Encode('abc')
--> clickhouse
YWJj

SELECT base64Decode('YWJj')
--> clickhouse
abc

SELECT hex('abc')
--> clickhouse duckdb
616263

SELECT unhex('616263')
--> differs: bytes are shown in hexadecimal digits
--> tidemill
\x616263
--> clickhouse
abc

SELECT hex(255)
--> clickhouse duckdb
FF

SELECT bin(5)
--> differs: `bin` leaves away zeros in front, as in DuckDB and Spark
--> tidemill
101
--> clickhouse
00000101

SELECT lower(hex(MD5('abc')))
--> clickhouse
900150983cd24fb0d6963f7d28e17f72

SELECT lower(hex(SHA256('abc')))
--> clickhouse
ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad

SELECT lower(hex(SHA1('abc')))
--> clickhouse
a9993e364706816aba3e25717850c26c9cd0d89d

SELECT cityHash64('abc') > 0
--> error: unknown function `cityhash64`
--> hint: xxhash64(x) and hash(x) are hashes of 64 bits
--> clickhouse
1

SELECT sipHash64('abc') > 0
--> error: unknown function `siphash64`
--> hint: xxhash64(x) and hash(x) are hashes of 64 bits
--> clickhouse
1

SELECT xxHash64('abc') > 0
--> clickhouse
1

SELECT CRC32('abc')
--> clickhouse
891568578

SELECT encodeURLComponent('a b&c=é')
--> clickhouse
a%20b%26c%3D%C3%A9

SELECT decodeURLComponent('a%20b%26c')
--> clickhouse
a b&c

SELECT encodeURLFormComponent('a b')
--> clickhouse
a+b

SELECT domain(url), count() AS n FROM 'requests.csv' GROUP BY domain(url) ORDER BY n DESC, 1
--> clickhouse
shop.example.com,12
api.example.com,2
blog.example.org,1

SELECT protocol('https://a.b/c')
--> clickhouse
https

SELECT domainWithoutWWW('http://www.a.com/x')
--> clickhouse
a.com

SELECT topLevelDomain('http://a.co.uk/')
--> clickhouse
uk

SELECT port('http://a.b:8080/')
--> clickhouse
8080

SELECT path('http://a.b/c/d?x=1')
--> clickhouse
/c/d

SELECT pathFull('http://a.b/c?x=1#f')
--> clickhouse
/c?x=1#f

SELECT queryString('http://a.b/?x=1&y=2#f')
--> clickhouse
x=1&y=2

SELECT fragment('http://a.b/#f')
--> clickhouse
f

SELECT extractURLParameter('http://a.b/?x=1&y=2', 'y')
--> clickhouse
2

SELECT extractURLParameters('http://a.b/?x=1&y=2')
--> clickhouse
"[""x=1"",""y=2""]"

SELECT cutQueryString('http://a.b/?x=1')
--> clickhouse
http://a.b/

SELECT extractURLParameter(url, 'q') AS q, count() FROM 'requests.csv' WHERE url LIKE '%?q=%' GROUP BY q ORDER BY q
--> clickhouse
hats,1
red+shoes,1

SELECT cutToFirstSignificantSubdomain('https://news.example.co.uk/')
--> clickhouse
example.co.uk

SELECT firstSignificantSubdomain('https://news.example.com/')
--> clickhouse
example

SELECT cutWWW('http://www.a.com/')
--> clickhouse
http://a.com/

SELECT URLHierarchy('http://a.b/c/d')
--> error: unknown function `urlhierarchy`
--> hint: string_to_array(x, '/') makes a list of the parts, and array_to_string(array_slice(list, 1, 3), '/') the beginning of it
--> clickhouse
"[""http://a.b/"",""http://a.b/c/"",""http://a.b/c/d""]"

SELECT URLPathHierarchy('http://a.b/c/d')
--> error: unknown function `urlpathhierarchy`
--> hint: string_to_array(x, '/') makes a list of the parts, and array_to_string(array_slice(list, 1, 3), '/') the beginning of it
--> clickhouse
"[""/c/"",""/c/d""]"

SELECT IPv4StringToNum('10.0.0.7')
--> clickhouse
167772167

SELECT IPv4NumToString(167772167)
--> clickhouse
10.0.0.7

SELECT isIPv4String('10.0.0.7')
--> clickhouse
1

SELECT isIPv6String('::1')
--> clickhouse
1

SELECT isIPAddressInRange('10.0.0.7', '10.0.0.0/8')
--> clickhouse
1

SELECT count() FROM 'requests.csv' WHERE isIPAddressInRange(assumeNotNull(ip), '192.168.0.0/16')
--> clickhouse
4

SELECT toIPv4('10.0.0.7')
--> clickhouse
10.0.0.7

SELECT IPv4CIDRToRange(toIPv4('10.0.0.7'), 8).1
--> pending: SQL is not understood: Expected: end of statement, found: .1 at Line: 1, Column: 46
--> clickhouse
10.0.0.0

SELECT toIPv4OrNull('x')
--> clickhouse
NULL

SELECT JSONExtractString(detail, 'ship', 'city') FROM 'orders.csv' WHERE order_id IN (101, 104) ORDER BY order_id
--> clickhouse
Berlin
Lyon

SELECT JSONExtractInt('{"a": 5}', 'a')
--> clickhouse
5

SELECT JSONExtractFloat('{"a": 2.5}', 'a')
--> clickhouse
2.5

SELECT JSONExtractBool('{"a": true}', 'a')
--> clickhouse
1

SELECT JSONHas('{"a": 1}', 'b')
--> clickhouse
0

SELECT JSONLength('[1, 2]')
--> clickhouse
2

SELECT JSONType('{"a": "x"}', 'a')
--> error: unknown function `jsontype`
--> hint: json_type(x, '$.a') is the type of a field
--> clickhouse
String

SELECT JSONExtractRaw('{"a": [1,2]}', 'a')
--> clickhouse
"[1,2]"

SELECT JSONExtractArrayRaw('{"a": [1,2]}', 'a')
--> clickhouse
"[""1"",""2""]"

SELECT JSONExtract('{"a": [1, 2]}', 'a', 'Array(Int64)')
--> pending: `jsonextract` takes other arguments
--> clickhouse
"[1,2]"

SELECT JSONExtractKeys('{"a": 1, "b": 2}')
--> clickhouse
"[""a"",""b""]"

SELECT simpleJSONExtractString('{"a":"x"}', 'a')
--> clickhouse
x

SELECT visitParamExtractInt('{"a":5}', 'a')
--> clickhouse
5

SELECT isValidJSON('{')
--> clickhouse
0

SELECT JSON_VALUE('{"a": {"b": "x"}}', '$.a.b')
--> clickhouse
x

SELECT toJSONString([1, 2])
--> clickhouse
"[1,2]"

SELECT visitParamExtractString(detail, 'city') FROM 'orders.csv' WHERE order_id = 101
--> clickhouse
Berlin

SELECT formatReadableSize(123456)
--> clickhouse
120.56 KiB

SELECT formatReadableQuantity(1234567)
--> clickhouse
1.23 million

SELECT formatReadableTimeDelta(3725)
--> error: unknown function `formatreadabletimedelta`
--> hint: n * INTERVAL '1 second' is a span of time
--> clickhouse
"1 hour, 2 minutes and 5 seconds"

SELECT formatReadableDecimalSize(1500)
--> clickhouse
1.50 KB

SELECT tokens('Hello, world 5')
--> clickhouse
"[""Hello"",""world"",""5""]"

SELECT alphaTokens('ab1cd')
--> clickhouse
"[""ab"",""cd""]"

SELECT ngrams('abcd', 2)
--> clickhouse
"[""ab"",""bc"",""cd""]"

SELECT splitByNonAlpha('a,b c')
--> clickhouse
"[""a"",""b"",""c""]"

SELECT splitByWhitespace('a b')
--> clickhouse
"[""a"",""b""]"

SELECT stringJaccardIndex('ab', 'ab')
--> error: unknown function `stringjaccardindex`
--> hint: jaccard(x, y) compares the letters of two texts, levenshtein(x, y) their order, too
--> clickhouse
1

SELECT editDistance('kitten', 'sitting')
--> clickhouse
3

SELECT levenshteinDistance('ab', 'ac')
--> clickhouse
1

SELECT byteHammingDistance('ab', 'ac')
--> clickhouse
1

SELECT soundex('Robert')
--> error: unknown function `soundex`
--> hint: jaro_winkler_similarity(x, y) says how alike two words are
--> clickhouse
R163

SELECT translate('abc', 'ab', 'xy'), left('abc', -1)
--> clickhouse duckdb
xyc,ab

SELECT substringIndex('www.example.com', '.', 2)
--> clickhouse
www.example

SELECT appendTrailingCharIfAbsent('a', '/')
--> clickhouse
a/

SELECT isNull(email), isNotNull(email), toString(5) || 'x' FROM 'users.csv' WHERE user_id = 5
--> clickhouse
1,0,5x

SELECT toTypeName(1) FROM 'users.csv' WHERE user_id = 5
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
BIGINT
--> clickhouse
UInt8

SELECT `name` AS `the name` FROM 'users.csv' ORDER BY `the name` LIMIT 1
--> clickhouse duckdb
Ann Lee

SELECT 'it\'s', 'a\tb', "name" FROM 'users.csv' WHERE user_id = 1
--> pending: SQL is not understood: Unterminated string literal at Line: 1, Column: 47
--> clickhouse
it's,a	b,Ann Lee

SELECT replaceRegexpAll('a1b22', '[0-9]+', 'X'), replaceRegexpOne('a1b22', '[0-9]+', 'X')
--> clickhouse
aXbX,aXb22

SELECT REGEXP_REPLACE('a1b2', '[0-9]', 'X')
--> differs: the first match alone is replaced; the flag 'g' replaces all
--> tidemill
aXb2
--> clickhouse
aXbX

SELECT count() FROM 'requests.csv' WHERE match(url, '^https://api[.]')
--> clickhouse
2

SELECT replaceRegexpAll('hello', '^', 'here: ')
--> clickhouse
here: hello

SELECT replaceRegexpOne('hello', '(.)(.)', '\\2\\1')
--> clickhouse
ehllo

SELECT base64Encode('ab')
--> clickhouse
YWI=

SELECT base64Decode('YWI=')
--> clickhouse
ab

SELECT length(NULL), len(NULL), empty(NULL) IS NULL
--> tidemill
NULL,NULL,true
