# Where engines tend to differ without saying so: nulls, types, edges.

SELECT NULL = NULL, NULL <> 1, 1 IN (1, NULL), 2 IN (1, NULL), 2 NOT IN (1, NULL), NULL IN (1)
--> duckdb
NULL,NULL,true,NULL,NULL,NULL

SELECT count(*) FROM 'users.csv' WHERE score <> 3
--> duckdb
3

SELECT count(*) FROM 'users.csv' WHERE NOT (score > 5)
--> duckdb
1

SELECT name FROM 'users.csv' WHERE score NOT IN (3, 8.5) ORDER BY name
--> duckdb
Chloé
Eve Adams

SELECT country, count(*), count(country) FROM 'users.csv' GROUP BY country ORDER BY country NULLS FIRST
--> duckdb
NULL,1,0
DE,2,2
FR,1,1
US,2,2

SELECT sum(score), avg(score), min(score), count(score) FROM 'users.csv' WHERE false
--> duckdb
NULL,NULL,NULL,0

SELECT plan, sum(score) FROM 'users.csv' WHERE false GROUP BY plan
--> duckdb

SELECT count(*), sum(qty) FROM 'orders.csv' WHERE qty > 1000
--> duckdb
0,NULL

SELECT max(name), min(name) FROM 'users.csv' WHERE country = 'XX'
--> duckdb
NULL,NULL

SELECT string_agg(country, ',') FROM 'users.csv' WHERE country IS NULL
--> duckdb
NULL

SELECT list(country) FROM 'users.csv' WHERE user_id = 6
--> duckdb
[null]

SELECT DISTINCT country FROM 'users.csv' ORDER BY country
--> duckdb
DE
FR
US
NULL

SELECT country FROM 'users.csv' UNION SELECT country FROM 'users.csv' ORDER BY 1 NULLS FIRST
--> duckdb
NULL
DE
FR
US

SELECT score FROM 'users.csv' ORDER BY score DESC
--> duckdb
9.75
8.5
7.25
3.0
NULL
NULL

SELECT score FROM 'users.csv' ORDER BY score NULLS FIRST, user_id
--> duckdb
NULL
NULL
3.0
7.25
8.5
9.75

SELECT concat('a', NULL), 'a' || NULL, concat_ws(',', 'a', NULL), upper(NULL)
--> duckdb
a,NULL,a,NULL

SELECT greatest(1, NULL), least(NULL, 2), coalesce(NULL, NULL), nullif(1, 1), nullif(1, NULL)
--> duckdb
1,2,NULL,NULL,1

SELECT u.name FROM 'users.csv' u LEFT JOIN 'orders.csv' o ON u.user_id = o.user_id AND o.qty > 5 WHERE o.order_id IS NULL ORDER BY u.name
--> duckdb
Bob O'Neil
Chloé
Finn
dan

SELECT a.id, b.id FROM 'requests.csv' a JOIN 'requests.csv' b ON a.user_id = b.user_id WHERE a.id = 5
--> duckdb

SELECT count(*) FROM 'requests.csv' a JOIN 'requests.csv' b ON a.user_id IS NOT DISTINCT FROM b.user_id WHERE a.id = 5
--> duckdb
2

SELECT name FROM 'users.csv' WHERE country NOT IN (SELECT country FROM 'users.csv' WHERE plan = 'free')
--> duckdb

SELECT 1 = 1.0, '1' = 1, 10 > 9, '10' > '9'
--> duckdb
true,true,true,false

SELECT 1 / 3.0, 1.0 / 3, 10 % 3.5, -7.5 % 2
--> duckdb
0.3333333333333333,0.3333333333333333,3.0,-1.5

SELECT 1e308 * 10, -1e308 * 10
--> duckdb
inf,-inf

SELECT 0.1 + 0.2 = 0.3, 0.1::DOUBLE + 0.2::DOUBLE = 0.3::DOUBLE
--> duckdb
true,false

SELECT round(0.5), round(1.5), round(-0.5), round(15, -1), round(1.005, 2)
--> differs: a number with a point is a DOUBLE
--> tidemill
1.0,2.0,-1.0,20,1.0
--> duckdb
1,2,-1,20,1.01

SELECT 5 % 0
--> error: division by zero (no hint)

SELECT 1::DOUBLE / 0
--> duckdb
inf

SELECT sqrt(2), ln(10), exp(1), pi()
--> duckdb
1.4142135623730951,2.302585092994046,2.718281828459045,3.141592653589793

