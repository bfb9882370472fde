# Longer statements, as they stand in notebooks and reports.

-- sessions: a gap of half an hour begins a new one
WITH marked AS (
    SELECT *, ts - lag(ts) OVER (PARTITION BY user_id ORDER BY ts) AS gap
    FROM 'requests.csv'
    WHERE user_id IS NOT NULL
), numbered AS (
    SELECT *, sum(CASE WHEN gap IS NULL OR gap > INTERVAL 30 MINUTES THEN 1 ELSE 0 END)
        OVER (PARTITION BY user_id ORDER BY ts) AS session
    FROM marked
)
SELECT user_id, session, count(*) AS hits, min(ts) AS started, max(ts) - min(ts) > INTERVAL 10 SECONDS AS long
FROM numbered
GROUP BY ALL
ORDER BY user_id, session
--> duckdb
1,1,2,2026-03-01T00:05:10,true
1,2,2,2026-03-02T08:30:15,true
2,1,1,2026-03-01T00:07:01,false
2,2,1,2026-03-01T23:59:59,false
2,3,1,2026-04-01T06:00:00,false
3,1,1,2026-03-01T09:15:00,false
3,2,1,2026-03-03T14:20:05,false
4,1,1,2026-03-02T00:00:00,false
4,2,1,2026-03-31T23:59:59,false
5,1,1,2026-03-02T12:00:00,false
5,2,1,2026-03-08T18:45:59,false

-- error rate by day
SELECT date_trunc('day', ts)::DATE AS day,
       count(*) AS hits,
       count(*) FILTER (WHERE status >= 500) AS errors,
       round(100.0 * errors / hits, 1) AS percent
FROM 'requests.csv'
GROUP BY day
ORDER BY day
--> duckdb
2026-03-01,6,0,0.0
2026-03-02,4,1,25.0
2026-03-03,2,0,0.0
2026-03-08,1,0,0.0
2026-03-31,1,1,100.0
2026-04-01,1,0,0.0

-- slowest page of each host
SELECT regexp_extract(url, '//([^/:]+)', 1) AS host, arg_max(url, ms) AS slowest, max(ms) AS ms
FROM 'requests.csv'
GROUP BY host
ORDER BY ms DESC
--> duckdb
shop.example.com,https://shop.example.com/,1200.0
blog.example.org,http://blog.example.org/2026/03/post.html,22.0
api.example.com,https://api.example.com:8443/v1/items/7,9.25

-- percentiles by method
SELECT method, count(*) AS n, quantile_cont(ms, 0.5) AS p50, quantile_cont(ms, 0.95) AS p95
FROM 'requests.csv'
GROUP BY method
HAVING n > 1
ORDER BY n DESC
--> duckdb
GET,11,18.0,640.125
POST,3,210.0,876.4499999999999

-- latest order of each user
SELECT u.name, o.order_id, o.day
FROM 'users.csv' u
JOIN 'orders.csv' o USING (user_id)
QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY o.day DESC, o.order_id DESC) = 1
ORDER BY u.name
--> duckdb
Ann Lee,108,2026-03-02
Bob O'Neil,103,2026-02-03
Chloé,109,2026-03-31
Eve Adams,106,2026-03-01

-- every day, orders or not
SELECT d::DATE AS day, count(order_id) AS orders
FROM generate_series(DATE '2026-02-28', DATE '2026-03-03', INTERVAL 1 DAY) AS g(d)
LEFT JOIN 'orders.csv' ON day = d
GROUP BY d
ORDER BY d
--> duckdb
2026-02-28,0
2026-03-01,1
2026-03-02,2
2026-03-03,0

-- share of each plan
SELECT plan, count(*) AS n, round(count(*) * 100.0 / sum(count(*)) OVER (), 2) AS percent
FROM 'users.csv'
GROUP BY plan
ORDER BY n DESC, plan
--> duckdb
free,3,50.0
pro,2,33.33
team,1,16.67

-- year over year
SELECT region, year, sum(amount) AS total,
       total - lag(total) OVER (PARTITION BY region ORDER BY year) AS growth
FROM 'sales.csv'
GROUP BY region, year
ORDER BY region, year
--> duckdb
north,2024,250,NULL
north,2025,120,-130
south,2024,170,NULL
south,2025,180,10

-- moving average of three
SELECT sensor, ts, round(avg(value) OVER (PARTITION BY sensor ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), 3) AS smooth
FROM 'readings.csv'
WHERE sensor <> 'c'
ORDER BY sensor, ts
--> duckdb
a,2026-03-01T00:00:00,10.0
a,2026-03-01T00:05:00,11.0
a,2026-03-01T00:10:00,11.0
a,2026-03-01T00:15:00,13.5
a,2026-03-01T00:35:00,12.0
b,2026-03-01T00:00:30,20.5
b,2026-03-01T00:07:30,20.75
b,2026-03-01T00:14:30,20.833
b,2026-03-01T01:00:00,20.417

-- duplicates
SELECT ip, agent, count(*) AS n
FROM 'requests.csv'
GROUP BY ip, agent
HAVING count(*) > 2
ORDER BY n DESC, ip
--> duckdb
192.168.1.10,Mozilla/5.0 (X11; Linux x86_64) Firefox/125.0,4
10.0.0.7,curl/8.5.0,3

