# Joins.

SELECT o.order_id, u.name FROM 'orders.csv' o JOIN 'users.csv' u USING (user_id) ORDER BY o.order_id
--> duckdb
101,Ann Lee
102,Ann Lee
103,Bob O'Neil
104,Chloé
105,Eve Adams
106,Eve Adams
108,Ann Lee
109,Chloé

SELECT order_id, name FROM 'orders.csv' LEFT JOIN 'users.csv' USING (user_id) WHERE name IS NULL
--> duckdb
107,NULL

SELECT user_id, count(order_id) FROM 'users.csv' LEFT JOIN 'orders.csv' USING (user_id) GROUP BY user_id ORDER BY user_id
--> duckdb
1,3
2,1
3,2
4,0
5,2
6,0

SELECT u.name, o.order_id FROM 'orders.csv' o RIGHT JOIN 'users.csv' u ON o.user_id = u.user_id ORDER BY ALL
--> duckdb
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

SELECT u.name, o.order_id FROM 'users.csv' u FULL OUTER JOIN 'orders.csv' o ON o.user_id = u.user_id ORDER BY ALL NULLS LAST
--> duckdb
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

SELECT user_id, name, order_id FROM 'users.csv' FULL JOIN 'orders.csv' USING (user_id) ORDER BY ALL
--> duckdb
1,Ann Lee,101
1,Ann Lee,102
1,Ann Lee,108
2,Bob O'Neil,103
3,Chloé,104
3,Chloé,109
4,dan,NULL
5,Eve Adams,105
5,Eve Adams,106
6,Finn,NULL
9,NULL,107

SELECT order_id, name FROM 'orders.csv' NATURAL JOIN 'users.csv' ORDER BY order_id LIMIT 2
--> duckdb
101,Ann Lee
102,Ann Lee

SELECT count(*) FROM 'users.csv' CROSS JOIN 'wide.csv'
--> duckdb
18

SELECT count(*) FROM 'users.csv', 'wide.csv'
--> duckdb
18

SELECT name FROM 'users.csv' SEMI JOIN 'orders.csv' USING (user_id) ORDER BY name
--> duckdb
Ann Lee
Bob O'Neil
Chloé
Eve Adams

SELECT name FROM 'users.csv' ANTI JOIN 'orders.csv' USING (user_id) ORDER BY name
--> duckdb
Finn
dan

SELECT u.name FROM 'users.csv' u SEMI JOIN 'orders.csv' o ON u.user_id = o.user_id AND o.paid ORDER BY u.name
--> duckdb
Ann Lee
Chloé
Eve Adams

SELECT o.order_id, o.sku, p.price FROM 'orders.csv' o ASOF JOIN 'prices.csv' p ON o.sku = p.sku AND o.day >= p.since ORDER BY o.order_id
--> duckdb
101,pen,1.5
102,book,24.9
103,pen,1.5
104,lamp,39.95
105,book,24.9
106,pen,1.25
108,lamp,42.5
109,book,22.0

SELECT o.order_id, p.price FROM 'orders.csv' o ASOF LEFT JOIN 'prices.csv' p ON o.sku = p.sku AND o.day >= p.since ORDER BY o.order_id
--> duckdb
101,1.5
102,24.9
103,1.5
104,39.95
105,24.9
106,1.25
107,NULL
108,42.5
109,22.0

SELECT order_id, p.price, p.since FROM (SELECT *, day AS since FROM 'orders.csv') o ASOF JOIN 'prices.csv' p USING (sku, since) ORDER BY order_id
--> error: an ASOF JOIN is not USING columns
--> hint: write ASOF JOIN … ON a.id = b.id AND a.ts >= b.ts: keys that are equal, if any, and one comparison of times
--> duckdb
101,1.5,2025-12-01
102,24.9,2026-01-01
103,1.5,2025-12-01
104,39.95,2026-02-01
105,24.9,2026-01-01
106,1.25,2026-02-15
108,42.5,2026-03-02
109,22.0,2026-03-15

SELECT a.ts, b.ts AS b_ts FROM (SELECT * FROM 'readings.csv' WHERE sensor = 'a') a ASOF JOIN (SELECT * FROM 'readings.csv' WHERE sensor = 'b') b ON a.ts >= b.ts ORDER BY a.ts
--> duckdb
2026-03-01T00:05:00,2026-03-01T00:00:30
2026-03-01T00:10:00,2026-03-01T00:07:30
2026-03-01T00:15:00,2026-03-01T00:14:30
2026-03-01T00:35:00,2026-03-01T00:14:30

