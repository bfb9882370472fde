# Numbers, conditions, casts and lists.

SELECT 7 / 2, -7 / 2, 7 % 3, -7 % 3, mod(7, 3), div(7, 2)
--> differs: the quotient of whole numbers is a DOUBLE
--> tidemill
3.5,-3.5,1,-1,1,3
--> postgresql
3,-3,1,-1,1,3

SELECT 7 / 2.0, 2 ^ 3, 2 ^ 0.5
--> postgresql duckdb
3.5000000000000000,8.0,1.4142135623730950

SELECT |/ 16
--> pending: SQL is not understood: Expected: an expression, found: |/ at Line: 1, Column: 8
--> postgresql
4.0

SELECT ||/ 27
--> pending: SQL is not understood: Expected: an expression, found: ||/ at Line: 1, Column: 8
--> postgresql
3.0000000000000004

SELECT @ -5
--> pending: SQL is not understood: Expected: placeholder, found: at Line: 1, Column: 9 (no hint)
--> postgresql duckdb
5

SELECT round(2.5), round(-2.5), round(1234.567, 2), round(1234.567, -2), trunc(1.98), trunc(1.987, 2)
--> postgresql duckdb
3,-3,1234.57,1200,1,1.98

SELECT ceil(1.2), floor(-1.2), abs(-3), sqrt(2)::numeric(6, 4), cbrt(8), exp(0), ln(1), log(100), log(2, 8)
--> postgresql duckdb
2,-2,3,1.4142,2.0,1.0,0.0,2.0,3.0000000000000000

SELECT sign(-2.5)
--> postgresql duckdb
-1

SELECT gcd(12, 18), lcm(4, 6), factorial(5)
--> postgresql duckdb
6,12,120

SELECT width_bucket(5.35, 0.024, 10.06, 5)
--> postgresql
3

SELECT width_bucket(3, ARRAY[1, 3, 5])
--> pending: there is no `width_bucket(BIGINT, BIGINT[])`
--> postgresql
2

SELECT 5 & 3, 5 | 3, 1 << 4, 16 >> 2
--> postgresql duckdb
1,7,16,4

SELECT 5 # 3
--> pending: there is no operator `#` at Line: 1, Column: 10
--> postgresql
6

SELECT ~5
--> postgresql duckdb
-6

SELECT greatest(1, NULL, 3), least(2, 1, NULL)
--> postgresql duckdb
3,1

SELECT round(degrees(pi())), round(radians(180)::numeric, 4), round(sin(1)::numeric, 6), round(atan2(1, 1)::numeric, 6)
--> postgresql
180.0,3.1416,0.841471,0.785398

SELECT coalesce(email, 'none'), nullif(plan, 'free') FROM 'users.csv' WHERE user_id >= 4 ORDER BY user_id
--> postgresql duckdb
DAN@EXAMPLE.COM,NULL
none,team
finn@example.com,NULL

SELECT CASE WHEN ms > 500 THEN 'slow' WHEN ms > 50 THEN 'mid' ELSE 'fast' END AS speed, count(*) FROM 'requests.csv' GROUP BY speed ORDER BY speed
--> postgresql duckdb
fast,10
mid,3
slow,2

SELECT name FROM 'users.csv' WHERE (score > 5) IS NOT TRUE ORDER BY name
--> postgresql duckdb
Bob O'Neil
Finn
dan

SELECT name FROM 'users.csv' WHERE (score > 5) IS UNKNOWN ORDER BY name
--> postgresql duckdb
Bob O'Neil
Finn

SELECT name FROM 'users.csv' WHERE score NOTNULL AND email ISNULL
--> postgresql duckdb
Eve Adams

SELECT num_nulls(1, NULL, NULL)
--> postgresql
2

SELECT num_nonnulls(1, NULL)
--> postgresql
1

SELECT NULL IS NOT DISTINCT FROM NULL
--> postgresql duckdb
true

SELECT 5 BETWEEN 1 AND 10
--> postgresql duckdb
true

SELECT 5 BETWEEN SYMMETRIC 10 AND 1
--> pending: SQL is not understood: Expected: AND, found: 10 at Line: 1, Column: 28
--> postgresql
true

SELECT '42'::int, '3.5'::float8, 'yes'::boolean, 1::boolean, true::int, '1e3'::double precision
--> postgresql duckdb
42,3.5,true,true,1,1000.0

SELECT 3.7::int
--> differs: a cast to an integer cuts what is behind the point; round(x) rounds
--> tidemill
3
--> postgresql duckdb
4

SELECT pg_typeof(1)
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
BIGINT
--> postgresql duckdb
integer

SELECT pg_typeof('a'::text)
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
TEXT
--> postgresql
text

SELECT pg_typeof(1.5)
--> differs: a number with a point is a DOUBLE
--> tidemill
DOUBLE
--> postgresql
numeric

SELECT pg_typeof(now())
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
TIMESTAMP(6) WITH TIME ZONE
--> postgresql duckdb
timestamp with time zone

SELECT ARRAY[1, 2, 3], (ARRAY[1, 2, 3])[2], (ARRAY[1, 2, 3])[2:3]
--> postgresql duckdb
"[1,2,3]",2,"[2,3]"

SELECT '{1,2}'::int[]
--> postgresql
"[1,2]"