-- first and last visit
SELECT user_id, min(ts)::DATE AS first, max(ts)::DATE AS last, date_diff('day', min(ts), max(ts)) AS days
FROM 'requests.csv'
WHERE user_id IS NOT NULL
GROUP BY user_id
ORDER BY user_id
--> duckdb
1,2026-03-01,2026-03-02,1
2,2026-03-01,2026-04-01,31
3,2026-03-01,2026-03-03,2
4,2026-03-02,2026-03-31,29
5,2026-03-02,2026-03-08,6

-- a histogram of latencies by powers of ten
SELECT floor(log10(ms)) AS magnitude, count(*) AS n
FROM 'requests.csv'
GROUP BY magnitude
ORDER BY magnitude
--> duckdb
0.0,4
1.0,8
2.0,2
3.0,1

-- a heat map of weekdays and hours
SELECT dayname(ts) AS day, hour(ts) // 6 AS quarter, count(*) AS n
FROM 'requests.csv'
GROUP BY ALL
ORDER BY isodow(any_value(ts)), quarter
--> duckdb
Monday,0,1
Monday,1,2
Monday,2,1
Tuesday,2,2
Tuesday,3,1
Wednesday,1,1
Sunday,0,3
Sunday,1,2
Sunday,3,2

-- tags, one a row
SELECT tag, count(*) AS users, string_agg(name, ', ' ORDER BY name) AS who
FROM (SELECT name, unnest(string_split(tags, '|')) AS tag FROM 'users.csv')
GROUP BY tag
ORDER BY users DESC, tag
--> duckdb
beta,2,"Bob O'Neil, Chloé"
mobile,2,"Chloé, Eve Adams"
new,2,"Ann Lee, Finn"
vip,2,"Ann Lee, Chloé"

-- who ordered before signing up, and who never did
SELECT u.name, count(o.order_id) AS orders, count(*) FILTER (WHERE o.day < u.signed_up) AS early
FROM 'users.csv' AS u LEFT JOIN 'orders.csv' AS o ON o.user_id = u.user_id
GROUP BY u.name
ORDER BY u.name;
--> duckdb
Ann Lee,3,0
Bob O'Neil,1,0
Chloé,2,0
Eve Adams,2,0
Finn,0,0
dan,0,0

-- a funnel
SELECT count(DISTINCT user_id) AS visited,
       count(DISTINCT user_id) FILTER (WHERE url LIKE '%/cart%') AS cart,
       count(DISTINCT CASE WHEN url LIKE '%/checkout%' AND status = 200 THEN user_id END) AS bought
FROM 'requests.csv'
--> duckdb
5,1,1

-- what each browser is
SELECT CASE
         WHEN agent ILIKE '%bot%' THEN 'bot'
         WHEN agent LIKE 'Mozilla%' THEN regexp_extract(agent, '(\w+)/[\d.]+$', 1)
         WHEN agent IS NULL THEN 'none'
         ELSE split_part(agent, '/', 1)
       END AS browser,
       count(*) AS hits, sum(bytes) AS bytes
FROM 'requests.csv'
GROUP BY browser
ORDER BY hits DESC, browser
--> duckdb
Firefox,4,26240
curl,3,8630
Chrome,2,30000
Safari,2,5120
python-requests,2,900
bot,1,150
none,1,80

-- revenue by month, with a running total
WITH months AS (
    SELECT strftime(day, '%Y-%m') AS month, sum(qty * price) AS revenue
    FROM 'orders.csv'
    GROUP BY month
)
SELECT month, revenue, sum(revenue) OVER (ORDER BY month) AS so_far
FROM months
ORDER BY month
--> duckdb
2026-01,39.9,39.9
2026-02,134.2,174.1
2026-03,471.75,645.85

-- cross table
PIVOT (SELECT method, status // 100 * 100 AS class FROM 'requests.csv')
ON class IN (200, 300, 400, 500) USING count(*)
GROUP BY method
ORDER BY method
--> duckdb
DELETE,1,0,0,0
GET,8,0,2,1
POST,1,1,0,1

-- the median gap between requests
SELECT median(epoch(ts) - epoch(before)) AS seconds
FROM (SELECT ts, lag(ts) OVER (ORDER BY ts) AS before FROM 'requests.csv')
WHERE before IS NOT NULL
--> duckdb
17070.5

-- value before each reading, and how long it held
SELECT sensor, ts, value, date_diff('second', ts, lead(ts) OVER (PARTITION BY sensor ORDER BY ts)) AS seconds
FROM 'readings.csv'
ORDER BY sensor, ts
--> duckdb
a,2026-03-01T00:00:00,10.0,300
a,2026-03-01T00:05:00,12.0,300
a,2026-03-01T00:10:00,NULL,300
a,2026-03-01T00:15:00,15.0,1200
a,2026-03-01T00:35:00,9.0,NULL
b,2026-03-01T00:00:30,20.5,420
b,2026-03-01T00:07:30,21.0,420
b,2026-03-01T00:14:30,21.0,2730
b,2026-03-01T01:00:00,19.25,NULL
c,2026-03-01T00:20:00,NULL,NULL

-- the three largest orders and the rest
SELECT CASE WHEN n <= 3 THEN order_id::VARCHAR ELSE 'rest' END AS what, sum(cost) AS cost
FROM (SELECT order_id, qty * price AS cost, row_number() OVER (ORDER BY qty * price DESC) AS n FROM 'orders.csv')
GROUP BY what
ORDER BY cost DESC
--> duckdb
107,310.0
rest,167.95
109,88.0
104,79.9
