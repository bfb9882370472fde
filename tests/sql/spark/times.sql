# Dates and times, as Spark's manual has them.

SELECT id, year(ts), month(ts), dayofmonth(ts), hour(ts), minute(ts), second(ts) FROM 'requests.csv' WHERE id <= 2 ORDER BY id
--> spark duckdb
1,2026,3,1,0,5,10
2,2026,3,1,0,5,42

SELECT id, dayofyear(ts), weekofyear(ts), quarter(ts) FROM 'requests.csv' WHERE id IN (1, 7) ORDER BY id
--> spark duckdb
1,60,9,1
7,61,10,1

SELECT dayofweek(ts) FROM 'requests.csv' WHERE id IN (1, 7) ORDER BY id
--> differs: the days of the week are counted from 0 on Sunday
--> tidemill
0
1
--> spark
1
2

SELECT weekday(ts) FROM 'requests.csv' WHERE id IN (1, 7) ORDER BY id
--> differs: the days of the week are counted from 0 on Sunday
--> tidemill
0
1
--> spark
6
0

SELECT name, day(signed_up) FROM 'users.csv' ORDER BY user_id
--> spark duckdb
Ann Lee,15
Bob O'Neil,30
Chloé,29
dan,1
Eve Adams,31
Finn,28

SELECT date_format(ts, 'yyyy-MM-dd HH:mm:ss') FROM 'requests.csv' WHERE id = 6
--> spark
2026-03-01 23:59:59

SELECT date_format(ts, 'yyyy-MM-dd') AS d, count(*) AS n FROM 'requests.csv' GROUP BY d ORDER BY d
--> spark
2026-03-01,6
2026-03-02,4
2026-03-03,2
2026-03-08,1
2026-03-31,1
2026-04-01,1

SELECT date_format(signed_up, 'E, d MMM yyyy') FROM 'users.csv' ORDER BY user_id
--> spark
"Wed, 15 Jan 2025"
"Mon, 30 Jun 2025"
"Thu, 29 Feb 2024"
"Sun, 1 Mar 2026"
"Wed, 31 Dec 2025"
"Sat, 28 Feb 2026"

SELECT date_format(ts, 'EEEE') AS day, count(*) FROM 'requests.csv' GROUP BY 1 ORDER BY 1
--> spark
Monday,4
Sunday,7
Tuesday,3
Wednesday,1

SELECT date_add(DATE '2026-02-27', 3)
--> spark duckdb
2026-03-02

SELECT date_sub(DATE '2026-03-01', 1)
--> spark
2026-02-28

SELECT dateadd(DATE '2026-03-01', 1)
--> spark
2026-03-02

SELECT datediff(DATE '2026-03-01', signed_up) FROM 'users.csv' ORDER BY user_id
--> spark
410
244
731
0
60
1

SELECT date_diff(DATE '2026-03-05', DATE '2026-03-01')
--> spark
4

SELECT datediff(MONTH, DATE '2026-01-31', DATE '2026-03-01')
--> differs: datediff counts the boundaries that are crossed; timestampdiff whole units
--> tidemill
2
--> spark
1

SELECT datediff(HOUR, TIMESTAMP '2026-03-01 00:59:59', TIMESTAMP '2026-03-01 02:00:00')
--> differs: datediff counts the boundaries that are crossed; timestampdiff whole units
--> tidemill
2
--> spark
1

SELECT timestampdiff(MONTH, DATE '2026-01-31', DATE '2026-03-01')
--> spark
1

SELECT timestampdiff(HOUR, TIMESTAMP '2026-03-01 00:59:59', TIMESTAMP '2026-03-01 02:00:00')
--> spark
1

SELECT timestampadd(HOUR, 5, ts), dateadd(DAY, -1, ts) FROM 'requests.csv' WHERE id = 4
--> spark
2026-03-01T14:15:00,2026-02-28T09:15:00

SELECT months_between(DATE '2026-03-31', DATE '2026-01-31')
--> spark
2.0

SELECT last_day(DATE '2026-02-03')
--> spark duckdb
2026-02-28

SELECT next_day(DATE '2026-03-01', 'MON')
--> spark
2026-03-02

SELECT trunc(DATE '2026-03-17', 'MM')
--> spark
2026-03-01

SELECT trunc(DATE '2026-03-17', 'year')
--> spark
2026-01-01

SELECT date_trunc('HOUR', ts) AS h, count(*) FROM 'requests.csv' GROUP BY h ORDER BY h LIMIT 3
--> spark duckdb
2026-03-01T00:00:00,3
2026-03-01T09:00:00,2
2026-03-01T23:00:00,1

SELECT to_date('2026-03-01'), to_timestamp('2026-03-01 10:20:30')
--> spark
2026-03-01,2026-03-01T10:20:30

SELECT to_date('01/03/2026', 'dd/MM/yyyy')
--> spark
2026-03-01

SELECT to_timestamp('01-03-2026 10:20', 'dd-MM-yyyy HH:mm')
--> pending: `MM` behind the hours is the month, in the pattern `dd-MM-yyyy HH:mm`
--> spark
2026-03-01T10:20:00

