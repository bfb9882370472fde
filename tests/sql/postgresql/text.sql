# Text and regular expressions.

SELECT upper(name), length(name), octet_length(name), initcap(lower(name)) FROM 'users.csv' ORDER BY user_id
--> postgresql
ANN LEE,7,7,Ann Lee
BOB O'NEIL,10,10,Bob O'Neil
CHLOÉ,5,6,Chloé
DAN,3,3,Dan
EVE ADAMS,9,9,Eve Adams
FINN,4,4,Finn

SELECT char_length('é'), character_length('ab'), bit_length('ab')
--> postgresql duckdb
1,2,16

SELECT name || ' (' || coalesce(country, '?') || ')' FROM 'users.csv' ORDER BY user_id
--> postgresql duckdb
Ann Lee (DE)
Bob O'Neil (US)
Chloé (FR)
dan (US)
Eve Adams (DE)
Finn (?)

SELECT substring(name from 1 for 3), substr(name, 2), substring(name, 2, 2) FROM 'users.csv' WHERE user_id = 2
--> postgresql duckdb
Bob,ob O'Neil,ob

SELECT substring(url from '^https?://([^/]+)') AS host, count(*) FROM 'requests.csv' GROUP BY host ORDER BY 2 DESC, 1
--> postgresql
shop.example.com,12
api.example.com:8443,2
blog.example.org,1

SELECT substring('foobar' from 'o.b')
--> postgresql
oob

SELECT substring('foobar', 'o(.)b')
--> postgresql
o

SELECT strpos(email, '@') AS b FROM 'users.csv' WHERE user_id = 1
--> postgresql duckdb
4

SELECT position('@' in email) AS a FROM 'users.csv' WHERE user_id = 1
--> postgresql duckdb
4

SELECT split_part(url, '/', 3) AS host, count(*) AS n FROM 'requests.csv' GROUP BY 1 ORDER BY n DESC, 1
--> postgresql duckdb
shop.example.com,12
api.example.com:8443,2
blog.example.org,1

SELECT split_part('a,b,c', ',', -1)
--> postgresql duckdb
c

SELECT regexp_replace('foobarbaz', 'b..', 'X'), regexp_replace('foobarbaz', 'b..', 'X', 'g')
--> postgresql duckdb
fooXbaz,fooXX

SELECT regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g'), regexp_replace('Hello', 'l+', '', 'i')
--> postgresql duckdb
fooXarYXazY,Heo

SELECT regexp_match('foobarbequebaz', '(bar)(beque)')
--> postgresql
"[""bar"",""beque""]"

SELECT (regexp_match(url, '[?&]q=([^&]+)'))[1] AS q FROM 'requests.csv' WHERE url LIKE '%?q=%' ORDER BY id
--> postgresql
red+shoes
hats

SELECT m[1] FROM regexp_matches('a1b22c333', '\d+', 'g') AS m
--> pending: unknown table `regexp_matches`
--> postgresql
1
22
333

SELECT regexp_split_to_array('hello  world', '\s+')
--> postgresql duckdb
"[""hello"",""world""]"

SELECT * FROM regexp_split_to_table('a,b;c', '[,;]')
--> postgresql
a
b
c

SELECT regexp_count('a1b22c333', '\d+'), regexp_instr('abc', 'c'), regexp_like('Hello', 'hell', 'i')
--> postgresql
3,3,true

SELECT regexp_substr('abc123', '\d+')
--> postgresql
123

SELECT name FROM 'users.csv' WHERE name ~ '^[A-C]' ORDER BY name
--> postgresql duckdb
Ann Lee
Bob O'Neil
Chloé

SELECT name FROM 'users.csv' WHERE name ~* '^D' ORDER BY name
--> postgresql duckdb
dan

SELECT name FROM 'users.csv' WHERE name !~ '[A-Z]' ORDER BY name
--> postgresql duckdb
dan

SELECT name FROM 'users.csv' WHERE name !~* 'n' ORDER BY name
--> postgresql duckdb
Chloé
Eve Adams

SELECT name FROM 'users.csv' WHERE name LIKE '_nn%' OR name ILIKE 'DA%' ORDER BY name
--> postgresql duckdb
Ann Lee
dan

SELECT name FROM 'users.csv' WHERE name SIMILAR TO '%(Lee|Adams)' ORDER BY name
--> postgresql
Ann Lee
Eve Adams

SELECT name FROM 'users.csv' WHERE name ~~ 'A%' OR name ~~* 'f%' ORDER BY name
--> postgresql duckdb
Ann Lee
Finn

SELECT name FROM 'users.csv' WHERE starts_with(name, 'Ch') OR name ^@ 'Fi' ORDER BY name
--> postgresql duckdb
Chloé
Finn

SELECT name FROM 'users.csv' WHERE plan LIKE ANY (ARRAY['pr%', 'te%']) ORDER BY name
--> postgresql
Ann Lee
Chloé
Eve Adams

