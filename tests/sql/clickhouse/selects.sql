# Aggregates with their combinators, clauses, joins and windows.

SELECT count(), count(user_id), uniq(user_id), uniqExact(user_id), uniqCombined(ip), uniqHLL12(ip) FROM 'requests.csv'
--> clickhouse
15,13,5,5,7,7

SELECT countIf(status >= 400), sumIf(ms, status = 200), avgIf(ms, status = 200), uniqIf(ip, status = 200), maxIf(ms, method = 'GET'), minIf(ms, method = 'GET') FROM 'requests.csv'
--> clickhouse
4,468.5,52.05555555555556,5,1200,1.5

SELECT quantile(0.5)(ms), median(ms) FROM 'requests.csv'
--> clickhouse
22,22

SELECT quantileExact(0.9)(ms) FROM 'requests.csv'
--> clickhouse
950.5

SELECT quantiles(0.25, 0.5, 0.75)(ms) FROM 'requests.csv'
--> clickhouse
"[10.875,22,72.125]"

SELECT quantilesExact(0.5, 0.9)(ms), quantileExactInclusive(0.5)(ms), quantileExactLow(0.5)(ms) FROM 'requests.csv'
--> clickhouse
"[22,950.5]",22,22

SELECT quantileTDigest(0.5)(ms) BETWEEN 15 AND 40 FROM 'requests.csv'
--> clickhouse
1

SELECT quantileIf(0.5)(ms, status = 200) FROM 'requests.csv'
--> clickhouse
22

SELECT quantileTiming(0.5)(ms) FROM 'requests.csv'
--> clickhouse
22

SELECT topK(1)(status) FROM 'requests.csv'
--> clickhouse
[200]

SELECT topK(1)(method) FROM 'requests.csv'
--> clickhouse
"[""GET""]"

SELECT topKWeighted(1)(method, toUInt64(id)) FROM 'requests.csv'
--> clickhouse
"[""GET""]"

SELECT argMax(url, ms), argMin(id, ms) FROM 'requests.csv'
--> clickhouse duckdb
https://shop.example.com/,5

SELECT any_value(plan) IS NOT NULL FROM 'users.csv'
--> clickhouse
1

SELECT any(plan) IS NOT NULL FROM 'users.csv'
--> error: unknown function `any`
--> hint: it is written here as bool_or(c), any_value(x)
--> clickhouse
1

SELECT anyLast(plan) IS NOT NULL FROM 'users.csv'
--> clickhouse
1

SELECT anyHeavy(plan) IS NOT NULL FROM 'users.csv'
--> clickhouse
1

SELECT groupArray(name) FROM (SELECT name FROM 'users.csv' WHERE plan = 'free' ORDER BY user_id)
--> clickhouse
"[""Bob O'Neil"",""dan"",""Finn""]"

SELECT arraySort(groupUniqArray(status)) FROM 'requests.csv'
--> clickhouse
"[200,204,302,403,404,500,503]"

SELECT groupArray(2)(sku) FROM 'orders.csv'
--> clickhouse
"[""pen"",""book""]"

SELECT groupArraySorted(3)(qty) FROM 'orders.csv'
--> clickhouse
"[1,1,1]"

SELECT arrayStringConcat(groupArray(name), ', ') FROM (SELECT name FROM 'users.csv' ORDER BY user_id)
--> clickhouse
"Ann Lee, Bob O'Neil, Chloé, dan, Eve Adams, Finn"

SELECT groupConcat(', ')(name) FROM (SELECT name FROM 'users.csv' ORDER BY user_id)
--> clickhouse
"Ann Lee, Bob O'Neil, Chloé, dan, Eve Adams, Finn"

SELECT groupBitAnd(status), groupBitOr(status), groupBitXor(status) FROM 'requests.csv'
--> clickhouse
0,511,302

SELECT stddevSamp(ms), stddevPop(ms), varSamp(ms), varPop(ms) FROM 'requests.csv' WHERE status = 200
--> clickhouse
64.37327397901848,60.691704743657986,4143.918402777777,3683.4830246913575

SELECT corr(qty, price), covarSamp(qty, price), covarPop(qty, price) FROM 'orders.csv'
--> clickhouse
-0.3090998998638541,-238.10902777777778,-211.65246913580248

SELECT skewPop(qty), kurtPop(qty), entropy(qty) FROM 'orders.csv'
--> clickhouse
1.9687382916158516,5.459482436532788,2.4193819456463714

SELECT sumKahan(price) FROM 'orders.csv'
--> clickhouse duckdb
468.5

