# JSON that stands in a column of text.

SELECT detail->'ship'->>'city' AS city FROM 'orders.csv' ORDER BY order_id
--> duckdb
Berlin
Bonn
Austin
Lyon
NULL
NULL
NULL
Berlin
NULL

SELECT order_id FROM 'orders.csv' WHERE detail IS NOT NULL ORDER BY order_id
--> duckdb
101
102
103
104
106
107
108
109

SELECT detail->>'$.ship.city' AS city FROM 'orders.csv' WHERE detail IS NOT NULL ORDER BY order_id
--> duckdb
Berlin
Bonn
Austin
Lyon
NULL
NULL
Berlin
NULL

SELECT detail->'codes' AS codes FROM 'orders.csv' ORDER BY order_id
--> duckdb
"[1,2,3]"
[]
[7]
NULL
NULL
NULL
NULL
"[9,8]"
NULL

SELECT detail->'codes'->0 AS first FROM 'orders.csv' WHERE order_id IN (101, 108) ORDER BY order_id
--> duckdb
1
9

SELECT detail->'codes'->>1 AS second FROM 'orders.csv' WHERE order_id IN (101, 108) ORDER BY order_id
--> duckdb
2
8

SELECT json_extract(detail, '$.ship') AS ship FROM 'orders.csv' WHERE order_id = 101
--> duckdb
"{""city"":""Berlin"",""zip"":""10115""}"

SELECT json_extract_string(detail, '$.ship.zip'), json_extract_string(detail, 'note') FROM 'orders.csv' WHERE order_id IN (101, 109) ORDER BY order_id
--> duckdb
10115,NULL
NULL,"it's ""ok"""

SELECT json_extract(detail, '$.codes[1]'), json_extract(detail, '$.codes[#-1]') FROM 'orders.csv' WHERE order_id = 101
--> duckdb
2,3

SELECT json_extract_path_text(detail, '/ship/city') FROM 'orders.csv' WHERE order_id = 104
--> duckdb
Lyon

