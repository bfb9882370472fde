# Text, patterns, JSON and URLs.

SELECT upper(name), lcase(name), length(name), char_length(name), initcap('hello world') FROM 'users.csv' ORDER BY user_id
--> spark
ANN LEE,ann lee,7,7,Hello World
BOB O'NEIL,bob o'neil,10,10,Hello World
CHLOÉ,chloé,5,5,Hello World
DAN,dan,3,3,Hello World
EVE ADAMS,eve adams,9,9,Hello World
FINN,finn,4,4,Hello World

SELECT substring(name, 1, 3), left(name, 2), right(name, 2) FROM 'users.csv' ORDER BY user_id LIMIT 2
--> spark duckdb
Ann,An,ee
Bob,Bo,il

SELECT substr(name, -3) FROM 'users.csv' ORDER BY user_id LIMIT 2
--> differs: substr(x, -3) begins before the text, as in PostgreSQL; right(x, 3) has the last three
--> tidemill
Ann Lee
Bob O'Neil
--> spark duckdb
Lee
eil

SELECT instr('hello', 'l'), locate('l', 'hello')
--> spark
3,3

SELECT locate('l', 'hello', 4)
--> spark
4

SELECT position('l', 'hello')
--> differs: position(text, part) is ClickHouse's; position(part IN text) is everybody's
--> tidemill
0
--> spark
3

SELECT split('a,b,c', ',')
--> spark duckdb
"[""a"",""b"",""c""]"

SELECT split('a1b22c', '[0-9]+')
--> differs: split takes its separator to the letter
--> tidemill
"[""a1b22c""]"
--> spark
"[""a"",""b"",""c""]"

SELECT split_part('a.b.c', '.', 2)
--> spark duckdb
b

SELECT split('a,b,c', ',', 2)
--> pending: `string_split` takes other arguments
--> spark
"[""a"",""b,c""]"

SELECT split(tags, '[|]')[0] FROM 'users.csv' ORDER BY user_id
--> differs: split takes its separator to the letter, and lists are counted from 1
--> tidemill
NULL
NULL
NULL
NULL
NULL
NULL
--> spark
new
beta
vip
NULL
mobile
new

SELECT substring_index('www.example.com', '.', 2), substring_index('www.example.com', '.', -1)
--> spark
www.example,com

SELECT regexp_extract('100-200', '([0-9]+)-([0-9]+)', 1)
--> spark duckdb
100

SELECT regexp_extract('100-200', '([0-9]+)-([0-9]+)', 2)
--> spark duckdb
200

SELECT regexp_extract('100-200', '([0-9]+)-([0-9]+)')
--> differs: regexp_extract takes the whole match unless a group is named
--> tidemill
100-200
--> spark
100

SELECT regexp_extract_all('100-200, 300-400', '([0-9]+)-([0-9]+)', 1)
--> spark duckdb
"[""100"",""300""]"

SELECT regexp_replace('100-200', '(\\d+)', 'num')
--> differs: a backslash in quotes is itself, as SQL has it: '\d'
--> tidemill
100-200
--> spark
num-num

SELECT regexp_count('a1b22', '[0-9]+'), regexp_instr('a1b22', 'b')
--> spark
2,3

SELECT regexp_substr('a1b22', '[0-9]+')
--> spark
1

SELECT name FROM 'users.csv' WHERE name RLIKE '^[A-C]' ORDER BY name
--> spark
Ann Lee
Bob O'Neil
Chloé

SELECT name FROM 'users.csv' WHERE regexp_like(name, 'e+') OR regexp(name, '^d') ORDER BY name
--> spark
Ann Lee
Bob O'Neil
Eve Adams
dan

SELECT name FROM 'users.csv' WHERE name ILIKE 'a%' OR name LIKE ANY ('E%', 'F%') ORDER BY name
--> spark
Ann Lee
Eve Adams
Finn

SELECT name FROM 'users.csv' WHERE name LIKE ALL ('%n%', '%i%') ORDER BY name
--> spark
Finn

SELECT name FROM 'users.csv' WHERE contains(name, 'nn') OR startswith(name, 'Ch') OR endswith(name, 'an') ORDER BY name
--> spark
Ann Lee
Chloé
Finn
dan

