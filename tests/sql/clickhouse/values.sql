# Numbers, conditions, conversions, arrays, maps and tuples.

SELECT 7 / 2, intDiv(7, 2), intDiv(-7, 2), 7 % 3, modulo(-7, 3), positiveModulo(-7, 3), intDivOrZero(1, 0), 7 DIV 2, 7 MOD 3
--> pending: SQL is not understood: Expected: end of statement, found: 3 at Line: 1, Column: 124 (no hint)
--> clickhouse
3.5,3,-3,1,-1,2,0,3,1

SELECT plus(1, 2), minus(3, 1), multiply(2, 3), divide(7, 2), negate(5), abs(-2), gcd(12, 18), lcm(4, 6), max2(1, 2), min2(1, 2)
--> pending: SQL is not understood: Expected: SELECT, VALUES, or a subquery in the query body, found: 3 at Line: 1, Column: 26 (no hint)
--> clickhouse
3,2,6,3.5,-5,2,6,12,2,1

SELECT round(2.5), round(3.5), round(2.345, 2), roundBankers(2.5), floor(-1.5), ceil(1.2), trunc(-1.8), round(1234, -2), floor(1234.567, 1)
--> pending: `FLOOR(1234.567, 1)` is not supported
--> clickhouse
2,4,2.35,2,-2,2,-1,1200,1234.5

SELECT pow(2, 3), power(2, 3), sqrt(16), cbrt(27), exp(0), log(1), ln(1), log2(8), log10(100), exp2(3), exp10(2), sign(-3), hypot(3, 4)
--> pending: unknown function `exp2`; did you mean `exp`? (no hint)
--> clickhouse
8,8,4,3,1,0,0,3,2,8,100,-1,5

SELECT greatest(1, 2, 3), least(1, 2), bitAnd(5, 3), bitOr(5, 3), bitXor(5, 3), bitNot(toInt32(5)), bitShiftLeft(1, 4), bitShiftRight(16, 2), bitCount(7), bitTest(5, 0)
--> pending: unknown function `bitnot`; did you mean `bit_or`? (no hint)
--> clickhouse
3,1,1,7,6,-6,16,4,3,1

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

SELECT ifNull(email, 'none'), coalesce(country, '?'), nullIf(plan, 'free'), assumeNotNull(name), isZeroOrNull(0) FROM 'users.csv' WHERE user_id >= 5 ORDER BY user_id
--> pending: unknown function `assumenotnull` (no hint)
--> clickhouse
none,DE,team,Eve Adams,1
finn@example.com,?,NULL,Finn,1

SELECT transform(plan, ['pro', 'free'], ['P', 'F'], '?') FROM 'users.csv' ORDER BY user_id
--> pending: `transform` takes other arguments
--> clickhouse
P
F
P
F
?
F

SELECT caseWithExpression(plan, 'pro', 1, 0) FROM 'users.csv' ORDER BY user_id
--> pending: unknown function `casewithexpression` (no hint)
--> clickhouse
1
0
1
0
0
0

SELECT toInt64('42'), toFloat64('1.5'), toString(1.5), toUInt8(5), toInt64OrNull('x'), toInt64OrZero('x'), toFloat64OrNull('y'), toInt32OrDefault('z', toInt32(7))
--> pending: unknown function `toint32ordefault` (no hint)
--> clickhouse
42,1.5,1.5,5,NULL,0,NULL,7

SELECT CAST('42' AS Int64), CAST(1.9, 'Int32'), '42'::Int64, accurateCastOrNull('x', 'Int32'), toDecimal64('1.25', 2), toBool('true')
--> pending: `INT64` is not supported
--> clickhouse
42,1,42,NULL,1.25,true

SELECT CAST('5', 'UInt8') + 1, 5::String, reinterpretAsString(97) IS NOT NULL, toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0') IS NOT NULL
--> pending: unknown function `cast`; did you mean `last`? (no hint)
--> clickhouse
6,5,1,1

SELECT isNaN(nan), isInfinite(inf), isFinite(1.0), 0.1 + 0.2 > 0.3, ifNotFinite(1.5, 0)
--> pending: unknown column `nan` (no hint)
--> clickhouse
1,1,1,1,1.5

SELECT [1, 2, 3], [1, 2, 3][1], [1, 2, 3][-1], array(1, 2), length([1, 2]), empty([]), notEmpty([1]), arrayElement([5, 6], 2)
--> pending: unknown function `notempty` (no hint)
--> clickhouse
"[1,2,3]",1,3,"[1,2]",2,1,1,6

SELECT arrayMap(x -> x * 2, nums), arrayFilter(x -> x > 4, nums) FROM 'events.json' WHERE id <> 4 ORDER BY id
--> clickhouse
"[6,2,4]",[]
[20],[10]
"[10,10]","[5,5]"
"[14,16,18,20]","[7,8,9,10]"

SELECT arrayMap((x, y) -> x + y, [1, 2], [10, 20]), arrayCount(x -> x > 1, [1, 2, 3]), arrayExists(x -> x > 2, [1, 2]), arrayAll(x -> x > 0, [1, 2]), arrayFirst(x -> x > 1, [1, 2, 3]), arrayFirstIndex(x -> x > 1, [1, 2, 3])
--> pending: `(x, y) -> x + y` is not supported
--> clickhouse
"[11,22]",2,0,1,2,2

