# Parts of times, arithmetic and formats, as DuckDB's manual has them.

SELECT id, year(ts), month(ts), day(ts), hour(ts), minute(ts), second(ts) FROM 'requests.csv' WHERE id <= 3 ORDER BY id
--> duckdb
1,2026,3,1,0,5,10
2,2026,3,1,0,5,42
3,2026,3,1,0,7,1

SELECT DISTINCT dayname(ts) AS d FROM 'requests.csv' ORDER BY d
--> duckdb
Monday
Sunday
Tuesday
Wednesday

SELECT DISTINCT monthname(ts) AS m FROM 'requests.csv' ORDER BY m
--> duckdb
April
March

SELECT id, dayofweek(ts), weekday(ts), isodow(ts) FROM 'requests.csv' WHERE id IN (1, 7, 11, 13) ORDER BY id
--> duckdb
1,0,0,7
7,1,1,1
11,2,2,2
13,0,0,7

SELECT id, week(ts), weekofyear(ts), quarter(ts), dayofyear(ts), dayofmonth(ts) FROM 'requests.csv' WHERE id IN (1, 13, 15) ORDER BY id
--> duckdb
1,9,9,1,60,1
13,10,10,1,67,8
15,14,14,2,91,1

SELECT name, yearweek(signed_up), isoyear(signed_up) FROM 'users.csv' ORDER BY user_id
--> duckdb
Ann Lee,202503,2025
Bob O'Neil,202527,2025
Chloé,202409,2024
dan,202609,2026
Eve Adams,202601,2026
Finn,202609,2026

SELECT century(signed_up) FROM 'users.csv' WHERE user_id = 1
--> duckdb
21

SELECT decade(signed_up) FROM 'users.csv' WHERE user_id = 1
--> duckdb
202

SELECT era(signed_up) FROM 'users.csv' WHERE user_id = 1
--> duckdb
1

SELECT epoch(ts) FROM 'requests.csv' WHERE id = 1
--> duckdb
1772323510.0

SELECT epoch_ms(ts) FROM 'requests.csv' WHERE id = 1
--> duckdb
1772323510000

SELECT epoch_us(ts) FROM 'requests.csv' WHERE id = 1
--> duckdb
1772323510000000

SELECT epoch_ns(TIMESTAMP '2026-03-01 00:00:00')
--> duckdb
1772323200000000000

SELECT millisecond(TIMESTAMP '2026-03-01 00:00:05.25'), microsecond(TIMESTAMP '2026-03-01 00:00:05.25')
--> duckdb
5250,5250000

SELECT date_trunc('hour', ts) AS h, count(*) AS n FROM 'requests.csv' GROUP BY h ORDER BY h LIMIT 4
--> duckdb
2026-03-01T00:00:00,3
2026-03-01T09:00:00,2
2026-03-01T23:00:00,1
2026-03-02T00:00:00,1

SELECT date_trunc('week', ts)::DATE AS w, count(*) FROM 'requests.csv' GROUP BY ALL ORDER BY ALL
--> duckdb
2026-02-23,6
2026-03-02,7
2026-03-30,2

SELECT datetrunc('month', ts)::DATE AS m, sum(ms) FROM 'requests.csv' GROUP BY m ORDER BY m
--> duckdb
2026-03-01,2646.75
2026-04-01,18.0

SELECT date_part('dow', ts) AS dow, count(*) FROM 'requests.csv' GROUP BY dow ORDER BY dow
--> duckdb
0,7
1,4
2,3
3,1

SELECT datepart('hour', ts) AS h, count(*) FROM 'requests.csv' GROUP BY 1 ORDER BY 1
--> duckdb
0,4
6,1
8,2
9,2
12,1
14,2
18,1
23,2

SELECT extract('isodow' FROM ts) AS d, count(*) FROM 'requests.csv' GROUP BY 1 ORDER BY 1
--> duckdb
1,4
2,3
3,1
7,7

SELECT extract(epoch FROM ts) FROM 'requests.csv' WHERE id = 7
--> duckdb
1772409600.0

SELECT date_part(['year', 'month'], DATE '2026-03-01')
--> duckdb
"{""year"":2026,""month"":3}"

SELECT date_part('julian', DATE '2026-03-01'), date_part('millennium', DATE '2000-12-31'), date_part('yearweek', DATE '2021-01-01')
--> duckdb
2461101.0,2,202053

