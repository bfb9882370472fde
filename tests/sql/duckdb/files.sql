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
--> duckdb
11

SELECT count(*) FROM read_text('wide.csv')
--> duckdb
1

SELECT count(*) FROM glob('*.csv') WHERE file LIKE '%wide%'
--> duckdb
1

SELECT all_varchar, n FROM (SELECT 'x' AS all_varchar, count(*) AS n FROM read_csv('wide.csv', all_varchar = true))
--> duckdb
x,3

SELECT sum(column0) FROM read_csv('employees.csv', header = false, skip = 1)
--> duckdb
21

SELECT name FROM read_csv('employees.csv', names = ['id', 'name', 'boss'], skip = 1, header = false) WHERE boss = 3 ORDER BY name
--> duckdb
api
web

SELECT count(*) FROM read_csv('wide.csv', nullstr = '5') WHERE jan IS NULL
--> duckdb
1

SELECT count(*) FROM sniff_csv('wide.csv')
--> duckdb
1

COPY (SELECT 1 AS x) TO '/dev/null' (FORMAT csv)

CREATE TABLE t AS SELECT 1

INSERT INTO t VALUES (1)

SET threads = 1
