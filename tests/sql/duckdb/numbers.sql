# Numbers, conditions and types.

SELECT 2 ** 3 AS a, 2 ^ 3 AS b, pow(2, 3), power(2, 10)
--> duckdb
8.0,8.0,8.0,1024.0

SELECT 7 // 2, -7 // 2, 7 % 3, -7 % 3, mod(7, 3)
--> duckdb
3,-3,1,-1,1

SELECT fmod(7.5, 2)
--> duckdb
1.5

SELECT 10 / 4
--> duckdb
2.5

SELECT 10 / 4.0
--> duckdb
2.5

SELECT round(2.5), round(-2.5), round(2.345, 2)
--> duckdb
3,-3,2.35

SELECT round_even(2.5, 0)
--> duckdb
2

SELECT ceil(1.2), ceiling(-1.2), floor(1.8), trunc(-1.8), abs(-4)
--> duckdb
2,-1,1,-1,4

SELECT sign(-3)
--> duckdb
-1

SELECT sqrt(16), cbrt(27), ln(exp(1)), log10(1000), log2(8), log(100)
--> duckdb
4.0,3.0000000000000004,1.0,3.0,3.0,2.0

SELECT round(sin(1), 6), round(cos(1), 6), round(tan(1), 6), round(atan2(1, 2), 6), round(degrees(pi()), 6), round(radians(180), 6)
--> duckdb
0.841471,0.540302,1.557408,0.463648,180.0,3.141593

SELECT gcd(12, 18), lcm(4, 6), factorial(5)
--> duckdb
6,12,120

SELECT even(3.2)
--> duckdb
4.0

SELECT greatest(1, 5, 3), least(1, 5, 3), greatest(NULL, 2)
--> duckdb
5,1,2

SELECT 5 & 3, 5 | 3, xor(5, 3), 1 << 4, 256 >> 2
--> duckdb
1,7,6,16,64

SELECT ~5
--> duckdb
-6

SELECT bit_count(255)
--> duckdb
8

SELECT isnan('nan'::DOUBLE)
--> duckdb
true

SELECT isinf('inf'::DOUBLE)
--> duckdb
true

SELECT isfinite(1.0::DOUBLE)
--> duckdb
true

SELECT 1_000_000 + 1
--> duckdb
1000001

SELECT 5!
--> pending: SQL is not understood: there is no such operator at Line: 1, Column: 9
--> duckdb
120

SELECT @(-5)
--> pending: SQL is not understood: Expected: end of statement, found: ) at Line: 1, Column: 12
--> duckdb
5

SELECT if(status >= 400, 'bad', 'good') AS s, count(*) FROM 'requests.csv' GROUP BY s ORDER BY s
--> duckdb
bad,4
good,11

SELECT CASE WHEN status < 300 THEN 'ok' WHEN status < 400 THEN 'moved' ELSE 'error' END AS s, count(*) FROM 'requests.csv' GROUP BY ALL ORDER BY ALL
--> duckdb
error,4
moved,1
ok,10

SELECT CASE status WHEN 200 THEN 'ok' WHEN 404 THEN 'lost' END AS s, count(*) FROM 'requests.csv' GROUP BY s ORDER BY s NULLS LAST
--> duckdb
lost,1
ok,9
NULL,5

SELECT ifnull(email, 'none'), coalesce(country, '??'), nullif(plan, 'free') FROM 'users.csv' ORDER BY user_id
--> duckdb
ann@example.com,DE,pro
bob@mail.example.org,US,NULL
chloe@example.fr,FR,pro
DAN@EXAMPLE.COM,US,NULL
none,DE,team
finn@example.com,??,NULL

SELECT name FROM 'users.csv' WHERE score IS NULL ORDER BY 1
--> duckdb
Bob O'Neil
Finn

SELECT name FROM 'users.csv' WHERE country IS DISTINCT FROM 'US' ORDER BY 1
--> duckdb
Ann Lee
Chloé
Eve Adams
Finn

