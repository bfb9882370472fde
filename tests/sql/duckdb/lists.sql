# Lists, lambdas, structs and maps.

SELECT [1, 2, 3], [1, 2, 3][1], [1, 2, 3][-1], [1, 2, 3][2:3]
--> duckdb
"[1,2,3]",1,3,"[2,3]"

SELECT id, array_length(tags), tags[1] FROM 'events.json' ORDER BY id
--> duckdb
1,3,a
2,1,c
3,0,NULL
4,NULL,NULL
5,2,b

SELECT len(tags) FROM 'events.json' ORDER BY id
--> duckdb
3
1
0
NULL
2

SELECT id, list_contains(tags, 'b'), list_has(tags, 'c'), array_contains(tags, 'a') FROM 'events.json' ORDER BY id
--> duckdb
1,true,false,true
2,false,true,false
3,false,false,false
4,NULL,NULL,NULL
5,true,true,false

SELECT 'b' IN tags FROM 'events.json' WHERE id <= 2 ORDER BY id
--> duckdb
true
false

SELECT 'a' = ANY(tags) FROM 'events.json' ORDER BY id
--> differs: of a list that is null nothing is known, as in PostgreSQL
--> tidemill
true
false
false
NULL
false
--> duckdb
true
false
false
false
false

SELECT id, list_filter(nums, x -> x > 4) FROM 'events.json' ORDER BY id
--> duckdb
1,[]
2,[10]
3,"[5,5]"
4,NULL
5,"[7,8,9,10]"

SELECT id, list_transform(nums, x -> x * 2) FROM 'events.json' ORDER BY id
--> duckdb
1,"[6,2,4]"
2,[20]
3,"[10,10]"
4,NULL
5,"[14,16,18,20]"

SELECT id, list_transform(nums, lambda x: x + 1) FROM 'events.json' ORDER BY id
--> duckdb
1,"[4,2,3]"
2,[11]
3,"[6,6]"
4,NULL
5,"[8,9,10,11]"

SELECT list_transform([5, 6], (x, i) -> x * i)
--> duckdb
"[5,12]"

SELECT list_reduce([1, 2, 3], (a, b) -> a + b)
--> duckdb
6

SELECT list_reduce([1, 2, 3], (a, b) -> a + b, 10)
--> duckdb
16

SELECT [x * 2 FOR x IN [1, 2, 3] IF x > 1]
--> duckdb
"[4,6]"

SELECT [lower(t) || 'x' FOR t IN tags IF t <> 'a'] AS l FROM 'events.json' ORDER BY id
--> duckdb
"[""bx""]"
"[""cx""]"
[]
NULL
"[""bx"",""cx""]"

SELECT id, list_sum(nums), list_avg(nums), list_min(nums), list_max(nums) FROM 'events.json' ORDER BY id
--> duckdb
1,6,2.0,1,3
2,10,10.0,10,10
3,10,5.0,5,5
4,NULL,NULL,NULL,NULL
5,34,8.5,7,10

SELECT id, list_sort(nums), list_reverse_sort(nums), list_reverse(nums) FROM 'events.json' ORDER BY id
--> duckdb
1,"[1,2,3]","[3,2,1]","[2,1,3]"
2,[10],[10],[10]
3,"[5,5]","[5,5]","[5,5]"
4,NULL,NULL,NULL
5,"[7,8,9,10]","[10,9,8,7]","[10,9,8,7]"

SELECT list_sort([3, NULL, 1]), list_sort([3, NULL, 1], 'DESC', 'NULLS FIRST')
--> duckdb
"[1,3,null]","[null,3,1]"

SELECT list_sort([3, NULL, 1], 'DESC')
--> duckdb
"[3,1,null]"

SELECT id, list_sort(list_distinct(tags)), list_unique(tags) FROM 'events.json' ORDER BY id
--> duckdb
1,"[""a"",""b""]",2
2,"[""c""]",1
3,[],0
4,NULL,NULL
5,"[""b"",""c""]",2