SELECT CAST('  42 ' AS INTEGER), CAST('1e2' AS DOUBLE), TRY_CAST('12abc' AS INTEGER), TRY_CAST('' AS INTEGER)
--> duckdb
42,100.0,NULL,NULL

SELECT CAST(true AS VARCHAR), CAST(1.50 AS VARCHAR), CAST(DATE '2026-03-01' AS VARCHAR), CAST(TIMESTAMP '2026-03-01 10:00:00' AS VARCHAR)
--> duckdb
true,1.50,2026-03-01,2026-03-01 10:00:00

SELECT CAST([1, 2] AS VARCHAR)
--> duckdb
"[1, 2]"

SELECT CAST({'a': 1} AS VARCHAR)
--> duckdb
{'a': 1}

SELECT 100000::BIGINT * 100000, 9223372036854775807
--> duckdb
10000000000,9223372036854775807

SELECT CAST(300 AS UTINYINT)
--> error: `300` does not fit TINYINT UNSIGNED
--> hint: beside a number a text is read as one: TRY_CAST(x AS TINYINT UNSIGNED) gives NULL for what is none, CAST(number AS TEXT) has them meet as text

SELECT DATE '2024-02-29' + INTERVAL 1 YEAR, DATE '2026-01-31' + INTERVAL 1 MONTH + INTERVAL 1 MONTH
--> differs: a DATE and whole days, months or years are a DATE
--> tidemill
2025-02-28,2026-03-28
--> duckdb
2025-02-28T00:00:00,2026-03-28T00:00:00

SELECT date_diff('week', DATE '2026-03-01', DATE '2026-03-02')
--> differs: a week begins on Monday, and the boundaries between are counted, as of all units; DuckDB 2.0 counts seven days
--> tidemill
1
--> duckdb
0

SELECT date_diff('day', TIMESTAMP '2026-03-01 23:59:59', TIMESTAMP '2026-03-02 00:00:00')
--> duckdb
1

SELECT date_diff('year', DATE '2026-12-31', DATE '2027-01-01')
--> duckdb
1

SELECT date_diff('month', DATE '2026-03-01', DATE '2026-01-31')
--> duckdb
-2

SELECT date_diff('quarter', DATE '2026-03-31', DATE '2026-04-01')
--> duckdb
1

SELECT week(DATE '2027-01-01'), yearweek(DATE '2027-01-01'), isodow(DATE '2027-01-03'), dayofyear(DATE '2024-12-31')
--> duckdb
53,202653,7,366

SELECT date_trunc('week', DATE '2027-01-01')::DATE
--> duckdb
2026-12-28

SELECT date_trunc('decade', DATE '2026-03-01')::DATE
--> duckdb
2020-01-01

SELECT date_trunc('century', DATE '2026-03-01')::DATE
--> duckdb
2000-01-01

SELECT extract(hour FROM INTERVAL '25 hours'), extract(day FROM INTERVAL '25 hours')
--> duckdb
25,0

SELECT TIMESTAMP '2026-03-01 10:00:00' - TIMESTAMP '2026-02-28 09:00:00' = INTERVAL 25 HOURS
--> duckdb
true

SELECT TIMESTAMPTZ '2026-03-29 00:30:00+00' + INTERVAL 1 DAY = TIMESTAMPTZ '2026-03-30 00:30:00+00'
--> duckdb
true

SELECT strftime(TIMESTAMP '2026-01-05 00:00:00', '%U %W %V %G %u %w %y')
--> duckdb
01 01 02 2026 1 1 26

SELECT strftime(TIMESTAMP '2026-03-01 15:04:05.678', '%-I:%M %p|%f|%H%M%S|%%')
--> duckdb
3:04 PM|678000|150405|%

SELECT strptime('2026-03-01 10:20:30.5', '%Y-%m-%d %H:%M:%S.%f')
--> duckdb
2026-03-01T10:20:30.500000

SELECT strptime('Sun, 01 Mar 2026 10:20:30 +0100', '%a, %d %b %Y %H:%M:%S %z')::TIMESTAMP
--> duckdb
2026-03-01T09:20:30

SELECT length('né'), substring('né', 2, 1), upper('ß'), lower('İ') IS NOT NULL, reverse('né'), strpos('né', 'é')
--> differs: the capital of ß is SS, as in Unicode
--> tidemill
2,é,SS,true,én,2
--> duckdb
2,é,ẞ,true,én,2

SELECT 'a_c' LIKE 'a\_c' ESCAPE '\', 'abc' LIKE 'a_c', 'ABC' LIKE 'abc'
--> duckdb
true,true,false