SELECT concat('a', 'b', 1), concat_ws('-', 'a', NULL, 'b'), 'a' || 'b'
--> spark duckdb
ab1,a-b,ab

SELECT array_join(array('a', NULL, 'c'), ','), array_join(array('a', NULL), ',', '?')
--> spark
"a,c","a,?"

SELECT concat_ws(',', array('a', 'b'))
--> spark
"a,b"

SELECT lpad('7', 3, '0'), rpad('a', 3, '-'), repeat('ab', 2), reverse('abc'), space(2) || '|'
--> spark
007,a--,abab,cba,  |

SELECT trim('  a '), trim(BOTH 'x' FROM 'xax'), btrim('xax', 'x') AS b, trim(LEADING '0' FROM '007')
--> spark
a,a,a,7

SELECT ltrim('x', 'xxa')
--> differs: ltrim(text, characters), as everywhere else
--> tidemill
NULL
--> spark
a

SELECT replace('abc', 'b', 'X'), translate('abc', 'ab', 'xy'), overlay('SparkSQL' PLACING '_' FROM 6)
--> spark duckdb
aXc,xyc,Spark_QL

SELECT replace('abcb', 'b')
--> spark
ac

SELECT format_string('%s-%03d', 'a', 7)
--> spark
a-007

SELECT printf('%.2f', 3.14159D)
--> pending: SQL is not understood: Expected: ), found: D at Line: 1, Column: 30
--> spark
3.14

SELECT format_number(1234567.891, 2)
--> spark
"1,234,567.89"

SELECT base64('abc'), string(unbase64('YWJj'))
--> spark
YWJj,abc

SELECT hex('abc')
--> spark duckdb
616263

SELECT hex(255)
--> spark duckdb
FF

SELECT string(unhex('616263'))
--> spark
abc

SELECT md5('abc')
--> spark duckdb
900150983cd24fb0d6963f7d28e17f72

SELECT sha2('abc', 256)
--> spark
ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad

SELECT sha1('abc')
--> spark duckdb
a9993e364706816aba3e25717850c26c9cd0d89d

SELECT sha('abc')
--> spark
a9993e364706816aba3e25717850c26c9cd0d89d

SELECT crc32('abc')
--> spark
891568578

SELECT xxhash64('abc') IS NOT NULL
--> spark
true

SELECT hash('abc') IS NOT NULL
--> spark duckdb
true

SELECT ascii('A'), char(66), chr(67), levenshtein('kitten', 'sitting')
--> spark
65,B,C,3

SELECT soundex('Robert')
--> error: unknown function `soundex`
--> hint: jaro_winkler_similarity(x, y) says how alike two words are
--> spark
R163

SELECT parse_url('https://user@shop.example.com:8443/a/b?q=red&p=2#top', 'HOST')
--> spark
shop.example.com

SELECT parse_url('https://shop.example.com/a?q=red&p=2', 'QUERY', 'q')
--> spark
red

SELECT parse_url('https://shop.example.com/a/b?q=1', 'PATH')
--> spark
/a/b

SELECT parse_url(url, 'HOST') AS host, count(*) AS n FROM 'requests.csv' GROUP BY host ORDER BY n DESC, host
--> spark
shop.example.com,12
api.example.com,2
blog.example.org,1

SELECT parse_url(url, 'QUERY') AS q, count(*) FROM 'requests.csv' GROUP BY q ORDER BY q NULLS LAST
--> spark
id=7,1
q=hats,1
q=red+shoes&page=2,1
NULL,12

SELECT url_encode('a b&c')
--> differs: a space is %20
--> tidemill
a%20b%26c
--> spark
a+b%26c

SELECT url_decode('a%20b%26c')
--> spark duckdb
a b&c

SELECT find_in_set('b', 'a,b,c')
--> spark
2

SELECT elt(2, 'a', 'b')
--> spark
b

SELECT to_char(78.12, '$99.99')
--> differs: the sign's place counts, as in PostgreSQL
--> tidemill
$ 78.12
--> spark
$78.12

SELECT to_number('1,234', '9,999')
--> spark
1234

SELECT mask('AbC-123')
--> spark
XxX-nnn

SELECT luhn_check('79927398713')
--> spark
true

SELECT str_to_map('a:1,b:2', ',', ':')['b']
--> spark
2

