# Windows: functions, frames, QUALIFY.

SELECT id, row_number() OVER (PARTITION BY user_id ORDER BY ts) AS n FROM 'requests.csv' WHERE user_id <= 2 ORDER BY id
--> duckdb
1,1
2,2
3,1
6,2
8,3
9,4
15,3

SELECT name, rank() OVER (ORDER BY plan), dense_rank() OVER (ORDER BY plan), percent_rank() OVER (ORDER BY plan), cume_dist() OVER (ORDER BY plan) FROM 'users.csv' ORDER BY user_id
--> duckdb
Ann Lee,4,2,0.6,0.8333333333333334
Bob O'Neil,1,1,0.0,0.5
Chloé,4,2,0.6,0.8333333333333334
dan,1,1,0.0,0.5
Eve Adams,6,3,1.0,1.0
Finn,1,1,0.0,0.5

SELECT name, ntile(3) OVER (ORDER BY user_id) FROM 'users.csv' ORDER BY user_id
--> duckdb
Ann Lee,1
Bob O'Neil,1
Chloé,2
dan,2
Eve Adams,3
Finn,3

SELECT sensor, ts, value, lag(value) OVER w AS before, lead(value) OVER w AS after FROM 'readings.csv' WINDOW w AS (PARTITION BY sensor ORDER BY ts) ORDER BY sensor, ts
--> duckdb
a,2026-03-01T00:00:00,10.0,NULL,12.0
a,2026-03-01T00:05:00,12.0,10.0,NULL
a,2026-03-01T00:10:00,NULL,12.0,15.0
a,2026-03-01T00:15:00,15.0,NULL,9.0
a,2026-03-01T00:35:00,9.0,15.0,NULL
b,2026-03-01T00:00:30,20.5,NULL,21.0
b,2026-03-01T00:07:30,21.0,20.5,21.0
b,2026-03-01T00:14:30,21.0,21.0,19.25
b,2026-03-01T01:00:00,19.25,21.0,NULL
c,2026-03-01T00:20:00,NULL,NULL,NULL

SELECT sensor, lag(value, 2, -1) OVER (PARTITION BY sensor ORDER BY ts) FROM 'readings.csv' ORDER BY sensor, ts
--> duckdb
a,-1.0
a,-1.0
a,10.0
a,12.0
a,NULL
b,-1.0
b,-1.0
b,20.5
b,21.0
c,-1.0

SELECT sensor, first_value(value) OVER w, last_value(value) OVER w, nth_value(value, 2) OVER w FROM 'readings.csv' WINDOW w AS (PARTITION BY sensor ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) ORDER BY sensor, ts
--> duckdb
a,10.0,9.0,12.0
a,10.0,9.0,12.0
a,10.0,9.0,12.0
a,10.0,9.0,12.0
a,10.0,9.0,12.0
b,20.5,19.25,21.0
b,20.5,19.25,21.0
b,20.5,19.25,21.0
b,20.5,19.25,21.0
c,NULL,NULL,NULL

SELECT sensor, last_value(value IGNORE NULLS) OVER (PARTITION BY sensor ORDER BY ts) AS filled FROM 'readings.csv' ORDER BY sensor, ts
--> duckdb
a,10.0
a,12.0
a,12.0
a,15.0
a,9.0
b,20.5
b,21.0
b,21.0
b,19.25
c,NULL

SELECT sensor, lag(value IGNORE NULLS) OVER (PARTITION BY sensor ORDER BY ts) FROM 'readings.csv' ORDER BY sensor, ts
--> duckdb
a,NULL
a,10.0
a,12.0
a,12.0
a,15.0
b,NULL
b,20.5
b,21.0
b,21.0
c,NULL

SELECT day, sum(qty) OVER (ORDER BY day, order_id) AS running FROM 'orders.csv' ORDER BY day, order_id
--> duckdb
2026-01-05,10
2026-01-20,11
2026-02-03,14
2026-02-03,16
2026-02-14,18
2026-03-01,43
2026-03-02,44
2026-03-02,45
2026-03-31,49