SELECT 'a%c' LIKE 'a!%c' ESCAPE '!'
--> duckdb
true

SELECT '' = NULL, '' IS NULL, length(''), 'a ' = 'a'
--> duckdb
NULL,false,0,false

SELECT substring('hello', 0, 2), substring('hello', 2, 100), substring('hello', 10), left('hello', 0), right('hello', 10)
--> duckdb
h,ello,"","",hello

SELECT split_part('a,b', ',', 3), split_part('a,b', '', 1), split_part('', ',', 1)
--> differs: nothing to split at leaves the text whole, as in PostgreSQL
--> tidemill
"","a,b",""
--> duckdb
"",a,""

SELECT string_split('', ',')
--> duckdb
"[""""]"

SELECT string_split('a', ',')
--> duckdb
"[""a""]"

SELECT string_split('a,,b', ',')
--> duckdb
"[""a"","""",""b""]"

SELECT string_split('abc', '')
--> duckdb
"[""a"",""b"",""c""]"

SELECT regexp_matches('abc', 'B')
--> duckdb
false

SELECT regexp_matches('abc', '')
--> duckdb
true

SELECT regexp_matches(NULL, 'a')
--> duckdb
NULL

SELECT regexp_replace('aaa', 'a', 'b'), regexp_replace('aaa', '^a', 'b', 'g'), regexp_replace('abc', '(?i)B', 'x'), regexp_replace('a.b', '.', '-')
--> duckdb
baa,baa,axc,-.b

SELECT regexp_extract('abc', '(a)(x)?', 2)
--> duckdb
""

SELECT regexp_extract('key=val', '(?P<k>\w+)=(\w+)', 2)
--> duckdb
val

SELECT lpad('abc', 2, 'x'), rpad('abc', 5, 'xy')
--> duckdb
ab,abcxy

SELECT trim('  a b  '), ltrim('aab', 'a'), rtrim('baa', 'a'), replace('aaa', 'aa', 'b'), repeat('a', 0)
--> duckdb
a b,b,b,ba,""

SELECT [1, 2, 3][0], [1, 2, 3][4], [1, 2, 3][-4], list_slice([1, 2, 3], -2, -1)
--> duckdb
NULL,NULL,NULL,"[2,3]"

SELECT list_sum([]), list_max([]), list_avg([]), list_contains([], 1)
--> duckdb
NULL,NULL,NULL,false

SELECT len([])
--> duckdb
0

SELECT list_sum([1, NULL, 2]), list_avg([1, NULL, 3]), list_count([NULL]), list_min([NULL, 1])
--> duckdb
3,2.0,0,1

SELECT list_unique([1, NULL, 1]), list_append(NULL, 1)
--> duckdb
1,[1]

SELECT list_distinct([1, NULL, 1])
--> differs: a null in a list is one of its values, and one of them stays
--> tidemill
"[1,null]"
--> duckdb
[1]

SELECT list_concat(NULL, [1])
--> pending: `array_concat` takes lists, and this is BIGINT
--> duckdb
[1]

SELECT array_to_string([1, NULL, 2], ','), list_position([1, 2, 1], 1), list_sort(['b', 'a', NULL])
--> duckdb
"1,2",1,"[""a"",""b"",null]"

SELECT range(5, 0, -2), range(0), range(3, 1)
--> duckdb
"[5,3,1]",[],[]

SELECT count(*) FROM range(0)
--> duckdb
0

SELECT id FROM 'requests.csv' ORDER BY id LIMIT 0
--> duckdb

SELECT * FROM (SELECT 1 AS a, 2 AS a2) WHERE a = 1 AND a2 IN (SELECT 2)
--> duckdb
1,2

SELECT sku, count(*) FROM 'orders.csv' GROUP BY sku HAVING count(*) = (SELECT max(n) FROM (SELECT count(*) AS n FROM 'orders.csv' GROUP BY sku)) ORDER BY sku
--> duckdb
book,3
pen,3

SELECT o.order_id FROM 'orders.csv' o WHERE o.price = (SELECT max(i.price) FROM 'orders.csv' i WHERE i.user_id = o.user_id) ORDER BY o.order_id
--> duckdb
103
104
105
107
108

SELECT row_number() OVER (ORDER BY price DESC, order_id) AS n, order_id FROM 'orders.csv' ORDER BY n LIMIT 3
--> duckdb
1,107
2,108
3,104

SELECT order_id, sum(qty) OVER (PARTITION BY paid ORDER BY order_id) AS s FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,10
102,11
103,3
104,13
105,15
106,28
107,16
108,1
109,20