SELECT millennium(DATE '2001-01-01'), century(DATE '2000-01-01'), decade(DATE '2026-03-01'), era(DATE '2026-03-01'), nanosecond(TIME '10:11:12.5')
--> duckdb
3,20,202,1,12500000000

SELECT date_part(part, TIMESTAMP '2026-03-01 10:20:30') AS value FROM (VALUES ('year'), ('dow'), ('hour')) AS t(part) ORDER BY part
--> duckdb
0.0
10.0
2026.0

SELECT extract(millennium FROM DATE '2001-10-10'), extract(century FROM INTERVAL '1400 years')
--> duckdb
3,14

SELECT date_diff('day', signed_up, DATE '2026-03-01') AS days FROM 'users.csv' ORDER BY user_id
--> duckdb
410
244
731
0
60
1

SELECT date_diff('month', DATE '2026-01-31', DATE '2026-02-01')
--> duckdb
1

SELECT datediff('year', DATE '2025-12-31', DATE '2026-01-01')
--> duckdb
1

SELECT date_diff('hour', TIMESTAMP '2026-03-01 00:59:59', TIMESTAMP '2026-03-01 01:00:00')
--> duckdb
1

SELECT date_sub('hour', TIMESTAMP '2026-03-01 00:59:59', TIMESTAMP '2026-03-01 01:00:00')
--> duckdb
0

SELECT datesub('month', DATE '2026-01-31', DATE '2026-03-30')
--> duckdb
1

SELECT date_add(DATE '2026-01-31', INTERVAL 1 MONTH)
--> differs: a DATE and whole days, months or years are a DATE
--> tidemill
2026-02-28
--> duckdb
2026-02-28T00:00:00

SELECT signed_up + INTERVAL 1 YEAR FROM 'users.csv' WHERE user_id = 3
--> differs: a DATE and whole days, months or years are a DATE
--> tidemill
2025-02-28
--> duckdb
2025-02-28T00:00:00

SELECT signed_up + 10 AS d, signed_up - 1 AS e FROM 'users.csv' WHERE user_id = 3
--> duckdb
2024-03-10,2024-02-28

SELECT ts - INTERVAL '90 minutes' FROM 'requests.csv' WHERE id = 4
--> duckdb
2026-03-01T07:45:00

SELECT ts + INTERVAL (id) HOUR FROM 'requests.csv' WHERE id = 4
--> duckdb
2026-03-01T13:15:00

SELECT ts + to_minutes(5), ts + to_days(2), ts - to_hours(1) FROM 'requests.csv' WHERE id = 4
--> duckdb
2026-03-01T09:20:00,2026-03-03T09:15:00,2026-03-01T08:15:00

SELECT max(ts) - min(ts) > INTERVAL 30 DAYS FROM 'requests.csv'
--> duckdb
true

SELECT last_day(signed_up) FROM 'users.csv' ORDER BY user_id
--> duckdb
2025-01-31
2025-06-30
2024-02-29
2026-03-31
2025-12-31
2026-02-28

SELECT strftime(ts, '%Y-%m-%d %H:%M') FROM 'requests.csv' WHERE id <= 2 ORDER BY id
--> duckdb
2026-03-01 00:05
2026-03-01 00:05

SELECT strftime(ts, '%d/%b/%Y %I:%M %p %A %j') FROM 'requests.csv' WHERE id IN (1, 10) ORDER BY id
--> duckdb
01/Mar/2026 12:05 AM Sunday 060
02/Mar/2026 12:00 PM Monday 061

SELECT strftime(signed_up, '%a, %-d %B %Y') AS d FROM 'users.csv' ORDER BY user_id
--> duckdb
"Wed, 15 January 2025"
"Mon, 30 June 2025"
"Thu, 29 February 2024"
"Sun, 1 March 2026"
"Wed, 31 December 2025"
"Sat, 28 February 2026"

SELECT strptime('01/Mar/2026:10:20:30', '%d/%b/%Y:%H:%M:%S')
--> duckdb
2026-03-01T10:20:30

SELECT try_strptime('not a time', '%Y-%m-%d') IS NULL
--> duckdb
true

SELECT strptime('2 Mar 2026', ['%Y-%m-%d', '%d %b %Y'])
--> duckdb
2026-03-02T00:00:00

SELECT make_date(2026, 3, 1)
--> duckdb
2026-03-01

SELECT make_timestamp(2026, 3, 1, 10, 20, 30.5)
--> duckdb
2026-03-01T10:20:30.500000

