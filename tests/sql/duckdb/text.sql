# Text, patterns and regular expressions, as DuckDB's manual has them.

SELECT upper(name), lower(name), length(name), strlen(name) FROM 'users.csv' ORDER BY user_id
--> duckdb
ANN LEE,ann lee,7,7
BOB O'NEIL,bob o'neil,10,10
CHLOÉ,chloé,5,6
DAN,dan,3,3
EVE ADAMS,eve adams,9,9
FINN,finn,4,4

SELECT name, reverse(name), left(name, 2), right(name, 2) FROM 'users.csv' ORDER BY user_id
--> duckdb
Ann Lee,eeL nnA,An,ee
Bob O'Neil,lieN'O boB,Bo,il
Chloé,éolhC,Ch,oé
dan,nad,da,an
Eve Adams,smadA evE,Ev,ms
Finn,nniF,Fi,nn

SELECT len(name) FROM 'users.csv' ORDER BY user_id
--> duckdb
7
10
5
3
9
4

SELECT left(name, -2), right(name, -2) FROM 'users.csv' WHERE user_id = 1
--> duckdb
Ann L,n Lee

SELECT name[1], name[1:3], name[-1], name[2:] FROM 'users.csv' WHERE user_id <= 3 ORDER BY user_id
--> duckdb
A,Ann,e,nn Lee
B,Bob,l,ob O'Neil
C,Chl,é,hloé

SELECT substring(name, 2, 3), substr(name, 3) FROM 'users.csv' WHERE user_id = 1
--> duckdb
nn ,n Lee

SELECT substring('hello', -3)
--> differs: substr(x, -3) begins before the text, as in PostgreSQL; right(x, 3) has the last three
--> tidemill
hello
--> duckdb
llo

SELECT substring(name FROM 2 FOR 3) FROM 'users.csv' WHERE user_id = 1
--> duckdb
nn 

SELECT split(tags, '|') FROM 'users.csv' ORDER BY user_id
--> duckdb
"[""new"",""vip""]"
"[""beta""]"
"[""vip"",""beta"",""mobile""]"
NULL
"[""mobile""]"
"[""new""]"

SELECT string_split(tags, '|')[1] AS first FROM 'users.csv' ORDER BY user_id
--> duckdb
new
beta
vip
NULL
mobile
new

SELECT string_to_array('a.b.c', '.')
--> duckdb
"[""a"",""b"",""c""]"

SELECT str_split('a.b.c', '.')
--> duckdb
"[""a"",""b"",""c""]"

SELECT string_split_regex('a1b22c', '\d+')
--> duckdb
"[""a"",""b"",""c""]"

SELECT regexp_split_to_array('a, b;c', '[,;]\s*')
--> duckdb
"[""a"",""b"",""c""]"

SELECT split_part(email, '@', 2) AS domain, count(*) FROM 'users.csv' GROUP BY domain ORDER BY domain
--> duckdb
EXAMPLE.COM,1
example.com,2
example.fr,1
mail.example.org,1
NULL,1

SELECT split_part('a-b-c', '-', -1), split_part('a-b-c', '-', 9)
--> duckdb
c,""

SELECT regexp_extract(url, 'https?://[^/]+') AS host, count(*) AS n FROM 'requests.csv' GROUP BY host ORDER BY n DESC
--> duckdb
https://shop.example.com,12
https://api.example.com:8443,2
http://blog.example.org,1

SELECT regexp_extract(agent, '(\w+)/(\d+)', 1), regexp_extract(agent, '(\w+)/(\d+)', 2) FROM 'requests.csv' WHERE id IN (1, 3) ORDER BY id
--> duckdb
Mozilla,5
curl,8

SELECT regexp_extract('2026-03-01', '(\d+)-(\d+)-(\d+)', ['y', 'm', 'd'])
--> duckdb
"{""y"":""2026"",""m"":""03"",""d"":""01""}"

SELECT regexp_extract(name, 'x(.)', 1) AS x FROM 'users.csv' WHERE user_id = 1
--> duckdb
""

SELECT regexp_extract_all('a1b22c333', '\d+')
--> duckdb
"[""1"",""22"",""333""]"

SELECT regexp_extract_all('k1=v1;k2=v2', '(\w+)=(\w+)', 2)
--> duckdb
"[""v1"",""v2""]"

SELECT regexp_matches(url, 'search') AS found, count(*) FROM 'requests.csv' GROUP BY found ORDER BY found
--> duckdb
false,13
true,2

SELECT regexp_full_match('abc', 'b')
--> duckdb
false

SELECT regexp_full_match('abc', 'a.c')
--> duckdb
true

SELECT regexp_replace('a1b2', '\d', 'X'), regexp_replace('a1b2', '\d', 'X', 'g')
--> duckdb
aXb2,aXbX

SELECT regexp_replace('John Smith', '(\w+) (\w+)', '\2 \1')
--> duckdb
Smith John

SELECT regexp_replace('ABC', 'b', 'x', 'i')
--> duckdb
AxC

SELECT regexp_matches('Hello', 'hello', 'i')
--> duckdb
true

