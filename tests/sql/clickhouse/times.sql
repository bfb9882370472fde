# Dates and times, as ClickHouse's manual has them.

SELECT id, toYear(ts), toMonth(ts), toDayOfMonth(ts), toHour(ts), toMinute(ts), toSecond(ts) FROM 'requests.csv' WHERE id <= 2 ORDER BY id
--> clickhouse
1,2026,3,1,0,5,10
2,2026,3,1,0,5,42

SELECT id, toDayOfWeek(ts), toDayOfYear(ts), toQuarter(ts), toISOWeek(ts) FROM 'requests.csv' WHERE id IN (1, 7) ORDER BY id
--> clickhouse
1,7,60,1,9
7,1,61,1,10

SELECT toISOYear(ts) FROM 'requests.csv' WHERE id IN (1, 7) ORDER BY id
--> clickhouse
2026
2026

SELECT toDate(ts) AS d, count() FROM 'requests.csv' GROUP BY d ORDER BY d
--> clickhouse
2026-03-01,6
2026-03-02,4
2026-03-03,2
2026-03-08,1
2026-03-31,1
2026-04-01,1

SELECT toStartOfHour(ts) AS h, count() AS n FROM 'requests.csv' GROUP BY h ORDER BY h LIMIT 3
--> clickhouse
2026-03-01T00:00:00,3
2026-03-01T09:00:00,2
2026-03-01T23:00:00,1

SELECT toStartOfDay(ts) AS d, sum(ms) FROM 'requests.csv' GROUP BY d ORDER BY d
--> clickhouse
2026-03-01T00:00:00,174
2026-03-02T00:00:00,1197.5
2026-03-03T00:00:00,11.25
2026-03-08T00:00:00,64
2026-03-31T00:00:00,1200
2026-04-01T00:00:00,18

SELECT toStartOfMonth(ts) AS m, count() FROM 'requests.csv' GROUP BY m ORDER BY m
--> clickhouse
2026-03-01,14
2026-04-01,1

SELECT toMonday(ts) AS w, count() FROM 'requests.csv' GROUP BY w ORDER BY w
--> clickhouse
2026-02-23,6
2026-03-02,7
2026-03-30,2

SELECT toStartOfWeek(toDate('2026-03-04'))
--> clickhouse
2026-03-01

SELECT toStartOfWeek(toDate('2026-03-04'), 1)
--> clickhouse
2026-03-02

SELECT toStartOfQuarter(toDate('2026-05-04'))
--> clickhouse
2026-04-01

SELECT toStartOfYear(toDate('2026-05-04'))
--> clickhouse
2026-01-01

SELECT toStartOfInterval(ts, INTERVAL 15 MINUTE) AS b, count() FROM 'readings.csv' GROUP BY b ORDER BY b
--> clickhouse
2026-03-01T00:00:00,6
2026-03-01T00:15:00,2
2026-03-01T00:30:00,1
2026-03-01T01:00:00,1

SELECT toStartOfFiveMinutes(ts) AS b, count() FROM 'readings.csv' GROUP BY b ORDER BY b
--> clickhouse
2026-03-01T00:00:00,2
2026-03-01T00:05:00,2
2026-03-01T00:10:00,2
2026-03-01T00:15:00,1
2026-03-01T00:20:00,1
2026-03-01T00:35:00,1
2026-03-01T01:00:00,1

SELECT toStartOfTenMinutes(ts) AS b, toStartOfFifteenMinutes(ts) AS c, toStartOfMinute(ts) AS d FROM 'readings.csv' WHERE sensor = 'b' ORDER BY ts
--> clickhouse
2026-03-01T00:00:00,2026-03-01T00:00:00,2026-03-01T00:00:00
2026-03-01T00:00:00,2026-03-01T00:00:00,2026-03-01T00:07:00
2026-03-01T00:10:00,2026-03-01T00:00:00,2026-03-01T00:14:00
2026-03-01T01:00:00,2026-03-01T01:00:00,2026-03-01T01:00:00

SELECT formatDateTime(ts, '%Y-%m-%d %H:%i:%S') FROM 'requests.csv' WHERE id = 6
--> clickhouse
2026-03-01 23:59:59

SELECT formatDateTime(ts, '%F %T') FROM 'requests.csv' WHERE id = 1
--> clickhouse
2026-03-01 00:05:10

SELECT formatDateTime(toDate('2026-03-01'), '%d/%m/%y %a %j')
--> clickhouse
01/03/26 Sun 060

SELECT dateDiff('day', toDate('2026-01-31'), toDate('2026-03-01'))
--> clickhouse
29

SELECT dateDiff('month', toDate('2026-01-31'), toDate('2026-02-01'))
--> clickhouse
1

SELECT dateDiff('hour', toDateTime('2026-03-01 00:59:59'), toDateTime('2026-03-01 01:00:00'))
--> clickhouse
1

SELECT age('hour', toDateTime('2026-03-01 00:59:59'), toDateTime('2026-03-01 01:00:00'))
--> clickhouse
0

SELECT age('month', toDate('2026-01-31'), toDate('2026-03-30'))
--> clickhouse
1

SELECT dateAdd(DAY, 3, toDate('2026-02-27')), dateSub(MONTH, 1, toDate('2026-03-31'))
--> clickhouse
2026-03-02,2026-02-28

