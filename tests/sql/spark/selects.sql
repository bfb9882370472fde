# Aggregates, windows, joins and clauses.

SELECT count(*), count(DISTINCT user_id), count_if(status >= 400), approx_count_distinct(user_id) FROM 'requests.csv'
--> spark duckdb
15,5,4,5

SELECT max_by(url, ms), min_by(id, ms) FROM 'requests.csv'
--> spark duckdb
https://shop.example.com/,5

SELECT first(name), last(name), first_value(name), any_value(plan) IS NOT NULL FROM (SELECT * FROM 'users.csv' ORDER BY user_id)
--> spark
Ann Lee,Finn,Ann Lee,true

SELECT sort_array(collect_list(name)), sort_array(collect_set(plan)) FROM 'users.csv'
--> spark
"[""Ann Lee"",""Bob O'Neil"",""Chloé"",""Eve Adams"",""Finn"",""dan""]","[""free"",""pro"",""team""]"

SELECT percentile(ms, 0.5), percentile_approx(ms, 0.5), median(ms), approx_percentile(ms, 0.5) FROM 'requests.csv'
--> spark
22.0,22.0,22.0,22.0

SELECT percentile(ms, array(0.25, 0.75)) FROM 'requests.csv'
--> spark
"[10.875,72.125]"

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_disc(0.5) WITHIN GROUP (ORDER BY ms) FROM 'requests.csv'
--> spark duckdb
22.0,22.0

SELECT mode(method), bool_and(status < 600), bool_or(status > 500), every(status > 0), some(status = 404) FROM 'requests.csv'
--> spark
GET,true,true,true,true

SELECT any(status = 404) FROM 'requests.csv'
--> error: unknown function `any`
--> hint: it is written here as bool_or(c), any_value(x)
--> spark
true

SELECT stddev(ms), stddev_pop(ms), variance(ms), var_samp(ms), std(ms) FROM 'requests.csv' WHERE status = 200
--> spark
64.37327397901848,60.691704743657986,4143.918402777777,4143.918402777777,64.37327397901848

SELECT corr(qty, price), covar_samp(qty, price), regr_slope(price, qty) FROM 'orders.csv'
--> spark duckdb
-0.3090998998638541,-238.10902777777775,-3.854282823741008

SELECT skewness(qty) FROM 'orders.csv'
--> differs: skewness is that of a sample, as in DuckDB; skewPop is that of all
--> tidemill
2.386471193799749
--> spark
1.9687382916158518

SELECT kurtosis(qty) FROM 'orders.csv'
--> differs: kurtosis is that of a sample, as in DuckDB; kurtosis_pop is that of all
--> tidemill
5.827585593395787
--> spark
2.459482436532787

SELECT sum(qty), avg(price), mean(qty), sum(DISTINCT qty) FROM 'orders.csv'
--> spark duckdb
49,52.05555555555556,5.444444444444445,45

SELECT try_sum(qty) FROM 'orders.csv'
--> spark
49

SELECT try_avg(qty) FROM 'orders.csv'
--> spark
5.444444444444445

SELECT bit_and(status), bit_or(status), bit_xor(status) FROM 'requests.csv'
--> spark duckdb
0,511,302

SELECT histogram_numeric(qty, 3) IS NOT NULL FROM 'orders.csv'
--> error: unknown function `histogram_numeric`
--> hint: SELECT x, count(*) FROM t GROUP BY x counts each value, and width_bucket(n, 0, 100, 10) in place of x each range of them; top_k(x, 10) is a list of the most frequent
--> spark
true

SELECT listagg(name, ', ') WITHIN GROUP (ORDER BY name), string_agg(DISTINCT plan, '|') WITHIN GROUP (ORDER BY plan) FROM 'users.csv'
--> spark
"Ann Lee, Bob O'Neil, Chloé, Eve Adams, Finn, dan",free|pro|team

SELECT sku, sum(qty) FILTER (WHERE paid) AS paid FROM 'orders.csv' GROUP BY sku ORDER BY sku
--> spark duckdb
book,7
desk,1
lamp,2
pen,10

SELECT array_agg(qty) FROM (SELECT qty FROM 'orders.csv' WHERE user_id = 1 ORDER BY order_id)
--> spark duckdb
"[10,1,1]"

SELECT method, count(*) AS n FROM 'requests.csv' GROUP BY ALL ORDER BY n DESC, method
--> spark duckdb
GET,11
POST,3
DELETE,1

SELECT region, year, sum(amount) FROM 'sales.csv' GROUP BY region, year WITH ROLLUP ORDER BY region NULLS LAST, year NULLS LAST
--> spark
north,2024,250
north,2025,120
north,NULL,370
south,2024,170
south,2025,180
south,NULL,350
NULL,NULL,720

