# Where engines tend to differ without saying so.

SELECT concat_ws('-', 'a', NULL), length(''), length('é')
--> spark duckdb
a,0,1

SELECT concat('a', NULL)
--> differs: concat passes over nulls, as in PostgreSQL and DuckDB; || gives null
--> tidemill
a
--> spark
NULL

SELECT substring('hello', 2), substr('hello', 9), left('abc', 0), right('abc', 5)
--> spark duckdb
ello,"","",abc

SELECT substring('hello', 0, 2)
--> differs: substring counts from 1, as in PostgreSQL; what stands before is none
--> tidemill
h
--> spark
he

SELECT instr('abc', 'c'), locate('c', 'abc'), instr('abc', ''), locate('z', 'abc')
--> spark
3,3,1,0

SELECT lpad('abc', 2, 'x'), rpad('a', 3, 'xy'), repeat('a', 0), reverse('abc'), initcap('hello wORLD')
--> spark
ab,axy,"",cba,Hello World

SELECT ltrim('  a'), rtrim('a  '), trim('  a  '), translate('abc', 'b', ''), replace('aaa', 'a', '')
--> spark duckdb
a,a,a,ac,""

SELECT upper('é'), ucase('a'), lcase('A'), ascii('é'), char_length('é')
--> spark duckdb
É,A,a,233,1

SELECT 'abc' RLIKE 'b', 'abc' RLIKE '^b', 'abc' LIKE 'A%', 'abc' ILIKE 'A%', NULL LIKE 'a'
--> spark
true,false,false,true,NULL

SELECT split_part('a,b,c', ',', 2), split_part('a,b', ',', 3), split_part('a,b', ',', -1)
--> spark duckdb
b,"",b

SELECT 7 % -3, -7 % 3, mod(-7, 3), -7 DIV 2, 7 DIV -2
--> spark
1,-1,-1,-3,-3

SELECT round(-2.5), round(0.5), round(1.45, 1), round(125, -1), ceil(-1.5), floor(1.9), abs(-2)
--> spark duckdb
-3,1,1.5,130,-1,1,2

SELECT power(2, 0.5), sqrt(2), cbrt(8), log10(1000), log2(8), ln(10), exp(1)
--> spark duckdb
1.4142135623730951,1.4142135623730951,2.0,3.0,3.0,2.302585092994046,2.7182818284590455

SELECT greatest(1, NULL, 3), least(1, NULL, 0), nullif(1, 1), coalesce(NULL, 2), nvl(NULL, 3), ifnull(NULL, 4)
--> spark
3,0,NULL,2,3,4

SELECT nvl2(NULL, 'a', 'b'), if(NULL, 1, 2), CASE WHEN false THEN 1 END
--> spark
b,2,NULL

SELECT NULL <=> NULL, 1 <=> NULL, NOT (NULL AND false), NULL OR true
--> spark
true,false,true,true

SELECT try_cast('x' AS DOUBLE), cast('1.9' AS DOUBLE), cast(-1.9 AS INT), cast(true AS INT), cast('2026-03-01 10:00:00' AS TIMESTAMP)
--> spark
NULL,1.9,-1,1,2026-03-01T10:00:00

SELECT cast(1.50 AS STRING), cast(1e10 AS STRING), cast(true AS STRING), cast(DATE '2026-03-01' AS STRING)
--> spark duckdb
1.50,1.0E10,true,2026-03-01

SELECT array_contains(array(1, NULL), 1), array_contains(array(1), 2), array_distinct(array(1, NULL, 1, NULL))
--> spark
true,false,"[1,null]"

SELECT size(array())
--> spark
0

SELECT array_max(array(1, NULL)), array_min(array(NULL, 2)), array_join(array('a', NULL, 'b'), '-')
--> spark
1,2,a-b

SELECT array_position(array(1, 2), 3)
--> differs: what is not in a list has no position, as in DuckDB and PostgreSQL
--> tidemill
NULL
--> spark
0

SELECT array_except(array(1, 1, 2), array(2)), array_union(array(1, 1), array(2))
--> spark
[1],"[1,2]"

SELECT slice(array(1, 2, 3), -2, 2)
--> spark
"[2,3]"

SELECT slice(array(1, 2, 3), 2, 5)
--> spark
"[2,3]"

SELECT flatten(array(array(1), array(2, 3))), array_repeat('a', 0), array_sort(array(2, NULL, 1))
--> spark
"[1,2,3]",[],"[1,2,null]"

SELECT sort_array(array(2, NULL, 1))
--> spark
"[null,1,2]"

SELECT arrays_overlap(array(1, 2), array(3)), array_intersect(array(1, 1, 2), array(1)), array_remove(array(1, NULL), 1), array_compact(array(NULL, 1))
--> spark
false,[1],[null],[1]

SELECT filter(array(1, NULL, 3), x -> x > 1), transform(array(1, NULL), x -> x + 1)
--> spark
[3],"[2,null]"

