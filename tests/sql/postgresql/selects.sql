# Aggregates, windows, joins and clauses.

SELECT count(*), count(email), count(DISTINCT plan) FROM 'users.csv'
--> postgresql duckdb
6,5,3

SELECT plan, count(*) FILTER (WHERE score > 5) AS good, avg(score) AS mean FROM 'users.csv' GROUP BY plan ORDER BY plan
--> postgresql duckdb
free,0,3.0
pro,2,7.875
team,1,9.75

SELECT string_agg(name, ', ' ORDER BY user_id DESC) FROM 'users.csv'
--> postgresql duckdb
"Finn, Eve Adams, dan, Chloé, Bob O'Neil, Ann Lee"

SELECT bool_and(paid), bool_or(paid), every(qty > 0) FROM 'orders.csv'
--> postgresql
false,true,true

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_disc(0.9) WITHIN GROUP (ORDER BY ms) FROM 'requests.csv'
--> postgresql duckdb
22.0,950.5

SELECT percentile_cont(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY ms) FROM 'requests.csv'
--> postgresql duckdb
"[10.875,72.125]"

SELECT mode() WITHIN GROUP (ORDER BY method) FROM 'requests.csv'
--> postgresql duckdb
GET

SELECT stddev(ms), stddev_samp(ms), var_pop(ms), variance(ms) FROM 'requests.csv' WHERE status = 200
--> postgresql duckdb
64.37327397901848,64.37327397901848,3683.4830246913575,4143.918402777777

SELECT corr(price, qty), regr_slope(price, qty), covar_pop(price, qty) FROM 'orders.csv'
--> postgresql duckdb
-0.3090998998638541,-3.8542828237410074,-211.65246913580245

SELECT bit_and(status), bit_or(status) FROM 'requests.csv'
--> postgresql duckdb
0,511

SELECT rank(20) WITHIN GROUP (ORDER BY ms), dense_rank(20) WITHIN GROUP (ORDER BY ms) FROM 'requests.csv'
--> pending: `rank` is a window function, and has no OVER
--> postgresql
8,8

SELECT sku, sum(qty * price)::numeric(10, 2) AS total FROM 'orders.csv' GROUP BY sku HAVING sum(qty * price) > 100 ORDER BY total DESC
--> postgresql duckdb
desk,310.00
book,162.70
lamp,122.40

SELECT method, status, count(*) FROM 'requests.csv' GROUP BY GROUPING SETS ((method), (status), ()) ORDER BY method, status
--> postgresql duckdb
DELETE,NULL,1
GET,NULL,11
POST,NULL,3
NULL,200,9
NULL,204,1
NULL,302,1
NULL,403,1
NULL,404,1
NULL,500,1
NULL,503,1
NULL,NULL,15

SELECT region, year, sum(amount), grouping(region, year) FROM 'sales.csv' GROUP BY ROLLUP (region, year) ORDER BY region, year
--> postgresql duckdb
north,2024,250,0
north,2025,120,0
north,NULL,370,1
south,2024,170,0
south,2025,180,0
south,NULL,350,1
NULL,NULL,720,3

SELECT region, year, count(*) FROM 'sales.csv' GROUP BY CUBE (region, year) ORDER BY region NULLS FIRST, year NULLS FIRST
--> postgresql duckdb
NULL,NULL,8
NULL,2024,4
NULL,2025,4
north,NULL,4
north,2024,2
north,2025,2
south,NULL,4
south,2024,2
south,2025,2

SELECT DISTINCT ON (user_id) user_id, order_id, day FROM 'orders.csv' ORDER BY user_id, day DESC, order_id DESC
--> postgresql duckdb
1,108,2026-03-02
2,103,2026-02-03
3,109,2026-03-31
5,106,2026-03-01
9,107,2026-03-02

SELECT user_id, order_id, row_number() OVER (PARTITION BY user_id ORDER BY day, order_id) FROM 'orders.csv' ORDER BY order_id
--> postgresql duckdb
1,101,1
1,102,2
2,103,1
3,104,1
5,105,1
5,106,2
9,107,1
1,108,3
3,109,2

SELECT * FROM (SELECT order_id, sku, row_number() OVER (PARTITION BY sku ORDER BY qty DESC) AS n FROM 'orders.csv') t WHERE n = 1 ORDER BY order_id
--> postgresql duckdb
104,lamp,1
106,pen,1
107,desk,1
109,book,1