SELECT region, year, sum(amount), grouping_id() FROM 'sales.csv' GROUP BY region, year WITH CUBE ORDER BY 4, 1, 2
--> error: unknown function `grouping_id`
--> hint: grouping(x) is 1 in the rows that are of all values of x
--> spark
north,2024,250,0
north,2025,120,0
south,2024,170,0
south,2025,180,0
north,NULL,370,1
south,NULL,350,1
NULL,2024,420,2
NULL,2025,300,2
NULL,NULL,720,3

SELECT region, year, sum(amount), grouping(year) FROM 'sales.csv' GROUP BY ROLLUP (region, year) ORDER BY region NULLS LAST, year NULLS LAST
--> spark duckdb
north,2024,250,0
north,2025,120,0
north,NULL,370,1
south,2024,170,0
south,2025,180,0
south,NULL,350,1
NULL,NULL,720,1

SELECT region, quarter, sum(amount) FROM 'sales.csv' GROUP BY region, quarter GROUPING SETS ((region), (quarter)) ORDER BY region NULLS LAST, quarter NULLS LAST
--> error: `GROUPING SETS behind columns` is not supported
--> hint: write GROUP BY GROUPING SETS ((a, b), (a), ())
--> spark
north,NULL,370
south,NULL,350
NULL,1,370
NULL,2,350

SELECT * FROM (SELECT region, year, amount FROM 'sales.csv') PIVOT (sum(amount) FOR year IN (2024, 2025)) ORDER BY region
--> spark duckdb
north,250,120
south,170,180

SELECT * FROM (SELECT region, year, amount FROM 'sales.csv') PIVOT (sum(amount) AS s, count(amount) AS n FOR year IN (2024 AS y24, 2025 AS y25)) ORDER BY region
--> spark duckdb names
region,y24_s,y24_n,y25_s,y25_n
north,250,2,120,1
south,170,2,180,2

SELECT * FROM 'wide.csv' UNPIVOT (n FOR month IN (jan, feb, mar)) ORDER BY shop, month
--> spark duckdb
x,feb,20
x,jan,10
y,jan,5
y,mar,7
z,feb,2
z,jan,1
z,mar,3

SELECT * FROM 'wide.csv' UNPIVOT INCLUDE NULLS (n FOR month IN (jan AS january, feb)) ORDER BY shop, month
--> spark duckdb
x,NULL,feb,20
x,NULL,january,10
y,7,feb,NULL
y,7,january,5
z,3,feb,2
z,3,january,1

SELECT name FROM 'users.csv' LEFT SEMI JOIN 'orders.csv' USING (user_id) ORDER BY name
--> spark
Ann Lee
Bob O'Neil
Chloé
Eve Adams

SELECT u.name FROM 'users.csv' u LEFT ANTI JOIN 'orders.csv' o ON u.user_id = o.user_id ORDER BY u.name
--> spark
Finn
dan

SELECT u.name, o.sku FROM 'users.csv' u INNER JOIN 'orders.csv' o ON u.user_id = o.user_id WHERE o.price > 20 ORDER BY 1, 2
--> spark duckdb
Ann Lee,book
Ann Lee,lamp
Chloé,book
Chloé,lamp
Eve Adams,book

SELECT u.name, o.sku FROM 'users.csv' u JOIN LATERAL (SELECT sku FROM 'orders.csv' o WHERE o.user_id = u.user_id ORDER BY order_id LIMIT 1) o ORDER BY 1
--> pending: `JOIN without ON` is not supported
--> spark
Ann Lee,pen
Bob O'Neil,pen
Chloé,lamp
Eve Adams,book

SELECT /*+ BROADCAST(u) */ o.order_id FROM 'orders.csv' o JOIN 'users.csv' u ON o.user_id = u.user_id WHERE u.plan = 'pro' ORDER BY 1
--> spark duckdb
101
102
104
108
109

SELECT user_id, order_id FROM 'orders.csv' QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY price DESC) = 1 ORDER BY user_id
--> spark duckdb
1,108
2,103
3,104
5,105
9,107

SELECT name, rank() OVER (ORDER BY score DESC) AS r FROM 'users.csv' ORDER BY r, name
--> spark duckdb
Eve Adams,1
Ann Lee,2
Chloé,3
dan,4
Bob O'Neil,5
Finn,5

SELECT sensor, value, lag(value, 1) OVER (PARTITION BY sensor ORDER BY ts) AS before FROM 'readings.csv' ORDER BY sensor, ts
--> spark duckdb
a,10.0,NULL
a,12.0,10.0
a,NULL,12.0
a,15.0,NULL
a,9.0,15.0
b,20.5,NULL
b,21.0,20.5
b,21.0,21.0
b,19.25,21.0
c,NULL,NULL

SELECT last_value(value, true) OVER (PARTITION BY sensor ORDER BY ts) AS filled FROM 'readings.csv' ORDER BY sensor, ts
--> spark
10.0
12.0
12.0
15.0
9.0
20.5
21.0
21.0
19.25
NULL