SELECT exists(array(NULL, 1), x -> x > 5)
--> pending: SQL is not understood: Expected: SELECT, VALUES, or a subquery in the query body, found: array at Line: 1, Column: 15 (no hint)
--> spark
NULL

SELECT map('a', 1)['b']
--> spark
NULL

SELECT map_keys(map())
--> pending: Function 'map' expected at least one argument but received 0 (no hint)
--> spark duckdb
[]

SELECT map_from_arrays(array('a', 'b'), array(1, 2))['b']
--> spark
2

SELECT last_day(DATE '2024-02-01')
--> spark duckdb
2024-02-29

SELECT add_months(DATE '2026-01-31', 1)
--> spark
2026-02-28

SELECT add_months(DATE '2026-03-31', -1)
--> spark
2026-02-28

SELECT date_add(DATE '2026-12-31', 1)
--> spark duckdb
2027-01-01

SELECT year(DATE '2026-12-31'), quarter(DATE '2026-12-31'), weekofyear(DATE '2027-01-01'), dayofyear(DATE '2024-12-31'), day(DATE '2026-03-09')
--> spark duckdb
2026,4,53,366,9

SELECT date_trunc('WEEK', TIMESTAMP '2026-03-01 10:00:00'), date_trunc('MONTH', TIMESTAMP '2026-03-17 10:00:00'), date_trunc('QUARTER', TIMESTAMP '2026-12-17 10:00:00')
--> spark duckdb
2026-02-23T00:00:00,2026-03-01T00:00:00,2026-10-01T00:00:00

SELECT to_date('2026-03-01'), to_timestamp('2026-03-01 10:00:00')
--> spark
2026-03-01,2026-03-01T10:00:00

SELECT unix_timestamp(TIMESTAMP '2026-03-01 00:00:00')
--> spark
1772323200

SELECT count(*), count(score), avg(score), sum(score) FROM 'users.csv' WHERE score IS NULL
--> spark duckdb
2,0,NULL,NULL

SELECT max_by(name, score), min_by(name, score), max_by(score, name) FROM 'users.csv'
--> spark duckdb
Eve Adams,dan,3.0

SELECT count_if(paid), count_if(NOT paid), bool_and(paid), bool_or(paid), every(qty > 0) FROM 'orders.csv'
--> spark
6,2,false,true,true

SELECT sort_array(collect_list(country)) FROM 'users.csv'
--> spark
"[""DE"",""DE"",""FR"",""US"",""US""]"

SELECT size(collect_set(country)) FROM 'users.csv'
--> spark
3

SELECT median(qty), percentile(qty, 0.25), mode(sku), stddev(qty), var_pop(qty) FROM 'orders.csv' WHERE qty <> 25
--> spark
2.0,1.0,book,3.0237157840738176,8.0

SELECT country, count(*) FROM 'users.csv' GROUP BY country ORDER BY country
--> differs: nulls are last, and first with DESC, as PostgreSQL has it
--> tidemill
DE,2
FR,1
US,2
,1
--> spark
NULL,1
DE,2
FR,1
US,2

SELECT country, count(*) FROM 'users.csv' GROUP BY country ORDER BY country DESC
--> spark duckdb
US,2
FR,1
DE,2
NULL,1

SELECT score FROM 'users.csv' ORDER BY score
--> differs: nulls are last, and first with DESC, as PostgreSQL has it
--> tidemill
3.0
7.25
8.5
9.75
""
""
--> spark
NULL
NULL
3.0
7.25
8.5
9.75

SELECT score FROM 'users.csv' ORDER BY score LIMIT 2
--> differs: nulls are last, and first with DESC, as PostgreSQL has it
--> tidemill
3.0
7.25
--> spark
NULL
NULL

SELECT name FROM 'users.csv' ORDER BY name
--> spark duckdb
Ann Lee
Bob O'Neil
Chloé
Eve Adams
Finn
dan

SELECT rank() OVER (ORDER BY country) FROM 'users.csv' ORDER BY name
--> differs: nulls are last, and first with DESC, as PostgreSQL has it
--> tidemill
1
4
3
1
6
4
--> spark
2
5
4
2
1
5

SELECT name, lag(score, 1) OVER (ORDER BY user_id), lead(score, 1, -1) OVER (ORDER BY user_id) FROM 'users.csv' ORDER BY user_id
--> spark duckdb
Ann Lee,NULL,NULL
Bob O'Neil,8.5,7.25
Chloé,NULL,3.0
dan,7.25,9.75
Eve Adams,3.0,NULL
Finn,9.75,-1.0

SELECT name FROM 'users.csv' WHERE user_id NOT IN (SELECT user_id FROM 'requests.csv') ORDER BY name
--> spark duckdb

SELECT u.name, count(o.order_id) FROM 'users.csv' u LEFT OUTER JOIN 'orders.csv' o ON u.user_id = o.user_id GROUP BY u.name ORDER BY u.name
--> spark duckdb
Ann Lee,3
Bob O'Neil,1
Chloé,2
Eve Adams,2
Finn,0
dan,0
