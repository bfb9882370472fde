# What a SELECT of DuckDB's has beside SQL's own clauses.

FROM 'sales.csv' SELECT region, sum(amount) AS s GROUP BY region ORDER BY region
--> duckdb
north,370
south,350

FROM 'wide.csv'
--> duckdb
x,10,20,NULL
y,5,NULL,7
z,1,2,3

SELECT * EXCLUDE (email, tags, signed_up) FROM 'users.csv' ORDER BY user_id LIMIT 2
--> duckdb names
user_id,name,country,plan,score
1,Ann Lee,DE,pro,8.5
2,Bob O'Neil,US,free,NULL

SELECT * EXCLUDE detail FROM 'orders.csv' ORDER BY order_id LIMIT 1
--> duckdb
101,1,2026-01-05,pen,10,1.5,true

SELECT * REPLACE (upper(plan) AS plan) FROM 'users.csv' ORDER BY user_id LIMIT 1
--> duckdb
1,Ann Lee,ann@example.com,DE,PRO,2025-01-15,8.5,new|vip

SELECT * RENAME (jan AS january) FROM 'wide.csv' ORDER BY shop
--> duckdb names
shop,january,feb,mar
x,10,20,NULL
y,5,NULL,7
z,1,2,3

SELECT * ILIKE '%r' FROM 'wide.csv' ORDER BY ALL
--> duckdb names
mar
3
7
NULL

SELECT * LIKE 'm%' FROM 'wide.csv' ORDER BY ALL
--> duckdb names
mar
3
7
NULL

SELECT * SIMILAR TO '(jan|feb)' FROM 'wide.csv' ORDER BY ALL
--> duckdb names
jan,feb
1,2
5,NULL
10,20

SELECT COLUMNS('^(jan|feb)$') FROM 'wide.csv' ORDER BY shop
--> duckdb names
jan,feb
10,20
5,NULL
1,2

SELECT sum(COLUMNS('jan|feb|mar')) FROM 'wide.csv'
--> duckdb
16,22,10

SELECT max(COLUMNS(* EXCLUDE shop)) FROM 'wide.csv'
--> duckdb
10,20,7

SELECT shop, COLUMNS(c -> c LIKE '%a%') FROM 'wide.csv' ORDER BY shop
--> duckdb
x,10,NULL
y,5,7
z,1,3

SELECT coalesce(*COLUMNS(* EXCLUDE shop)) AS first FROM 'wide.csv' ORDER BY shop
--> pending: SQL is not understood: Expected: ), found: COLUMNS at Line: 1, Column: 18
--> duckdb
10
5
1

SELECT * FROM 'wide.csv' WHERE COLUMNS(* EXCLUDE shop) > 1 ORDER BY shop
--> duckdb

SELECT COLUMNS(*)::VARCHAR FROM 'wide.csv' ORDER BY shop
--> duckdb
x,10,20,NULL
y,5,NULL,7
z,1,2,3

SELECT COLUMNS('(\w{2}).*') AS '\1' FROM 'wide.csv' ORDER BY 1
--> duckdb names
sh,ja,fe,ma
x,10,20,NULL
y,5,NULL,7
z,1,2,3

SELECT min(COLUMNS(*)), count(COLUMNS(*)) FROM 'wide.csv'
--> duckdb
x,1,2,3,3,3,2,2

SELECT region, year, sum(amount) FROM 'sales.csv' GROUP BY ALL ORDER BY ALL
--> duckdb
north,2024,250
north,2025,120
south,2024,170
south,2025,180

SELECT region, year, sum(amount) FROM 'sales.csv' GROUP BY ALL ORDER BY ALL DESC NULLS LAST
--> duckdb
south,2025,180
south,2024,170
north,2025,120
north,2024,250

SELECT region, sum(amount) AS total FROM 'sales.csv' GROUP BY region HAVING total > 350 ORDER BY total
--> duckdb
north,370

SELECT qty * price AS cost, cost * 1.5 AS gross FROM 'orders.csv' WHERE cost > 30 ORDER BY cost
--> duckdb
31.25,46.875
42.5,63.75
49.8,74.69999999999999
79.9,119.85000000000001
88.0,132.0
310.0,465.0