SELECT day, sum(qty) OVER (ORDER BY day) AS running FROM 'orders.csv' ORDER BY day, order_id
--> duckdb
2026-01-05,10
2026-01-20,11
2026-02-03,16
2026-02-03,16
2026-02-14,18
2026-03-01,43
2026-03-02,45
2026-03-02,45
2026-03-31,49

SELECT order_id, avg(price) OVER (ORDER BY order_id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,13.2
102,9.299999999999999
103,22.116666666666664
104,22.116666666666664
105,22.03333333333333
106,112.05
107,117.91666666666667
108,124.83333333333333
109,32.25

SELECT order_id, sum(qty) OVER (ORDER BY day RANGE BETWEEN INTERVAL 14 DAYS PRECEDING AND CURRENT ROW) FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,10
102,1
103,6
104,6
105,7
106,25
107,27
108,27
109,4

SELECT order_id, sum(qty) OVER (ORDER BY day GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,10
102,11
103,6
104,6
105,7
106,27
107,27
108,27
109,6

SELECT sum(qty) OVER (ORDER BY order_id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW) FROM 'orders.csv' ORDER BY order_id
--> pending: SQL is not understood: Expected: ), found: EXCLUDE at Line: 1, Column: 82
--> duckdb
1
13
3
5
27
3
26
5
1

SELECT count(*) OVER (ORDER BY day RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM 'orders.csv' ORDER BY order_id
--> pending: SQL is not understood: Expected: ), found: EXCLUDE at Line: 1, Column: 86
--> duckdb
1
2
3
3
5
6
7
7
9

SELECT count(*) OVER (ORDER BY day RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP) FROM 'orders.csv' ORDER BY order_id
--> pending: SQL is not understood: Expected: ), found: EXCLUDE at Line: 1, Column: 86
--> duckdb
0
1
2
2
4
5
6
6
8

SELECT order_id, max(price) OVER (ORDER BY order_id ROWS 2 PRECEDING) FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,1.5
102,24.9
103,24.9
104,39.95
105,39.95
106,39.95
107,310.0
108,310.0
109,310.0

SELECT user_id, order_id FROM 'orders.csv' QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY day DESC, order_id DESC) = 1 ORDER BY user_id
--> duckdb
1,108
2,103
3,109
5,106
9,107

SELECT sku, price, rank() OVER (PARTITION BY sku ORDER BY price DESC) AS r FROM 'orders.csv' QUALIFY r = 1 ORDER BY sku, price
--> duckdb
book,24.9,1
book,24.9,1
desk,310.0,1
lamp,42.5,1
pen,1.5,1
pen,1.5,1

SELECT order_id FROM 'orders.csv' QUALIFY sum(qty) OVER (PARTITION BY sku) > 20 ORDER BY order_id
--> duckdb
101
103
106

SELECT user_id, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS r FROM 'orders.csv' GROUP BY user_id ORDER BY r, user_id
--> duckdb
1,3,1
3,2,2
5,2,2
2,1,4
9,1,4

SELECT sku, sum(qty) AS q, sum(sum(qty)) OVER () AS all_q FROM 'orders.csv' GROUP BY sku ORDER BY sku
--> duckdb
book,7,49
desk,1,49
lamp,3,49
pen,38,49

SELECT sku, round(100.0 * sum(qty) / sum(sum(qty)) OVER (), 1) AS share FROM 'orders.csv' GROUP BY sku ORDER BY sku
--> duckdb
book,14.3
desk,2.0
lamp,6.1
pen,77.6

SELECT order_id, count(*) FILTER (WHERE paid) OVER (ORDER BY order_id) AS paid_so_far FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,1
102,2
103,2
104,3
105,4
106,4
107,5
108,5
109,6

