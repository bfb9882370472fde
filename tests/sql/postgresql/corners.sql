# Where engines tend to differ without saying so.

SELECT substr('hello', 0, 2), substr('hello', -1, 3), substring('hello', 2), substr('hello', 9)
--> postgresql
h,h,ello,""

SELECT left('abc', 0), right('abc', -1), left('abc', 10), reverse('')
--> postgresql duckdb
"",bc,abc,""

SELECT lpad('abc', 2), rpad('a', 3), lpad('a', 4, 'xy'), lpad('', 2, 'x')
--> postgresql
ab,a  ,xyxa,xx

SELECT strpos('abc', ''), strpos('', 'a'), position('c' IN 'abc')
--> postgresql duckdb
1,0,3

SELECT split_part('a,b,c', ',', 2), split_part('abc', ',', 2), split_part('a,b', ',', -2)
--> postgresql duckdb
b,"",a

SELECT initcap('hello wORLD-foo_bar 2nd'), lower('ÄÖ')
--> postgresql
Hello World-Foo_Bar 2nd,äö

SELECT upper('straße')
--> differs: the capital of ß is SS, as in Unicode
--> tidemill
STRASSE
--> postgresql
STRAßE

SELECT trim('xyx' FROM 'xyabcxy'), btrim('  a '), ltrim('xyxa', 'xy'), rtrim('abab', 'b')
--> postgresql
abc,a,a,aba

SELECT translate('hello', 'el', 'ip'), translate('hello', 'l', ''), replace('hello', '', 'x')
--> postgresql duckdb
hippo,heo,hello

SELECT repeat('ab', -1), concat(NULL, NULL), concat_ws(',', NULL, NULL)
--> postgresql duckdb
"","",""

SELECT 'abc' ~ 'B', 'abc' ~* 'B', 'abc' !~ 'z', 'a.c' ~ 'a\.c', 'abc' ~ '^b'
--> postgresql duckdb
false,true,true,true,false

SELECT 'abc' LIKE 'A%', 'abc' ILIKE 'A%', 'a%c' LIKE 'a\%c', 'abc' LIKE '%', '' LIKE '%', NULL LIKE 'a'
--> postgresql
false,true,true,true,true,NULL

SELECT 'abc' SIMILAR TO 'abc', 'abc' SIMILAR TO 'a', 'abc' SIMILAR TO '%(b|d)%', 'abc' SIMILAR TO '(b|c)%'
--> postgresql
true,false,true,false

SELECT regexp_replace('abc', '(b)', '[\1]'), regexp_replace('aXbX', 'x', '-', 'gi'), regexp_replace('abc', 'z', '-')
--> postgresql duckdb
a[b]c,a-b-,abc

SELECT regexp_replace('abc', '(b)', '[\&]')
--> postgresql
a[b]c

SELECT regexp_match('abc', 'z'), regexp_match('abc', 'b')
--> postgresql
NULL,"[""b""]"

SELECT regexp_match('abc', '(a)(z)?')
--> postgresql
"[""a"",null]"

SELECT regexp_like('abc', 'B'), regexp_like('abc', 'B', 'i'), regexp_count('aXaxa', 'a'), regexp_count('abc', '')
--> postgresql
false,true,3,4

SELECT ascii('é'), chr(233), ascii(''), to_hex(-1::bigint)
--> postgresql
233,é,0,ffffffffffffffff

SELECT length('é'), octet_length('é'), bit_length('é')
--> postgresql
1,2,16

SELECT md5('')
--> postgresql duckdb
d41d8cd98f00b204e9800998ecf8427e

SELECT encode('\x00ff'::bytea, 'hex')
--> postgresql
00ff

SELECT 'a' < 'B', 'a' < 'b', 'Z' < 'a', 'é' > 'z', '10' < '9'
--> postgresql duckdb
false,true,true,true,true

SELECT round(0.5), round(1.5), round(-1.5), round(2.675, 2), round(1250, -2), round(1.5::float8)
--> postgresql duckdb
1,2,-2,2.68,1300,2.0

SELECT round(0.5::float8)
--> differs: a half is rounded away from zero, of a DOUBLE too
--> tidemill
1.0
--> postgresql
0.0