SELECT avgWeighted(price, qty) FROM 'orders.csv'
--> differs: a price is weighed as it is; there it is cut to a whole number first
--> tidemill
13.18061224489796
--> clickhouse
12.816326530612244

SELECT sumWithOverflow(qty) FROM 'orders.csv'
--> clickhouse
49

SELECT sumMap(map(assumeNotNull(sku), qty)) FROM 'orders.csv' WHERE user_id = 1
--> error: unknown function `summap`
--> hint: unnest the map's keys and values in a subquery, and GROUP BY the key
--> clickhouse
"{""book"":1,""lamp"":1,""pen"":10}"

SELECT count(DISTINCT sku), uniqExactIf(sku, paid) FROM 'orders.csv'
--> clickhouse
4,4

SELECT sumDistinct(price) FROM 'orders.csv'
--> clickhouse
442.1

SELECT countDistinct(sku) FROM 'orders.csv'
--> clickhouse
4

SELECT max(ms) - min(ms) FROM 'requests.csv'
--> clickhouse duckdb
1198.5

SELECT avg(status >= 400) FROM 'requests.csv'
--> clickhouse
0.26666666666666666

SELECT histogram(2)(qty) IS NOT NULL, deltaSum(qty) IS NOT NULL, simpleLinearRegression(qty, price) IS NOT NULL FROM 'orders.csv'
--> error: `histogram(2)(qty)` is not supported
--> hint: parameters follow the value: quantile(x, 0.5)
--> clickhouse
1,1,1

SELECT sumOrNull(qty), countOrNull(qty), avgOrDefault(qty) FROM 'orders.csv' WHERE qty > 1000
--> clickhouse
NULL,NULL,NULL

SELECT method, count() AS n FROM 'requests.csv' GROUP BY method WITH TOTALS ORDER BY method
--> error: `WITH TOTALS` is not supported
--> hint: write GROUP BY GROUPING SETS ((a, b), ())
--> clickhouse
DELETE,1
GET,11
POST,3
NULL,15

SELECT region, year, sum(amount) FROM 'sales.csv' GROUP BY region, year WITH ROLLUP ORDER BY region, year
--> clickhouse
north,2024,250
north,2025,120
north,NULL,370
south,2024,170
south,2025,180
south,NULL,350
NULL,NULL,720

SELECT region, year, sum(amount) FROM 'sales.csv' GROUP BY ROLLUP(region, year) ORDER BY region, year
--> clickhouse duckdb
north,2024,250
north,2025,120
north,NULL,370
south,2024,170
south,2025,180
south,NULL,350
NULL,NULL,720

SELECT region, year, sum(amount) FROM 'sales.csv' GROUP BY GROUPING SETS ((region), (year)) ORDER BY region, year
--> clickhouse duckdb
north,NULL,370
south,NULL,350
NULL,2024,420
NULL,2025,300

SELECT user_id, order_id FROM 'orders.csv' ORDER BY user_id, order_id LIMIT 1 BY user_id
--> clickhouse
1,101
2,103
3,104
5,105
9,107

SELECT sku, order_id FROM 'orders.csv' ORDER BY sku, price DESC, order_id LIMIT 2 BY sku LIMIT 3
--> pending: SQL is not understood: Expected: end of statement, found: LIMIT at Line: 1, Column: 90
--> clickhouse
book,102
book,105
desk,107

SELECT order_id FROM 'orders.csv' ORDER BY order_id LIMIT 2, 3
--> clickhouse
103
104
105

SELECT order_id FROM 'orders.csv' ORDER BY order_id LIMIT 3 OFFSET 2
--> clickhouse duckdb
103
104
105

SELECT qty FROM 'orders.csv' ORDER BY qty DESC LIMIT 2 WITH TIES
--> clickhouse
25
10

SELECT TOP 2 order_id FROM 'orders.csv' ORDER BY order_id
--> clickhouse
101
102

SELECT count() FROM 'requests.csv' PREWHERE status = 200 WHERE ms > 20
--> clickhouse
5

SELECT DISTINCT ON (sku) sku, order_id FROM 'orders.csv' ORDER BY sku, order_id
--> clickhouse duckdb
book,102
desk,107
lamp,104
pen,101

SELECT * EXCEPT (detail, paid) FROM 'orders.csv' ORDER BY order_id LIMIT 1
--> clickhouse duckdb
101,1,2026-01-05,pen,10,1.5

SELECT * EXCEPT 'd.*' FROM 'orders.csv' ORDER BY order_id LIMIT 1
--> pending: unknown column `d.*` (no hint)
--> clickhouse
pen,10,1.5

