# Aggregates.

SELECT count(*), count(user_id), count(DISTINCT user_id), count() FROM 'requests.csv'
--> duckdb
15,13,5,15

SELECT min(ms), max(ms), sum(ms), avg(ms), mean(ms), median(ms) FROM 'requests.csv'
--> duckdb
1.5,1200.0,2664.75,177.65,177.65,22.0

SELECT arg_max(url, ms), arg_min(id, ms) FROM 'requests.csv'
--> duckdb
https://shop.example.com/,5

SELECT max_by(name, score), min_by(name, score), argmax(name, signed_up) FROM 'users.csv'
--> duckdb
Eve Adams,dan,dan

SELECT arg_max(name, score, 2) FROM 'users.csv'
--> duckdb
"[""Eve Adams"",""Ann Lee""]"

SELECT max(score, 2), min(score, 2) FROM 'users.csv'
--> duckdb
"[9.75,8.5]","[3.0,7.25]"

SELECT quantile_cont(ms, 0.5) FROM 'requests.csv'
--> duckdb
22.0

SELECT quantile_disc(ms, 0.9) FROM 'requests.csv'
--> duckdb
950.5

SELECT quantile_cont(ms, [0.25, 0.5, 0.75]) FROM 'requests.csv'
--> duckdb
"[10.875,22.0,72.125]"

SELECT quantile(qty, 0.5) FROM 'orders.csv' WHERE sku = 'pen'
--> duckdb
10

SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY ms) FROM 'requests.csv'
--> duckdb
654.2999999999997

SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY status) FROM 'requests.csv'
--> duckdb
200

SELECT mode(status), mode(method) FROM 'requests.csv'
--> duckdb
200,GET

SELECT method, count_if(status >= 400) AS bad FROM 'requests.csv' GROUP BY method ORDER BY method
--> duckdb
DELETE,0
GET,3
POST,1

SELECT countif(ms > 50), count(*) FILTER (ms > 50) AS a, count(*) FILTER (WHERE ms > 50) AS b FROM 'requests.csv'
--> duckdb
5,5,5

SELECT sum(ms) FILTER (WHERE method = 'POST') / sum(ms) AS share FROM 'requests.csv'
--> duckdb
0.44788441692466463

SELECT string_agg(name, ', ' ORDER BY name) FROM 'users.csv'
--> duckdb
"Ann Lee, Bob O'Neil, Chloé, Eve Adams, Finn, dan"

SELECT plan, group_concat(name, '/' ORDER BY user_id DESC) FROM 'users.csv' GROUP BY plan ORDER BY plan
--> duckdb
free,Finn/dan/Bob O'Neil
pro,Chloé/Ann Lee
team,Eve Adams

SELECT listagg(DISTINCT country, ',' ORDER BY country) FROM 'users.csv'
--> duckdb
"DE,FR,US"

SELECT list(name ORDER BY user_id) FROM 'users.csv' WHERE plan = 'free'
--> duckdb
"[""Bob O'Neil"",""dan"",""Finn""]"

SELECT array_agg(DISTINCT status ORDER BY status) FROM 'requests.csv'
--> duckdb
"[200,204,302,403,404,500,503]"

SELECT plan, array_agg(name ORDER BY score DESC NULLS LAST) FROM 'users.csv' GROUP BY plan ORDER BY plan
--> duckdb
free,"[""dan"",""Bob O'Neil"",""Finn""]"
pro,"[""Ann Lee"",""Chloé""]"
team,"[""Eve Adams""]"

SELECT list(score ORDER BY user_id) FROM 'users.csv'
--> duckdb
"[8.5,null,7.25,3.0,9.75,null]"

SELECT first(name ORDER BY user_id), last(name ORDER BY user_id) FROM 'users.csv'
--> duckdb
Ann Lee,Finn

SELECT any_value(plan ORDER BY user_id) FROM 'users.csv'
--> duckdb
pro

SELECT bool_and(status < 500), bool_or(status >= 500) FROM 'requests.csv'
--> duckdb
false,true

SELECT bit_and(status), bit_or(status), bit_xor(status) FROM 'requests.csv'
--> duckdb
0,511,302

SELECT product(qty) FROM 'orders.csv' WHERE order_id <= 104
--> duckdb
60.0

