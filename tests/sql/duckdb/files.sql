# Files, and what is called like a function that reads them.

SELECT count(*) FROM read_csv('orders.csv')
--> duckdb
9

SELECT count(*) FROM read_csv_auto('orders.csv', header = true)
--> duckdb
9

SELECT sku, max(price) AS p FROM read_csv('prices.csv', delim = ',', header = true) GROUP BY sku ORDER BY sku
--> duckdb
book,24.9
lamp,42.5
pen,1.5

SELECT * FROM read_csv('prices.csv', columns = {'sku': 'VARCHAR', 'since': 'VARCHAR', 'price': 'DOUBLE'}) ORDER BY since LIMIT 1
--> duckdb
pen,2025-12-01,1.5

SELECT count(*) FROM read_csv(['orders.csv', 'orders.csv'])
--> duckdb
18

SELECT count(*) FROM read_json('events.json')
--> duckdb
5

SELECT count(*) FROM read_json_auto('events.json')
--> duckdb
5

SELECT * FROM read_json('events.json', columns = {'kind': 'VARCHAR', 'id': 'BIGINT'}) AS e WHERE e.id < 3 ORDER BY id
--> duckdb
click,1
view,2

SELECT kind, count(*) FROM read_ndjson('events.json') GROUP BY kind ORDER BY kind
--> duckdb
buy,1
click,2
view,2

SELECT * FROM "wide.csv" ORDER BY shop
--> duckdb
x,10,20,NULL
y,5,NULL,7
z,1,2,3

SELECT filename, count(*) FROM read_csv('wide.csv', filename = true) GROUP BY filename
--> duckdb
wide.csv,3

SELECT count(*) FROM read_csv(['wide.csv', 'sales.csv'], union_by_name = true)
--> pending: `sales.csv` does not go with `wide.csv`: they have no column in common; its header is `region`, `year`, `quarter`, `amount`
--> duckdb
11

SELECT count(*) FROM read_text('wide.csv')
--> pending: unknown table `read_text`
--> duckdb
1

SELECT count(*) FROM glob('*.csv') WHERE file LIKE '%wide%'
--> duckdb
1

SELECT all_varchar, n FROM (SELECT 'x' AS all_varchar, count(*) AS n FROM read_csv('wide.csv', all_varchar = true))
--> pending: `all_varchar` in read_csv(…) is not understood
--> duckdb
x,3

SELECT sum(column0) FROM read_csv('employees.csv', header = false, skip = 1)
--> pending: unknown column `column0`; did you mean `column_1`? (no hint)
--> duckdb
21

SELECT name FROM read_csv('employees.csv', names = ['id', 'name', 'boss'], skip = 1, header = false) WHERE boss = 3 ORDER BY name
--> pending: `names` in read_csv(…) is not understood
--> duckdb
api
web

SELECT count(*) FROM read_csv('wide.csv', nullstr = '5') WHERE jan IS NULL
--> duckdb
1

SELECT count(*) FROM sniff_csv('wide.csv')
--> pending: unknown table `sniff_csv`
--> duckdb
1

COPY t FROM 'wide.csv'
--> error: COPY … FROM loads a table, and there are no tables to load
--> hint: a file is a table where it lies

COPY (SELECT 1 AS x) TO 'x.csv' (FORMAT csv, PER_THREAD_OUTPUT true)
--> error: unknown COPY option `PER_THREAD_OUTPUT`
--> hint: the options are FORMAT

CREATE TABLE t AS SELECT 1
--> error: `CREATE` is not run here
--> hint: a query is one SELECT; results are written with -o FILE or a job file's [sink]

INSERT INTO t VALUES (1)
--> error: `INSERT` is not run here
--> hint: a query is one SELECT; results are written with -o FILE or a job file's [sink]

SET threads = 1
--> error: `SET` is not run here
--> hint: a query is one SELECT; results are written with -o FILE or a job file's [sink]

SELECT typeof(since) = 'DATE', since FROM read_csv('prices.csv', types = {'since': 'VARCHAR'}) ORDER BY since LIMIT 1
--> duckdb
false,2025-12-01
