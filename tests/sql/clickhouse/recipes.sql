# Longer statements, as they stand in dashboards.

SELECT toStartOfDay(ts) AS day, count() AS hits, uniq(user_id) AS visitors, countIf(status >= 500) / count() AS errors
FROM 'requests.csv'
GROUP BY day
ORDER BY day
--> clickhouse
2026-03-01T00:00:00,6,3,0
2026-03-02T00:00:00,4,3,0.25
2026-03-03T00:00:00,2,1,0
2026-03-08T00:00:00,1,1,0
2026-03-31T00:00:00,1,1,1
2026-04-01T00:00:00,1,1,0

SELECT domain(url) AS host, quantile(0.5)(ms) AS p50, max(ms) AS worst, argMax(url, ms) AS slowest
FROM 'requests.csv'
GROUP BY host
ORDER BY worst DESC
--> clickhouse
shop.example.com,37,1200,https://shop.example.com/
blog.example.org,22,22,http://blog.example.org/2026/03/post.html
api.example.com,7.5,9.25,https://api.example.com:8443/v1/items/7

SELECT method, topK(1)(status) AS often, count() AS n
FROM 'requests.csv'
GROUP BY method
HAVING n > 3
ORDER BY n DESC
--> clickhouse
GET,[200],11

SELECT user_id, groupArray(status) AS statuses
FROM (SELECT user_id, status FROM 'requests.csv' WHERE user_id IS NOT NULL ORDER BY ts)
GROUP BY user_id
ORDER BY user_id
--> clickhouse
1,"[200,200,500,200]"
2,"[302,200,200]"
3,"[200,204]"
4,"[200,503]"
5,"[200,200]"

SELECT user_id, count() AS hits
FROM 'requests.csv'
WHERE isNotNull(user_id)
GROUP BY user_id
ORDER BY user_id
--> clickhouse
1,4
2,3
3,2
4,2
5,2

SELECT dateDiff('day', min(ts), max(ts)) AS days
FROM 'requests.csv'
WHERE isNotNull(user_id)
GROUP BY user_id
ORDER BY user_id
--> clickhouse
1
31
2
29
6

SELECT toYYYYMM(day) AS month, sum(qty * price) AS revenue, sumIf(qty * price, paid) AS paid
FROM 'orders.csv'
GROUP BY month
ORDER BY month
--> clickhouse
202601,39.9,39.9
202602,134.2,129.7
202603,471.75,398

SELECT sku, order_id, qty
FROM 'orders.csv'
ORDER BY sku, qty DESC, order_id
LIMIT 2 BY sku
--> clickhouse
book,109,4
book,105,2
desk,107,1
lamp,104,2
lamp,108,1
pen,106,25
pen,101,10

SELECT multiIf(ms < 10, '<10', ms < 100, '<100', '>=100') AS bucket, count() AS n, bar(n, 0, 10, 5) AS chart
FROM 'requests.csv'
GROUP BY bucket
ORDER BY n DESC, bucket
--> clickhouse
<100,8,████
<10,4,██
>=100,3,█▌

WITH (SELECT sum(qty * price) FROM 'orders.csv') AS total
SELECT sku, round(100 * sum(qty * price) / total, 1) AS percent
FROM 'orders.csv'
GROUP BY sku
ORDER BY percent DESC
--> clickhouse
desk,48
book,25.2
lamp,19
pen,7.9

SELECT visitParamExtractString(detail, 'city') AS city, count() AS n
FROM 'orders.csv'
WHERE city != ''
GROUP BY city
ORDER BY n DESC, city
--> clickhouse
Berlin,2
Austin,1
Bonn,1
Lyon,1
