# Parts of times, arithmetic and formats, as DuckDB's manual has them.

SELECT id, year(ts), month(ts), day(ts), hour(ts), minute(ts), second(ts) FROM 'requests.csv' WHERE id <= 3 ORDER BY id

SELECT DISTINCT dayname(ts) AS d FROM 'requests.csv' ORDER BY d

SELECT DISTINCT monthname(ts) AS m FROM 'requests.csv' ORDER BY m

SELECT id, dayofweek(ts), weekday(ts), isodow(ts) FROM 'requests.csv' WHERE id IN (1, 7, 11, 13) ORDER BY id

SELECT id, week(ts), weekofyear(ts), quarter(ts), dayofyear(ts), dayofmonth(ts) FROM 'requests.csv' WHERE id IN (1, 13, 15) ORDER BY id

SELECT name, yearweek(signed_up), isoyear(signed_up) FROM 'users.csv' ORDER BY user_id

SELECT name, century(signed_up), decade(signed_up), era(signed_up) FROM 'users.csv' WHERE user_id = 1

SELECT id, epoch(ts), epoch_ms(ts), epoch_us(ts) FROM 'requests.csv' WHERE id = 1

SELECT epoch_ns(TIMESTAMP '2026-03-01 00:00:00')

SELECT millisecond(TIMESTAMP '2026-03-01 00:00:05.25'), microsecond(TIMESTAMP '2026-03-01 00:00:05.25')

SELECT date_trunc('hour', ts) AS h, count(*) AS n FROM 'requests.csv' GROUP BY h ORDER BY h LIMIT 4

SELECT date_trunc('week', ts)::DATE AS w, count(*) FROM 'requests.csv' GROUP BY ALL ORDER BY ALL

SELECT datetrunc('month', ts)::DATE AS m, sum(ms) FROM 'requests.csv' GROUP BY m ORDER BY m

SELECT date_part('dow', ts) AS dow, count(*) FROM 'requests.csv' GROUP BY dow ORDER BY dow

SELECT datepart('hour', ts) AS h, count(*) FROM 'requests.csv' GROUP BY 1 ORDER BY 1

SELECT extract('isodow' FROM ts) AS d, count(*) FROM 'requests.csv' GROUP BY 1 ORDER BY 1

SELECT extract(epoch FROM ts) FROM 'requests.csv' WHERE id = 7

SELECT date_part(['year', 'month'], DATE '2026-03-01')

SELECT name, date_diff('day', signed_up, DATE '2026-03-01') AS days FROM 'users.csv' ORDER BY user_id

SELECT date_diff('month', DATE '2026-01-31', DATE '2026-02-01'), datediff('year', DATE '2025-12-31', DATE '2026-01-01')

SELECT date_diff('hour', TIMESTAMP '2026-03-01 00:59:59', TIMESTAMP '2026-03-01 01:00:00')

SELECT date_sub('hour', TIMESTAMP '2026-03-01 00:59:59', TIMESTAMP '2026-03-01 01:00:00')

SELECT datesub('month', DATE '2026-01-31', DATE '2026-03-30')

SELECT date_add(DATE '2026-01-31', INTERVAL 1 MONTH)

SELECT signed_up + INTERVAL 1 YEAR FROM 'users.csv' WHERE user_id = 3

SELECT signed_up + 10 AS d, signed_up - 1 AS e FROM 'users.csv' WHERE user_id = 3

SELECT ts - INTERVAL '90 minutes' FROM 'requests.csv' WHERE id = 4

SELECT ts + INTERVAL (id) HOUR FROM 'requests.csv' WHERE id = 4

SELECT ts + to_minutes(5), ts + to_days(2), ts - to_hours(1) FROM 'requests.csv' WHERE id = 4

SELECT max(ts) - min(ts) > INTERVAL 30 DAYS FROM 'requests.csv'

SELECT last_day(signed_up) FROM 'users.csv' ORDER BY user_id

SELECT strftime(ts, '%Y-%m-%d %H:%M') FROM 'requests.csv' WHERE id <= 2 ORDER BY id

SELECT strftime(ts, '%d/%b/%Y %I:%M %p %A %j') FROM 'requests.csv' WHERE id IN (1, 10) ORDER BY id

SELECT strftime(signed_up, '%a, %-d %B %Y') AS d FROM 'users.csv' ORDER BY user_id

SELECT strptime('01/Mar/2026:10:20:30', '%d/%b/%Y:%H:%M:%S')

SELECT try_strptime('not a time', '%Y-%m-%d') IS NULL

SELECT strptime('2 Mar 2026', ['%Y-%m-%d', '%d %b %Y'])

SELECT make_date(2026, 3, 1), make_timestamp(2026, 3, 1, 10, 20, 30.5)

SELECT make_time(10, 20, 30.5)

SELECT to_timestamp(1772323200)::TIMESTAMP

SELECT epoch_ms(1772323200123)

SELECT make_timestamp(1772323200000000)

SELECT time_bucket(INTERVAL '15 minutes', at) AS b, count(value) AS n FROM 'readings.csv' GROUP BY b ORDER BY b

SELECT time_bucket(INTERVAL '10 minutes', at, INTERVAL '5 minutes') AS b, count(*) FROM 'readings.csv' WHERE sensor = 'a' GROUP BY b ORDER BY b

SELECT time_bucket(INTERVAL '1 month', day) AS m, sum(qty) FROM 'orders.csv' GROUP BY m ORDER BY m

SELECT time_bucket(INTERVAL 2 WEEKS, day) AS m, count(*) FROM 'orders.csv' GROUP BY m ORDER BY m

SELECT count(*) FROM 'requests.csv' WHERE ts BETWEEN '2026-03-02' AND '2026-03-03'

SELECT count(*) FROM 'requests.csv' WHERE ts::DATE = DATE '2026-03-01'

SELECT CAST(ts AS TIME) FROM 'requests.csv' WHERE id = 6

SELECT date '2026-03-05' - date '2026-03-01'

SELECT age(TIMESTAMP '2026-03-01', TIMESTAMP '2026-02-01') = INTERVAL 1 MONTH

SELECT greatest(DATE '2026-01-01', DATE '2026-02-01'), least(DATE '2026-01-01', NULL)

SELECT ts AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin' FROM 'requests.csv' WHERE id = 15

SELECT timezone('Europe/Berlin', TIMESTAMPTZ '2026-07-01 12:00:00+00')

SELECT TIMESTAMPTZ '2026-07-01 12:00:00+02:00' = TIMESTAMPTZ '2026-07-01 10:00:00+00:00'

SELECT isfinite(DATE '2026-03-01'), isinf(TIMESTAMP '2026-03-01')

SELECT julian(DATE '2026-03-01')

SELECT date_trunc('quarter', day)::DATE AS q, sum(qty * price) AS total FROM 'orders.csv' GROUP BY q ORDER BY q

SELECT current_date <= today(), now() >= TIMESTAMPTZ '2020-01-01', current_timestamp IS NOT NULL

SELECT (ts - lag(ts) OVER (ORDER BY ts)) > INTERVAL 1 HOUR AS gap FROM 'requests.csv' ORDER BY ts LIMIT 5