SELECT regexp_escape('a.b*c')
--> duckdb
a\.b\*c

SELECT count(*) FROM 'requests.csv' WHERE url LIKE '%/cart%'
--> duckdb
2

SELECT count(*) FROM 'requests.csv' WHERE agent ILIKE 'mozilla%iphone%'
--> duckdb
2

SELECT count(*) FROM 'requests.csv' WHERE agent NOT ILIKE '%MOZILLA%'
--> duckdb
6

SELECT name FROM 'users.csv' WHERE name GLOB 'F*' OR name GLOB '[B-D]*' ORDER BY name
--> duckdb
Bob O'Neil
Chloé
Finn

SELECT name FROM 'users.csv' WHERE name SIMILAR TO '(Ann|Bob).*' ORDER BY name
--> differs: SIMILAR TO has the wildcards of LIKE, as SQL and PostgreSQL have it; `~` takes a regular expression
--> tidemill
--> duckdb
Ann Lee
Bob O'Neil

SELECT '50%' LIKE '50\%' ESCAPE '\'
--> duckdb
true

SELECT name FROM 'users.csv' WHERE name ~ '.*e.*' ORDER BY name
--> duckdb
Ann Lee
Bob O'Neil
Eve Adams

SELECT contains(url, 'shop') AS shop, count(*) FROM 'requests.csv' GROUP BY ALL ORDER BY ALL
--> duckdb
false,3
true,12

SELECT starts_with(url, 'https://'), ends_with(url, '.html'), suffix(url, 'html'), prefix(url, 'http:') FROM 'requests.csv' WHERE id = 10
--> duckdb
false,true,true,true

SELECT position('ell' IN 'hello'), strpos('hello', 'l'), instr('hello', 'z')
--> duckdb
2,3,0

SELECT replace(email, '@example.com', '') FROM 'users.csv' WHERE user_id = 1
--> duckdb
ann

SELECT translate('abc', 'ab', 'xy')
--> duckdb
xyc

SELECT lpad(user_id::VARCHAR, 3, '0'), rpad(name, 4, '.') FROM 'users.csv' ORDER BY user_id LIMIT 2
--> duckdb
001,Ann 
002,Bob 

SELECT trim('  a  ') || '|', ltrim('xxa', 'x'), rtrim('axx', 'x'), trim('xaxx', 'x')
--> duckdb
a|,a,a,a

SELECT trim(BOTH 'x' FROM 'xaxx')
--> duckdb
a

SELECT concat(name, ' <', email, '>') FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id
--> duckdb
Eve Adams <>
Finn <finn@example.com>

SELECT concat_ws('-', country, plan, NULL) FROM 'users.csv' ORDER BY user_id
--> duckdb
DE-pro
US-free
FR-pro
US-free
DE-team
free

SELECT name || ' ' || country FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id
--> duckdb
Eve Adams DE
NULL

SELECT repeat('ab', 3)
--> duckdb
ababab

SELECT format('{} has {}', name, plan) FROM 'users.csv' WHERE user_id = 1
--> duckdb
Ann Lee has pro

SELECT format('{:.2f}', 3.14159)
--> duckdb
3.14

SELECT format('{:05d}', 42)
--> duckdb
00042

SELECT format('{:,}', 1234567)
--> duckdb
"1,234,567"

SELECT printf('%s=%d (%.1f%%)', 'a', 5, 12.34)
--> duckdb
a=5 (12.3%)

SELECT printf('%05d|%-5s|%x', 42, 'ab', 255)
--> duckdb
00042|ab   |ff

SELECT md5('abc')
--> duckdb
900150983cd24fb0d6963f7d28e17f72

SELECT sha256('abc')
--> duckdb
ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad

SELECT sha1('abc')
--> duckdb
a9993e364706816aba3e25717850c26c9cd0d89d

SELECT ascii('A'), chr(66), ord('é')
--> duckdb
65,B,233

SELECT unicode('é')
--> duckdb
233

SELECT hex('abc')
--> duckdb
616263

SELECT to_hex(255)
--> differs: hexadecimal digits are small, as in PostgreSQL
--> tidemill
ff
--> duckdb
FF

SELECT bin(5)
--> duckdb
101

SELECT to_base(10, 2)
--> duckdb
1010

SELECT unhex('616263')::VARCHAR
--> duckdb
abc

SELECT to_base64('abc'::BLOB)
--> duckdb
YWJj

SELECT from_base64('YWJj')::VARCHAR
--> duckdb
abc

SELECT levenshtein('kitten', 'sitting')
--> duckdb
3

SELECT hamming('abc', 'abd')
--> duckdb
1

SELECT damerau_levenshtein('ab', 'ba')
--> duckdb
1

SELECT round(jaccard('night', 'nacht'), 3)
--> duckdb
0.429

SELECT round(jaro_winkler_similarity('martha', 'marhta'), 3)
--> duckdb
0.961

SELECT jaro_similarity('a', 'a')
--> duckdb
1.0

SELECT lcase('ABC'), ucase('abc')
--> duckdb
abc,ABC