SELECT order_id, sum(qty) OVER (ORDER BY order_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS running FROM 'orders.csv' ORDER BY order_id
--> postgresql duckdb
101,10
102,11
103,14
104,16
105,18
106,43
107,44
108,45
109,49

SELECT order_id, sum(qty) OVER (ORDER BY day RANGE BETWEEN '7 days' PRECEDING AND CURRENT ROW) FROM 'orders.csv' ORDER BY order_id
--> postgresql
101,10
102,1
103,5
104,5
105,2
106,25
107,27
108,27
109,4

SELECT order_id, sum(qty) OVER (ORDER BY day GROUPS 1 PRECEDING) FROM 'orders.csv' ORDER BY order_id
--> postgresql duckdb
101,10
102,11
103,6
104,6
105,7
106,27
107,27
108,27
109,6

SELECT sum(qty) OVER (ORDER BY order_id ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW) FROM 'orders.csv' ORDER BY order_id
--> pending: SQL is not understood: Expected: ), found: EXCLUDE at Line: 1, Column: 82
--> postgresql duckdb
4
15
15
31
31
6
32
30
2

SELECT sensor, value, lag(value) OVER w, lead(value, 1, 0) OVER w FROM 'readings.csv' WINDOW w AS (PARTITION BY sensor ORDER BY ts) ORDER BY sensor, ts
--> postgresql duckdb
a,10.0,NULL,12.0
a,12.0,10.0,NULL
a,NULL,12.0,15.0
a,15.0,NULL,9.0
a,9.0,15.0,0.0
b,20.5,NULL,21.0
b,21.0,20.5,21.0
b,21.0,21.0,19.25
b,19.25,21.0,0.0
c,NULL,NULL,0.0

SELECT name, ntile(4) OVER (ORDER BY user_id), percent_rank() OVER (ORDER BY plan) FROM 'users.csv' ORDER BY user_id
--> postgresql duckdb
Ann Lee,1,0.6
Bob O'Neil,1,0.0
Chloé,2,0.6
dan,2,0.0
Eve Adams,3,1.0
Finn,4,0.0

SELECT u.name, o.order_id FROM 'users.csv' u LEFT JOIN 'orders.csv' o USING (user_id) ORDER BY 1, 2
--> postgresql duckdb
Ann Lee,101
Ann Lee,102
Ann Lee,108
Bob O'Neil,103
Chloé,104
Chloé,109
Eve Adams,105
Eve Adams,106
Finn,NULL
dan,NULL

SELECT u.name, o.order_id FROM 'users.csv' u FULL JOIN 'orders.csv' o ON u.user_id = o.user_id ORDER BY 1, 2
--> postgresql duckdb
Ann Lee,101
Ann Lee,102
Ann Lee,108
Bob O'Neil,103
Chloé,104
Chloé,109
Eve Adams,105
Eve Adams,106
Finn,NULL
dan,NULL
NULL,107

SELECT u.name, l.sku FROM 'users.csv' u CROSS JOIN LATERAL (SELECT sku FROM 'orders.csv' o WHERE o.user_id = u.user_id ORDER BY price DESC, order_id LIMIT 1) l ORDER BY u.name
--> postgresql duckdb
Ann Lee,lamp
Bob O'Neil,pen
Chloé,lamp
Eve Adams,book

SELECT u.name, l.n FROM 'users.csv' u LEFT JOIN LATERAL (SELECT count(*) AS n FROM 'orders.csv' o WHERE o.user_id = u.user_id) l ON true ORDER BY u.user_id
--> postgresql duckdb
Ann Lee,3
Bob O'Neil,1
Chloé,2
dan,0
Eve Adams,2
Finn,0

SELECT name FROM 'users.csv' u WHERE NOT EXISTS (SELECT FROM 'orders.csv' o WHERE o.user_id = u.user_id) ORDER BY name
--> postgresql
Finn
dan

SELECT name FROM 'users.csv' WHERE user_id IN (SELECT user_id FROM 'orders.csv' WHERE paid) ORDER BY name
--> postgresql duckdb
Ann Lee
Chloé
Eve Adams

SELECT o.order_id FROM 'orders.csv' o ORDER BY o.order_id
--> postgresql duckdb
101
102
103
104
105
106
107
108
109

SELECT (SELECT p.price FROM 'prices.csv' p WHERE p.sku = o.sku AND p.since <= o.day ORDER BY p.since DESC LIMIT 1) AS list_price FROM 'orders.csv' o ORDER BY o.order_id
--> postgresql duckdb
1.5
24.9
1.5
39.95
24.9
1.25
NULL
42.5
22.0

WITH t AS (SELECT sku, sum(qty) AS q FROM 'orders.csv' GROUP BY sku) SELECT sku, q, rank() OVER (ORDER BY q DESC) FROM t ORDER BY q DESC
--> postgresql duckdb
pen,38,1
book,7,2
lamp,3,3
desk,1,4