SELECT sentences('Hi there. Bye.')
--> error: unknown function `sentences`
--> hint: string_to_array(x, '. ') makes a list of sentences, and string_to_array(x, ' ') one of words
--> spark
"[[""Hi"",""there""],[""Bye""]]"

SELECT get_json_object(detail, '$.ship.city') FROM 'orders.csv' ORDER BY order_id
--> spark
Berlin
Bonn
Austin
Lyon
NULL
NULL
NULL
Berlin
NULL

SELECT get_json_object(detail, '$.codes[0]') FROM 'orders.csv' WHERE order_id = 101
--> spark
1

SELECT from_json('{"a": 1, "b": "x"}', 'a INT, b STRING')
--> error: unknown function `from_json`
--> hint: --promote makes columns with types of JSON in a text; json_extract_string(x, '$.a') takes a field out of it
--> spark
"{""a"":1,""b"":""x""}"

SELECT from_json(detail, 'codes ARRAY<INT>').codes[0] FROM 'orders.csv' WHERE order_id IN (101, 103) ORDER BY order_id
--> error: unknown function `from_json`
--> hint: --promote makes columns with types of JSON in a text; json_extract_string(x, '$.a') takes a field out of it
--> spark
1
7

SELECT to_json(named_struct('a', 1, 'b', 'x'))
--> spark
"{""a"":1,""b"":""x""}"

SELECT to_json(array(1, 2))
--> spark
"[1,2]"

SELECT to_json(map('k', 1))
--> spark
"{""k"":1}"

SELECT json_array_length('[1, 2, 3]')
--> spark duckdb
3

SELECT json_object_keys('{"a": 1, "b": 2}')
--> spark
"[""a"",""b""]"

SELECT t.city, t.zip FROM 'orders.csv' LATERAL VIEW json_tuple(get_json_object(detail, '$.ship'), 'city', 'zip') t AS city, zip WHERE order_id = 101
--> pending: `LATERAL VIEW` is not supported
--> spark
Berlin,10115

SELECT schema_of_json('{"a": 1}')
--> error: unknown function `schema_of_json`
--> hint: --promote makes columns with types of JSON in a text; json_extract_string(x, '$.a') takes a field out of it
--> spark
STRUCT<a: BIGINT>

SELECT 'single'
--> spark duckdb
single

SELECT "double quotes"
--> pending: unknown column `double quotes`
--> spark
double quotes

SELECT r'a\d'
--> spark
a\d

SELECT 'tab\there'
--> differs: a backslash in quotes is itself, as SQL has it; E'tab\there' has a tab
--> tidemill
tab\there
--> spark
tab	here

SELECT bit_length('abc'), octet_length('é'), ucase('a'), character_length('ab')
--> spark
24,2,A,2

SELECT len('abc')
--> spark duckdb
3

SELECT encode('abc', 'UTF-8') = binary('abc')
--> spark
true

SELECT decode(encode('abc', 'UTF-8'), 'UTF-8')
--> spark
abc

SELECT is_valid_utf8('abc')
--> spark
true

SELECT quote('it''s')
--> pending: unknown function `quote`
--> spark
'it\'s'

SELECT randstr(3, 0) IS NOT NULL
--> error: unknown function `randstr`
--> hint: uuid() is a text by chance, and substr(uuid(), 1, 8) a shorter one
--> spark
true

SELECT uuid() IS NOT NULL, version() IS NOT NULL
--> spark duckdb
true,true

SELECT typeof('a')
--> differs: types have the names that `tidemill schema` shows
--> tidemill
TEXT
--> spark
string

SELECT regexp_replace('100-200', '[0-9]+', 'num')
--> differs: the first match alone is replaced; the flag 'g' replaces all
--> tidemill
num-200
--> spark
num-num

SELECT regexp_extract('100-200', r'(\d+)-(\d+)', 2)
--> spark
200

SELECT regexp_replace('100-200', r'\d+', 'num')
--> differs: the first match alone is replaced; the flag 'g' replaces all
--> tidemill
num-200
--> spark
num-num

SELECT split(r'a.b', r'\.')
--> spark
"[""a"",""b""]"

SELECT base64('ab')
--> spark duckdb
YWI=

SELECT base64('a')
--> spark duckdb
YQ==