SELECT round(2.5::float8)
--> differs: a half is rounded away from zero, of a DOUBLE too
--> tidemill
3.0
--> postgresql
2.0

SELECT trunc(-1.5), trunc(123.456, -1), ceil(-0.5), floor(-0.5), mod(-7, 3), -7 % 3, div(-7, 2), -7 / 2
--> differs: the quotient of whole numbers is a DOUBLE
--> tidemill
-1.0,120.0,-0.0,-1.0,-1,-1,-3,-3.5
--> postgresql
-1,120,0,-1,-1,-1,-3,-3

SELECT power(2, -1), 2 ^ 3 ^ 2, -2 ^ 2, sqrt(0), cbrt(-8), abs(-0.0)
--> postgresql duckdb
0.5,64.0,4.0,0.0,-2.0,0.0

SELECT sign(0)
--> postgresql duckdb
0.0

SELECT 5 / 2, 5 / 2.0, 5.0 / 2, 1 / 3.0, 7 / -2
--> differs: the quotient of whole numbers is a DOUBLE
--> tidemill
2.5,2.5,2.5,0.3333333333333333,-3.5
--> postgresql
2,2.5000000000000000,2.5000000000000000,0.33333333333333333333,-3

SELECT 0.1 + 0.2, 1e3, 1.0, 100::numeric(10, 2), 12345.678::numeric(8, 1)
--> postgresql duckdb
0.3,1000,1.0,100.00,12345.7

SELECT log(10), log(2.0, 8.0), ln(2.718281828459045), exp(1)
--> postgresql duckdb
1.0,3.0000000000000000,0.9999999999999999,2.718281828459045

SELECT greatest('a', 'B'), least('a', 'B'), greatest(1, 2.5), coalesce(NULL, 'x')
--> postgresql duckdb
a,B,2.5,x

SELECT extract(dow FROM DATE '2026-03-01'), extract(isodow FROM DATE '2026-03-01'), extract(week FROM DATE '2027-01-01'), extract(isoyear FROM DATE '2027-01-01'), extract(doy FROM DATE '2024-12-31')
--> postgresql duckdb
0,7,53,2026,366

SELECT extract(millisecond FROM TIMESTAMP '2026-03-01 10:20:30.5'), extract(minute FROM TIMESTAMP '2026-03-01 10:20:30.5')
--> postgresql duckdb
30500.000,20

SELECT extract(second FROM TIMESTAMP '2026-03-01 10:20:30.5')
--> differs: seconds are whole, as in DuckDB; extract(epoch FROM …) has their fractions
--> tidemill
30
--> postgresql
30.500000

SELECT date_part('epoch', TIMESTAMP '1969-12-31 23:59:59'), date_part('year', DATE '0001-01-01'), date_part('quarter', DATE '2026-12-31')
--> postgresql duckdb
-1.0,1.0,4.0

SELECT date_trunc('week', TIMESTAMP '2026-03-01 10:00:00'), date_trunc('quarter', TIMESTAMP '2026-12-31 10:00:00'), date_trunc('second', TIMESTAMP '2026-03-01 10:00:00.9')
--> postgresql duckdb
2026-02-23T00:00:00,2026-10-01T00:00:00,2026-03-01T10:00:00

SELECT TIMESTAMP '2026-03-31 10:00:00' + INTERVAL '1 month', TIMESTAMP '2024-02-29 00:00:00' - INTERVAL '1 year', TIMESTAMP '2026-01-31 00:00:00' + INTERVAL '1 month 1 day'
--> postgresql duckdb
2026-04-30T10:00:00,2023-02-28T00:00:00,2026-03-01T00:00:00

SELECT TIMESTAMP '2026-03-02 00:00:00' - TIMESTAMP '2026-03-01 12:00:00' = INTERVAL '12 hours', DATE '2026-03-01' - DATE '2026-03-05'
--> postgresql duckdb
true,-4

SELECT TIMESTAMP '2026-03-29 12:00:00' AT TIME ZONE 'Europe/Berlin' = TIMESTAMPTZ '2026-03-29 10:00:00+00', TIMESTAMP '2026-01-29 12:00:00' AT TIME ZONE 'Europe/Berlin' = TIMESTAMPTZ '2026-01-29 11:00:00+00'
--> postgresql duckdb
true,true

