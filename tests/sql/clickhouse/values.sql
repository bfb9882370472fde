# Numbers, conditions, conversions, arrays, maps and tuples.

SELECT intDiv(7, 2), intDiv(-7, 2), 7 % 3, modulo(-7, 3), 7 DIV 2
--> clickhouse
3,-3,1,-1,3

SELECT 7 / 2
--> clickhouse duckdb
3.5

SELECT positiveModulo(-7, 3)
--> clickhouse
2

SELECT intDivOrZero(1, 0)
--> clickhouse
0

SELECT 7 MOD 3
--> clickhouse
1

SELECT negate(5), abs(-2), gcd(12, 18), lcm(4, 6)
--> clickhouse
-5,2,6,12

SELECT plus(1, 2)
--> clickhouse
3

SELECT minus(3, 1)
--> clickhouse
2

SELECT multiply(2, 3)
--> clickhouse duckdb
6

SELECT divide(7, 2)
--> clickhouse
3.5

SELECT max2(1, 2)
--> clickhouse
2

SELECT min2(1, 2)
--> clickhouse
1

SELECT round(3.5), round(2.345, 2), floor(-1.5), ceil(1.2), trunc(-1.8), round(1234, -2)
--> clickhouse duckdb
4,2.35,-2,2,-1,1200

SELECT round(2.5)
--> differs: a half is rounded away from zero
--> tidemill
3.0
--> clickhouse
2

SELECT roundBankers(2.5)
--> clickhouse
2

SELECT floor(1234.567, 1)
--> clickhouse
1234.5

SELECT pow(2, 3), power(2, 3), sqrt(16), cbrt(27), exp(0), log(1), ln(1), log2(8), log10(100)
--> clickhouse duckdb
8,8,4,3,1,0,0,3,2

SELECT exp2(3)
--> clickhouse
8

SELECT exp10(2)
--> clickhouse
100

SELECT sign(-3)
--> clickhouse duckdb
-1

SELECT hypot(3, 4)
--> clickhouse
5

SELECT greatest(1, 2, 3), least(1, 2), bitAnd(5, 3), bitOr(5, 3), bitXor(5, 3)
--> clickhouse
3,1,1,7,6

SELECT bitNot(toInt32(5))
--> clickhouse
-6

SELECT bitShiftLeft(1, 4)
--> clickhouse
16

SELECT bitShiftRight(16, 2)
--> clickhouse
4

SELECT bitCount(7)
--> clickhouse
3

SELECT bitTest(5, 0)
--> clickhouse
1

SELECT if(status >= 400, 'bad', 'ok') AS s, count() FROM 'requests.csv' GROUP BY s ORDER BY s
--> clickhouse duckdb
bad,4
ok,11

SELECT multiIf(ms > 500, 'slow', ms > 50, 'mid', 'fast') AS s, count() FROM 'requests.csv' GROUP BY s ORDER BY s
--> clickhouse
fast,10
mid,3
slow,2

SELECT status >= 400 ? 'bad' : 'ok' AS s, count() FROM 'requests.csv' GROUP BY s ORDER BY s
--> pending: parameter `?` has no value
--> clickhouse
bad,4
ok,11

SELECT ifNull(email, 'none'), coalesce(country, '?'), nullIf(plan, 'free') FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id
--> clickhouse duckdb
none,DE,team
finn@example.com,?,NULL

SELECT assumeNotNull(name) FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id
--> clickhouse
Eve Adams
Finn

SELECT isZeroOrNull(0) FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id
--> clickhouse
1
1

SELECT transform(plan, ['pro', 'free'], ['P', 'F'], '?') FROM 'users.csv' ORDER BY user_id
--> clickhouse
P
F
P
F
?
F

SELECT caseWithExpression(plan, 'pro', 1, 0) FROM 'users.csv' ORDER BY user_id
--> clickhouse
1
0
1
0
0
0

SELECT toInt64('42'), toFloat64('1.5'), toString(1.5), toUInt8(5), toInt64OrNull('x'), toInt64OrZero('x'), toFloat64OrNull('y')
--> clickhouse
42,1.5,1.5,5,NULL,0,NULL

SELECT toInt32OrDefault('z', toInt32(7))
--> clickhouse
7

SELECT CAST('42' AS Int64)
--> clickhouse duckdb
42

SELECT CAST(1.9, 'Int32')
--> clickhouse
1

SELECT '42'::Int64
--> clickhouse duckdb
42

SELECT accurateCastOrNull('x', 'Int32')
--> clickhouse
NULL

SELECT toDecimal64('1.25', 2)
--> clickhouse
1.25

SELECT toBool('true')
--> clickhouse
true

SELECT 5::String
--> clickhouse duckdb
5

SELECT CAST('5', 'UInt8') + 1
--> clickhouse
6