SELECT json_extract(detail, ['$.ship.city', '$.gift']) FROM 'orders.csv' WHERE order_id = 102
--> duckdb
"[""\""Bonn\"""",""true""]"

SELECT json_array_length(detail, '$.codes') FROM 'orders.csv' WHERE order_id < 104 ORDER BY order_id
--> duckdb
3
0
1

SELECT 'is ' || json_type(detail, '$.gift') FROM 'orders.csv' ORDER BY order_id
--> duckdb
is BOOLEAN
is BOOLEAN
NULL
is NULL
NULL
is BOOLEAN
NULL
NULL
NULL

SELECT json_type(detail) FROM 'orders.csv' ORDER BY order_id
--> duckdb
OBJECT
OBJECT
OBJECT
OBJECT
NULL
OBJECT
OBJECT
OBJECT
OBJECT

SELECT json_keys(detail) FROM 'orders.csv' WHERE order_id <> 107 ORDER BY order_id
--> duckdb
"[""ship"",""gift"",""codes""]"
"[""ship"",""gift"",""codes""]"
"[""ship"",""codes""]"
"[""ship"",""gift"",""weight""]"
NULL
"[""ship"",""gift""]"
"[""ship"",""codes""]"
"[""note""]"

SELECT json_valid('{"a": 1}')
--> duckdb
true

SELECT json_valid('{a}')
--> duckdb
false

SELECT json_exists(detail, '$.gift') AS has, count(*) FROM 'orders.csv' GROUP BY has ORDER BY has NULLS LAST
--> duckdb
false,4
true,4
NULL,1

SELECT json_contains('{"a": 1, "b": 2}', '{"a": 1}')
--> error: unknown function `json_contains`
--> hint: json_extract_string(x, '$.a') = 'value' compares a field
--> duckdb
true

SELECT json_contains('[1, 2]', '2')
--> error: unknown function `json_contains`
--> hint: json_extract_string(x, '$.a') = 'value' compares a field
--> duckdb
true

SELECT to_json({'a': 1, 'b': [1, 2]})
--> duckdb
"{""a"":1,""b"":[1,2]}"

SELECT to_json('x')
--> duckdb
"""x"""

SELECT to_json(1.5)
--> duckdb
1.5

SELECT json_object('a', 1, 'b', 'x')
--> duckdb
"{""a"":1,""b"":""x""}"

SELECT json_array(1, 'two', NULL)
--> duckdb
"[1,""two"",null]"

SELECT json_quote('a"b')
--> duckdb
"""a\""b"""

SELECT array_to_json([1, 2])
--> duckdb
"[1,2]"

SELECT row_to_json({'a': 1})
--> duckdb
"{""a"":1}"

SELECT json_group_array(sku), json_group_object(sku, order_id) IS NOT NULL FROM 'orders.csv' WHERE user_id = 1
--> duckdb
"[""pen"",""book"",""lamp""]",true

SELECT json_merge_patch('{"a": 1}', '{"b": 2}')
--> error: unknown function `json_merge_patch`
--> hint: json_object('a', 1) writes JSON; that of a text stays as it is
--> duckdb
"{""a"":1,""b"":2}"

SELECT '{"a": {"b": 5}}'::JSON->'a'->'b'
--> duckdb
5

SELECT CAST(detail->>'weight' AS DOUBLE) * 2 FROM 'orders.csv' WHERE order_id = 104
--> duckdb
5.0

SELECT (detail->'gift')::BOOLEAN AS gift, count(*) FROM 'orders.csv' WHERE detail->>'gift' IS NOT NULL GROUP BY 1 ORDER BY 1
--> duckdb
false,1
true,2

SELECT detail->>'ship' IS NULL AS none, count(*) FROM 'orders.csv' GROUP BY ALL ORDER BY ALL
--> duckdb
false,5
true,4

SELECT json_value('{"a": 5}', '$.a')
--> duckdb
5

SELECT json_value('{"a": [1]}', '$.a')
--> duckdb
NULL

SELECT json_structure('{"a": 1, "b": ["x"]}')
--> error: unknown function `json_structure`
--> hint: --promote makes columns with types of JSON in a text; json_extract_string(x, '$.a') takes a field out of it
--> duckdb
"{""a"":""UBIGINT"",""b"":[""VARCHAR""]}"

SELECT from_json('{"a": 1, "b": "x"}', '{"a": "INTEGER", "b": "VARCHAR"}')
--> error: unknown function `from_json`
--> hint: --promote makes columns with types of JSON in a text; json_extract_string(x, '$.a') takes a field out of it
--> duckdb
"{""a"":1,""b"":""x""}"

SELECT json_transform('{"a": 1}', '{"a": "BIGINT"}')
--> error: unknown function `json_transform`
--> hint: --promote makes columns with types of JSON in a text; json_extract_string(x, '$.a') takes a field out of it
--> duckdb
"{""a"":1}"

SELECT unnest(from_json(detail->'codes', '["INTEGER"]')) AS code FROM 'orders.csv' ORDER BY code
--> pending: unknown function `from_json`
--> duckdb
1
2
3
7
8
9

SELECT je.key, je.value FROM json_each('{"a": 1, "b": 2}') AS je ORDER BY je.key
--> duckdb
a,1
b,2

SELECT json_pretty('{}')
--> error: unknown function `json_pretty`
--> hint: json_object('a', 1) writes JSON; that of a text stays as it is
--> duckdb
{}

SELECT json('{ "a" : 1 }')
--> duckdb
"{""a"":1}"

SELECT count(*) FROM 'orders.csv' WHERE detail->>'$.ship.city' = 'Berlin'
--> duckdb
2

SELECT detail->>'ship'->>'city' FROM 'orders.csv' WHERE order_id = 101
--> duckdb
Berlin

SELECT device->>'os' FROM 'events.json' WHERE id = 1
--> duckdb
ios

SELECT to_json(device) FROM 'events.json' ORDER BY id
--> duckdb
"{""os"":""ios"",""version"":17}"
"{""os"":""android"",""version"":14}"
"{""os"":""ios"",""version"":16}"
NULL
"{""os"":""linux"",""version"":6}"

SELECT json_extract('[1, 2, 3]', '$[*]')
--> duckdb
"[""1"",""2"",""3""]"

SELECT '[{"a":1},{"a":2}]'->'$[*].a'
--> duckdb
"[""1"",""2""]"

SELECT json_extract('{"a.b": 1}', '$."a.b"')
--> duckdb
1

# A row of each key.

SELECT o.order_id, e.key, e.value FROM 'orders.csv' o, json_each(o.detail) e WHERE o.order_id IN (101, 102) ORDER BY o.order_id, e.key
--> duckdb
101,codes,"[1,2,3]"
101,gift,false
101,ship,"{""city"":""Berlin"",""zip"":""10115""}"
102,codes,[]
102,gift,true
102,ship,"{""city"":""Bonn"",""zip"":""53111""}"

SELECT e.key, count(*) FROM 'orders.csv' o, json_each(o.detail) e GROUP BY e.key ORDER BY e.key
--> duckdb
codes,4
gift,4
note,1
ship,6
weight,1

SELECT o.order_id, e.key, e.value, e.type FROM 'orders.csv' o, json_each(o.detail, '$.codes') e ORDER BY o.order_id, e.key
--> duckdb
101,0,1,UBIGINT
101,1,2,UBIGINT
101,2,3,UBIGINT
103,0,7,UBIGINT
108,0,9,UBIGINT
108,1,8,UBIGINT

SELECT key, value, type FROM json_each('{"a": -1, "b": null, "c": [true]}') ORDER BY key
--> duckdb
a,-1,BIGINT
b,null,NULL
c,[true],ARRAY

SELECT key, value FROM json_each('7')
--> duckdb
NULL,7

# A value that is no text is written as JSON.
SELECT {'a': 'x', 'b': [1, NULL]}::JSON, [1, 2]::JSON, DATE '2026-01-05'::JSON, 5::JSON, '{"a":1}'::JSON, ({'os': 'ios'}::JSON)->>'os'
--> duckdb
"{""a"":""x"",""b"":[1,null]}","[1,2]","""2026-01-05""",5,"{""a"":1}",ios
