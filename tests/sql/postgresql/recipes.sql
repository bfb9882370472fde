# Longer statements, as they stand in reports.

-- orders by day, with days that have none
SELECT d::date AS day, coalesce(sum(o.qty * o.price), 0) AS revenue
FROM generate_series('2026-02-28'::date, '2026-03-03'::date, '1 day'::interval) AS d
LEFT JOIN 'orders.csv' o ON o.day = d::date
GROUP BY d
ORDER BY d
--> postgresql duckdb
2026-02-28,0.0
2026-03-01,31.25
2026-03-02,352.5
2026-03-03,0.0

-- top two orders of each product
SELECT sku, order_id, qty
FROM (
    SELECT sku, order_id, qty, row_number() OVER (PARTITION BY sku ORDER BY qty DESC, order_id) AS place
    FROM 'orders.csv'
) AS ranked
WHERE place <= 2
ORDER BY sku, place
--> postgresql duckdb
book,109,4
book,105,2
desk,107,1
lamp,104,2
lamp,108,1
pen,106,25
pen,101,10

-- sessions
SELECT user_id, count(*) FILTER (WHERE is_new) AS sessions
FROM (
    SELECT user_id,
           ts - lag(ts) OVER (PARTITION BY user_id ORDER BY ts) > interval '30 minutes'
           OR lag(ts) OVER (PARTITION BY user_id ORDER BY ts) IS NULL AS is_new
    FROM 'requests.csv'
    WHERE user_id IS NOT NULL
) AS s
GROUP BY user_id
ORDER BY user_id
--> postgresql duckdb
1,2
2,3
3,2
4,2
5,2

-- status classes by host
SELECT substring(url from '//([^/:]+)') AS host,
       sum(CASE WHEN status BETWEEN 200 AND 299 THEN 1 ELSE 0 END) AS ok,
       sum(CASE WHEN status >= 400 THEN 1 ELSE 0 END) AS bad
FROM 'requests.csv'
GROUP BY 1
ORDER BY 1
--> postgresql
api.example.com,2,0
blog.example.org,1,0
shop.example.com,7,4

-- percentiles by method
SELECT method, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY ms) AS p95
FROM 'requests.csv'
GROUP BY method
ORDER BY method
--> postgresql duckdb
DELETE,9.25,9.25
GET,18.0,640.125
POST,210.0,876.4499999999999

-- the price list on the day
SELECT o.order_id, p.price AS listed, o.price - p.price AS difference
FROM 'orders.csv' o
LEFT JOIN LATERAL (
    SELECT price FROM 'prices.csv' p
    WHERE p.sku = o.sku AND p.since <= o.day
    ORDER BY since DESC
    LIMIT 1
) p ON true
ORDER BY o.order_id
--> postgresql duckdb
101,1.5,0.0
102,24.9,0.0
103,1.5,0.0
104,39.95,0.0
105,24.9,0.0
106,1.25,0.0
107,NULL,NULL
108,42.5,0.0
109,22.0,0.0

-- the tree of managers
WITH RECURSIVE tree AS (
    SELECT id, name, 1 AS level, name::text AS path FROM 'employees.csv' WHERE manager_id IS NULL
    UNION ALL
    SELECT e.id, e.name, t.level + 1, t.path || '/' || e.name
    FROM 'employees.csv' e JOIN tree t ON t.id = e.manager_id
)
SELECT level, path FROM tree ORDER BY path
--> postgresql duckdb
1,root
2,root/dev
3,root/dev/api
3,root/dev/web
2,root/ops
3,root/ops/db

-- users with their last order, if any
SELECT u.name, max(o.day) AS last, count(o.*) > 1 AS regular
FROM 'users.csv' u LEFT JOIN 'orders.csv' o ON o.user_id = u.user_id
GROUP BY u.user_id, u.name
ORDER BY last DESC NULLS LAST, u.name
--> pending: `count(o.*)` is not supported
--> postgresql duckdb
Chloé,2026-03-31,true
Ann Lee,2026-03-02,true
Eve Adams,2026-03-01,true
Bob O'Neil,2026-02-03,false
Finn,NULL,false
dan,NULL,false

-- months side by side
SELECT sku,
       sum(qty) FILTER (WHERE extract(month FROM day) = 1) AS jan,
       sum(qty) FILTER (WHERE extract(month FROM day) = 2) AS feb,
       sum(qty) FILTER (WHERE extract(month FROM day) = 3) AS mar
FROM 'orders.csv'
GROUP BY sku
ORDER BY sku
--> postgresql duckdb
book,1,2,4
desk,NULL,NULL,1
lamp,NULL,2,1
pen,10,3,25

-- weekly visitors
SELECT to_char(date_trunc('week', ts), 'YYYY-MM-DD') AS week, count(DISTINCT user_id) AS visitors
FROM 'requests.csv'
GROUP BY 1
ORDER BY 1
--> postgresql
2026-02-23,3
2026-03-02,4
2026-03-30,2

-- share of the total and the running share
SELECT sku, total, round((total / sum(total) OVER ())::numeric, 3) AS share,
       round((sum(total) OVER (ORDER BY total DESC) / sum(total) OVER ())::numeric, 3) AS running
FROM (SELECT sku, sum(qty * price) AS total FROM 'orders.csv' GROUP BY sku) t
ORDER BY total DESC
--> postgresql duckdb
desk,310.0,0.480,0.480
book,162.7,0.252,0.732
lamp,122.4,0.190,0.921
pen,50.75,0.079,1.000

-- gaps in ids
SELECT id + 1 AS missing_from, next - 1 AS missing_to
FROM (SELECT id, lead(id) OVER (ORDER BY id) AS next FROM 'requests.csv' WHERE status = 200) t
WHERE next - id > 1
ORDER BY 1
--> postgresql duckdb
3,3
5,5
8,8
11,12
14,14

-- who shares an address
SELECT a.user_id, b.user_id AS other, count(*)
FROM 'requests.csv' a JOIN 'requests.csv' b ON a.agent = b.agent AND a.user_id < b.user_id
GROUP BY 1, 2
ORDER BY 1, 2
--> postgresql duckdb

-- cohorts
SELECT date_trunc('month', u.signed_up)::date AS cohort, count(DISTINCT r.user_id) AS active
FROM 'users.csv' u LEFT JOIN 'requests.csv' r ON r.user_id = u.user_id AND r.ts >= u.signed_up
GROUP BY cohort
ORDER BY cohort
--> postgresql duckdb
2024-02-01,1
2025-01-01,1
2025-06-01,1
2025-12-01,1
2026-02-01,0
2026-03-01,1