SELECT arraySum([1, 2, 3]), arrayAvg([1, 3]), arrayMin([2, 1]), arrayMax([2, 1]), arraySum(x -> x * x, [1, 2]), arrayProduct([2, 3])
--> pending: `->` is not supported
--> clickhouse
6,2,1,2,5,6

SELECT arraySort([3, 1, 2]), arrayReverseSort([3, 1, 2]), arraySort(x -> -x, [1, 3, 2]), arrayReverse([1, 2]), arraySort((x, y) -> y, ['a', 'b'], [2, 1])
--> pending: `->` is not supported
--> clickhouse
"[1,2,3]","[3,2,1]","[3,2,1]","[2,1]","[""b"",""a""]"

SELECT arraySort(arrayDistinct([1, 1, 2])), arrayUniq([1, 1, 2]), arrayConcat([1], [2, 3]), arrayPushBack([1], 2), arrayPushFront([1], 0), arrayPopBack([1, 2]), arrayPopFront([1, 2]), arrayCompact([1, 1, 2])
--> pending: unknown function `arraypushback`; did you mean `array_push_back`? (no hint)
--> clickhouse
"[1,2]",2,"[1,2,3]","[1,2]","[0,1]",[1],[2],"[1,2]"

SELECT has([1, 2], 2), hasAll([1, 2], [1]), hasAny([1, 2], [2, 3]), indexOf([5, 6], 6), countEqual([1, 1], 1), arraySlice([1, 2, 3, 4], 2, 2), arrayResize([1], 3, 0), arrayFlatten([[1], [2, 3]])
--> pending: unknown function `countequal` (no hint)
--> clickhouse
1,1,1,2,2,"[2,3]","[1,0,0]","[1,2,3]"

SELECT id, has(tags, 'b') FROM 'events.json' WHERE id <> 4 ORDER BY id
--> clickhouse
1,1
2,0
3,0
5,1

SELECT range(3), range(1, 4), range(0, 10, 5), arrayEnumerate([5, 6]), arrayWithConstant(2, 'a'), arrayZip([1, 2], ['a', 'b']), arrayCumSum([1, 2, 3]), arrayDifference([1, 3, 6])
--> pending: unknown function `arrayenumerate` (no hint)
--> clickhouse
"[0,1,2]","[1,2,3]","[0,5]","[1,2]","[""a"",""a""]","[[1,""a""],[2,""b""]]","[1,3,6]","[0,2,3]"

SELECT arrayReduce('sum', [1, 2, 3]), arrayReduce('max', [1, 5]), arrayFold((acc, x) -> acc + x, [1, 2], toInt64(0)), arrayIntersect([1, 2], [2]), arrayJoin([1, 2]) AS j ORDER BY j
--> pending: `->` is not supported
--> clickhouse
6,5,3,[2],1
6,5,3,[2],2

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
--> pending: `ARRAY JOIN` is not supported
--> clickhouse
1,a
1,a
1,b
2,c
5,b
5,c

SELECT id, tag, n FROM 'events.json' ARRAY JOIN tags AS tag, arrayEnumerate(tags) AS n ORDER BY id, n
--> pending: `ARRAY JOIN` is not supported
--> clickhouse
1,a,1
1,b,2
1,a,3
2,c,1
5,b,1
5,c,2

SELECT tag, count() AS n FROM 'events.json' ARRAY JOIN tags AS tag GROUP BY tag ORDER BY n DESC, tag
--> pending: `ARRAY JOIN` is not supported
--> clickhouse
a,2
b,2
c,2

SELECT map('a', 1, 'b', 2)['a'], mapKeys(map('a', 1)), mapValues(map('a', 1)), mapContains(map('a', 1), 'b'), mapFilter((k, v) -> v > 1, map('a', 1, 'b', 2)), mapApply((k, v) -> (k, v + 1), map('a', 1))
--> pending: `->` is not supported
--> clickhouse
1,"[""a""]",[1],0,"{""b"":2}","{""a"":2}"

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

SELECT rand() >= 0, generateUUIDv4() IS NOT NULL, rowNumberInAllBlocks() >= 0, hostName() IS NOT NULL, version() IS NOT NULL
--> pending: unknown function `generateuuidv4` (no hint)
--> clickhouse
1,1,1,1,1

SELECT 1 = 1, 1 == 1, 1 != 2, 1 <> 2, equals(1, 1), notEquals(1, 2), less(1, 2), greaterOrEquals(2, 2), and(1, 0), or(1, 0), not(1), xor(1, 1)
--> pending: two columns of a select list are `1 = 1`
--> clickhouse
1,1,1,1,1,1,1,1,0,1,0,0

SELECT in(1, (1, 2)), 3 NOT IN (1, 2), 2 BETWEEN 1 AND 3, NULL IS NULL, isNull(NULL)
--> pending: unknown function `in` (no hint)
--> clickhouse
1,1,1,1,1

SELECT toTypeName('a'), toTypeName(1.5), toTypeName([1])
--> pending: unknown function `totypename` (no hint)
--> clickhouse
String,Float64,Array(UInt8)

SELECT ignore(1), identity(5), materialize(3), throwIf(0), bar(5, 0, 10, 10)
--> pending: unknown function `ignore` (no hint)
--> clickhouse
0,5,3,0,█████
