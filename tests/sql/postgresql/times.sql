# Dates and times, as PostgreSQL's manual has them.

SELECT id, extract(year FROM ts), extract(month FROM ts), extract(day FROM ts), extract(hour FROM ts) FROM 'requests.csv' WHERE id <= 2 ORDER BY id
--> postgresql duckdb
1,2026,3,1,0
2,2026,3,1,0

SELECT id, extract(dow FROM ts) AS dow, extract(isodow FROM ts) AS isodow, extract(doy FROM ts) AS doy, extract(week FROM ts) AS week FROM 'requests.csv' WHERE id IN (1, 7) ORDER BY id
--> postgresql duckdb
1,0,7,60,9
7,1,1,61,10

SELECT extract(epoch FROM TIMESTAMP '2026-03-01 00:00:01.5')
--> postgresql duckdb
1772323201.500000

SELECT extract(quarter FROM signed_up), extract(isoyear FROM signed_up) FROM 'users.csv' WHERE user_id = 5
--> postgresql duckdb
4,2026

SELECT extract(century FROM signed_up) FROM 'users.csv' WHERE user_id = 5
--> postgresql duckdb
21

SELECT extract(decade FROM signed_up) FROM 'users.csv' WHERE user_id = 5
--> postgresql duckdb
202

SELECT date_part('hour', ts) AS h, count(*) FROM 'requests.csv' GROUP BY h ORDER BY h
--> postgresql duckdb
0.0,4
6.0,1
8.0,2
9.0,2
12.0,1
14.0,2
18.0,1
23.0,2

SELECT extract(milliseconds FROM TIMESTAMP '2026-03-01 00:00:05.25'), extract(microseconds FROM TIMESTAMP '2026-03-01 00:00:05.25')
--> postgresql duckdb
5250.000,5250000

SELECT date_trunc('day', ts) AS d, count(*) FROM 'requests.csv' GROUP BY 1 ORDER BY 1
--> postgresql duckdb
2026-03-01T00:00:00,6
2026-03-02T00:00:00,4
2026-03-03T00:00:00,2
2026-03-08T00:00:00,1
2026-03-31T00:00:00,1
2026-04-01T00:00:00,1

SELECT date_trunc('month', ts)::date AS m, count(*) FROM 'requests.csv' GROUP BY m ORDER BY m
--> postgresql duckdb
2026-03-01,14
2026-04-01,1

SELECT date_trunc('week', ts)::date AS w, round(avg(ms)::numeric, 2) AS ms FROM 'requests.csv' GROUP BY w ORDER BY w
--> postgresql duckdb
2026-02-23,29.00
2026-03-02,181.82
2026-03-30,609.00

SELECT to_char(ts, 'YYYY-MM-DD HH24:MI:SS') FROM 'requests.csv' WHERE id = 6
--> postgresql
2026-03-01 23:59:59

SELECT to_char(ts, 'DD Mon YYYY HH12:MI AM') FROM 'requests.csv' WHERE id IN (1, 10) ORDER BY id
--> postgresql
01 Mar 2026 12:05 AM
02 Mar 2026 12:00 PM

SELECT to_char(signed_up, 'FMDay, FMDD FMMonth YYYY') FROM 'users.csv' ORDER BY user_id
--> postgresql
"Wednesday, 15 January 2025"
"Monday, 30 June 2025"
"Thursday, 29 February 2024"
"Sunday, 1 March 2026"
"Wednesday, 31 December 2025"
"Saturday, 28 February 2026"

SELECT to_char(signed_up, 'Dy Day|Month|DDD|IYYY-IW|Q|J') FROM 'users.csv' WHERE user_id = 5
--> postgresql
Wed Wednesday|December |365|2026-01|4|2461041

SELECT to_char(TIMESTAMP '2026-03-01 10:20:30.123456', 'HH24:MI:SS.MS US')
--> postgresql
10:20:30.123 123456

SELECT to_char(1234567.891, '9,999,999.99')
--> postgresql
" 1,234,567.89"

SELECT to_char(42, '00000')
--> postgresql
 00042