SELECT extract(hour FROM TIMESTAMPTZ '2026-07-01 12:00:00+00' AT TIME ZONE 'Asia/Kolkata'), extract(minute FROM TIMESTAMPTZ '2026-07-01 12:00:00+00' AT TIME ZONE 'Asia/Kolkata')
--> postgresql duckdb
17,30

SELECT '2026-03-01'::date < '2026-03-01 00:00:01'::timestamp, DATE '2026-03-01' = TIMESTAMP '2026-03-01 00:00:00'
--> postgresql duckdb
true,true

SELECT count(*) FROM 'requests.csv' WHERE ts > DATE '2026-03-08'
--> postgresql duckdb
3

SELECT count(*) FROM 'requests.csv' WHERE ts BETWEEN DATE '2026-03-01' AND DATE '2026-03-02'
--> postgresql duckdb
7

SELECT date_bin('7 days', TIMESTAMP '2026-03-04 10:00:00', TIMESTAMP '2026-03-01'), date_bin('1 hour', TIMESTAMP '2025-12-31 23:30:00', TIMESTAMP '2026-01-01 00:15:00')
--> postgresql
2026-03-01T00:00:00,2025-12-31T23:15:00

SELECT cardinality(ARRAY[]::int[]), array_length(ARRAY[1, NULL], 1)
--> postgresql duckdb
0,2

SELECT array_length(ARRAY[]::int[], 1)
--> differs: the length of an empty list is 0, as in DuckDB
--> tidemill
0
--> postgresql
NULL

SELECT ARRAY[1, 2] = ARRAY[1, 2], ARRAY[1, 2] < ARRAY[1, 3], ARRAY[1, NULL] = ARRAY[1, NULL], ARRAY[2, 1] @> ARRAY[1, 1]
--> postgresql duckdb
true,true,true,true

SELECT 1 = ANY (ARRAY[2, NULL]), 1 <> ALL (ARRAY[2, NULL]), 1 = ANY (ARRAY[]::int[]), 1 = ALL (ARRAY[]::int[])
--> postgresql duckdb
NULL,NULL,false,true

SELECT array_position(ARRAY[1, 2, 1], 1), array_positions(ARRAY[1, 2, 1], 1), array_position(ARRAY[1], 9)
--> postgresql
1,"[1,3]",NULL

SELECT array_to_string(ARRAY[1, 2], ', '), array_to_string(ARRAY[]::int[], ','), string_to_array('', ','), string_to_array('abc', NULL), string_to_array('a,b', '')
--> postgresql
"1, 2","",[],"[""a"",""b"",""c""]","[""a,b""]"

SELECT array_remove(ARRAY[1, 2, 3], 2), array_remove(ARRAY[1], 9), array_append(ARRAY[1], NULL)
--> postgresql
"[1,3]",[1],"[1,null]"

SELECT array_cat(ARRAY[1], NULL)
--> pending: `array_concat` takes lists, and this is BIGINT
--> postgresql duckdb
[1]

SELECT count(*) FILTER (WHERE paid IS NULL), count(*) FILTER (WHERE NOT paid), count(paid) FROM 'orders.csv'
--> postgresql duckdb
1,2,8

SELECT avg(qty), sum(qty), max(qty) - min(qty) FROM 'orders.csv'
--> postgresql duckdb
5.4444444444444444,49,24

SELECT sum(qty) / count(*) FROM 'orders.csv'
--> postgresql duckdb
5.4444444444444444

SELECT stddev(qty), stddev_pop(qty), var_samp(qty), variance(price) FROM 'orders.csv'
--> postgresql duckdb
7.8598840817010640,7.4103697780146964,61.7777777777777778,9605.538402777778

SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY qty), percentile_disc(0) WITHIN GROUP (ORDER BY qty) AS b, percentile_disc(1) WITHIN GROUP (ORDER BY qty) AS c FROM 'orders.csv'
--> postgresql duckdb
2,1,25

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY qty DESC), percentile_cont(0.25) WITHIN GROUP (ORDER BY price DESC) AS b FROM 'orders.csv'
--> postgresql duckdb
2.0,39.95

SELECT string_agg(sku, '' ORDER BY sku DESC, order_id), string_agg(DISTINCT sku, ', ' ORDER BY sku) FROM 'orders.csv'
--> postgresql duckdb
penpenpenlamplampdeskbookbookbook,"book, desk, lamp, pen"