SELECT id, user_id IS NOT DISTINCT FROM NULL AS anonymous FROM 'requests.csv' WHERE id BETWEEN 4 AND 6 ORDER BY id
--> duckdb
4,false
5,true
6,false

SELECT typeof(1)
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
BIGINT
--> duckdb
INTEGER

SELECT typeof('a')
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
TEXT
--> duckdb
VARCHAR

SELECT typeof(1.5)
--> differs: a number with a point is a DOUBLE
--> tidemill
DOUBLE
--> duckdb
"DECIMAL(2,1)"

SELECT typeof([1])
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
BIGINT[]
--> duckdb
INTEGER[]

SELECT typeof(ts), typeof(ms), typeof(status), typeof(url) FROM 'requests.csv' LIMIT 1
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
TIMESTAMP(6),DOUBLE,BIGINT,TEXT
--> duckdb
TIMESTAMP,DOUBLE,BIGINT,VARCHAR

SELECT TRY_CAST('abc' AS INTEGER), TRY_CAST('42' AS INTEGER), '42'::INT + 1
--> duckdb
NULL,42,43

SELECT 3.2::INT
--> duckdb
3

SELECT '3.7'::DOUBLE::INT
--> differs: a cast to an integer cuts what is behind the point; round(x) rounds
--> tidemill
3
--> duckdb
4

SELECT CAST(12.345 AS DECIMAL(10, 2)), 5::DECIMAL(5, 1)
--> duckdb
12.35,5.0

SELECT true AND NULL, false AND NULL, true OR NULL, NOT NULL
--> duckdb
NULL,false,true,NULL

SELECT 'true'::BOOLEAN, 1::BOOLEAN, true::INT
--> duckdb
true,true,1

SELECT equi_width_bins(0, 1734, 10, true), equi_width_bins(0.0, 6.347, 3, true), equi_width_bins(0, 7, 3, false)
--> duckdb
"[200,400,600,800,1000,1200,1400,1600,1800]","[2.0,4.0,6.0,8.0]","[2,4,7]"

SELECT nextafter(99, 1), signbit(-3), binom(5, 2), fdiv(-7, 2)
--> duckdb
98.99999999999999,true,10,-4.0

SELECT equi_width_bins(0, 10, 2, true)
--> duckdb
"[5,10]"

SELECT hash('a') = hash('a')
--> duckdb
true

SELECT hash('a') = hash('b')
--> duckdb
false

SELECT setseed(0.5) IS NULL
--> error: unknown function `setseed`
--> hint: leave it out: random() begins anew with each query
--> duckdb
true

SELECT random() BETWEEN 0 AND 1, uuid() IS NOT NULL
--> duckdb
true,true

SELECT gen_random_uuid() <> gen_random_uuid()
--> duckdb
true

SELECT error('stop') WHERE false
--> duckdb

SELECT status // 100 AS class, count(*) FROM 'requests.csv' GROUP BY class ORDER BY class
--> duckdb
2,10
3,1
4,2
5,2

SELECT (status::VARCHAR)[1] || 'xx' AS class, count(*) FROM 'requests.csv' GROUP BY class ORDER BY class
--> duckdb
2xx,10
3xx,1
4xx,2
5xx,2

SELECT bytes BETWEEN 100 AND 1000 AS mid, count(*) FROM 'requests.csv' GROUP BY mid ORDER BY mid NULLS FIRST
--> duckdb
NULL,1
false,10
true,4

SELECT user_id IN (1, 2) AS known, count(*) FROM 'requests.csv' GROUP BY ALL ORDER BY ALL NULLS FIRST
--> duckdb
NULL,2
false,6
true,7

SELECT 9 / 3 AS q, -7 / 2, 0 / 5, 7 / -2, 1 / 3 + 1 / 3 + 1 / 3
--> duckdb
3.0,-3.5,0.0,-3.5,1.0

SELECT sum(qty) / count(*) AS mean, sum(qty) // count(*) AS whole FROM 'orders.csv'
--> duckdb
5.444444444444445,5