SELECT try_to_timestamp('x', 'yyyy')
--> error: unknown function `try_to_timestamp`
--> hint: strptime('20/11/2026', '%d/%m/%Y') reads a format, try_strptime gives NULL for a text that is none of it
--> spark
NULL

SELECT from_unixtime(1772323200)
--> differs: the answer is an instant, TIMESTAMP WITH TIME ZONE, and no text
--> tidemill
2026-03-01T00:00:00Z
--> spark
2026-03-01 00:00:00

SELECT from_unixtime(1772323200, 'yyyy/MM/dd')
--> spark
2026/03/01

SELECT unix_timestamp(ts), unix_timestamp('2026-03-01 00:00:00'), to_unix_timestamp('2026-03-01', 'yyyy-MM-dd') FROM 'requests.csv' WHERE id = 1
--> pending: there is no `unix_seconds(TEXT, TEXT)`
--> spark
1772323510,1772323200,1772323200

SELECT timestamp_seconds(1772323200)
--> spark
2026-03-01T00:00:00

SELECT timestamp_millis(1772323200123)
--> spark
2026-03-01T00:00:00.123000

SELECT timestamp_micros(1772323200123456)
--> spark
2026-03-01T00:00:00.123456

SELECT unix_seconds(TIMESTAMP '2026-03-01 00:00:00')
--> spark
1772323200

SELECT unix_millis(TIMESTAMP '2026-03-01 00:00:00')
--> spark
1772323200000

SELECT unix_date(DATE '2026-03-01')
--> spark
20513

SELECT date_from_unix_date(20513)
--> spark
2026-03-01

SELECT make_date(2026, 3, 1)
--> spark duckdb
2026-03-01

SELECT make_timestamp(2026, 3, 1, 10, 20, 30.5)
--> spark duckdb
2026-03-01T10:20:30.500000

SELECT extract(YEAR FROM ts), date_part('week', ts) FROM 'requests.csv' WHERE id = 1
--> spark duckdb
2026,9

SELECT extract(DOW FROM ts) FROM 'requests.csv' WHERE id = 1
--> differs: the days of the week are counted from 0 on Sunday
--> tidemill
0
--> spark
1

SELECT extract(DAYOFWEEK_ISO FROM ts) FROM 'requests.csv' WHERE id = 1
--> pending: a time has no field `dayofweek_iso`
--> spark
7

SELECT ts + INTERVAL 2 HOURS, ts - INTERVAL '1' DAY FROM 'requests.csv' WHERE id = 1
--> spark duckdb
2026-03-01T02:05:10,2026-02-28T00:05:10

SELECT ts + INTERVAL '1 02:03:04' DAY TO SECOND FROM 'requests.csv' WHERE id = 1
--> pending: `INTERVAL '1 02:03:04' DAY TO SECOND` is not supported
--> spark
2026-03-02T02:08:14

SELECT signed_up + INTERVAL 1 MONTH FROM 'users.csv' WHERE user_id = 1
--> spark
2025-02-15

SELECT count(*) FROM 'requests.csv' WHERE to_date(ts) = '2026-03-01'
--> spark
6

SELECT from_utc_timestamp(TIMESTAMP '2026-03-01 12:00:00', 'Asia/Tokyo')
--> spark
2026-03-01T21:00:00

SELECT to_utc_timestamp(TIMESTAMP '2026-03-01 12:00:00', 'Asia/Tokyo')
--> spark
2026-03-01T03:00:00

SELECT convert_timezone('UTC', 'Europe/Berlin', TIMESTAMP_NTZ '2026-07-01 12:00:00')
--> spark
2026-07-01T14:00:00

SELECT window.start AS s, count(*) AS n FROM 'readings.csv' GROUP BY window(ts, '15 minutes') ORDER BY s
--> pending: unknown source `window` in `window.start`
--> spark
2026-03-01T00:00:00,6
2026-03-01T00:15:00,2
2026-03-01T00:30:00,1
2026-03-01T01:00:00,1

SELECT dayname(DATE '2026-03-01')
--> differs: names of days and months are whole
--> tidemill
Sunday
--> spark
Sun

SELECT monthname(DATE '2026-03-01')
--> differs: names of days and months are whole
--> tidemill
March
--> spark
Mar

SELECT current_date() > DATE '2020-01-01', now() > '2020-01-01', current_timestamp() IS NOT NULL, curdate() IS NOT NULL
--> spark
true,true,true,true

SELECT sequence(DATE '2026-03-01', DATE '2026-03-03', INTERVAL 1 DAY)
--> spark
"[""2026-03-01"",""2026-03-02"",""2026-03-03""]"

SELECT explode(sequence(DATE '2026-03-01', DATE '2026-03-03')) AS d
--> spark
2026-03-01
2026-03-02
2026-03-03

SELECT cast(ts AS DATE) AS d, cast(ts AS STRING) AS s FROM 'requests.csv' WHERE id = 1
--> spark duckdb
2026-03-01,2026-03-01 00:05:10

SELECT cast('2026-03-01' AS DATE) + 1
--> spark duckdb
2026-03-02

SELECT DATE '2026-03-05' - DATE '2026-03-01' = INTERVAL '4' DAY
--> pending: there is no `BIGINT = INTERVAL`
--> spark
true