SELECT make_time(10, 20, 30.5)
--> pending: there is no `make_time(BIGINT, BIGINT, DOUBLE)`
--> duckdb
10:20:30.500000

SELECT to_timestamp(1772323200)::TIMESTAMP
--> duckdb
2026-03-01T00:00:00

SELECT epoch_ms(1772323200123)
--> duckdb
2026-03-01T00:00:00.123000

SELECT make_timestamp(1772323200000000)
--> duckdb
2026-03-01T00:00:00

SELECT time_bucket(INTERVAL '15 minutes', ts) AS b, count(value) AS n FROM 'readings.csv' GROUP BY b ORDER BY b
--> duckdb
2026-03-01T00:00:00,5
2026-03-01T00:15:00,1
2026-03-01T00:30:00,1
2026-03-01T01:00:00,1

SELECT time_bucket(INTERVAL '10 minutes', ts, INTERVAL '5 minutes') AS b, count(*) FROM 'readings.csv' WHERE sensor = 'a' GROUP BY b ORDER BY b
--> duckdb
2026-02-28T23:55:00,1
2026-03-01T00:05:00,2
2026-03-01T00:15:00,1
2026-03-01T00:35:00,1

SELECT time_bucket(INTERVAL '1 month', day) AS m, sum(qty) FROM 'orders.csv' GROUP BY m ORDER BY m
--> duckdb
2026-01-01,11
2026-02-01,7
2026-03-01,31

SELECT time_bucket(INTERVAL 2 WEEKS, day) AS m, count(*) FROM 'orders.csv' GROUP BY m ORDER BY m
--> duckdb
2025-12-29,1
2026-01-12,1
2026-01-26,2
2026-02-09,1
2026-02-23,3
2026-03-23,1

SELECT count(*) FROM 'requests.csv' WHERE ts BETWEEN '2026-03-02' AND '2026-03-03'
--> duckdb
4

SELECT count(*) FROM 'requests.csv' WHERE ts::DATE = DATE '2026-03-01'
--> duckdb
6

SELECT CAST(ts AS TIME) FROM 'requests.csv' WHERE id = 6
--> duckdb
23:59:59

SELECT date '2026-03-05' - date '2026-03-01'
--> duckdb
4

SELECT age(TIMESTAMP '2026-03-01', TIMESTAMP '2026-02-01') = INTERVAL 1 MONTH
--> duckdb
true

SELECT greatest(DATE '2026-01-01', DATE '2026-02-01'), least(DATE '2026-01-01', NULL)
--> duckdb
2026-02-01,2026-01-01

SELECT ts AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin' FROM 'requests.csv' WHERE id = 15
--> differs: a time AT TIME ZONE keeps its offset, and is the same instant
--> tidemill
2026-04-01T08:00:00+02:00
--> duckdb
2026-04-01T08:00:00

SELECT hour(timezone('UTC', timezone('Europe/Berlin', TIMESTAMP '2026-07-01 12:00:00')))
--> duckdb
10

SELECT strptime('12:30', '%H:%M')
--> duckdb
1900-01-01 12:30:00

SELECT timezone('Europe/Berlin', TIMESTAMPTZ '2026-07-01 12:00:00+00')
--> duckdb
2026-07-01T14:00:00

SELECT TIMESTAMPTZ '2026-07-01 12:00:00+02:00' = TIMESTAMPTZ '2026-07-01 10:00:00+00:00'
--> duckdb
true

SELECT isfinite(DATE '2026-03-01')
--> duckdb
true

SELECT isinf(TIMESTAMP '2026-03-01')
--> duckdb
false

SELECT julian(DATE '2026-03-01')
--> duckdb
2461101.0

SELECT date_trunc('quarter', day)::DATE AS q, sum(qty * price) AS total FROM 'orders.csv' GROUP BY q ORDER BY q
--> duckdb
2026-01-01,645.85

SELECT current_date <= today(), now() >= TIMESTAMPTZ '2020-01-01', current_timestamp IS NOT NULL
--> duckdb
true,true,true

SELECT (ts - lag(ts) OVER (ORDER BY ts)) > INTERVAL 1 HOUR AS gap FROM 'requests.csv' ORDER BY ts LIMIT 5
--> duckdb
NULL
false
false
true
false

SELECT date_trunc('days', TIMESTAMP '2026-03-01 10:20:30') = TIMESTAMP '2026-03-01', date_trunc('hours', TIMESTAMP '2026-03-01 10:20:30') = TIMESTAMP '2026-03-01 10:00:00'
--> duckdb
true,true