SELECT sensor, first_value(value) IGNORE NULLS OVER (PARTITION BY sensor ORDER BY ts) AS f FROM 'readings.csv' ORDER BY sensor, ts
--> spark
a,10.0
a,10.0
a,10.0
a,10.0
a,10.0
b,20.5
b,20.5
b,20.5
b,20.5
c,NULL

SELECT order_id, sum(qty) OVER (ORDER BY order_id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM 'orders.csv' ORDER BY order_id
--> spark duckdb
101,10
102,11
103,4
104,5
105,4
106,27
107,26
108,2
109,5

SELECT order_id, sum(qty) OVER (PARTITION BY user_id) AS total FROM 'orders.csv' ORDER BY order_id
--> spark duckdb
101,12
102,12
103,3
104,6
105,27
106,27
107,1
108,12
109,6

SELECT * EXCEPT (detail, paid) FROM 'orders.csv' ORDER BY order_id LIMIT 2
--> spark duckdb
101,1,2026-01-05,pen,10,1.5
102,1,2026-01-20,book,1,24.9

SELECT qty * price AS cost, cost * 2 AS twice FROM 'orders.csv' WHERE order_id <= 102 ORDER BY order_id
--> spark duckdb
15.0,30.0
24.9,49.8

SELECT sku AS s, count(*) AS n FROM 'orders.csv' GROUP BY s HAVING n > 1 ORDER BY n DESC, s
--> spark duckdb
book,3
pen,3
lamp,2

SELECT id FROM range(3)
--> pending: unknown column `id` (no hint)
--> spark
0
1
2

SELECT id FROM range(1, 10, 3)
--> pending: unknown column `id` (no hint)
--> spark
1
4
7

SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(n, s) ORDER BY n
--> spark duckdb
1,a
2,b

SELECT * FROM (VALUES (1), (2)) AS t(n) ORDER BY n DESC
--> spark duckdb
2
1

SELECT sku FROM 'orders.csv' MINUS SELECT sku FROM 'prices.csv'
--> spark
desk

SELECT sku FROM 'orders.csv' EXCEPT SELECT sku FROM 'prices.csv'
--> spark duckdb
desk

SELECT sku FROM 'prices.csv' UNION DISTINCT SELECT sku FROM 'orders.csv' ORDER BY sku
--> spark duckdb
book
desk
lamp
pen

WITH t AS (SELECT * FROM 'orders.csv' WHERE paid) SELECT count(*) FROM t
--> spark duckdb
6

WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT n FROM t ORDER BY n
--> spark duckdb
1
2
3

SELECT order_id FROM 'orders.csv' SORT BY order_id LIMIT 2
--> error: `SORT BY` is not supported
--> hint: write ORDER BY
--> spark
101
102

SELECT order_id FROM 'orders.csv' ORDER BY ALL LIMIT 2
--> spark duckdb
101
102

SELECT count(*) FROM 'requests.csv' TABLESAMPLE (100 PERCENT)
--> spark duckdb
15

SELECT count(*) FROM 'requests.csv' TABLESAMPLE (5 ROWS)
--> spark duckdb
5

SELECT order_id FROM 'orders.csv' ORDER BY order_id LIMIT 2 OFFSET 1
--> spark duckdb
102
103

SELECT order_id FROM 'orders.csv' ORDER BY order_id LIMIT ALL OFFSET 7
--> spark duckdb
108
109

FROM 'orders.csv' |> WHERE qty > 5 |> SELECT order_id |> ORDER BY order_id
--> spark
101
106

SELECT o.sku, count(*) FROM 'orders.csv' o GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2
--> spark duckdb
book,3
pen,3

SELECT (SELECT max(qty) FROM 'orders.csv') AS m, sku FROM 'prices.csv' GROUP BY sku ORDER BY sku
--> spark duckdb
25,book
25,lamp
25,pen

SELECT name FROM 'users.csv' u WHERE EXISTS (SELECT * FROM 'orders.csv' o WHERE o.user_id = u.user_id AND o.qty > 5) ORDER BY name
--> spark duckdb
Ann Lee
Eve Adams

SELECT count(DISTINCT method, status) FROM 'requests.csv'
--> spark
8

SELECT cume_dist() OVER (ORDER BY qty), ntile(2) OVER (ORDER BY qty, order_id) FROM 'orders.csv' ORDER BY qty, order_id
--> spark duckdb
0.3333333333333333,1
0.3333333333333333,1
0.3333333333333333,1
0.5555555555555556,1
0.5555555555555556,1
0.6666666666666666,2
0.7777777777777778,2
0.8888888888888888,2
1.0,2

SELECT nth_value(sku, 2) OVER (ORDER BY order_id) FROM 'orders.csv' ORDER BY order_id LIMIT 3
--> spark duckdb
NULL
book
book

SELECT map_from_entries(collect_list(struct(sku, qty))) IS NOT NULL FROM 'orders.csv' WHERE user_id = 3
--> spark
true
