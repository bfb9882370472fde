# Numbers, conditions, casts, arrays, maps and structs.

SELECT 7 DIV 2, -7 DIV 2, 7 % 3, mod(7, 3)
--> spark
3,-3,1,1

SELECT 7 / 2
--> spark duckdb
3.5

SELECT pmod(-7, 3)
--> spark
2

SELECT round(2.5), round(2.567, 1), ceil(1.2), floor(-1.2)
--> spark duckdb
3,2.6,2,-2

SELECT bround(2.5)
--> spark
2

SELECT rint(2.5)
--> spark
2.0

SELECT round(1234.5, -2)
--> spark duckdb
1200

SELECT pow(2, 3), power(2, 3), sqrt(16), cbrt(27), exp(0), ln(1), log(10, 100), log2(8), log10(100)
--> spark duckdb
8.0,8.0,4.0,3.0,1.0,0.0,2.0,3.0,2.0

SELECT log1p(0)
--> spark
0.0

SELECT expm1(0)
--> spark
0.0

SELECT abs(-1), signum(3), negative(1), factorial(5), greatest(1, 2, NULL), least(1, NULL)
--> spark
1,1.0,-1,120,2,1

SELECT sign(-2)
--> spark duckdb
-1.0

SELECT positive(1)
--> spark
1

SELECT hypot(3, 4)
--> spark
5.0

SELECT 5 & 3, 5 | 3, shiftleft(1, 4), shiftright(16, 2)
--> spark
1,7,16,4

SELECT 5 ^ 3
--> differs: a ^ b is the power, as in PostgreSQL and DuckDB; bit_xor(a, b) or a # b elsewhere
--> tidemill
125.0
--> spark
6

SELECT ~5
--> spark duckdb
-6

SELECT bit_count(7)
--> spark duckdb
3

SELECT bit_get(5, 0)
--> spark
1

SELECT getbit(5, 1)
--> spark
0

SELECT 1 << 3, 16 >> 1
--> spark duckdb
8,8

SELECT conv('ff', 16, 10)
--> error: unknown function `conv`
--> hint: to_hex(n) and bin(n) write a whole number in digits
--> spark
255

SELECT bin(5)
--> spark duckdb
101

SELECT width_bucket(5.3, 0.2, 10.6, 5)
--> spark
3

SELECT if(status >= 400, 'bad', 'ok') AS s, count(*) FROM 'requests.csv' GROUP BY s ORDER BY s
--> spark duckdb
bad,4
ok,11

SELECT CASE WHEN ms > 100 THEN 'slow' ELSE 'fast' END AS s, count(*) FROM 'requests.csv' GROUP BY s ORDER BY s
--> spark duckdb
fast,12
slow,3

SELECT nvl(email, 'none'), nvl2(email, 'yes', 'no'), ifnull(country, '?'), coalesce(NULL, 1), nullif(plan, 'free'), nullifzero(0), zeroifnull(NULL) FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id
--> spark
none,no,DE,1,team,NULL,0
finn@example.com,yes,?,1,NULL,NULL,0

SELECT name FROM 'users.csv' WHERE isnull(email) OR isnotnull(email) AND score <=> NULL ORDER BY name
--> spark
Bob O'Neil
Eve Adams
Finn

SELECT decode(plan, 'pro', 1, 'free', 0, -1) FROM 'users.csv' ORDER BY user_id
--> spark
1
0
1
0
-1
0

SELECT nanvl(double('nan'), 0), isnan(double('nan'))
--> spark
0.0,true

SELECT int('42'), bigint('42'), double('1.5'), string(5), boolean('true'), date('2026-03-01'), float('0.5')
--> spark
42,42,1.5,5,true,2026-03-01,0.5

SELECT decimal('3') = 3
--> spark
true

SELECT cast('42' AS INT), try_cast('x' AS INT), cast(1.9 AS INT), cast('2026-03-01' AS DATE)
--> spark
42,NULL,1,2026-03-01

SELECT '5' + 1
--> pending: there is no `TEXT + BIGINT`
--> spark
6

SELECT try_divide(1, 0)
--> spark
NULL

SELECT try_add(1, 2)
--> spark
3

SELECT try_subtract(3, 1)
--> spark
2

SELECT try_multiply(2, 3)
--> spark
6