SELECT a.ts, b.ts AS b_ts FROM (SELECT * FROM 'readings.csv' WHERE sensor = 'a') a ASOF LEFT JOIN (SELECT * FROM 'readings.csv' WHERE sensor = 'b') b ON a.ts < b.ts ORDER BY a.ts
--> duckdb
2026-03-01T00:00:00,2026-03-01T00:00:30
2026-03-01T00:05:00,2026-03-01T00:07:30
2026-03-01T00:10:00,2026-03-01T00:14:30
2026-03-01T00:15:00,2026-03-01T01:00:00
2026-03-01T00:35:00,2026-03-01T01:00:00

SELECT w.shop, e.name FROM 'wide.csv' w POSITIONAL JOIN 'employees.csv' e
--> pending: SQL is not understood: Expected: end of statement, found: POSITIONAL at Line: 1, Column: 41
--> duckdb
x,root
y,ops
z,dev
NULL,web
NULL,db
NULL,api

SELECT e.name, m.name AS manager FROM 'employees.csv' e LEFT JOIN 'employees.csv' m ON e.manager_id = m.id ORDER BY e.id
--> duckdb
root,NULL
ops,root
dev,root
web,dev
db,ops
api,dev

SELECT u.name, t.sku FROM 'users.csv' u, LATERAL (SELECT sku FROM 'orders.csv' o WHERE o.user_id = u.user_id ORDER BY day DESC, order_id DESC LIMIT 1) t ORDER BY u.name
--> duckdb
Ann Lee,lamp
Bob O'Neil,pen
Chloé,book
Eve Adams,pen

SELECT u.name, t.n FROM 'users.csv' u JOIN LATERAL (SELECT count(*) AS n FROM 'orders.csv' o WHERE o.user_id = u.user_id) t ON true ORDER BY u.user_id
--> duckdb
Ann Lee,3
Bob O'Neil,1
Chloé,2
dan,0
Eve Adams,2
Finn,0

SELECT t.x, y FROM range(3) t(x), LATERAL (SELECT t.x * 10 AS y) ORDER BY x
--> duckdb
0,0
1,10
2,20

SELECT a.sku, count(*) FROM 'orders.csv' a JOIN 'orders.csv' b ON a.user_id = b.user_id AND a.order_id < b.order_id GROUP BY a.sku ORDER BY a.sku
--> duckdb
book,2
lamp,1
pen,2

SELECT o.order_id, p.since FROM 'orders.csv' o JOIN 'prices.csv' p ON o.sku = p.sku AND o.day BETWEEN p.since AND p.since + INTERVAL 20 DAY ORDER BY ALL
--> duckdb
102,2026-01-01
104,2026-02-01
106,2026-02-15
108,2026-03-02
109,2026-03-15

SELECT u.*, o.order_id FROM 'users.csv' u JOIN 'orders.csv' o USING (user_id) WHERE order_id = 101
--> duckdb
1,Ann Lee,ann@example.com,DE,pro,2025-01-15,8.5,new|vip,101

SELECT u.plan, sum(o.qty * o.price) AS total FROM 'orders.csv' o JOIN 'users.csv' u USING (user_id) GROUP BY u.plan ORDER BY total DESC
--> duckdb
pro,250.3
team,81.05
free,4.5

SELECT user_id, name, order_id FROM 'users.csv' u FULL JOIN 'orders.csv' o USING (user_id) WHERE user_id > 5 ORDER BY user_id
--> duckdb
6,Finn,NULL
9,NULL,107

SELECT user_id, count(order_id) AS n FROM 'users.csv' FULL JOIN 'orders.csv' USING (user_id) GROUP BY user_id HAVING user_id <> 2 ORDER BY user_id
--> duckdb
1,3
3,2
4,0
5,2
6,0
9,1

SELECT o.user_id, user_id, name FROM 'users.csv' u RIGHT JOIN 'orders.csv' o USING (user_id) WHERE order_id > 105 ORDER BY order_id
--> duckdb
5,5,Eve Adams
9,9,NULL
1,1,Ann Lee
3,3,Chloé

SELECT * FROM (SELECT user_id, name FROM 'users.csv') u FULL JOIN (SELECT order_id, user_id FROM 'orders.csv') o USING (user_id) WHERE user_id > 5 ORDER BY user_id
--> duckdb
6,Finn,NULL
9,NULL,107

SELECT x, y FROM (SELECT 1 AS x) NATURAL JOIN (SELECT 1 AS x, 2 AS y)
--> duckdb
1,2

SELECT count(*) FROM (SELECT * FROM 'orders.csv') JOIN (SELECT * FROM 'orders.csv') USING (order_id)
--> duckdb
9

SELECT (SELECT max(n) FROM (SELECT 3 AS n), (SELECT 4 AS m)) AS a, b FROM (SELECT 1 AS b), (SELECT 2 AS c)
--> duckdb
3,1
