# Numbers, conditions, casts and lists.

SELECT 7 / 2, -7 / 2, 7 % 3, -7 % 3, mod(7, 3), div(7, 2)
--> postgresql
3,-3,1,-1,1,3

SELECT 7 / 2.0, 2 ^ 3, 2 ^ 0.5, |/ 16, ||/ 27, @ -5
--> postgresql
3.5000000000000000,8.0,1.4142135623730950,4.0,3.0000000000000004,5

SELECT round(2.5), round(-2.5), round(1234.567, 2), round(1234.567, -2), trunc(1.98), trunc(1.987, 2)
--> postgresql
3,-3,1234.57,1200,1,1.98

SELECT ceil(1.2), floor(-1.2), abs(-3), sign(-2.5), sqrt(2)::numeric(6, 4), cbrt(8), exp(0), ln(1), log(100), log(2, 8)
--> postgresql
2,-2,3,-1,1.4142,2.0,1.0,0.0,2.0,3.0000000000000000

SELECT gcd(12, 18), lcm(4, 6), factorial(5), width_bucket(5.35, 0.024, 10.06, 5), width_bucket(3, ARRAY[1, 3, 5])
--> postgresql
6,12,120,3,2

SELECT 5 & 3, 5 | 3, 5 # 3, ~5, 1 << 4, 16 >> 2
--> postgresql
1,7,6,-6,16,4

SELECT greatest(1, NULL, 3), least(2, 1, NULL)
--> postgresql
3,1

SELECT round(degrees(pi())), round(radians(180)::numeric, 4), round(sin(1)::numeric, 6), round(atan2(1, 1)::numeric, 6)
--> postgresql
180.0,3.1416,0.841471,0.785398

SELECT coalesce(email, 'none'), nullif(plan, 'free') FROM 'users.csv' WHERE user_id >= 4 ORDER BY user_id
--> postgresql
DAN@EXAMPLE.COM,NULL
none,team
finn@example.com,NULL

SELECT CASE WHEN ms > 500 THEN 'slow' WHEN ms > 50 THEN 'mid' ELSE 'fast' END AS speed, count(*) FROM 'requests.csv' GROUP BY speed ORDER BY speed
--> postgresql
fast,10
mid,3
slow,2

SELECT name FROM 'users.csv' WHERE (score > 5) IS NOT TRUE ORDER BY name
--> postgresql
Bob O'Neil
Finn
dan

SELECT name FROM 'users.csv' WHERE (score > 5) IS UNKNOWN ORDER BY name
--> postgresql
Bob O'Neil
Finn

SELECT name FROM 'users.csv' WHERE score NOTNULL AND email ISNULL
--> postgresql
Eve Adams

SELECT num_nulls(1, NULL, NULL), num_nonnulls(1, NULL)
--> postgresql
2,1

SELECT 5 BETWEEN 1 AND 10, 5 BETWEEN SYMMETRIC 10 AND 1, NULL IS NOT DISTINCT FROM NULL
--> postgresql
true,true,true

SELECT '42'::int, '3.5'::float8, 'yes'::boolean, 1::boolean, true::int, 3.7::int, '1e3'::double precision
--> postgresql
42,3.5,true,true,1,4,1000.0

SELECT pg_typeof(1), pg_typeof('a'::text), pg_typeof(1.5), pg_typeof(now())
--> postgresql
integer,text,numeric,timestamp with time zone

SELECT ARRAY[1, 2, 3], (ARRAY[1, 2, 3])[2], (ARRAY[1, 2, 3])[2:3], '{1,2}'::int[]
--> postgresql
"[1,2,3]",2,"[2,3]","[1,2]"

SELECT ARRAY[1, 2] || ARRAY[3], 0 || ARRAY[1], ARRAY[1, 2] @> ARRAY[1], ARRAY[1] && ARRAY[2]
--> postgresql
"[1,2,3]","[0,1]",true,false

SELECT array_length(ARRAY[1, 2], 1), cardinality(ARRAY[1, 2, 3]), array_position(ARRAY['a', 'b'], 'b'), array_upper(ARRAY[5, 6], 1), array_ndims(ARRAY[1])
--> postgresql
2,3,2,2,1

SELECT array_append(ARRAY[1], 2), array_prepend(0, ARRAY[1]), array_cat(ARRAY[1], ARRAY[2]), array_remove(ARRAY[1, 2, 1], 1), array_replace(ARRAY[1, 2, 1], 1, 9)
--> postgresql
"[1,2]","[0,1]","[1,2]",[2],"[9,2,9]"

SELECT 3 = ANY (ARRAY[1, 2, 3]), 3 <> ALL (ARRAY[1, 2]), 'pen' = ANY ('{pen,book}'::text[])
--> postgresql
true,true,true

SELECT count(*) FROM 'orders.csv' WHERE sku = ANY (ARRAY['pen', 'lamp'])
--> postgresql
5

SELECT a, ord FROM unnest(ARRAY['x', 'y']) WITH ORDINALITY AS t(a, ord)
--> postgresql
x,1
y,2

SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b']) AS t(n, s)
--> postgresql
1,a
2,b

SELECT array_agg(sku ORDER BY order_id) FROM 'orders.csv' WHERE user_id = 1
--> postgresql
"[""pen"",""book"",""lamp""]"

SELECT ARRAY(SELECT DISTINCT sku FROM 'orders.csv' ORDER BY 1)
--> postgresql
"[""book"",""desk"",""lamp"",""pen""]"

SELECT trim_array(ARRAY[1, 2, 3], 1), array_fill(7, ARRAY[2])
--> postgresql
"[1,2]","[7,7]"

SELECT ROW(1, 'a') = ROW(1, 'a'), (1, 2) < (1, 3)
--> postgresql
true,true

SELECT order_id, (detail::json)->'ship'->>'city' AS city FROM 'orders.csv' WHERE detail IS NOT NULL ORDER BY order_id
--> postgresql
101,Berlin
102,Bonn
103,Austin
104,Lyon
106,NULL
107,NULL
108,Berlin
109,NULL

SELECT detail::jsonb #>> '{ship,zip}' FROM 'orders.csv' WHERE order_id = 101
--> postgresql
10115

SELECT detail::jsonb #> '{codes,1}' FROM 'orders.csv' WHERE order_id = 101
--> postgresql
2

SELECT order_id FROM 'orders.csv' WHERE detail::jsonb ? 'gift' ORDER BY order_id
--> postgresql
101
102
104
106

SELECT order_id FROM 'orders.csv' WHERE detail::jsonb @> '{"gift": true}' ORDER BY order_id
--> postgresql
102
106

SELECT json_array_length(detail::json->'codes') FROM 'orders.csv' WHERE order_id IN (101, 102) ORDER BY order_id
--> postgresql
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
--> postgresql
a,1
b,x

SELECT json_build_object('sku', sku, 'qty', qty) FROM 'orders.csv' WHERE order_id = 101
--> postgresql
"{""sku"":""pen"",""qty"":10}"

SELECT jsonb_build_array(1, 'a', NULL), to_json('x'::text), json_extract_path_text('{"a": {"b": 5}}', 'a', 'b')
--> postgresql
"[1,""a"",null]",x,5

SELECT row_to_json(t) FROM (SELECT sku, qty FROM 'orders.csv' WHERE order_id = 101) t
--> postgresql
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