SELECT stddev(ms), stddev_pop(ms), variance(ms), var_samp(ms), var_pop(ms) FROM 'requests.csv' WHERE status = 200
--> duckdb
64.37327397901848,60.691704743657986,4143.918402777777,4143.918402777777,3683.4830246913575

SELECT corr(qty, price), covar_pop(qty, price), covar_samp(qty, price) FROM 'orders.csv'
--> duckdb
-0.3090998998638541,-211.65246913580245,-238.10902777777775

SELECT regr_slope(price, qty), regr_intercept(price, qty), regr_r2(price, qty), regr_count(price, qty) FROM 'orders.csv'
--> duckdb
-3.8542828237410065,73.03998426258993,0.09554274809584463,9

SELECT skewness(qty), kurtosis(qty) FROM 'orders.csv'
--> duckdb
2.38647119379975,5.82758559339579

SELECT entropy(method), mad(ms) FROM 'requests.csv'
--> duckdb
1.0529815751302696,19.0

SELECT approx_count_distinct(ip) FROM 'requests.csv'
--> duckdb
7

SELECT approx_quantile(ms, 0.5) BETWEEN 20 AND 40 FROM 'requests.csv'
--> duckdb
true

SELECT approx_top_k(status, 1) FROM 'requests.csv'
--> duckdb
[200]

SELECT histogram(method) FROM 'requests.csv'
--> error: `histogram` takes numbers; its argument is of type TEXT
--> hint: top_k(x, 10) counts the most frequent values, and GROUP BY x each of them
--> duckdb
"{""DELETE"":1,""GET"":11,""POST"":3}"

SELECT histogram(status, [200, 300, 400, 500]) FROM 'requests.csv'
--> error: bars of `histogram` is a whole number from 1 to 10000; found [200, 300, 400, 500]
--> hint: GROUP BY width_bucket(x, 0, 100, 10) counts between edges of your own
--> duckdb
"{""200"":9,""300"":1,""400"":1,""500"":3,""9223372036854775807"":1}"

SELECT fsum(price), kahan_sum(price), favg(price) FROM 'orders.csv'
--> duckdb
468.5,468.5,52.05555555555556

SELECT sum(DISTINCT price), avg(DISTINCT qty) FROM 'orders.csv'
--> duckdb
442.09999999999997,7.5

SELECT geomean(qty), geometric_mean(qty) FROM 'orders.csv'
--> duckdb
2.8395031883665416,2.8395031883665416

SELECT sem(ms) FROM 'requests.csv' WHERE status = 200
--> duckdb
20.230568247885994

SELECT sum_no_overflow(qty) FROM 'orders.csv'
--> duckdb
49

SELECT max(name), min(signed_up) FROM 'users.csv'
--> duckdb
dan,2024-02-29

SELECT map_from_entries(list((plan, name) ORDER BY user_id)) IS NOT NULL FROM 'users.csv' WHERE user_id <= 2
--> duckdb
true

SELECT count(DISTINCT (method, status)) FROM 'requests.csv'
--> duckdb
8

SELECT sum(paid::INT), sum(CASE WHEN paid THEN 1 ELSE 0 END) FROM 'orders.csv'
--> duckdb
6,6

SELECT sum(qty * price) AS total, round(avg(price), 2) AS mean FROM 'orders.csv'
--> duckdb
645.85,52.06

SELECT count(*) AS n FROM 'orders.csv' HAVING n > 5
--> duckdb
9

SELECT list_sort(list(DISTINCT sku)) FROM 'orders.csv'
--> duckdb
"[""book"",""desk"",""lamp"",""pen""]"

SELECT weighted_avg(price, qty) FROM 'orders.csv'
--> duckdb
13.18061224489796

SELECT reservoir_quantile(ms, 0.5) IS NOT NULL FROM 'requests.csv'
--> duckdb
true

SELECT sku, max(day) - min(day) AS days FROM 'orders.csv' GROUP BY sku ORDER BY sku
--> duckdb
book,70
desk,0
lamp,27
pen,55

SELECT arg_max_null(name, score), arg_min_null(name, user_id) FROM 'users.csv'
--> duckdb
Eve Adams,Ann Lee

SELECT arg_max_nulls_last(name, score, 2), arg_min_nulls_last(user_id, score) FROM 'users.csv'
--> duckdb
"[""Eve Adams"",""Ann Lee""]",4