SELECT year(day) AS y, month(day) AS m, count(*) AS n FROM 'orders.csv' GROUP BY y, m ORDER BY y, m
--> duckdb
2026,1,2
2026,2,3
2026,3,4

SELECT upper(sku) AS u, count(*) FROM 'orders.csv' GROUP BY u HAVING u <> 'DESK' ORDER BY u
--> duckdb
BOOK,3
LAMP,2
PEN,3

SELECT region, year, sum(amount) FROM 'sales.csv' GROUP BY ROLLUP (region, year) ORDER BY region NULLS LAST, year NULLS LAST
--> duckdb
north,2024,250
north,2025,120
north,NULL,370
south,2024,170
south,2025,180
south,NULL,350
NULL,NULL,720

SELECT region, year, sum(amount), grouping(region, year) AS g FROM 'sales.csv' GROUP BY CUBE (region, year) ORDER BY g, region, year
--> duckdb
north,2024,250,0
north,2025,120,0
south,2024,170,0
south,2025,180,0
north,NULL,370,1
south,NULL,350,1
NULL,2024,420,2
NULL,2025,300,2
NULL,NULL,720,3

SELECT region, quarter, count(amount) FROM 'sales.csv' GROUP BY GROUPING SETS ((region), (quarter), ()) ORDER BY ALL NULLS LAST
--> duckdb
north,NULL,3
south,NULL,4
NULL,1,4
NULL,2,3
NULL,NULL,7

SELECT region, grouping_id(region) AS g, sum(amount) FROM 'sales.csv' GROUP BY ROLLUP (region) ORDER BY g, region
--> duckdb
north,0,370
south,0,350
NULL,1,720

PIVOT 'sales.csv' ON year USING sum(amount) GROUP BY region ORDER BY region
--> duckdb
north,250,120
south,170,180

PIVOT 'sales.csv' ON year IN (2024, 2025) USING sum(amount) AS total, count(*) AS n GROUP BY region ORDER BY region
--> duckdb names
region,2024_total,2024_n,2025_total,2025_n
north,250,2,120,2
south,170,2,180,2

SELECT * FROM (PIVOT 'sales.csv' ON quarter USING max(amount) GROUP BY region) ORDER BY region
--> duckdb names
region,1,2
north,120,150
south,80,110

SELECT * FROM (SELECT region, year, amount FROM 'sales.csv') PIVOT (sum(amount) FOR year IN (2024, 2025)) ORDER BY region
--> duckdb names
region,2024,2025
north,250,120
south,170,180

FROM 'sales.csv' PIVOT (sum(amount) FOR year IN (2024, 2025) GROUP BY region) ORDER BY region
--> pending: SQL is not understood: Expected: ), found: GROUP at Line: 1, Column: 62
--> duckdb
north,250,120
south,170,180

UNPIVOT 'wide.csv' ON jan, feb, mar INTO NAME month VALUE n ORDER BY ALL
--> duckdb names
shop,month,n
x,feb,20
x,jan,10
y,jan,5
y,mar,7
z,feb,2
z,jan,1
z,mar,3

UNPIVOT 'wide.csv' ON COLUMNS(* EXCLUDE shop) INTO NAME month VALUE n ORDER BY ALL
--> duckdb
x,feb,20
x,jan,10
y,jan,5
y,mar,7
z,feb,2
z,jan,1
z,mar,3

SELECT * FROM 'wide.csv' UNPIVOT (n FOR month IN (jan, feb, mar)) ORDER BY shop, month
--> duckdb
x,feb,20
x,jan,10
y,jan,5
y,mar,7
z,feb,2
z,jan,1
z,mar,3

SELECT * FROM 'wide.csv' UNPIVOT INCLUDE NULLS (n FOR month IN (jan, feb, mar)) ORDER BY shop, month
--> duckdb
x,feb,20
x,jan,10
x,mar,NULL
y,feb,NULL
y,jan,5
y,mar,7
z,feb,2
z,jan,1
z,mar,3