SELECT reinterpretAsString(97) IS NOT NULL
--> error: unknown function `reinterpretasstring`
--> hint: CAST(x AS TEXT) writes a value, and to_hex(n) its bytes
--> clickhouse
1

SELECT toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0') IS NOT NULL
--> error: unknown function `touuid`
--> hint: a UUID is a TEXT here: lower(x) compares two of them
--> clickhouse
1

SELECT isNaN(nan)
--> pending: unknown column `nan`
--> clickhouse
1

SELECT isInfinite(inf)
--> pending: unknown column `inf`
--> clickhouse
1

SELECT isFinite(1.0)
--> clickhouse
1

SELECT 0.1 + 0.2 > 0.3
--> differs: numbers that stand in the SQL are added as they are written
--> tidemill
false
--> clickhouse
1

SELECT ifNotFinite(1.5, 0)
--> clickhouse
1.5

SELECT [1, 2, 3], [1, 2, 3][1], [1, 2, 3][-1], array(1, 2), length([1, 2]), empty([]), arrayElement([5, 6], 2)
--> clickhouse
"[1,2,3]",1,3,"[1,2]",2,1,6

SELECT notEmpty([1])
--> clickhouse
1

SELECT arrayMap(x -> x * 2, nums), arrayFilter(x -> x > 4, nums) FROM 'events.json' WHERE id <> 4 ORDER BY id
--> clickhouse
"[6,2,4]",[]
[20],[10]
"[10,10]","[5,5]"
"[14,16,18,20]","[7,8,9,10]"

SELECT arrayExists(x -> x > 2, [1, 2]), arrayFirst(x -> x > 1, [1, 2, 3])
--> clickhouse
0,2

SELECT arrayMap((x, y) -> x + y, [1, 2], [10, 20])
--> pending: `(x, y) -> x + y` is not supported
--> clickhouse
"[11,22]"

SELECT arrayCount(x -> x > 1, [1, 2, 3])
--> clickhouse
2

SELECT arrayAll(x -> x > 0, [1, 2])
--> clickhouse
1

SELECT arrayFirstIndex(x -> x > 1, [1, 2, 3])
--> clickhouse
2

SELECT arraySum([1, 2, 3]), arrayAvg([1, 3]), arrayMin([2, 1]), arrayMax([2, 1])
--> clickhouse
6,2,1,2

SELECT arraySum(x -> x * x, [1, 2])
--> clickhouse
5

SELECT arrayProduct([2, 3])
--> clickhouse
6

SELECT arraySort([3, 1, 2]), arrayReverseSort([3, 1, 2]), arrayReverse([1, 2])
--> clickhouse
"[1,2,3]","[3,2,1]","[2,1]"

SELECT arraySort(x -> -x, [1, 3, 2])
--> clickhouse
"[3,2,1]"

SELECT arraySort((x, y) -> y, ['a', 'b'], [2, 1])
--> pending: `(x, y) -> y` is not supported
--> clickhouse
"[""b"",""a""]"

SELECT arraySort(arrayDistinct([1, 1, 2])), arrayUniq([1, 1, 2]), arrayConcat([1], [2, 3])
--> clickhouse
"[1,2]",2,"[1,2,3]"

SELECT arrayPushBack([1], 2)
--> clickhouse
"[1,2]"

SELECT arrayPushFront([1], 0)
--> clickhouse
"[0,1]"

SELECT arrayPopBack([1, 2])
--> clickhouse
[1]

SELECT arrayPopFront([1, 2])
--> clickhouse
[2]

SELECT arrayCompact([1, 1, 2])
--> clickhouse
"[1,2]"

SELECT has([1, 2], 2), hasAll([1, 2], [1]), hasAny([1, 2], [2, 3]), indexOf([5, 6], 6), arraySlice([1, 2, 3, 4], 2, 2)
--> clickhouse
1,1,1,2,"[2,3]"

SELECT countEqual([1, 1], 1)
--> clickhouse
2

SELECT arrayResize([1], 3, 0)
--> clickhouse
"[1,0,0]"

SELECT arrayFlatten([[1], [2, 3]])
--> clickhouse
"[1,2,3]"

SELECT id, has(tags, 'b') FROM 'events.json' WHERE id <> 4 ORDER BY id
--> clickhouse
1,1
2,0
3,0
5,1

SELECT range(3), range(1, 4), range(0, 10, 5)
--> clickhouse duckdb
"[0,1,2]","[1,2,3]","[0,5]"

SELECT arrayEnumerate([5, 6])
--> clickhouse
"[1,2]"

SELECT arrayWithConstant(2, 'a')
--> clickhouse
"[""a"",""a""]"

SELECT arrayZip([1, 2], ['a', 'b'])
--> differs: several values together are a struct, and there a tuple
--> tidemill
"[{""1"":1,""2"":""a""},{""1"":2,""2"":""b""}]"
--> clickhouse
"[[1,""a""],[2,""b""]]"

SELECT arrayCumSum([1, 2, 3])
--> clickhouse
"[1,3,6]"