SELECT strip_accents('Chloé')
--> duckdb
Chloe

SELECT nfc_normalize('e')
--> duckdb
e

SELECT bit_length('abc'), length('é')
--> duckdb
24,1

SELECT octet_length('abc'::BLOB)
--> duckdb
3

SELECT overlay('Txxxxas' PLACING 'hom' FROM 2 FOR 4)
--> duckdb
Thomas

SELECT parse_filename('a/b/c.csv')
--> duckdb
c.csv

SELECT parse_dirname('a/b/c.csv')
--> duckdb
a

SELECT parse_path('a/b')
--> duckdb
"[""a"",""b""]"

SELECT parse_dirpath('a/b/c.csv')
--> duckdb
a/b

SELECT url_encode('a b&c=é')
--> duckdb
a%20b%26c%3D%C3%A9

SELECT url_decode('a%20b%26c')
--> duckdb
a b&c

SELECT array_to_string(['a', 'b'], '-')
--> duckdb
a-b

SELECT list_aggr(['x', 'y'], 'string_agg', '+')
--> duckdb
x+y

SELECT bar(5, 0, 10, 10)
--> differs: a bar has no spaces behind it, as in ClickHouse
--> tidemill
█████
--> duckdb
█████     

SELECT formatReadableSize(123456)
--> differs: two digits behind the point, as in ClickHouse
--> tidemill
120.56 KiB
--> duckdb
120.5 KiB

SELECT format_bytes(16384)
--> duckdb
16.0 KiB

SELECT to_base64('ab'::BLOB)
--> duckdb
YWI=

SELECT base64('a'::BLOB)
--> duckdb
YQ==

SELECT regexp_extract_all('a=1;b=2', '(\w)=(\d)', ['k', 'v'])
--> duckdb
"[{""k"":""a"",""v"":""1""},{""k"":""b"",""v"":""2""}]"

SELECT regexp_extract_all('baac', 'a*')
--> duckdb
"["""",""aa"","""",""""]"

SELECT regexp_extract('foobar', '(z+)', 1, 'k'), regexp_extract('foobar', '(o+)', 1, 'k')
--> duckdb
foobar,oo

SELECT regexp_escape('https://a_b.c/d e')
--> duckdb
https\:\/\/a_b\.c\/d\ e

SELECT left_grapheme('S̈ab', 2), right_grapheme('aS̈b', -1), substring_grapheme('aS̈bc', -3, 2), length_grapheme('S̈a')
--> duckdb
S̈a,S̈b,S̈b,2

SELECT parse_filename('a/b.tar.gz', true), parse_filename('a\b.csv', 'backslash'), parse_dirname('/a/b'), parse_dirpath('/a/b/c.csv')
--> duckdb
b.tar,b.csv,/,/a/b

SELECT parse_path('/a//b\c.csv', 'forward_slash')
--> duckdb
"[""/"",""a"",""b\\c.csv""]"

SELECT path_join('a/b', '../c.csv'), path_join('s3://logs', '2026', 'web.csv')
--> duckdb
a/c.csv,s3://logs/2026/web.csv

SELECT parse_formatted_bytes('1.5 KB'), parse_formatted_bytes('2 MiB')
--> duckdb
1500,2097152

SELECT format_bytes(1048575), format_bytes(-1), format_bytes(9223372036854775807)
--> duckdb
1023.9 KiB,-1 byte,8191.9 PiB

SELECT to_base(255, 16), to_base(42, 36), to_base(5, 2, 8)
--> duckdb
FF,16,00000101

SELECT bin('a'), to_binary(5), hex(from_binary('01100001'))
--> duckdb
01100001,101,61

SELECT printf('%.d', 1234567), printf('%.3d', 5), printf('%x', -1), printf('%d', true), printf('%,.0f', 9007199254740993)
--> duckdb
1.234.567,005,ffffffffffffffff,1,"9,007,199,254,740,993"

SELECT string_split('a b', NULL)
--> duckdb
"[""a b""]"

SELECT unicode(''), ord('')
--> duckdb
-1,-1

SELECT jaro_winkler_similarity('duck', 'duke', 0.9), jaro_similarity('', '')
--> duckdb
0.0,0.0

SELECT mismatches('abc', NULL), hamming('abc', 'abd')
--> duckdb
NULL,1

SELECT hamming('abc', 'ab')
--> error: `hamming` compares texts of the same length
--> hint: levenshtein(x, y)

SELECT damerau_levenshtein('ä', 'a')
--> differs: it counts letters, as levenshtein does, and DuckDB bytes
--> tidemill
1
--> duckdb
2

SELECT uuid_extract_version('ac227128-7d55-7ee0-a765-5025cc52e55a')
--> duckdb
7

SELECT md5_number_upper('hello'), md5_number_lower('hello')
--> duckdb
8514701317032132957,10575884659879408057

SELECT array_value(1, 2)
--> duckdb
"[1,2]"

SELECT regexp_replace('a.b', '.', 'x', 'l')
--> duckdb
axb

SELECT regexp_split_to_table('a1b2c', '\d') AS part ORDER BY part
--> duckdb
a
b
c