SELECT DISTINCT ON (sku) sku, price, day FROM 'orders.csv' ORDER BY sku, day DESC
--> duckdb
book,22.0,2026-03-31
desk,310.0,2026-03-02
lamp,42.5,2026-03-02
pen,1.25,2026-03-01

SELECT DISTINCT method, status FROM 'requests.csv' ORDER BY ALL
--> duckdb
DELETE,204
GET,200
GET,403
GET,404
GET,503
POST,200
POST,302
POST,500

SELECT id FROM 'requests.csv' ORDER BY id LIMIT 20%
--> duckdb
1
2
3

SELECT id FROM 'requests.csv' ORDER BY id LIMIT 2 OFFSET 3
--> duckdb
4
5

SELECT id FROM 'requests.csv' ORDER BY id LIMIT (SELECT 2)
--> pending: LIMIT and OFFSET take a whole number
--> duckdb
1
2

SELECT id FROM 'requests.csv' ORDER BY ms DESC FETCH FIRST 2 ROWS ONLY
--> duckdb
14
8

SELECT count(*) FROM 'requests.csv' USING SAMPLE 100%
--> duckdb
15

SELECT count(*) FROM (SELECT * FROM 'requests.csv' USING SAMPLE 5 ROWS)
--> duckdb
5

SELECT count(*) FROM 'requests.csv' TABLESAMPLE reservoir(4)
--> duckdb
4

SELECT count(*) FROM 'requests.csv' TABLESAMPLE bernoulli(100 PERCENT) REPEATABLE (1)
--> duckdb
15

VALUES (1, 'a'), (2, 'b')
--> duckdb
1,a
2,b

SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(n, s) ORDER BY n DESC
--> duckdb
2,b
1,a

SELECT * FROM range(3)
--> duckdb
0
1
2

SELECT * FROM range(1, 10, 4) AS t(x)
--> duckdb
1
5
9

SELECT * FROM generate_series(1, 3)
--> duckdb
1
2
3

SELECT * FROM generate_series(DATE '2026-03-01', DATE '2026-03-03', INTERVAL 1 DAY) AS t(d)
--> differs: a range of dates by whole days is one of dates
--> tidemill
2026-03-01
2026-03-02
2026-03-03
--> duckdb
2026-03-01T00:00:00
2026-03-02T00:00:00
2026-03-03T00:00:00

SELECT count(order_id) FROM range(DATE '2026-03-01', DATE '2026-03-04', INTERVAL 1 DAY) LEFT JOIN 'orders.csv' ON day = range GROUP BY range ORDER BY range
--> duckdb
1
2
0

SELECT range FROM range(DATE '2026-03-01', DATE '2026-03-04', INTERVAL 1 DAY) LEFT JOIN 'orders.csv' ON day = range GROUP BY range ORDER BY range
--> differs: a range of dates by whole days is one of dates
--> tidemill
2026-03-01
2026-03-02
2026-03-03
--> duckdb
2026-03-01T00:00:00
2026-03-02T00:00:00
2026-03-03T00:00:00

WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 4) SELECT * FROM t
--> duckdb
1
2
3
4

WITH RECURSIVE chain AS (SELECT id, name, 0 AS depth FROM 'employees.csv' WHERE manager_id IS NULL UNION ALL SELECT e.id, e.name, c.depth + 1 FROM 'employees.csv' e JOIN chain c ON e.manager_id = c.id) SELECT name, depth FROM chain ORDER BY depth, name
--> duckdb
root,0
dev,1
ops,1
api,2
db,2
web,2

WITH big AS MATERIALIZED (SELECT * FROM 'orders.csv' WHERE qty > 5) SELECT count(*) FROM big
--> duckdb
2

SELECT 1 AS x UNION SELECT 1 UNION ALL SELECT 2 ORDER BY x
--> duckdb
1
2

SELECT 1 AS a, 2 AS b UNION BY NAME SELECT 3 AS b, 4 AS c ORDER BY ALL
--> duckdb
1,2,NULL
NULL,3,4

SELECT sku FROM 'orders.csv' EXCEPT SELECT sku FROM 'prices.csv'
--> duckdb
desk