SELECT list_append([1], 2), list_prepend(0, [1]), list_concat([1], [2, 3]), [1] || [2]
--> duckdb
"[1,2]","[0,1]","[1,2,3]","[1,2]"

SELECT list_position([5, 6, 7], 6), list_indexof([5], 9), array_position(['a'], 'a')
--> duckdb
2,NULL,1

SELECT list_slice([1, 2, 3, 4], 2, 3), array_slice([1, 2, 3, 4], -2, NULL)
--> duckdb
"[2,3]",NULL

SELECT [1, 2, 3, 4][:2]
--> duckdb
"[1,2]"

SELECT list_aggregate([1, 2, 3], 'sum')
--> duckdb
6

SELECT list_aggr([1, 2, 2], 'mode')
--> duckdb
2

SELECT list_aggregate(['a', 'b'], 'string_agg', '|')
--> duckdb
a|b

SELECT list_intersect([1, 2, 3], [2, 3, 4]), list_has_any([1, 2], [2, 9]), list_has_all([1, 2], [2, 9])
--> duckdb
"[2,3]",true,false

SELECT [1, 2] && [2], [1, 2, 3] @> [1, 2], [1] <@ [1, 2]
--> duckdb
true,true,true

SELECT list_zip([1, 2], ['a', 'b'])
--> differs: the fields of a struct have names
--> tidemill
"[{""1"":1,""2"":""a""},{""1"":2,""2"":""b""}]"
--> duckdb
"[[1,""a""],[2,""b""]]"

SELECT flatten([[1, 2], [3]]), list_resize([1], 3, 0)
--> duckdb
"[1,2,3]","[1,0,0]"

SELECT list_grade_up([3, 1, 2])
--> duckdb
"[2,3,1]"

SELECT list_where([1, 2, 3], [true, false, true])
--> duckdb
"[1,3]"

SELECT list_select([5, 6, 7], [3, 1])
--> duckdb
"[7,5]"

SELECT list_value(1, 2), list_cat([1], [2]), list_any_value([NULL, 3])
--> duckdb
"[1,2]","[1,2]",3

SELECT list_pack(1, 2)
--> duckdb
"[1,2]"

SELECT array_append([1], 2), array_prepend(0, [1]), array_push_back([1], 2)
--> duckdb
"[1,2]","[0,1]","[1,2]"

SELECT array_push_front([1], 0)
--> duckdb
"[0,1]"

SELECT array_pop_back([1, 2, 3]), array_pop_front([1, 2, 3])
--> duckdb
"[1,2]","[2,3]"

SELECT list_count([1, NULL]), list_product([2, 3])
--> duckdb
1,6.0

SELECT list_median([1, 2, 9])
--> duckdb
2.0

SELECT list_stddev_pop([1, 3])
--> duckdb
1.0

SELECT list_mad([1, 2, 4, 10]), list_entropy([1, 2, 3, 4]), list_sem([1, 2, 3]), list_mode(['b', 'a', 'b'])
--> duckdb
1.5,2.0,0.47140452079103173,b

SELECT list_skewness([1, 2, 4]), list_kurtosis([1, 2, 4, 8]), list_kurtosis_pop([1, 2, 4, 8]), list_skewness([5, 5, 5])
--> duckdb
0.9352195295828243,0.7576559546313791,-1.0989792060491494,NULL

SELECT list_histogram([2, 1, 2, NULL])
--> duckdb
"{""1"":1,""2"":2}"

SELECT list_bit_and([5, 7]), list_bit_or([5, 2]), list_bit_xor([5, 7])
--> duckdb
5,7,2

SELECT list_string_agg(['a', NULL, 'b']), list_string_agg([NULL]::VARCHAR[]), list_aggr([NULL, 1, 2], 'any_value')
--> duckdb
"a,b",NULL,1

