# Where engines tend to differ without saying so.

SELECT substring('hello', 2, 3), substring('hello', 10), left('abc', 5), right('abc', 2)
--> clickhouse duckdb
ell,"",abc,bc

SELECT substr('hello', -3, 2)
--> differs: substr(x, -3) begins before the text, as in PostgreSQL
--> tidemill
NULL
--> clickhouse duckdb
ll

SELECT position('abc', 'z'), position('abc', ''), concat('a', toString(1)), length('')
--> clickhouse
0,1,a1,0

SELECT floor(-0.5), ceil(-0.5), trunc(1.99), abs(-3)
--> clickhouse duckdb
-1,0,1,3

SELECT round(-2.5)
--> differs: a half is rounded away from zero
--> tidemill
-3.0
--> clickhouse
-2

SELECT round(1.45, 1)
--> differs: a half is rounded away from zero
--> tidemill
1.5
--> clickhouse
1.4

SELECT -7 % 3, 7 % -3, intDiv(7, -2), gcd(12, -18)
--> clickhouse
-1,1,-3,6

SELECT greatest(1, 2.5), least(1, -1), if(0, 'a', 'b'), if(NULL, 'a', 'b'), multiIf(NULL, 1, 2)
--> clickhouse
2.5,-1,b,b,2

SELECT nullIf(1, 1), ifNull(NULL, 5), coalesce(NULL, NULL, 3), isNull(NULL), NULL = NULL
--> clickhouse
NULL,5,3,1,NULL

SELECT toInt64OrNull('12a'), toFloat64OrNull('1.5'), toInt64('-5'), toString(1.0), toString(toDate('2026-03-01'))
--> clickhouse
NULL,1.5,-5,1,2026-03-01

SELECT toDate('2026-03-01') = '2026-03-01', toDateTime('2026-03-01 10:00:00') > '2026-03-01 09:00:00'
--> clickhouse
1,1

SELECT indexOf([1, 2], 9), has([], 1), length([])
--> clickhouse
0,0,0

SELECT [1, 2, 3][4]
--> differs: an item that is not there is null
--> tidemill
NULL
--> clickhouse
0

SELECT [1, 2, 3][0]
--> differs: an item that is not there is null
--> tidemill
NULL
--> clickhouse
0

SELECT arrayDistinct([1, 2, 1]), arraySlice([1, 2, 3], -2, 1), arrayConcat([1], []), arrayReverse([])
--> clickhouse
"[1,2]",[2],[1],[]

SELECT arraySlice([1, 2, 3], 2)
--> clickhouse
"[2,3]"

SELECT arraySum([1]), arrayMax([1, 2]), arrayAvg([1, 2]), arrayElement(['a', 'b'], -1)
--> clickhouse
1,2,1.5,b

SELECT arrayFilter(x -> x > 5, [1]), arrayMap(x -> x, []), arrayStringConcat([], ',')
--> clickhouse
[],[],""

SELECT count(), sum(qty), avg(qty), max(qty) FROM 'orders.csv' WHERE qty > 1000
--> clickhouse duckdb
0,NULL,NULL,NULL

SELECT any(sku) FROM 'orders.csv' WHERE qty > 1000
--> error: unknown function `any`
--> hint: it is written here as bool_or(c), any_value(x)
--> clickhouse
NULL

SELECT countIf(paid), sumIf(qty, paid), avgIf(price, sku = 'pen'), countIf(isNull(paid)) FROM 'orders.csv'
--> clickhouse
6,20,1.4166666666666667,1

SELECT uniq(country), uniqExact(country), count(country), count(DISTINCT country) FROM 'users.csv'
--> clickhouse
3,3,5,3

SELECT argMax(name, score), argMin(name, score), max(score) FROM 'users.csv'
--> clickhouse duckdb
Eve Adams,dan,9.75

SELECT quantile(0.25)(qty), quantile(0.9)(price), median(price), quantiles(0.1, 0.9)(qty) FROM 'orders.csv'
--> clickhouse
1,96.00000000000006,24.9,"[1,13.000000000000004]"