SELECT array_agg(paid ORDER BY order_id) FROM 'orders.csv'
--> postgresql duckdb
"[true,true,false,true,true,false,true,null,true]"

SELECT sku, count(*) FROM 'orders.csv' GROUP BY sku HAVING sum(qty) > 5 AND count(*) < 3 ORDER BY sku
--> postgresql duckdb

SELECT DISTINCT paid FROM 'orders.csv' ORDER BY paid
--> postgresql duckdb
false
true
NULL

SELECT DISTINCT paid FROM 'orders.csv' ORDER BY paid DESC
--> differs: nulls are last in both directions, as DuckDB and ClickHouse have it
--> tidemill
true
false
""
--> postgresql
NULL
true
false

SELECT bool_and(paid), every(paid IS NOT NULL), bool_or(NULL) FROM 'orders.csv'
--> postgresql
false,false,NULL

SELECT name FROM 'users.csv' ORDER BY lower(name) DESC LIMIT 3
--> postgresql duckdb
Finn
Eve Adams
dan

SELECT name FROM 'users.csv' ORDER BY country NULLS FIRST, score DESC NULLS LAST
--> postgresql duckdb
Finn
Eve Adams
Ann Lee
Chloé
dan
Bob O'Neil

SELECT u.user_id, sum(o.qty) FROM 'users.csv' u LEFT JOIN 'orders.csv' o ON o.user_id = u.user_id AND o.paid GROUP BY u.user_id ORDER BY 1
--> postgresql duckdb
1,11
2,NULL
3,6
4,NULL
5,2
6,NULL

SELECT count(*) FROM 'users.csv' u JOIN 'orders.csv' o ON u.user_id <> o.user_id
--> postgresql duckdb
46

SELECT name FROM 'users.csv' u WHERE (SELECT count(*) FROM 'orders.csv' o WHERE o.user_id = u.user_id) = 0 ORDER BY name
--> postgresql duckdb
Finn
dan

SELECT order_id, rank() OVER w, dense_rank() OVER w, percent_rank() OVER w, cume_dist() OVER w FROM 'orders.csv' WINDOW w AS (ORDER BY price DESC) ORDER BY order_id
--> postgresql duckdb
101,7,6,0.75,0.8888888888888888
102,4,4,0.375,0.5555555555555556
103,7,6,0.75,0.8888888888888888
104,3,3,0.25,0.3333333333333333
105,4,4,0.375,0.5555555555555556
106,9,7,1.0,1.0
107,1,1,0.0,0.1111111111111111
108,2,2,0.125,0.2222222222222222
109,6,5,0.625,0.6666666666666666

SELECT order_id FROM 'orders.csv' WHERE order_id NOT IN (103, 104, 107, 108) ORDER BY order_id
--> postgresql duckdb
101
102
105
106
109

SELECT sum(price) OVER (ORDER BY day ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) - sum(price) OVER (ORDER BY day ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) = price FROM 'orders.csv' WHERE order_id NOT IN (103, 104, 107, 108) ORDER BY order_id
--> pending: SQL is not understood: Expected: ), found: EXCLUDE at Line: 1, Column: 153
--> postgresql duckdb
true
true
true
true
true

SELECT order_id, last_value(sku) OVER (ORDER BY day), nth_value(sku, 2) OVER (ORDER BY day), first_value(sku) OVER (ORDER BY day DESC, order_id) FROM 'orders.csv' WHERE order_id NOT IN (103, 107) ORDER BY order_id
--> postgresql duckdb
101,pen,NULL,book
102,book,book,book
104,lamp,book,book
105,book,book,book
106,pen,book,book
108,lamp,book,book
109,book,book,book

SELECT order_id, lag(paid) OVER (ORDER BY order_id), lead(day, 1, DATE '2030-01-01') OVER (ORDER BY order_id) FROM 'orders.csv' ORDER BY order_id
--> postgresql duckdb
101,NULL,2026-01-20
102,true,2026-02-03
103,true,2026-02-03
104,false,2026-02-14
105,true,2026-03-01
106,true,2026-03-02
107,false,2026-03-02
108,true,2026-03-31
109,NULL,2030-01-01