SELECT list_aggr([1, 2, 3, 4], 'quantile_cont', 0.25), list_aggr([1, 2, 3], 'stddev'), list_aggr([]::INT[], 'entropy')
--> duckdb
1.75,1.0,0.0

SELECT list_avg([9007199254740993, 0, 0])
--> duckdb
3002399751580331.0

SELECT list_bool_and([true, false])
--> duckdb
false

SELECT list_bool_or([true, false])
--> duckdb
true

SELECT list_first([4, 5])
--> duckdb
4

SELECT list_last([4, 5])
--> duckdb
5

SELECT range(3), range(1, 4), range(0, 10, 5), generate_series(1, 3)
--> duckdb
"[0,1,2]","[1,2,3]","[0,5]","[1,2,3]"

SELECT range(DATE '2026-03-01', DATE '2026-03-03', INTERVAL 1 DAY)
--> differs: a range of dates by whole days is one of dates
--> tidemill
"[""2026-03-01"",""2026-03-02""]"
--> duckdb
"[""2026-03-01T00:00:00"",""2026-03-02T00:00:00""]"

SELECT list_distance([0.0, 0.0], [3.0, 4.0])
--> duckdb
5.0

SELECT list_dot_product([1, 2]::DOUBLE[], [3, 4]::DOUBLE[])
--> duckdb
11.0

SELECT list_inner_product([1.0, 2.0], [3.0, 4.0])
--> duckdb
11.0

SELECT list_cosine_distance([1, 0], [0, 1]), list_negative_inner_product([1, 2], [3, 4]), list_inner_product([]::DOUBLE[], []::DOUBLE[])
--> duckdb
1.0,-11.0,0.0

SELECT array_cross_product([1, 2, 3]::DOUBLE[3], [4, 5, 6]::DOUBLE[3])
--> duckdb
"[-3.0,6.0,-3.0]"

SELECT list_cosine_similarity([1.0, 0.0], [1.0, 0.0])
--> duckdb
1.0

SELECT unnest([1, 2, 3]) AS x
--> duckdb
1
2
3

SELECT id, unnest(tags) AS tag FROM 'events.json' ORDER BY id, tag
--> duckdb
1,a
1,a
1,b
2,c
5,b
5,c

SELECT tag, count(*) AS n FROM (SELECT unnest(tags) AS tag FROM 'events.json') GROUP BY tag ORDER BY n DESC, tag
--> duckdb
a,2
b,2
c,2

SELECT e.id, t.tag FROM 'events.json' e, unnest(e.tags) AS t(tag) ORDER BY ALL
--> duckdb
1,a
1,a
1,b
2,c
5,b
5,c

SELECT e.id, u.n FROM 'events.json' e CROSS JOIN LATERAL (SELECT unnest(e.nums) AS n) u WHERE u.n > 5 ORDER BY ALL
--> duckdb
2,10
5,7
5,8
5,9
5,10

SELECT e.id, t.n FROM 'events.json' e LEFT JOIN LATERAL unnest(e.nums) AS t(n) ON true ORDER BY ALL
--> duckdb
1,1
1,2
1,3
2,10
3,5
3,5
4,NULL
5,7
5,8
5,9
5,10

SELECT x, i FROM unnest(['a', 'b']) WITH ORDINALITY AS t(x, i)
--> pending: `WITH ORDINALITY` is not supported
--> duckdb
a,1
b,2

SELECT id, generate_subscripts(tags, 1) AS i FROM 'events.json' ORDER BY id, i
--> duckdb
1,1
1,2
1,3
2,1
5,1
5,2

SELECT unnest([{'a': 1, 'b': 2}, {'a': 3, 'b': 4}], recursive := true)
--> pending: `recursive := true in unnest(…)` is not supported
--> duckdb
1,2
3,4

SELECT unnest({'a': 1, 'b': 2})
--> duckdb
1,2

SELECT {'a': 1, 'b': 'x'}
--> duckdb
"{""a"":1,""b"":""x""}"

