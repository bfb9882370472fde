# Parameters, which stand on the command line.

SELECT count(*) FROM 'requests.csv' WHERE status = $status
--> flags: --param status=404
--> tidemill
1

SELECT count(*) FROM 'requests.csv' WHERE status = $1 AND method = $2
--> flags: --param 1=200 --param 2=GET
--> tidemill
8

SELECT count(*) FROM 'requests.csv' WHERE status = :status
--> flags: --param status=500
--> tidemill
1

SELECT count(*) FROM 'requests.csv' WHERE status = ?
--> flags: --param 1=403
--> tidemill
1

SELECT name FROM 'users.csv' WHERE signed_up < $day::DATE ORDER BY name
--> flags: --param day=2025-01-01
--> tidemill
Chloé

SELECT $word || '!'
--> flags: --param word=it's
--> tidemill
it's!

SELECT count(*) FROM 'requests.csv' WHERE status = $status
--> flags: --param other=404
--> error: status
