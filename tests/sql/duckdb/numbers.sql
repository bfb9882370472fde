# Numbers, conditions and types.

SELECT 2 ** 3, 2 ^ 3, pow(2, 3), power(2, 10)

SELECT 7 // 2, -7 // 2, 7 % 3, -7 % 3, mod(7, 3), fmod(7.5, 2)

SELECT 10 / 4

SELECT 10 / 4.0

SELECT round(2.5), round(-2.5), round(2.345, 2), round_even(2.5, 0)

SELECT ceil(1.2), ceiling(-1.2), floor(1.8), trunc(-1.8), sign(-3), abs(-4)

SELECT sqrt(16), cbrt(27), ln(exp(1)), log10(1000), log2(8), log(100)

SELECT round(sin(1), 6), round(cos(1), 6), round(tan(1), 6), round(atan2(1, 2), 6), round(degrees(pi()), 6), round(radians(180), 6)

SELECT gcd(12, 18), lcm(4, 6), factorial(5), even(3.2)

SELECT greatest(1, 5, 3), least(1, 5, 3), greatest(NULL, 2)

SELECT 5 & 3, 5 | 3, xor(5, 3), ~5, 1 << 4, 256 >> 2, bit_count(255)

SELECT isnan('nan'::DOUBLE), isinf('inf'::DOUBLE), isfinite(1.0::DOUBLE)

SELECT 1_000_000 + 1

SELECT 0xFF

SELECT 5!

SELECT @(-5)

SELECT if(status >= 400, 'bad', 'good') AS s, count(*) FROM 'requests.csv' GROUP BY s ORDER BY s

SELECT CASE WHEN status < 300 THEN 'ok' WHEN status < 400 THEN 'moved' ELSE 'error' END AS s, count(*) FROM 'requests.csv' GROUP BY ALL ORDER BY ALL

SELECT CASE status WHEN 200 THEN 'ok' WHEN 404 THEN 'lost' END AS s, count(*) FROM 'requests.csv' GROUP BY s ORDER BY s NULLS LAST

SELECT ifnull(email, 'none'), coalesce(country, '??'), nullif(plan, 'free') FROM 'users.csv' ORDER BY user_id

SELECT name FROM 'users.csv' WHERE score IS NULL ORDER BY 1

SELECT name FROM 'users.csv' WHERE country IS DISTINCT FROM 'US' ORDER BY 1

SELECT id, user_id IS NOT DISTINCT FROM NULL AS anonymous FROM 'requests.csv' WHERE id BETWEEN 4 AND 6 ORDER BY id

SELECT typeof(1), typeof('a'), typeof(1.5), typeof([1])

SELECT typeof(ts), typeof(ms), typeof(status), typeof(url) FROM 'requests.csv' LIMIT 1

SELECT TRY_CAST('abc' AS INTEGER), TRY_CAST('42' AS INTEGER), '42'::INT + 1

SELECT '3.7'::DOUBLE::INT, 3.2::INT

SELECT CAST(12.345 AS DECIMAL(10, 2)), 5::DECIMAL(5, 1)

SELECT true AND NULL, false AND NULL, true OR NULL, NOT NULL

SELECT 'true'::BOOLEAN, 1::BOOLEAN, true::INT

SELECT width_bucket(5.35, 0.024, 10.06, 5)

SELECT equi_width_bins(0, 10, 2, true)

SELECT hash('a') = hash('a'), hash('a') = hash('b')

SELECT setseed(0.5) IS NULL

SELECT random() BETWEEN 0 AND 1, uuid() IS NOT NULL, gen_random_uuid() <> gen_random_uuid()

SELECT error('stop') WHERE false

SELECT status // 100 AS class, count(*) FROM 'requests.csv' GROUP BY class ORDER BY class

SELECT status::VARCHAR[1] || 'xx' AS class, count(*) FROM 'requests.csv' GROUP BY class ORDER BY class

SELECT bytes BETWEEN 100 AND 1000 AS mid, count(*) FROM 'requests.csv' GROUP BY mid ORDER BY mid NULLS FIRST

SELECT user_id IN (1, 2) AS known, count(*) FROM 'requests.csv' GROUP BY ALL ORDER BY ALL NULLS FIRST