WITH RECURSIVE boss AS (SELECT id, name, ARRAY[name] AS path FROM 'employees.csv' WHERE manager_id IS NULL UNION ALL SELECT e.id, e.name, b.path || e.name FROM 'employees.csv' e JOIN boss b ON e.manager_id = b.id) SELECT array_to_string(path, '/') FROM boss ORDER BY 1
--> postgresql
root
root/dev
root/dev/api
root/dev/web
root/ops
root/ops/db

WITH RECURSIVE f(a, b) AS (VALUES (0, 1) UNION ALL SELECT b, a + b FROM f WHERE b < 20) SELECT a FROM f
--> postgresql duckdb
0
1
1
2
3
5
8
13

WITH x AS NOT MATERIALIZED (SELECT 1 AS n) TABLE x
--> pending: `TABLE x` is not supported
--> postgresql duckdb
1

VALUES (1, 'one'), (2, 'two') ORDER BY 1 DESC
--> postgresql duckdb
2,two
1,one

SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS t (n, word) WHERE n > 1
--> postgresql duckdb
2,two

SELECT sku FROM 'orders.csv' EXCEPT SELECT sku FROM 'prices.csv'
--> postgresql duckdb
desk

SELECT sku FROM 'prices.csv' INTERSECT ALL SELECT sku FROM 'orders.csv' ORDER BY 1
--> postgresql duckdb
book
book
lamp
lamp
pen
pen

SELECT order_id FROM 'orders.csv' ORDER BY price DESC NULLS LAST, order_id LIMIT 3 OFFSET 1
--> postgresql duckdb
108
104
102

SELECT name FROM 'users.csv' ORDER BY score USING > LIMIT 3
--> pending: SQL is not understood: Expected: end of statement, found: USING at Line: 1, Column: 45
--> postgresql
Bob O'Neil
Finn
Eve Adams

SELECT n FROM generate_series(1, 10, 3) AS n
--> postgresql duckdb
1
4
7
10

SELECT n FROM generate_series(5, 1, -2) n
--> postgresql duckdb
5
3
1

SELECT generate_series(1, 3) AS n
--> differs: a function that makes rows stands in FROM; in a select list it is a list
--> tidemill
"[1,2,3]"
--> postgresql
1
2
3

SELECT count(*) FROM 'requests.csv' TABLESAMPLE BERNOULLI (100)
--> postgresql
15

SELECT count(*) FROM 'requests.csv' TABLESAMPLE SYSTEM (100) REPEATABLE (42)
--> postgresql duckdb
15

SELECT plan, sum(coalesce(score, 0)) FROM 'users.csv' GROUP BY DISTINCT plan ORDER BY 1
--> pending: SQL is not understood: Expected: end of statement, found: plan at Line: 1, Column: 73
--> postgresql
free,3.0
pro,15.75
team,9.75

SELECT t.* FROM 'wide.csv' AS t (a, b, c, d) ORDER BY a
--> postgresql duckdb
x,10,20,NULL
y,5,NULL,7
z,1,2,3

SELECT count(*) FROM ONLY 'wide.csv'
--> pending: unknown table `only`
--> postgresql
3

SELECT (SELECT count(*) FROM 'users.csv') + 1 AS n
--> postgresql duckdb
7

SELECT 'x' AS a FROM 'users.csv' GROUP BY () HAVING count(*) > 1
--> pending: GROUP BY () is not supported
--> postgresql duckdb
x

SELECT count(*) FROM 'users.csv' a JOIN 'users.csv' b ON a.country = b.country AND a.user_id < b.user_id
--> postgresql duckdb
2

SELECT sku, array_agg(DISTINCT user_id ORDER BY user_id DESC) FROM 'orders.csv' GROUP BY sku ORDER BY sku
--> postgresql duckdb
book,"[5,3,1]"
desk,[9]
lamp,"[3,1]"
pen,"[5,2,1]"

SELECT name, row_number() OVER () IS NOT NULL FROM 'users.csv' ORDER BY name LIMIT 1
--> postgresql duckdb
Ann Lee,true

SELECT sum(qty) FILTER (WHERE sku = 'pen') AS pen, sum(qty) FILTER (WHERE sku = 'book') AS book FROM 'orders.csv'
--> postgresql duckdb
38,7

SELECT max(day) FROM 'users.csv', 'orders.csv'
--> postgresql duckdb
2026-03-31

SELECT min(name COLLATE "C") FROM 'users.csv', 'orders.csv'
--> postgresql duckdb
Ann Lee

SELECT order_id FROM 'orders.csv' ORDER BY order_id OFFSET 2 ROWS FETCH NEXT 2 ROWS ONLY
--> postgresql duckdb
103
104

SELECT sku FROM 'orders.csv' ORDER BY sku FETCH FIRST 2 ROWS WITH TIES
--> postgresql
book
book
book
