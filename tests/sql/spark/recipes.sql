# Longer statements, as they stand in jobs.

-- daily visitors
SELECT to_date(ts) AS day, count(*) AS hits, count(DISTINCT user_id) AS visitors, round(avg(ms), 2) AS ms
FROM 'requests.csv'
GROUP BY to_date(ts)
ORDER BY day
--> spark
2026-03-01,6,3,29.0
2026-03-02,4,3,299.38
2026-03-03,2,1,5.63
2026-03-08,1,1,64.0
2026-03-31,1,1,1200.0
2026-04-01,1,1,18.0

-- last status of each user
SELECT user_id, status FROM (
  SELECT user_id, status, row_number() OVER (PARTITION BY user_id ORDER BY ts DESC) AS rn
  FROM 'requests.csv' WHERE user_id IS NOT NULL
) WHERE rn = 1
ORDER BY user_id
--> spark duckdb
1,200
2,200
3,204
4,503
5,200

-- tags in rows
SELECT tag, count(*) AS n
FROM 'users.csv' LATERAL VIEW explode(split(tags, '[|]')) t AS tag
GROUP BY tag
ORDER BY n DESC, tag
--> differs: split takes its separator to the letter
--> tidemill
beta,1
mobile,1
new,1
new|vip,1
vip|beta|mobile,1
--> spark
beta,2
mobile,2
new,2
vip,2

-- hosts
SELECT parse_url(url, 'HOST') AS host, max_by(url, ms) AS slowest, percentile_approx(ms, 0.5) AS p50
FROM 'requests.csv'
GROUP BY 1
ORDER BY 1
--> differs: an estimated median lies between the two values in the middle
--> tidemill
api.example.com,https://api.example.com:8443/v1/items/7,7.5
blog.example.org,http://blog.example.org/2026/03/post.html,22.0
shop.example.com,https://shop.example.com/,37.0
--> spark
api.example.com,https://api.example.com:8443/v1/items/7,5.75
blog.example.org,http://blog.example.org/2026/03/post.html,22.0
shop.example.com,https://shop.example.com/,33.0

-- sessions
WITH marked AS (
  SELECT user_id, ts, IF(unix_timestamp(ts) - unix_timestamp(LAG(ts) OVER (PARTITION BY user_id ORDER BY ts)) <= 1800, 0, 1) AS is_new
  FROM 'requests.csv'
  WHERE user_id IS NOT NULL
)
SELECT user_id, sum(is_new) AS sessions FROM marked GROUP BY user_id ORDER BY user_id
--> spark
1,2
2,3
3,2
4,2
5,2

-- months
SELECT date_format(day, 'yyyy-MM') AS month, sum(qty * price) AS revenue, collect_set(sku) IS NOT NULL AS any
FROM 'orders.csv'
GROUP BY date_format(day, 'yyyy-MM')
ORDER BY month
--> spark
2026-01,39.9,true
2026-02,134.2,true
2026-03,471.75,true

-- who has no orders
SELECT u.name FROM 'users.csv' u LEFT ANTI JOIN 'orders.csv' o ON u.user_id = o.user_id ORDER BY u.name
--> spark
Finn
dan

-- error share
SELECT method, avg(IF(status >= 400, 1, 0)) AS share FROM 'requests.csv' GROUP BY method ORDER BY method
--> spark duckdb
DELETE,0.0
GET,0.2727272727272727
POST,0.3333333333333333

-- totals at every level
SELECT coalesce(region, 'all') AS region, coalesce(cast(year AS STRING), 'all') AS year, sum(amount) AS total
FROM 'sales.csv'
GROUP BY ROLLUP (region, year)
ORDER BY region, year
--> spark duckdb
all,all,720
north,2024,250
north,2025,120
north,all,370
south,2024,170
south,2025,180
south,all,350

-- cities in JSON
SELECT get_json_object(detail, '$.ship.city') AS city, count(*) AS n
FROM 'orders.csv'
WHERE get_json_object(detail, '$.ship.city') IS NOT NULL
GROUP BY 1
ORDER BY n DESC, city
--> spark
Berlin,2
Austin,1
Bonn,1
Lyon,1

-- orders a day after the one before
SELECT order_id, datediff(day, lag(day) OVER (ORDER BY day, order_id)) AS days
FROM 'orders.csv'
ORDER BY day, order_id
--> spark
101,NULL
102,15
103,14
104,0
105,11
106,15
107,1
108,0
109,29