SELECT order_id, lag(qty, 1, 0) OVER (ORDER BY order_id) AS p, lead(qty, 2) OVER (ORDER BY order_id) AS q FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,0,3
102,10,2
103,1,2
104,3,25
105,2,1
106,2,1
107,25,4
108,1,NULL
109,1,NULL

SELECT order_id, first_value(sku) OVER (ORDER BY order_id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS n FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,book
102,pen
103,lamp
104,book
105,pen
106,desk
107,lamp
108,book
109,NULL

SELECT order_id, count(*) OVER (ORDER BY qty RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS n FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,1
102,5
103,4
104,6
105,6
106,1
107,5
108,5
109,2

SELECT order_id, ntile(4) OVER (ORDER BY order_id) AS n FROM 'orders.csv' ORDER BY order_id
--> duckdb
101,1
102,1
103,1
104,2
105,2
106,3
107,3
108,4
109,4

SELECT user_id, mode(sku) AS m, count(DISTINCT sku) AS d FROM 'orders.csv' WHERE user_id = 5 OR user_id = 9 GROUP BY user_id ORDER BY user_id
--> duckdb
5,book,2
9,desk,1

SELECT median(qty), quantile_cont(qty, 0.25) FROM 'orders.csv'
--> duckdb
2.0,1.0

SELECT quantile_disc(qty, 0.25) FROM 'orders.csv'
--> duckdb
1

SELECT quantile_disc(sku, 0.5) FROM 'orders.csv'
--> duckdb
lamp

SELECT arg_max(name, score), arg_min(name, score), arg_max(score, name) FROM 'users.csv'
--> duckdb
Eve Adams,dan,3.0

SELECT first(email ORDER BY user_id DESC), last(country ORDER BY user_id) FROM 'users.csv'
--> duckdb
finn@example.com,NULL

SELECT any_value(email ORDER BY user_id DESC) FROM 'users.csv'
--> duckdb
finn@example.com

SELECT bool_and(paid), bool_or(paid), bool_and(paid) FILTER (WHERE qty > 9) FROM 'orders.csv'
--> duckdb
false,true,false

SELECT sum(qty) FILTER (WHERE false), count(*) FILTER (WHERE NULL) FROM 'orders.csv'
--> duckdb
NULL,0

SELECT stddev(qty), var_pop(qty) FROM 'orders.csv' WHERE order_id = 101
--> duckdb
NULL,0.0

SELECT corr(qty, qty), covar_samp(qty, 1) FROM 'orders.csv'
--> duckdb
1.0,0.0

SELECT approx_count_distinct(country), count(DISTINCT country) FROM 'users.csv'
--> duckdb
3,3

SELECT sum(1), sum(1.5), avg(1), count(1) FROM 'users.csv'
--> duckdb
6,9.0,1.0,6

SELECT a.x FROM (VALUES (1), (2), (NULL)) AS a(x) EXCEPT SELECT NULL ORDER BY 1
--> duckdb
1
2

SELECT x FROM (VALUES (1), (1), (2)) AS t(x) INTERSECT SELECT 1
--> duckdb
1

SELECT * FROM (VALUES (1, 'a')) AS t(x, y) JOIN (VALUES (1, 'b')) AS u(x, z) USING (x)
--> duckdb names
x,y,z
1,a,b

SELECT t.x, u.x FROM (VALUES (1), (2)) AS t(x) LEFT JOIN (VALUES (2), (3)) AS u(x) ON t.x = u.x ORDER BY t.x
--> duckdb
1,NULL
2,2

SELECT CASE WHEN NULL THEN 1 ELSE 2 END, CASE NULL WHEN NULL THEN 1 ELSE 2 END, if(NULL, 1, 2)
--> duckdb
2,2,2

SELECT "name" FROM 'users.csv' WHERE NAME = 'dan'
--> duckdb
dan

SELECT Count(*) AS Total, MAX(Score) FROM 'users.csv'
--> duckdb names
Total,max(Score)
6,9.75

SELECT count(*) n, sum(qty) "sum of qty" FROM 'orders.csv'
--> duckdb names
n,sum of qty
9,49

SELECT qty + 1 AS qty FROM 'orders.csv' WHERE qty = 10
--> duckdb
11

SELECT sku AS qty, count(*) FROM 'orders.csv' GROUP BY sku ORDER BY qty
--> duckdb
book,3
desk,1
lamp,2
pen,3

SELECT -price AS price FROM 'orders.csv' ORDER BY price LIMIT 2
--> duckdb
-310.0
-42.5

SELECT year(day) AS month, count(*) FROM 'orders.csv' GROUP BY month ORDER BY month
--> duckdb
2026,9

SELECT array_agg(sku ORDER BY sku DESC) AS a, array_agg(DISTINCT sku ORDER BY sku) AS b FROM 'orders.csv'
--> duckdb
"[""pen"",""pen"",""pen"",""lamp"",""lamp"",""desk"",""book"",""book"",""book""]","[""book"",""desk"",""lamp"",""pen""]"

SELECT string_agg(DISTINCT sku, ', ' ORDER BY sku DESC) AS a, string_agg(DISTINCT sku, ', ' ORDER BY sku) AS b FROM 'orders.csv'
--> duckdb
"pen, lamp, desk, book","book, desk, lamp, pen"

SELECT user_id, array_agg(sku ORDER BY sku DESC) AS a, array_agg(DISTINCT sku ORDER BY sku) AS b FROM 'orders.csv' GROUP BY user_id ORDER BY user_id
--> duckdb
1,"[""pen"",""lamp"",""book""]","[""book"",""lamp"",""pen""]"
2,"[""pen""]","[""pen""]"
3,"[""lamp"",""book""]","[""book"",""lamp""]"
5,"[""pen"",""book""]","[""book"",""pen""]"
9,"[""desk""]","[""desk""]"

SELECT array_agg(qty ORDER BY qty DESC) AS a, array_agg(qty ORDER BY qty) AS b, first(qty ORDER BY qty) AS c, last(qty ORDER BY qty) AS d FROM 'orders.csv'
--> duckdb
"[25,10,4,3,2,2,1,1,1]","[1,1,1,2,2,3,4,10,25]",1,25

SELECT sum(DISTINCT qty), count(DISTINCT sku), array_agg(DISTINCT qty ORDER BY qty DESC) FROM 'orders.csv'
--> duckdb
45,4,"[25,10,4,3,2,1]"

SELECT string_agg(sku, ',' ORDER BY order_id), string_agg(sku, ',' ORDER BY price, order_id), string_agg(sku, ',' ORDER BY day DESC, order_id) FROM 'orders.csv'
--> duckdb
"pen,book,pen,lamp,book,pen,desk,lamp,book","pen,pen,pen,book,book,book,lamp,lamp,desk","book,desk,lamp,pen,book,pen,lamp,book,pen"

SELECT sku, list(order_id ORDER BY price DESC, order_id), list(order_id ORDER BY day, order_id) FROM 'orders.csv' GROUP BY sku ORDER BY sku
--> duckdb
book,"[102,105,109]","[102,105,109]"
desk,[107],[107]
lamp,"[108,104]","[104,108]"
pen,"[101,103,106]","[101,103,106]"

SELECT arg_max(order_id, price), arg_min(order_id, price), max(price), min(price) FROM 'orders.csv' WHERE order_id NOT IN (103)
--> duckdb
107,106,310.0,1.25

SELECT list(DISTINCT user_id ORDER BY user_id) FILTER (WHERE paid), list(user_id ORDER BY order_id) FILTER (WHERE NOT paid) FROM 'orders.csv'
--> duckdb
"[1,3,5,9]","[2,5]"

SELECT count(*) FROM 'orders.csv' WHERE paid = 'true' AND 'F' <> paid
--> duckdb
6

SELECT paid IN ('false') AS n, count(*) FROM 'orders.csv' GROUP BY n ORDER BY n
--> duckdb
false,6
true,2
NULL,1

SELECT order_id FROM 'orders.csv' WHERE (user_id, qty) = (1, 9 + 1) OR (order_id, -qty) IN ((102, -1), (103, 5 - 7)) ORDER BY order_id
--> duckdb
101
102

SELECT order_id FROM 'orders.csv' WHERE (user_id, qty + 0) NOT IN ((1, 10), (1, 1)) ORDER BY order_id
--> duckdb
103
104
105
106
107
109

PIVOT 'orders.csv' ON sku IN ('pen', 'book') USING sum(qty) GROUP BY qty ORDER BY qty
--> duckdb names
qty,pen,book
1,NULL,1
2,NULL,2
3,3,NULL
4,NULL,4
10,10,NULL
25,25,NULL

SELECT *, length(shop), jan + 1 FROM 'wide.csv' ORDER BY shop LIMIT 1
--> tidemill names
shop,jan,feb,mar,length(shop),jan + 1
x,10,20,NULL,1,11

SELECT count(*) FROM (SELECT user_id > 2 AS late FROM 'users.csv') WHERE late = 1
--> duckdb
4
