# Aggregates.

SELECT count(*), count(user_id), count(DISTINCT user_id), count() FROM 'requests.csv'

SELECT min(ms), max(ms), sum(ms), avg(ms), mean(ms), median(ms) FROM 'requests.csv'

SELECT arg_max(url, ms), arg_min(id, ms) FROM 'requests.csv'

SELECT max_by(name, score), min_by(name, score), argmax(name, signed_up) FROM 'users.csv'

SELECT arg_max(name, score, 2) FROM 'users.csv'

SELECT max(score, 2), min(score, 2) FROM 'users.csv'

SELECT quantile_cont(ms, 0.5), quantile_disc(ms, 0.9) FROM 'requests.csv'

SELECT quantile_cont(ms, [0.25, 0.5, 0.75]) FROM 'requests.csv'

SELECT quantile(qty, 0.5) FROM 'orders.csv' WHERE sku = 'pen'

SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY ms) FROM 'requests.csv'

SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY status) FROM 'requests.csv'

SELECT mode(status), mode(method) FROM 'requests.csv'

SELECT method, count_if(status >= 400) AS bad FROM 'requests.csv' GROUP BY method ORDER BY method

SELECT countif(ms > 50), count(*) FILTER (ms > 50), count(*) FILTER (WHERE ms > 50) FROM 'requests.csv'

SELECT sum(ms) FILTER (WHERE method = 'POST') / sum(ms) AS share FROM 'requests.csv'

SELECT string_agg(name, ', ' ORDER BY name) FROM 'users.csv'

SELECT plan, group_concat(name, '/' ORDER BY user_id DESC) FROM 'users.csv' GROUP BY plan ORDER BY plan

SELECT listagg(DISTINCT country, ',' ORDER BY country) FROM 'users.csv'

SELECT list(name ORDER BY user_id) FROM 'users.csv' WHERE plan = 'free'

SELECT array_agg(DISTINCT status ORDER BY status) FROM 'requests.csv'

SELECT plan, array_agg(name ORDER BY score DESC NULLS LAST) FROM 'users.csv' GROUP BY plan ORDER BY plan

SELECT list(score ORDER BY user_id) FROM 'users.csv'

SELECT first(name ORDER BY user_id), last(name ORDER BY user_id), any_value(plan ORDER BY user_id) FROM 'users.csv'

SELECT bool_and(status < 500), bool_or(status >= 500) FROM 'requests.csv'

SELECT bit_and(status), bit_or(status), bit_xor(status) FROM 'requests.csv'

SELECT product(qty) FROM 'orders.csv' WHERE order_id <= 104

SELECT stddev(ms), stddev_pop(ms), variance(ms), var_samp(ms), var_pop(ms) FROM 'requests.csv' WHERE status = 200

SELECT corr(qty, price), covar_pop(qty, price), covar_samp(qty, price) FROM 'orders.csv'

SELECT regr_slope(price, qty), regr_intercept(price, qty), regr_r2(price, qty), regr_count(price, qty) FROM 'orders.csv'

SELECT skewness(qty), kurtosis(qty) FROM 'orders.csv'

SELECT entropy(method), mad(ms) FROM 'requests.csv'

SELECT approx_count_distinct(ip) FROM 'requests.csv'

SELECT approx_quantile(ms, 0.5) BETWEEN 20 AND 40 FROM 'requests.csv'

SELECT approx_top_k(status, 2) FROM 'requests.csv'

SELECT histogram(method) FROM 'requests.csv'

SELECT histogram(status, [200, 300, 400, 500]) FROM 'requests.csv'

SELECT fsum(price), kahan_sum(price), favg(price) FROM 'orders.csv'

SELECT sum(DISTINCT price), avg(DISTINCT qty) FROM 'orders.csv'

SELECT geomean(qty), geometric_mean(qty) FROM 'orders.csv'

SELECT sem(ms) FROM 'requests.csv' WHERE status = 200

SELECT sum_no_overflow(qty) FROM 'orders.csv'

SELECT max(name), min(signed_up) FROM 'users.csv'

SELECT map_from_entries(list((plan, name) ORDER BY user_id)) IS NOT NULL FROM 'users.csv' WHERE user_id <= 2

SELECT count(DISTINCT (method, status)) FROM 'requests.csv'

SELECT sum(paid::INT), sum(CASE WHEN paid THEN 1 ELSE 0 END) FROM 'orders.csv'

SELECT sum(qty * price) AS total, round(avg(price), 2) AS mean FROM 'orders.csv'

SELECT count(*) AS n FROM 'orders.csv' HAVING n > 5

SELECT avg(status >= 400) FROM 'requests.csv'

SELECT list_sort(list(DISTINCT sku)) FROM 'orders.csv'

SELECT weighted_avg(price, qty) FROM 'orders.csv'

SELECT reservoir_quantile(ms, 0.5) IS NOT NULL FROM 'requests.csv'

SELECT sku, max(day) - min(day) AS days FROM 'orders.csv' GROUP BY sku ORDER BY sku

SELECT arg_max_null(name, score), arg_min_null(name, user_id) FROM 'users.csv'