SELECT {'a': 1}.a
--> duckdb
1

SELECT struct_pack(k := 1, v := 'y')
--> duckdb
"{""k"":1,""v"":""y""}"

SELECT row(1, 'x')
--> differs: the fields of a struct have names
--> tidemill
"{""c0"":1,""c1"":""x""}"
--> duckdb
"[1,""x""]"

SELECT device.os, device['version'], device.version + 1 AS next FROM 'events.json' ORDER BY id
--> duckdb
ios,17,18
android,14,15
ios,16,17
NULL,NULL,NULL
linux,6,7

SELECT device.os, count(*), max(device.version) FROM 'events.json' GROUP BY device.os ORDER BY device.os
--> duckdb
android,1,14
ios,2,17
linux,1,6
NULL,1,NULL

SELECT device.* FROM 'events.json' ORDER BY id
--> duckdb
ios,17
android,14
ios,16
NULL,NULL
linux,6

SELECT struct_extract(device, 'os') AS os FROM 'events.json' ORDER BY id LIMIT 1
--> duckdb
ios

SELECT struct_insert({'a': 1}, b := 2) FROM 'events.json' ORDER BY id LIMIT 1
--> duckdb
"{""a"":1,""b"":2}"

SELECT struct_update({'a': 1, 'b': 2}, d := 3, a := 'c')
--> duckdb
"{""a"":""c"",""b"":2,""d"":3}"

SELECT struct_concat({'a': 1}, {'b': 2})
--> error: unknown function `struct_concat`
--> hint: a struct's fields are written out: named_struct('a', s['a'], 'b', 2)
--> duckdb
"{""a"":1,""b"":2}"

SELECT struct_keys({'a': 1, 'b': 2})
--> duckdb
"[""a"",""b""]"

SELECT MAP {'a': 1, 'b': 2}, MAP {'a': 1}['a'], MAP {'a': 1}['z']
--> duckdb
"{""a"":1,""b"":2}",1,NULL

SELECT map(['a', 'b'], [1, 2])['b'], cardinality(MAP {'a': 1}), map_keys(MAP {'a': 1, 'b': 2}), map_values(MAP {'a': 1, 'b': 2})
--> duckdb
2,1,"[""a"",""b""]","[1,2]"

SELECT element_at(MAP {'a': 1}, 'a')
--> differs: element_at of a map is the value, as in Spark; map_extract is the list
--> tidemill
1
--> duckdb
[1]

SELECT map_extract(MAP {'a': 1}, 'a'), map_entries(MAP {'a': 1})
--> duckdb
[1],"[{""key"":""a"",""value"":1}]"

SELECT map_contains(MAP {'a': 1}, 'b')
--> duckdb
false

SELECT map_concat(MAP {'a': 1}, MAP {'b': 2})
--> duckdb
"{""a"":1,""b"":2}"

SELECT map_from_entries([('k', 1)])
--> duckdb
"{""k"":1}"

SELECT id, device FROM 'events.json' WHERE device IS NOT NULL ORDER BY id LIMIT 1
--> duckdb
1,"{""os"":""ios"",""version"":17}"

SELECT list_transform(tags, t -> upper(t)) AS up FROM 'events.json' WHERE id = 1
--> duckdb
"[""A"",""B"",""A""]"

SELECT list_filter([{'a': 1}, {'a': 5}], s -> s.a > 2)
--> duckdb
"[{""a"":5}]"

SELECT list_transform(list_filter(nums, n -> n > 1), n -> n * n) FROM 'events.json' WHERE nums IS NOT NULL ORDER BY id
--> duckdb
"[9,4]"
[100]
"[25,25]"
"[49,64,81,100]"

SELECT apply([1, 2], x -> x + 1), array_filter([1, 2], x -> x > 1), filter([1, 2], x -> x < 2)
--> duckdb
"[2,3]",[2],[1]