SELECT to_char(-5, 'S999')
--> postgresql
  -5

SELECT to_char(ts, 'YYYY"W"IW') AS w, count(*) FROM 'requests.csv' GROUP BY w ORDER BY w
--> postgresql
2026W09,6
2026W10,7
2026W14,2

SELECT to_date('05 Dec 2026', 'DD Mon YYYY')
--> postgresql
2026-12-05

SELECT to_date('2026-060', 'YYYY-DDD')
--> postgresql
2026-03-01

SELECT to_timestamp('2026-03-01 10:20:30', 'YYYY-MM-DD HH24:MI:SS')::timestamp
--> postgresql
2026-03-01T10:20:30

SELECT to_timestamp(1772323200)::timestamp
--> postgresql duckdb
2026-03-01T00:00:00

SELECT make_date(2026, 3, 1)
--> postgresql duckdb
2026-03-01

SELECT make_timestamp(2026, 3, 1, 10, 20, 30)
--> postgresql duckdb
2026-03-01T10:20:30

SELECT make_time(8, 15, 23.5)
--> pending: there is no `make_time(BIGINT, BIGINT, DOUBLE)`
--> postgresql duckdb
08:15:23.500000

SELECT DATE '2026-01-31' + INTERVAL '1 month'
--> differs: a DATE and whole days, months or years are a DATE
--> tidemill
2026-02-28
--> postgresql duckdb
2026-02-28T00:00:00

SELECT DATE '2026-03-31' - INTERVAL '1 month'
--> differs: a DATE and whole days, months or years are a DATE
--> tidemill
2026-02-28
--> postgresql duckdb
2026-02-28T00:00:00

SELECT DATE '2026-03-05' - DATE '2026-03-01' AS days, DATE '2026-03-01' + 5 AS later
--> postgresql duckdb
4,2026-03-06

SELECT ts + INTERVAL '1 day 2 hours' FROM 'requests.csv' WHERE id = 1
--> postgresql duckdb
2026-03-02T02:05:10

SELECT ts - INTERVAL '90 min' FROM 'requests.csv' WHERE id = 4
--> postgresql duckdb
2026-03-01T07:45:00

SELECT ts + 3 * INTERVAL '1 hour' FROM 'requests.csv' WHERE id = 1
--> postgresql duckdb
2026-03-01T03:05:10

SELECT ts + make_interval(days => 10, hours => 2) FROM 'requests.csv' WHERE id = 1
--> postgresql
2026-03-11T02:05:10

SELECT ts + (user_id || ' hours')::interval FROM 'requests.csv' WHERE id = 4
--> postgresql duckdb
2026-03-01T12:15:00

SELECT extract(day FROM max(ts) - min(ts)), extract(epoch FROM max(ts) - min(ts)) FROM 'requests.csv'
--> postgresql duckdb
31,2699690.000000

SELECT age(TIMESTAMP '2026-03-01', TIMESTAMP '2025-01-15') = INTERVAL '1 year 1 mon 14 days'
--> postgresql duckdb
false

SELECT extract(year FROM age(DATE '2026-03-01', signed_up)) FROM 'users.csv' ORDER BY user_id
--> postgresql duckdb
1
0
2
0
0
0

SELECT date_bin('15 minutes', ts, TIMESTAMP '2026-01-01') AS b, count(*) FROM 'readings.csv' GROUP BY b ORDER BY b
--> postgresql
2026-03-01T00:00:00,6
2026-03-01T00:15:00,2
2026-03-01T00:30:00,1
2026-03-01T01:00:00,1

SELECT date_bin(INTERVAL '1 hour', ts, '2026-01-01') AS b, max(value) FROM 'readings.csv' GROUP BY b ORDER BY b
--> postgresql
2026-03-01T00:00:00,21.0
2026-03-01T01:00:00,19.25

SELECT (DATE '2026-01-01', DATE '2026-02-01') OVERLAPS (DATE '2026-01-15', DATE '2026-03-01')
--> postgresql
true

SELECT ts::date, ts::time FROM 'requests.csv' WHERE id = 8
--> postgresql duckdb
2026-03-02,08:30:15