SELECT * REPLACE (qty * 2 AS qty) FROM 'orders.csv' ORDER BY order_id LIMIT 1
--> clickhouse duckdb
101,1,2026-01-05,pen,20,1.5,true,"{""ship"":{""city"":""Berlin"",""zip"":""10115""},""gift"":false,""codes"":[1,2,3]}"

SELECT COLUMNS('jan|feb') FROM 'wide.csv' ORDER BY shop
--> clickhouse duckdb
10,20
5,NULL
1,2

SELECT COLUMNS('jan|feb') APPLY(sum) FROM 'wide.csv'
--> pending: SQL is not understood: Expected: end of statement, found: ( at Line: 1, Column: 32 (no hint)
--> clickhouse
16,22

SELECT * APPLY(toString) FROM 'wide.csv' ORDER BY shop
--> pending: SQL is not understood: Expected: end of statement, found: APPLY at Line: 1, Column: 10
--> clickhouse
x,10,20,NULL
y,5,NULL,7
z,1,2,3

WITH 30 AS low SELECT count() FROM 'requests.csv' WHERE ms > low
--> clickhouse
7

WITH (SELECT avg(ms) FROM 'requests.csv') AS mean SELECT count() FROM 'requests.csv' WHERE ms > mean
--> clickhouse
3

WITH t AS (SELECT sku, sum(qty) AS q FROM 'orders.csv' GROUP BY sku) SELECT * FROM t ORDER BY q DESC
--> clickhouse duckdb
pen,38
book,7
lamp,3
desk,1

SELECT qty * price AS cost, cost * 2 AS twice FROM 'orders.csv' WHERE cost > 50 ORDER BY cost
--> clickhouse duckdb
79.9,159.8
88,176
310,620

SELECT toYYYYMM(day) AS m, count() AS n FROM 'orders.csv' GROUP BY m HAVING n > 2 ORDER BY m
--> clickhouse
202602,3
202603,4

SELECT u.name, o.order_id FROM 'users.csv' AS u ANY LEFT JOIN 'orders.csv' AS o ON u.user_id = o.user_id WHERE u.user_id = 2
--> pending: SQL is not understood: Expected: end of statement, found: ANY at Line: 1, Column: 49
--> clickhouse
Bob O'Neil,103

SELECT name FROM 'users.csv' AS u LEFT SEMI JOIN 'orders.csv' AS o ON u.user_id = o.user_id ORDER BY name
--> clickhouse
Ann Lee
Bob O'Neil
Chloé
Eve Adams

SELECT name FROM 'users.csv' AS u LEFT ANTI JOIN 'orders.csv' AS o ON u.user_id = o.user_id ORDER BY name
--> clickhouse
Finn
dan

SELECT name, order_id FROM 'users.csv' AS u INNER JOIN 'orders.csv' AS o USING (user_id) ORDER BY order_id
--> clickhouse duckdb
Ann Lee,101
Ann Lee,102
Bob O'Neil,103
Chloé,104
Eve Adams,105
Eve Adams,106
Ann Lee,108
Chloé,109

SELECT name, order_id FROM 'users.csv' INNER JOIN 'orders.csv' USING user_id ORDER BY order_id
--> clickhouse
Ann Lee,101
Ann Lee,102
Bob O'Neil,103
Chloé,104
Eve Adams,105
Eve Adams,106
Ann Lee,108
Chloé,109

SELECT o.order_id, p.price FROM 'orders.csv' AS o ASOF JOIN 'prices.csv' AS p ON o.sku = p.sku AND o.day >= p.since ORDER BY o.order_id
--> clickhouse duckdb
101,1.5
102,24.9
103,1.5
104,39.95
105,24.9
106,1.25
108,42.5
109,22

SELECT o.order_id, p.price FROM 'orders.csv' AS o ASOF LEFT JOIN 'prices.csv' AS p ON o.sku = p.sku AND o.day >= p.since WHERE o.sku <> 'desk' ORDER BY o.order_id
--> clickhouse duckdb
101,1.5
102,24.9
103,1.5
104,39.95
105,24.9
106,1.25
108,42.5
109,22

SELECT name FROM 'users.csv' WHERE user_id GLOBAL IN (SELECT user_id FROM 'orders.csv') ORDER BY name
--> clickhouse
Ann Lee
Bob O'Neil
Chloé
Eve Adams

SELECT count() FROM 'users.csv' AS a CROSS JOIN 'wide.csv' AS b
--> clickhouse duckdb
18

SELECT number FROM numbers(3)
--> clickhouse
0
1
2

SELECT number * 2 AS x FROM numbers(2, 3)
--> clickhouse
4
6
8

SELECT number FROM system.numbers LIMIT 2
--> pending: unknown table `system.numbers`
--> clickhouse
0
1

SELECT * FROM generate_series(1, 5, 2)
--> clickhouse duckdb
1
3
5

SELECT * FROM values('a Int64, b String', (1, 'x'), (2, 'y')) ORDER BY a
--> pending: unknown column `a`
--> clickhouse
1,x
2,y

SELECT * FROM format(JSONEachRow, '{"a":1}')
--> pending: unknown table `format`
--> clickhouse
1

SELECT DISTINCT sku FROM 'orders.csv' WHERE sku NOT IN (SELECT sku FROM 'prices.csv')
--> clickhouse duckdb
desk

SELECT * FROM (SELECT sku FROM 'prices.csv' UNION DISTINCT SELECT sku FROM 'orders.csv') ORDER BY sku
--> clickhouse duckdb
book
desk
lamp
pen

SELECT order_id, row_number() OVER (PARTITION BY sku ORDER BY order_id) FROM 'orders.csv' ORDER BY order_id
--> clickhouse duckdb
101,1
102,1
103,2
104,1
105,2
106,3
107,1
108,2
109,3

SELECT order_id, sum(qty) OVER (ORDER BY order_id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM 'orders.csv' ORDER BY order_id
--> clickhouse duckdb
101,10
102,11
103,4
104,5
105,4
106,27
107,26
108,2
109,5

SELECT lagInFrame(value) OVER (PARTITION BY sensor ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM 'readings.csv' ORDER BY sensor, ts
--> clickhouse
NULL
10
12
NULL
15
NULL
20.5
21
21
NULL

SELECT sensor FROM 'readings.csv' WHERE sensor = 'b' ORDER BY ts
--> clickhouse duckdb
b
b
b
b

SELECT leadInFrame(value) OVER (PARTITION BY sensor ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS n FROM 'readings.csv' WHERE sensor = 'b' ORDER BY ts
--> clickhouse
21
21
19.25
NULL

SELECT order_id FROM 'orders.csv' QUALIFY row_number() OVER (PARTITION BY sku ORDER BY price DESC, order_id) = 1 ORDER BY order_id
--> clickhouse duckdb
101
102
107
108

SELECT toStartOfMonth(day) AS m, sum(qty) FROM 'orders.csv' GROUP BY m ORDER BY m WITH FILL STEP INTERVAL 1 MONTH
--> error: `WITH FILL` is not supported
--> hint: join with SELECT unnest(range(start, end)) to fill gaps
--> clickhouse
2026-01-01,11
2026-02-01,7
2026-03-01,31

SELECT number FROM numbers(5) WHERE number % 2 = 0 ORDER BY number WITH FILL
--> error: `WITH FILL` is not supported
--> hint: join with SELECT unnest(range(start, end)) to fill gaps
--> clickhouse
0
1
2
3
4

SELECT sum(qty) FROM 'orders.csv' WHERE (sku, qty) IN (('pen', 10), ('book', 4))
--> clickhouse duckdb
14

SELECT sku, groupArray(order_id) FROM (SELECT * FROM 'orders.csv' ORDER BY order_id) GROUP BY sku ORDER BY sku
--> clickhouse
book,"[102,105,109]"
desk,[107]
lamp,"[104,108]"
pen,"[101,103,106]"

SELECT uniqExact((method, status)) FROM 'requests.csv'
--> clickhouse
8

SELECT uniqExact(method, status) FROM 'requests.csv'
--> clickhouse
8

SELECT windowFunnel(86400)(toDateTime(ts), method = 'GET', method = 'POST') FROM 'requests.csv' WHERE user_id = 1
--> error: `windowfunnel(86400)(CAST(ts AS TIMESTAMP), method = 'GET', method = 'POST')` is not supported
--> hint: min(ts) FILTER (WHERE c) of each step, GROUP BY user, and compare the times in the query around it
--> clickhouse
1

SELECT retention(status = 200, status = 500) FROM 'requests.csv' WHERE user_id = 1
--> clickhouse
"[1,1]"

SELECT count() AS n, method FROM 'requests.csv' GROUP BY method ORDER BY n DESC, method SETTINGS max_threads = 1
--> error: `SETTINGS` is not supported
--> hint: flags say how a query runs: --memory, --threads
--> clickhouse
11,GET
3,POST
1,DELETE