SELECT try_divide(6, 4)
--> spark
1.5

SELECT try_to_number('x', '999')
--> spark
NULL

SELECT array(1, 2, 3)
--> spark
"[1,2,3]"

SELECT array(1, 2, 3)[0]
--> differs: lists are counted from 1, as in DuckDB, PostgreSQL and ClickHouse
--> tidemill
NULL
--> spark
1

SELECT element_at(array(1, 2, 3), 1)
--> spark
1

SELECT element_at(array(1, 2), -1)
--> spark
2

SELECT get(array(1, 2), 1)
--> spark
2

SELECT cardinality(array(1, 2)), array_contains(array(1, 2), 2)
--> spark
2,true

SELECT size(array(1, 2))
--> spark
2

SELECT array_size(array(1))
--> spark
1

SELECT sort_array(array(3, 1, 2)), array_sort(array(3, 1)), array_distinct(array(1, 1, 2)), array_max(array(1, 5)), array_min(array(1, 5))
--> spark
"[1,2,3]","[1,3]","[1,2]",5,1

SELECT sort_array(array(3, 1, 2), false)
--> spark
"[3,2,1]"

SELECT array_union(array(1, 2), array(2, 3)), array_intersect(array(1, 2), array(2)), array_except(array(1, 2), array(2)), arrays_overlap(array(1), array(1))
--> spark
"[1,2,3]",[2],[1],true

SELECT reverse(array(1, 2)), flatten(array(array(1), array(2))), array_repeat('a', 2), sequence(1, 5, 2)
--> spark
"[2,1]","[1,2]","[""a"",""a""]","[1,3,5]"

SELECT slice(array(1, 2, 3, 4), 2, 2)
--> spark
"[2,3]"

SELECT concat(array(1), array(2))
--> spark
"[1,2]"

SELECT array_position(array(5, 6), 6), array_append(array(1), 2), array_compact(array(1, NULL))
--> spark
2,"[1,2]",[1]

SELECT array_remove(array(1, 2, 1), 1)
--> spark
[2]

SELECT array_prepend(array(1), 0)
--> error: there is no `array_prepend(BIGINT[], BIGINT)`
--> hint: it is called as array_prepend(element, array)
--> spark
"[0,1]"

SELECT array_insert(array(1, 3), 2, 2)
--> spark
"[1,2,3]"

SELECT transform(array(1, 2, 3), x -> x + 1), filter(array(1, 2, 3), x -> x > 1)
--> spark
"[2,3,4]","[2,3]"

SELECT exists(array(1, 2), x -> x > 1)
--> pending: SQL is not understood: Expected: SELECT, VALUES, or a subquery in the query body, found: array at Line: 1, Column: 15 (no hint)
--> spark
true

SELECT forall(array(1, 2), x -> x > 1)
--> spark
false

SELECT transform(array(5, 6), (x, i) -> x + i)
--> spark
"[5,7]"

SELECT aggregate(array(1, 2, 3), 0, (acc, x) -> acc + x)
--> spark
6

SELECT reduce(array(1, 2), 0, (a, x) -> a + x)
--> spark
3

SELECT zip_with(array(1, 2), array(10, 20), (x, y) -> x + y)
--> pending: `(x, y) -> x + y` is not supported
--> spark
"[11,22]"

SELECT arrays_zip(array(1), array('a'))
--> differs: fields without names are counted from 1
--> tidemill
"[{""1"":1,""2"":""a""}]"
--> spark
"[{""0"":1,""1"":""a""}]"

SELECT array_sort(array(3, 1, 2), (a, b) -> b - a)
--> pending: unknown column `a`
--> spark
"[3,2,1]"

SELECT map('a', 1, 'b', 2)['a'], map_keys(map('a', 1)), map_values(map('a', 1))
--> spark
1,"[""a""]",[1]

SELECT element_at(map('a', 1), 'a')
--> spark
1

SELECT map_contains_key(map('a', 1), 'b')
--> spark
false

SELECT map_entries(map('a', 1))
--> spark
"[{""key"":""a"",""value"":1}]"

SELECT map_from_arrays(array('a'), array(1))
--> spark
"{""a"":1}"

SELECT map_from_entries(array(struct('a', 1)))
--> spark
"{""a"":1}"