SELECT addDays(toDate('2026-03-01'), 1)
--> clickhouse
2026-03-02

SELECT subtractDays(toDate('2026-03-01'), 1)
--> clickhouse
2026-02-28

SELECT addHours(ts, 2), subtractMinutes(ts, 10), addMonths(ts, 1), addWeeks(ts, 1), addYears(ts, 1), addSeconds(ts, 5) FROM 'requests.csv' WHERE id = 1
--> clickhouse
2026-03-01T02:05:10,2026-02-28T23:55:10,2026-04-01T00:05:10,2026-03-08T00:05:10,2027-03-01T00:05:10,2026-03-01T00:05:15

SELECT date_add(DAY, 3, toDate('2026-03-01')), date_sub(DAY, 3, toDate('2026-03-01'))
--> clickhouse
2026-03-04,2026-02-26

SELECT timestamp_add(toDateTime('2026-03-01 00:00:00'), INTERVAL 1 HOUR)
--> clickhouse
2026-03-01T01:00:00

SELECT toDate('2026-03-01') + INTERVAL 1 MONTH, toDateTime('2026-03-01 10:00:00') - INTERVAL 90 MINUTE, toDate('2026-03-01') + 5
--> clickhouse
2026-04-01,2026-03-01T08:30:00,2026-03-06

SELECT toDateTime('2026-03-01 10:20:30'), toDateTime(1772323200), fromUnixTimestamp(1772323200)
--> clickhouse
2026-03-01T10:20:30,2026-03-01T00:00:00,2026-03-01T00:00:00

SELECT toUnixTimestamp(toDateTime('2026-03-01 00:00:00'))
--> clickhouse
1772323200

SELECT parseDateTimeBestEffort('1 Mar 2026 10:20:30')
--> clickhouse
2026-03-01T10:20:30

SELECT parseDateTimeBestEffort('2026-03-01T10:20:30Z')
--> clickhouse
2026-03-01T10:20:30

SELECT toDateOrNull('x'), toDateTimeOrNull('nope')
--> clickhouse
NULL,NULL

SELECT parseDateTime('2026-03-01 10:20', '%Y-%m-%d %H:%i')
--> clickhouse
2026-03-01T10:20:00

SELECT toYYYYMM(ts), toYYYYMMDD(ts), toYYYYMMDDhhmmss(ts) FROM 'requests.csv' WHERE id = 6
--> clickhouse
202603,20260301,20260301235959

SELECT toYYYYMM(day) AS m, sum(qty) FROM 'orders.csv' GROUP BY m ORDER BY m
--> clickhouse
202601,11
202602,7
202603,31

SELECT toDayOfWeek(toDate('2026-03-01'))
--> clickhouse
7

SELECT toLastDayOfMonth(toDate('2026-02-03'))
--> clickhouse
2026-02-28

SELECT monthName(toDate('2026-03-01'))
--> clickhouse
March

SELECT dateName('weekday', toDate('2026-03-01'))
--> clickhouse
Sunday

SELECT dateTrunc('hour', toDateTime('2026-03-17 10:20:30'))
--> clickhouse
2026-03-17T10:00:00

SELECT date_trunc('month', toDate('2026-03-17'))
--> differs: date_trunc gives a TIMESTAMP, as in PostgreSQL
--> tidemill
2026-03-01T00:00:00
--> clickhouse
2026-03-01

SELECT makeDate(2026, 3, 1)
--> clickhouse
2026-03-01

SELECT makeDateTime(2026, 3, 1, 10, 20, 30)
--> clickhouse
2026-03-01T10:20:30

SELECT now() > toDateTime('2020-01-01 00:00:00'), today() > toDate('2020-01-01'), yesterday() < today()
--> clickhouse
1,1,1

SELECT toTimeZone(toDateTime('2026-07-01 12:00:00', 'UTC'), 'Europe/Berlin') = toDateTime('2026-07-01 14:00:00', 'Europe/Berlin')
--> clickhouse
1

SELECT count() FROM 'requests.csv' WHERE ts >= '2026-03-02 00:00:00' AND ts < '2026-03-03 00:00:00'
--> clickhouse duckdb
4

SELECT count() FROM 'requests.csv' WHERE toDate(ts) = '2026-03-01'
--> clickhouse
6

SELECT timeSlot(toDateTime('2026-03-01 10:44:00'))
--> clickhouse
2026-03-01T10:30:00

SELECT toRelativeHourNum(toDateTime('2026-03-01 10:00:00')) - toRelativeHourNum(toDateTime('2026-03-01 07:59:00'))
--> clickhouse
3

SELECT EXTRACT(YEAR FROM toDate('2026-03-01')), YEAR(toDate('2026-03-01'))
--> clickhouse
2026,2026

SELECT toIntervalDay(3) + toDate('2026-03-01')
--> clickhouse
2026-03-04

SELECT DAYOFWEEK(toDate('2026-03-01'))
--> differs: the days of the week are counted from 0 on Sunday
--> tidemill
0
--> clickhouse
7

SELECT toDate32('2026-03-01')
--> clickhouse
2026-03-01

SELECT toDateTime64('2026-03-01 10:20:30.123', 3)
--> clickhouse
2026-03-01T10:20:30.123

SELECT toUnixTimestamp64Milli(toDateTime64('2026-03-01 00:00:00.123', 3))
--> clickhouse
1772323200123