SELECT array_transform(string_split('1,2,3', ','), x -> x::INT)
--> duckdb
"[1,2,3]"

SELECT kind, list(DISTINCT device.os ORDER BY device.os) FROM 'events.json' GROUP BY kind ORDER BY kind
--> duckdb
buy,[null]
click,"[""ios""]"
view,"[""android"",""linux""]"

SELECT list_contains([1, NULL], NULL), list_position([1, NULL], NULL)
--> duckdb
NULL,2

SELECT len([NULL])
--> duckdb
1

SELECT first(nums ORDER BY id DESC) FROM 'events.json'
--> duckdb
"[7,8,9,10]"

SELECT any_value(tags ORDER BY id) FROM 'events.json'
--> duckdb
"[""a"",""b"",""a""]"

SELECT id, tags FROM 'events.json' ORDER BY id
--> duckdb
1,"[""a"",""b"",""a""]"
2,"[""c""]"
3,[]
4,NULL
5,"[""b"",""c""]"

# Text of lists tells nulls, empty texts and empty lists apart.
SELECT CAST([NULL] AS TEXT), CAST([]::INT[] AS TEXT), CAST([''] AS TEXT), CAST(['a b', 'c,d', 'null', ' e'] AS TEXT)
--> duckdb
[NULL],[],[''],"[a b, 'c,d', 'null', ' e']"

SELECT id, CAST(tags AS TEXT) FROM 'events.json' ORDER BY id
--> duckdb
1,"[a, b, a]"
2,[c]
3,[]
4,NULL
5,"[b, c]"

SELECT '[1, 2,3 ]'::INT[], '[a, NULL, ''b,c'']'::VARCHAR[], TRY_CAST('[1,x]' AS INT[]), TRY_CAST('1' AS INT[]), '[[1],[]]'::INT[][]
--> duckdb
"[1,2,3]","[""a"",null,""b,c""]","[1,null]",NULL,"[[1],[]]"

SELECT CAST('[1' AS INT[])
--> error: does not fit INT[]

SELECT CAST({'a': 1, 'b': 'x y'} AS VARCHAR), CAST(map(['k'], [1]) AS VARCHAR)
--> duckdb
"{'a': 1, 'b': x y}",{k=1}

SELECT list_transform([10, 20], lambda x, i: x + i), list_filter([10, 20, 30], lambda x, i: i > 1), list_transform([]::INT[], lambda x, i: i)
--> duckdb
"[11,22]","[20,30]",[]

SELECT '{a: 1, b: [1, 2]}'::STRUCT(a INT, b INT[]), '[{a: 1}]'::STRUCT(a INT)[], '{k={a: 1}}'::MAP(VARCHAR, STRUCT(a INT))
--> duckdb
"{""a"":1,""b"":[1,2]}","[{""a"":1}]","{""k"":{""a"":1}}"

SELECT m['k'], map_keys(m) FROM (SELECT '{k=1, l=2}'::MAP(VARCHAR, INT) AS m)
--> duckdb
1,"[""k"",""l""]"

SELECT CAST({'a': 1, 'b': NULL} AS MAP(VARCHAR, INT)), CAST(NULL::STRUCT(a INT) AS MAP(VARCHAR, INT))
--> duckdb
"{""a"":1,""b"":null}",NULL

SELECT ARRAY(SELECT i FROM range(4) t(i) WHERE i > 0 ORDER BY -i), ARRAY(SELECT i FROM range(4) t(i) WHERE i > 9), ARRAY(SELECT DISTINCT i % 2 AS k FROM range(4) t(i) ORDER BY k DESC)
--> duckdb
"[3,2,1]",[],"[1,0]"

SELECT j, ARRAY(SELECT i FROM range(4) t(i) WHERE i > j ORDER BY i DESC LIMIT 2) FROM range(3) u(j) ORDER BY j
--> duckdb
0,"[3,2]"
1,"[3,2]"
2,[3]