SELECT groupArray(score) FROM (SELECT score FROM 'users.csv' ORDER BY user_id)
--> clickhouse
"[8.5,7.25,3,9.75]"

SELECT arraySort(groupUniqArray(country)) FROM 'users.csv'
--> clickhouse
"[""DE"",""FR"",""US""]"

SELECT sku, topK(1)(user_id) FROM 'orders.csv' WHERE sku IN ('desk', 'lamp') AND order_id <> 108 GROUP BY sku ORDER BY sku
--> clickhouse
desk,[9]
lamp,[3]

SELECT stddevPop(qty), varSamp(qty), stddevSamp(price) FROM 'orders.csv'
--> clickhouse
7.410369778014696,61.77777777777778,98.00784867946943

SELECT country, count() FROM 'users.csv' GROUP BY country ORDER BY country
--> clickhouse duckdb
DE,2
FR,1
US,2
NULL,1

SELECT country, count() FROM 'users.csv' GROUP BY country ORDER BY country DESC
--> clickhouse duckdb
US,2
FR,1
DE,2
NULL,1

SELECT score FROM 'users.csv' ORDER BY score DESC
--> clickhouse duckdb
9.75
8.5
7.25
3
NULL
NULL

SELECT user_id, sku FROM 'orders.csv' ORDER BY user_id DESC, order_id LIMIT 1 BY user_id LIMIT 3
--> pending: SQL is not understood: Expected: end of statement, found: LIMIT at Line: 1, Column: 90
--> clickhouse
9,desk
5,book
3,lamp

SELECT order_id FROM 'orders.csv' ORDER BY order_id LIMIT 1 OFFSET 1 BY sku
--> pending: SQL is not understood: Expected: end of statement, found: BY at Line: 1, Column: 70
--> clickhouse
103
105
108

SELECT number, number % 3 AS m FROM numbers(6) WHERE m = 1
--> clickhouse
1,1
4,1

SELECT sum(number) FROM numbers(101)
--> clickhouse
5050

SELECT name FROM 'users.csv' WHERE user_id IN (1, 2) OR country = 'FR' ORDER BY name
--> clickhouse duckdb
Ann Lee
Bob O'Neil
Chloé

SELECT u.name, o.order_id FROM 'users.csv' u LEFT JOIN 'orders.csv' o ON u.user_id = o.user_id WHERE u.user_id >= 4 ORDER BY u.user_id, o.order_id
--> clickhouse duckdb
dan,NULL
Eve Adams,105
Eve Adams,106
Finn,NULL

SELECT name, o.qty FROM 'users.csv' u RIGHT JOIN 'orders.csv' o ON u.user_id = o.user_id WHERE o.order_id >= 107 ORDER BY o.order_id
--> clickhouse duckdb
NULL,1
Ann Lee,1
Chloé,4

SELECT toDate(ts) AS d, uniq(ip) AS ips FROM 'requests.csv' WHERE d >= '2026-03-02' GROUP BY d ORDER BY d
--> clickhouse
2026-03-02,3
2026-03-03,2
2026-03-08,1
2026-03-31,1
2026-04-01,1

SELECT toHour(ts) AS h, count() FROM 'requests.csv' GROUP BY h ORDER BY h
--> clickhouse
0,4
6,1
8,2
9,2
12,1
14,2
18,1
23,2

SELECT startsWith('abc', ''), endsWith('abc', 'c'), startsWith('abc', 'B')
--> clickhouse
1,1,0

SELECT empty('')
--> clickhouse
1

SELECT notEmpty(' ')
--> clickhouse
1

SELECT upper('abc'), reverse('abc'), repeat('a', 3)
--> clickhouse duckdb
ABC,cba,aaa

SELECT base64Encode('é')
--> clickhouse
w6k=

SELECT hex('é')
--> clickhouse duckdb
C3A9