SELECT trim(both 'x' from 'xxaxx'), btrim('xyaxy', 'xy'), ltrim('zzza', 'z'), rtrim('azz', 'z')
--> postgresql
a,a,a,a

SELECT trim(leading from '  a')
--> pending: SQL is not understood: Expected: ), found: ' a' at Line: 1, Column: 26
--> postgresql duckdb
a

SELECT lpad('7', 3, '0'), rpad('ab', 4, '*'), repeat('-', 3), reverse('abc'), left('abcde', 2), right('abcde', 2), left('abcde', -1)
--> postgresql duckdb
007,ab**,---,cba,ab,de,abcd

SELECT replace('abcabc', 'b', 'X'), translate('12345', '143', 'ax'), overlay('Txxxxas' placing 'hom' from 2 for 4)
--> postgresql duckdb
aXcaXc,a2x5,Thomas

SELECT concat('a', NULL, 'b', 5), concat_ws('/', 'a', NULL, 'b')
--> postgresql duckdb
ab5,a/b

SELECT format('%s has %s', name, plan) FROM 'users.csv' WHERE user_id = 1
--> postgresql
Ann Lee has pro

SELECT format('%2$s %1$s', 'a', 'b')
--> postgresql
b a

SELECT format('%-5s|', 'ab')
--> postgresql
ab   |

SELECT format('%L', 'it''s')
--> postgresql
'it''s'

SELECT format('%I', 'a b')
--> postgresql
"""a b"""

SELECT md5('abc')
--> postgresql duckdb
900150983cd24fb0d6963f7d28e17f72

SELECT encode(sha256('abc'), 'hex')
--> postgresql
ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad

SELECT encode('abc'::bytea, 'base64'), encode('abc', 'hex')
--> postgresql
YWJj,616263

SELECT convert_from(decode('YWJj', 'base64'), 'UTF8')
--> postgresql
abc

SELECT ascii('a'), chr(97), to_hex(255)
--> postgresql
97,a,ff

SELECT quote_literal('it''s')
--> postgresql
'it''s'

SELECT quote_ident('a b')
--> postgresql
"""a b"""

SELECT string_to_array('a,b,,c', ','), array_to_string(ARRAY['a', NULL, 'c'], ','), array_to_string(ARRAY['a', NULL, 'c'], ',', '*')
--> postgresql
"[""a"",""b"","""",""c""]","a,c","a,*,c"

SELECT unnest(string_to_array(tags, '|')) AS tag, count(*) FROM 'users.csv' GROUP BY tag ORDER BY 2 DESC, 1
--> postgresql duckdb
beta,2
mobile,2
new,2
vip,2

SELECT * FROM string_to_table('a|b', '|')
--> postgresql
a
b

SELECT E'a\tb', 'it''s', $$dollar$$
--> postgresql duckdb
a	b,it's,dollar

SELECT U&'\0041'
--> pending: `U&'A'` is not supported
--> postgresql
A

SELECT 'abc' < 'abd', 'a' || 1, 'B' < 'a'
--> postgresql duckdb
true,a1,true

SELECT name COLLATE "C" FROM 'users.csv' ORDER BY name COLLATE "C"
--> postgresql duckdb
Ann Lee
Bob O'Neil
Chloé
Eve Adams
Finn
dan

SELECT lower('ÀÉ')
--> postgresql duckdb
àé

SELECT unistr('\00e9')
--> error: unknown function `unistr`
--> hint: a letter is written as it is, or chr(233)
--> postgresql
é

SELECT normalize('é')
--> error: unknown function `normalize`
--> hint: nfc_normalize(x) composes letters and their marks
--> postgresql
é

SELECT string_agg(DISTINCT country, '+' ORDER BY country) FROM 'users.csv'
--> postgresql duckdb
DE+FR+US

SELECT text 'abc', varchar 'x'
--> postgresql duckdb
abc,x

SELECT 'abc'::varchar(2)
--> postgresql
ab

SELECT cast('abcdef' AS char(3))
--> postgresql
abc

SELECT host('10.0.0.7/8'::inet)
--> postgresql
10.0.0.7

SELECT masklen('10.0.0.7/8'::inet)
--> postgresql
8

SELECT family('::1'::inet)
--> postgresql
6

SELECT count(*) FROM 'requests.csv' WHERE ip::inet << '10.0.0.0/8'::inet
--> pending: there is no `TEXT << TEXT`
--> postgresql
3

SELECT ip, count(*) FROM 'requests.csv' WHERE ip::inet <<= '192.168.0.0/16' OR ip::inet <<= '172.16.0.0/12' GROUP BY ip ORDER BY ip
--> pending: SQL is not understood: Expected: an expression, found: = at Line: 1, Column: 58 (no hint)
--> postgresql
172.16.4.20,2
192.168.1.10,4

SELECT network('192.168.1.10/24'::inet)::text
--> postgresql
192.168.1.0/24

SELECT broadcast('192.168.1.10/24'::inet)::text
--> postgresql
192.168.1.255/24

SELECT encode('ab'::bytea, 'base64')
--> postgresql
YWI=