SELECT sku FROM 'orders.csv' INTERSECT SELECT sku FROM 'prices.csv' ORDER BY sku
--> duckdb
book
lamp
pen

SELECT user_id FROM 'orders.csv' EXCEPT ALL SELECT user_id FROM 'users.csv' ORDER BY ALL
--> duckdb
1
1
3
5
9

SELECT * FROM 'users.csv' WHERE #1 = 1
--> pending: unknown column `#1` (no hint)
--> duckdb
1,Ann Lee,ann@example.com,DE,pro,2025-01-15,8.5,new|vip

SELECT region: 'x'
--> pending: SQL is not understood: Expected: end of statement, found: : at Line: 1, Column: 14
--> duckdb
x

SELECT n: 5
--> pending: SQL is not understood: Expected: end of statement, found: : at Line: 1, Column: 9
--> duckdb
5

SELECT 'a' AS "quoted name", 1 AS n;
--> duckdb
a,1

DESCRIBE 'wide.csv'
--> tidemill names
column_name,column_type,null
shop,TEXT,YES
jan,BIGINT,YES
feb,BIGINT,YES
mar,BIGINT,YES

DESCRIBE SELECT day, qty * price AS cost FROM 'orders.csv'
--> tidemill names
column_name,column_type,null
day,DATE,YES
cost,DOUBLE,YES

SUMMARIZE 'wide.csv'
--> tidemill names
column_name,column_type,min,max,approx_unique,avg,std,q25,q50,q75,count,nulls,null_percentage
shop,TEXT,x,z,3,,,,,,3,0,0.0
jan,BIGINT,1,10,3,5.333333333333333,4.509249752822894,3.0,5.0,7.5,3,0,0.0
feb,BIGINT,2,20,2,11.0,12.727922061357855,6.5,11.0,15.5,3,1,33.33
mar,BIGINT,3,7,2,5.0,2.8284271247461903,4.0,5.0,6.0,3,1,33.33

EXPLAIN SELECT 1
--> flags: --memory 1GB --threads 1
--> tidemill
path: datafusion (the query reads no source)
"budget: 1.00 GB of memory, 1 thread"
plan:
  Projection: Int64(1)
    EmptyRelation: rows=1

SHOW TABLES
--> error: `SHOW` is not run here
--> hint: a query is one SELECT; results are written with -o FILE or a job file's [sink]
--> duckdb

SELECT getvariable('x') IS NULL
--> error: unknown function `getvariable`
--> hint: a value from outside is a parameter: $x with --param x=1
--> duckdb
true

SELECT (SELECT max(price) FROM 'prices.csv') AS top, count(*) FROM 'orders.csv'
--> duckdb
42.5,9

SELECT name FROM 'users.csv' u WHERE EXISTS (SELECT 1 FROM 'orders.csv' o WHERE o.user_id = u.user_id AND o.paid) ORDER BY name
--> duckdb
Ann Lee
Chloé
Eve Adams

SELECT name FROM 'users.csv' WHERE user_id NOT IN (SELECT user_id FROM 'orders.csv') ORDER BY name
--> duckdb
Finn
dan

SELECT name, (SELECT count(*) FROM 'orders.csv' o WHERE o.user_id = u.user_id) AS n FROM 'users.csv' u ORDER BY u.user_id
--> duckdb
Ann Lee,3
Bob O'Neil,1
Chloé,2
dan,0
Eve Adams,2
Finn,0

SELECT order_id FROM 'orders.csv' WHERE price > ALL (SELECT price FROM 'prices.csv')
--> duckdb
107

SELECT ARRAY(SELECT sku FROM 'prices.csv' WHERE price < 10 ORDER BY since)
--> duckdb
"[""pen"",""pen""]"

SELECT count(*) FROM 'orders.csv' WHERE (sku, qty) IN (('pen', 10), ('book', 4))
--> duckdb
2

SELECT sku, qty FROM 'orders.csv' ORDER BY qty DESC, sku LIMIT 3
--> duckdb
pen,25
pen,10
book,4