SELECT order_id, count(DISTINCT sku) OVER (ORDER BY order_id) FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,1
102,2
103,2
104,3
105,3
106,3
107,4
108,4
109,4

SELECT order_id, list(sku) OVER (ORDER BY order_id ROWS 1 PRECEDING) FROM 'orders.csv' WHERE order_id < 104 ORDER BY order_id
--> duckdb
101,"[""pen""]"
102,"[""pen"",""book""]"
103,"[""book"",""pen""]"

SELECT order_id, string_agg(sku, '>') OVER (PARTITION BY user_id ORDER BY order_id) AS path FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,pen
102,pen>book
103,pen
104,lamp
105,book
106,book>pen
107,desk
108,pen>book>lamp
109,lamp>book

SELECT order_id, median(qty) OVER (ORDER BY order_id ROWS 2 PRECEDING) FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,10.0
102,5.5
103,3.0
104,2.0
105,2.0
106,2.0
107,2.0
108,1.0
109,1.0

SELECT arg_max(sku, price) OVER (ORDER BY order_id) FROM 'orders.csv' ORDER BY order_id
--> pending: `arg_max` is not called over a window
--> duckdb
pen
book
book
lamp
lamp
lamp
desk
desk
desk

SELECT id, sum(CASE WHEN gap THEN 1 ELSE 0 END) OVER (PARTITION BY user_id ORDER BY ts) AS session FROM (SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY user_id ORDER BY ts) > INTERVAL 30 MINUTE, true) AS gap FROM 'requests.csv') WHERE user_id = 1 ORDER BY id
--> duckdb
1,1
2,1
8,2
9,2

SELECT sensor, value, value - lag(value, 1) OVER (PARTITION BY sensor ORDER BY ts) AS delta FROM 'readings.csv' WHERE sensor <> 'c' ORDER BY sensor, ts
--> duckdb
a,10.0,NULL
a,12.0,2.0
a,NULL,NULL
a,15.0,NULL
a,9.0,-6.0
b,20.5,NULL
b,21.0,0.5
b,21.0,0.0
b,19.25,-1.75

SELECT name, first(name) OVER (PARTITION BY plan ORDER BY user_id) FROM 'users.csv' ORDER BY user_id
--> duckdb
Ann Lee,Ann Lee
Bob O'Neil,Bob O'Neil
Chloé,Ann Lee
dan,Bob O'Neil
Eve Adams,Eve Adams
Finn,Bob O'Neil

SELECT order_id, sum(qty) OVER w AS s, avg(qty) OVER w AS a FROM 'orders.csv' WINDOW w AS (PARTITION BY sku) ORDER BY order_id
--> duckdb
101,38,12.666666666666666
102,7,2.3333333333333335
103,38,12.666666666666666
104,3,1.5
105,7,2.3333333333333335
106,38,12.666666666666666
107,1,1.0
108,3,1.5
109,7,2.3333333333333335

SELECT order_id FROM 'orders.csv' WINDOW w AS (PARTITION BY sku) ORDER BY order_id
--> duckdb
101
102
103
104
105
106
107
108
109

SELECT sum(qty) OVER (w ORDER BY order_id) FROM 'orders.csv' WINDOW w AS (PARTITION BY sku) ORDER BY order_id
--> duckdb
10
1
13
2
3
38
1
3
7

SELECT fill(score) OVER (ORDER BY user_id) FROM 'users.csv' ORDER BY user_id
--> error: unknown function `fill`
--> hint: last_value(x) IGNORE NULLS OVER (ORDER BY ts) takes the value before; regr_slope and regr_intercept draw a line
--> duckdb
8.5
7.875
7.25
3.0
9.75
16.5

SELECT rank(ORDER BY price DESC) OVER (PARTITION BY sku) FROM 'orders.csv' ORDER BY order_id
--> pending: SQL is not understood: Expected: ), found: BY at Line: 1, Column: 19
--> duckdb
1
1
1
2
1
3
1
1
3