SELECT CAST('2026-03-01' AS date), '2026-03-01 10:00'::timestamp, date('2026-03-01')
--> postgresql duckdb
2026-03-01,2026-03-01T10:00:00,2026-03-01

SELECT count(*) FROM 'requests.csv' WHERE ts >= '2026-03-02' AND ts < '2026-03-03'
--> postgresql duckdb
4

SELECT count(*) FROM 'requests.csv' WHERE ts >= timestamp '2026-03-03' - interval '1 day'
--> postgresql duckdb
9

SELECT ts AT TIME ZONE 'UTC' AT TIME ZONE 'America/New_York' FROM 'requests.csv' WHERE id = 1
--> differs: a time AT TIME ZONE keeps its offset, and is the same instant
--> tidemill
2026-02-28T19:05:10-05:00
--> postgresql duckdb
2026-02-28T19:05:10

SELECT timezone('Europe/Berlin', TIMESTAMPTZ '2026-07-01 12:00:00+00')
--> postgresql duckdb
2026-07-01T14:00:00

SELECT '2026-03-29 02:30:00'::timestamp AT TIME ZONE 'Europe/Berlin' = '2026-03-29 01:30:00+00'::timestamptz
--> postgresql duckdb
true

SELECT now() > '2020-01-01', current_date > DATE '2020-01-01'
--> postgresql duckdb
true,true

SELECT localtimestamp IS NOT NULL
--> postgresql duckdb
true

SELECT clock_timestamp() IS NOT NULL
--> postgresql
true

SELECT d::date FROM generate_series('2026-02-27'::timestamp, '2026-03-02', '1 day') AS d
--> postgresql duckdb
2026-02-27
2026-02-28
2026-03-01
2026-03-02

SELECT d::date AS day, count(o.order_id) FROM generate_series(DATE '2026-03-01', DATE '2026-03-03', INTERVAL '1 day') AS d LEFT JOIN 'orders.csv' o ON o.day = d::date GROUP BY 1 ORDER BY 1
--> postgresql duckdb
2026-03-01,1
2026-03-02,2
2026-03-03,0

SELECT isfinite(DATE '2026-03-01')
--> postgresql duckdb
true

SELECT justify_hours(INTERVAL '27 hours') = INTERVAL '1 day 3 hours'
--> error: unknown function `justify_hours`
--> hint: days of a month are not counted together: a time plus the span says where it ends
--> postgresql
true

SELECT justify_days(INTERVAL '35 days') = INTERVAL '1 month 5 days'
--> error: unknown function `justify_days`
--> hint: days of a month are not counted together: a time plus the span says where it ends
--> postgresql
true

SELECT INTERVAL '1 day' = INTERVAL '24 hours', INTERVAL '2 hours' > INTERVAL '90 minutes'
--> postgresql duckdb
true,true

SELECT date_trunc('hour', TIMESTAMP '2026-03-01 10:59:59'), date_trunc('quarter', DATE '2026-05-05')::date
--> postgresql duckdb
2026-03-01T10:00:00,2026-04-01

SELECT to_char(ts, 'HH24') AS hour, count(*) FILTER (WHERE status >= 400) AS bad FROM 'requests.csv' GROUP BY 1 HAVING count(*) FILTER (WHERE status >= 400) > 0 ORDER BY 1
--> postgresql
08,1
09,1
14,1
23,1

SELECT extract(epoch FROM INTERVAL '1 day 01:00:00')
--> pending: `1 day 01:00:00` does not fit INTERVAL
--> postgresql duckdb
90000.000000

SELECT extract(hour FROM INTERVAL '1 day 05:00:00')
--> pending: `1 day 05:00:00` does not fit INTERVAL
--> postgresql duckdb
5

SELECT EXTRACT(EPOCH FROM ts)::bigint / 3600 AS bucket FROM 'requests.csv' WHERE id <= 2 ORDER BY id
--> differs: the quotient of whole numbers is a DOUBLE
--> tidemill
492312.0861111111
492312.095
--> postgresql
492312
492312