SELECT arrayDifference([1, 3, 6])
--> clickhouse
"[0,2,3]"

SELECT arrayJoin([1, 2]) AS j ORDER BY j
--> clickhouse
1
2

SELECT arrayReduce('sum', [1, 2, 3])
--> clickhouse
6

SELECT arrayReduce('max', [1, 5])
--> clickhouse
5

SELECT arrayFold((acc, x) -> acc + x, [1, 2], toInt64(0))
--> clickhouse
3

SELECT arrayIntersect([1, 2], [2])
--> clickhouse
[2]

SELECT arrayStringConcat(arrayMap(x -> toString(x), [1, 2]), ',')
--> clickhouse
"1,2"

SELECT id, arrayJoin(tags) AS tag FROM 'events.json' ORDER BY id, tag
--> clickhouse
1,a
1,a
1,b
2,c
5,b
5,c

SELECT id, tag FROM 'events.json' ARRAY JOIN tags AS tag ORDER BY id, tag
--> clickhouse
1,a
1,a
1,b
2,c
5,b
5,c

SELECT id, tag, n FROM 'events.json' ARRAY JOIN tags AS tag, arrayEnumerate(tags) AS n ORDER BY id, n
--> pending: unknown column `n`
--> clickhouse
1,a,1
1,b,2
1,a,3
2,c,1
5,b,1
5,c,2

SELECT tag, count() AS n FROM 'events.json' ARRAY JOIN tags AS tag GROUP BY tag ORDER BY n DESC, tag
--> clickhouse
a,2
b,2
c,2

SELECT map('a', 1, 'b', 2)['a']
--> clickhouse
1

SELECT mapKeys(map('a', 1))
--> clickhouse
"[""a""]"

SELECT mapValues(map('a', 1))
--> clickhouse
[1]

SELECT mapContains(map('a', 1), 'b')
--> clickhouse
0

SELECT mapFilter((k, v) -> v > 1, map('a', 1, 'b', 2))
--> pending: unknown function `mapfilter`
--> clickhouse
"{""b"":2}"

SELECT mapApply((k, v) -> (k, v + 1), map('a', 1))
--> pending: unknown function `mapapply`
--> clickhouse
"{""a"":2}"

SELECT tuple(1, 'a').1, (1, 'a').2, tupleElement((5, 6), 2), untuple((1, 2))
--> pending: SQL is not understood: Expected: end of statement, found: .1 at Line: 1, Column: 21
--> clickhouse
1,a,6,1,2

SELECT device.os, tupleElement(device, 'version') FROM 'events.json' WHERE id <> 4 ORDER BY id
--> clickhouse
ios,17
android,14
ios,16
linux,6

SELECT rand() >= 0, version() IS NOT NULL
--> clickhouse
1,1

SELECT generateUUIDv4() IS NOT NULL
--> clickhouse
1

SELECT rowNumberInAllBlocks() >= 0
--> error: unknown function `rownumberinallblocks`
--> hint: row_number() OVER (ORDER BY ts) numbers rows
--> clickhouse
1

SELECT hostName() IS NOT NULL
--> error: unknown function `hostname`
--> hint: leave it out: a query reads files, and knows no server
--> clickhouse
1

SELECT 1 = 1, 1 == 1 AS b, 1 != 2, 1 <> 2 AS d, xor(1, 1)
--> clickhouse
1,1,1,1,0

SELECT equals(1, 1)
--> clickhouse
1

SELECT notEquals(1, 2)
--> clickhouse
1

SELECT less(1, 2)
--> clickhouse
1

SELECT greaterOrEquals(2, 2)
--> clickhouse
1

SELECT and(1, 0)
--> pending: unknown function `and`
--> clickhouse
0

SELECT or(1, 0)
--> pending: unknown function `or`
--> clickhouse
1

SELECT not(1)
--> clickhouse
0

SELECT 3 NOT IN (1, 2), 2 BETWEEN 1 AND 3, NULL IS NULL, isNull(NULL)
--> clickhouse
1,1,1,1

SELECT in(1, (1, 2))
--> error: unknown function `in`
--> hint: x IN (1, 2)
--> clickhouse
1

SELECT toTypeName('a')
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
TEXT
--> clickhouse
String

SELECT toTypeName(1.5)
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
DOUBLE
--> clickhouse
Float64

SELECT toTypeName([1])
--> differs: types are called as SQL calls them here, whatever they are called where a statement comes from
--> tidemill
BIGINT[]
--> clickhouse
Array(UInt8)

SELECT ignore(1)
--> error: unknown function `ignore`
--> hint: leave it out: it is always 0
--> clickhouse
0

SELECT identity(5)
--> clickhouse
5

SELECT materialize(3)
--> clickhouse
3

SELECT throwIf(0)
--> clickhouse
0

SELECT bar(5, 0, 10, 10)
--> clickhouse
█████