SELECT map_concat(map('a', 1), map('b', 2))
--> spark
"{""a"":1,""b"":2}"

SELECT map_filter(map('a', 1, 'b', 2), (k, v) -> v > 1)
--> pending: `(k, v) -> v > 1` is not supported
--> spark
"{""b"":2}"

SELECT transform_values(map('a', 1), (k, v) -> v + 1)
--> pending: `(k, v) -> v + 1` is not supported
--> spark
"{""a"":2}"

SELECT transform_keys(map('a', 1), (k, v) -> upper(k))
--> pending: unknown function `transform_keys`
--> spark
"{""A"":1}"

SELECT named_struct('a', 1, 'b', 'x').b
--> spark
x

SELECT struct(1, 'x').col2
--> pending: the struct has no field `col2`
--> spark
x

SELECT device.os, device.version FROM 'events.json' ORDER BY id
--> spark duckdb
ios,17
android,14
ios,16
NULL,NULL
linux,6

SELECT id, explode(tags) AS tag FROM 'events.json' ORDER BY id, tag
--> spark
1,a
1,a
1,b
2,c
5,b
5,c

SELECT id, posexplode(tags) FROM 'events.json' ORDER BY id, pos
--> error: unknown function `posexplode`
--> hint: SELECT unnest(list) AS col, unnest(range(0, array_length(list))) AS pos
--> spark
1,0,a
1,1,b
1,2,a
2,0,c
5,0,b
5,1,c

SELECT id, explode_outer(nums) AS n FROM 'events.json' ORDER BY id, n
--> spark
1,1
1,2
1,3
2,10
3,5
3,5
4,NULL
5,7
5,8
5,9
5,10

SELECT id, tag FROM 'events.json' LATERAL VIEW explode(tags) t AS tag ORDER BY id, tag
--> spark
1,a
1,a
1,b
2,c
5,b
5,c

SELECT id, tag FROM 'events.json' LATERAL VIEW OUTER explode(tags) t AS tag ORDER BY id, tag
--> spark
1,a
1,a
1,b
2,c
3,NULL
4,NULL
5,b
5,c

SELECT tag, count(*) FROM 'events.json' LATERAL VIEW explode(tags) AS tag GROUP BY tag ORDER BY tag
--> spark
a,2
b,2
c,2

SELECT e.id, t.pos, t.col FROM 'events.json' e, LATERAL posexplode(e.nums) AS t ORDER BY e.id, t.pos
--> pending: a BIGINT has no fields
--> spark
1,0,3
1,1,1
1,2,2
2,0,10
3,0,5
3,1,5
5,0,7
5,1,8
5,2,9
5,3,10

SELECT stack(2, 1, 'a', 2, 'b')
--> error: unknown function `stack`
--> hint: FROM (VALUES (1, 'a'), (2, 'b')) AS t(n, x) is a table of values
--> spark
1,a
2,b

SELECT inline(array(struct(1, 'a'), struct(2, 'b')))
--> error: unknown function `inline`
--> hint: SELECT s['a'] AS a, s['b'] AS b FROM (SELECT unnest(list) AS s FROM t)
--> spark
1,a
2,b

SELECT monotonically_increasing_id() IS NOT NULL
--> error: unknown function `monotonically_increasing_id`
--> hint: row_number() OVER (ORDER BY ts) numbers rows
--> spark
true

SELECT rand(1) BETWEEN 0 AND 1
--> spark
true

SELECT randn(1) IS NOT NULL
--> spark
true

SELECT assert_true(true)
--> spark duckdb
NULL

SELECT equal_null(NULL, NULL), isnull(NULL), 1 <=> NULL, NULL <=> NULL, 1 == 1, 1 != 2, NOT true
--> spark
true,true,false,true,true,true,false

SELECT `name`, `plan` AS `the plan` FROM 'users.csv' ORDER BY `name` LIMIT 2
--> spark duckdb
Ann Lee,pro
Bob O'Neil,free

SELECT 1L, 2S, 3Y, 1.5D, 2.5F, 1e3, 5BD
--> spark duckdb
1,2,3,1.5,2.5,1000.0,5

SELECT transform(array(10, 20), (x, i) -> x + i), filter(array(10, 20, 30), (x, i) -> i > 0)
--> spark
"[10,21]","[20,30]"