SELECT ARRAY[1, 2] || ARRAY[3], 0 || ARRAY[1], ARRAY[1, 2] @> ARRAY[1], ARRAY[1] && ARRAY[2]
--> postgresql
"[1,2,3]","[0,1]",true,false

SELECT array_length(ARRAY[1, 2], 1), cardinality(ARRAY[1, 2, 3]), array_position(ARRAY['a', 'b'], 'b'), array_ndims(ARRAY[1])
--> postgresql
2,3,2,1

SELECT array_upper(ARRAY[5, 6], 1)
--> postgresql
2

SELECT array_append(ARRAY[1], 2), array_prepend(0, ARRAY[1]), array_cat(ARRAY[1], ARRAY[2])
--> postgresql duckdb
"[1,2]","[0,1]","[1,2]"

SELECT array_remove(ARRAY[1, 2, 1], 1)
--> postgresql
[2]

SELECT array_replace(ARRAY[1, 2, 1], 1, 9)
--> postgresql
"[9,2,9]"

SELECT 3 = ANY (ARRAY[1, 2, 3]), 3 <> ALL (ARRAY[1, 2])
--> postgresql duckdb
true,true

SELECT 'pen' = ANY ('{pen,book}'::text[])
--> postgresql
true

SELECT count(*) FROM 'orders.csv' WHERE sku = ANY (ARRAY['pen', 'lamp'])
--> postgresql duckdb
5

SELECT a, ord FROM unnest(ARRAY['x', 'y']) WITH ORDINALITY AS t(a, ord)
--> pending: `WITH ORDINALITY` is not supported
--> postgresql duckdb
x,1
y,2

SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b']) AS t(n, s)
--> postgresql
1,a
2,b

SELECT array_agg(sku ORDER BY order_id) FROM 'orders.csv' WHERE user_id = 1
--> postgresql duckdb
"[""pen"",""book"",""lamp""]"

SELECT ARRAY(SELECT DISTINCT sku FROM 'orders.csv' ORDER BY 1)
--> postgresql duckdb
"[""book"",""desk"",""lamp"",""pen""]"

SELECT trim_array(ARRAY[1, 2, 3], 1)
--> postgresql
"[1,2]"

SELECT array_fill(7, ARRAY[2])
--> postgresql
"[7,7]"

SELECT ROW(1, 'a') = ROW(1, 'a'), (1, 2) < (1, 3)
--> postgresql duckdb
true,true

SELECT order_id FROM 'orders.csv' WHERE detail IS NOT NULL ORDER BY order_id
--> postgresql duckdb
101
102
103
104
106
107
108
109

SELECT (detail::json)->'ship'->>'city' AS city FROM 'orders.csv' WHERE detail IS NOT NULL ORDER BY order_id
--> postgresql duckdb
Berlin
Bonn
Austin
Lyon
NULL
NULL
Berlin
NULL

SELECT detail::jsonb #>> '{ship,zip}' FROM 'orders.csv' WHERE order_id = 101
--> postgresql
10115

SELECT detail::jsonb #> '{codes,1}' FROM 'orders.csv' WHERE order_id = 101
--> postgresql
2

SELECT order_id FROM 'orders.csv' WHERE detail::jsonb ? 'gift' ORDER BY order_id
--> pending: parameter `?` has no value
--> postgresql
101
102
104
106

SELECT order_id FROM 'orders.csv' WHERE detail::jsonb @> '{"gift": true}' ORDER BY order_id
--> pending: `@>` is not supported
--> postgresql
102
106

SELECT json_array_length(detail::json->'codes') FROM 'orders.csv' WHERE order_id IN (101, 102) ORDER BY order_id
--> postgresql duckdb
3
0

SELECT value FROM 'orders.csv', jsonb_array_elements_text(detail::jsonb->'codes') WHERE order_id = 101
--> postgresql
1
2
3

SELECT jsonb_typeof(detail::jsonb->'gift') AS t, count(*) FROM 'orders.csv' GROUP BY t ORDER BY t
--> postgresql
boolean,3
null,1
NULL,5

SELECT key FROM json_object_keys('{"a": 1, "b": 2}') AS key
--> postgresql
a
b

SELECT key, value FROM json_each_text('{"a": 1, "b": "x"}') ORDER BY key
--> pending: unknown table `json_each_text`
--> postgresql
a,1
b,x

SELECT json_build_object('sku', sku, 'qty', qty) FROM 'orders.csv' WHERE order_id = 101
--> postgresql
"{""sku"":""pen"",""qty"":10}"

SELECT jsonb_build_array(1, 'a', NULL)
--> postgresql
"[1,""a"",null]"

SELECT to_json('x'::text)::text
--> postgresql
"""x"""

SELECT json_extract_path_text('{"a": {"b": 5}}', 'a', 'b')
--> postgresql
5

SELECT row_to_json(t) FROM (SELECT sku, qty FROM 'orders.csv' WHERE order_id = 101) t
--> pending: unknown column `t`
--> postgresql duckdb
"{""sku"":""pen"",""qty"":10}"

SELECT json_agg(sku ORDER BY order_id) FROM 'orders.csv' WHERE user_id = 1
--> postgresql
"[""pen"",""book"",""lamp""]"

SELECT jsonb_object_agg(sku, qty) FROM 'orders.csv' WHERE user_id = 1
--> postgresql
"{""pen"":10,""book"":1,""lamp"":1}"

SELECT jsonb_path_query_first('{"a": [1, 2]}', '$.a[1]')
--> postgresql
2