SELECT user_id, sum(qty) FROM 'orders.csv' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2
--> duckdb
5,27
1,12

SELECT id FROM 'requests.csv' ORDER BY id OFFSET 13
--> duckdb
14
15

SELECT count(*), sum(range), min(range), max(range) FROM range(-5, 1000000, 7)
--> duckdb
142858,71428214281,-5,999994

SELECT a.range AS x, b.range AS y FROM range(3) a JOIN range(1, 4) b ON a.range = b.range ORDER BY x
--> duckdb
1,1
2,2

SELECT count(*) FROM range(5, 5)
--> duckdb
0

SELECT * FROM generate_series(3, -3, -2) ORDER BY 1
--> duckdb
-3
-1
1
3

SELECT d::DATE AS day, count(id) AS hits FROM generate_series(TIMESTAMP '2026-03-01', TIMESTAMP '2026-03-04', INTERVAL 1 DAY) t(d) LEFT JOIN 'requests.csv' ON date_trunc('day', ts) = d GROUP BY d ORDER BY d
--> duckdb
2026-03-01,6
2026-03-02,4
2026-03-03,2
2026-03-04,0

SELECT id FROM 'requests.csv' r WHERE (r.user_id, status) IN (SELECT user_id, max(status) FROM 'requests.csv' GROUP BY user_id) ORDER BY id
--> duckdb
3
8
10
11
13
14

UNPIVOT (SELECT id, status FROM 'requests.csv' WHERE id < 3) ON COLUMNS('^s') ORDER BY id
--> duckdb
1,status,200
2,status,200

UNPIVOT (SELECT 1 AS id, 2 AS a, 3 AS b) ON * EXCLUDE (id) INTO NAME n VALUE v ORDER BY n
--> duckdb
1,a,2
1,b,3

SELECT * FROM (SELECT 1 AS id, 2 AS a, NULL AS b) UNPIVOT INCLUDE NULLS (v FOR n IN (COLUMNS('^[ab]$'))) ORDER BY n
--> duckdb
1,a,2
1,b,

SELECT to_timestamp(1446249499.322) = epoch_ms(1446249499322) AS same
--> tidemill
true

SELECT * FROM (SELECT plan AS user, country, user_id AS n FROM 'users.csv' WHERE user_id < 4) PIVOT (sum(n) FOR user IN ('pro', 'free')) ORDER BY country
--> duckdb
DE,1,NULL
FR,3,NULL
US,NULL,2

# Whole numbers as conditions.
SELECT count(*) FROM 'users.csv' WHERE user_id < 3 AND 1
--> duckdb
2

SELECT 1 AND 0, 2 OR NULL, NOT 0, CASE WHEN 2 THEN 'a' ELSE 'b' END
--> duckdb
false,true,true,a

SELECT count(*) FROM 'users.csv' WHERE 0
--> duckdb
0

SELECT DISTINCT ON (i % 2) i FROM range(5) t(i) ORDER BY i DESC
--> duckdb
4
3

SELECT DISTINCT ON (1) i % 3, i FROM range(7) t(i) ORDER BY i DESC
--> duckdb
0,6
2,5
1,4

SELECT t.i, u.j FROM range(3) t(i), (SELECT i + 1 AS j) u ORDER BY i
--> duckdb
0,1
1,2
2,3

SELECT i, (i, 1) < ANY (SELECT j, j FROM range(2) u(j)) FROM range(3) t(i) ORDER BY i
--> duckdb
0,true
1,false
2,false

SELECT i, (i, NULL) <> ALL (SELECT j, j FROM range(2) u(j)), (i, 1) = ANY (SELECT j, j FROM range(2) u(j)) FROM range(3) t(i) ORDER BY i
--> duckdb
0,NULL,false
1,NULL,true
2,true,false

SELECT i FROM range(9) t(i) ORDER BY i LIMIT 1.5
--> duckdb
0
1

# A number that is called by a name is no place of a column.
SELECT 2026 AS year, plan, count(*) FROM 'users.csv' GROUP BY year, plan ORDER BY plan LIMIT 1
--> duckdb
2026,free,3
