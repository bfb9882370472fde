//! The table of corrections. A new correction gets a row here.

/// A fault of DataFusion, and what corrects it.
pub(crate) struct Correction {
    /// Stable name, by which the documentation lists it.
    pub name: &'static str,
    /// What DataFusion does, as a sentence.
    pub fault: &'static str,
    /// The number of DataFusion's issue, where one is known.
    pub issue: Option<u32>,
    /// The files that correct it, below `crates`. They can go once DataFusion is right.
    pub files: &'static [&'static str],
    /// Parts of the session that correct it, as [`session_parts`](crate::session_parts::session_parts) names them.
    pub parts: &'static [&'static str],
    /// How a test sees the fault.
    pub evidence: Evidence,
}

/// How a test sees that DataFusion still has a fault.
pub(crate) enum Evidence {
    /// Queries on the [fixtures](FIXTURES).
    Answers(&'static [Answers]),
    /// Whether bare DataFusion has the fault.
    Check(fn() -> bool),
    /// Why there is no test.
    Untested(&'static str),
}

/// A query, the wrong answer of bare DataFusion, and Tidemill's answer. An answer that begins with `error: ` stands for
/// each error whose message contains the rest. `!sorted ` before a query has bare DataFusion join by sorting.
pub(crate) struct Answers {
    pub sql: &'static str,
    pub bare: &'static str,
    pub ours: &'static str,
}

const fn answers(sql: &'static str, bare: &'static str, ours: &'static str) -> Answers {
    Answers { sql, bare, ours }
}

/// The files that queries read.
pub(crate) const FIXTURES: &[(&str, &str)] = &[
    ("days.csv", "day,f,s\n2026-01-01,9007199254740992.0,A\n2026-01-02,0.5,b\n"),
    ("events.csv", "ts,v,s\n2026-01-01T03:00:00,1,a\n2026-01-01T05:00:00,2,A\n"),
    ("flags.csv", "id,flag\n1,true\n2,\n3,false\n"),
    ("floats.csv", "id,f\n1,-0.0\n2,0.0\n3,1.5\n"),
    ("gaps.csv", "id,x\n1,1\n2,\n3,\n4,2\n5,3\n6,4\n7,\n8,5\n"),
    ("keys.csv", "k,v\na,1\nb,2\n"),
    ("large.csv", "i,f\n1,1e17\n2,1.0\n3,1.0\n4,-1e17\n"),
    ("left.csv", "k,w,f\n1,a,true\n2,b,false\n"),
    ("lists.csv", "k,v\n1,3\n1,1\n1,3\n2,5\n2,4\n"),
    ("near.csv", "g,x,y\n1,1000000000.1,5\n1,1000000000.2,6\n1,1000000000.3,9\n"),
    ("numbers.csv", "id,x,a,b\n1,1,1,2\n2,2,2,9\n3,,1,2\n4,7,4,4\n"),
    ("overflow.csv", "x,a,b\n0,9223372036854775807,1\n1,2,3\n"),
    ("right.csv", "k,w,f\n1,,false\n2,7,true\n3,,true\n"),
    ("sides.csv", "n,t,m\n1,a1,0\n2,a2,0\n3,a3,0\n"),
    ("other_sides.csv", "n,t,m\n1,b1,1\n2,b2,1\n3,b3,1\n"),
    ("texts.csv", "id,s\n1,a\n2,\n"),
    ("tied.csv", "id,s,x,y\n1,u,1,1\n2,w,2,1\n3,w,,1\n"),
    ("tied_to.csv", "v,s,x\n1,u,1\n5,w,\n"),
    ("values.csv", "id,x,d\n1,300,12.345\n2,2,1.25\n"),
    ("with_null.csv", "u,v\n1,1\n,2\n"),
    ("zero.csv", "id,x\n1,0\n2,5\n"),
];

/// All corrections, by their names.
pub(crate) const CORRECTIONS: &[Correction] = &[
    Correction {
        name: "aggregate-orders",
        fault: "Text aggregates and `nth_value` with different orders in one query are refused, and an aggregate \
                without an order takes that of its neighbour.",
        issue: None,
        files: &["tables/src/ordered.rs", "tables/src/places.rs"],
        parts: &[],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT string_agg(k, ',' ORDER BY v), string_agg(k, ',' ORDER BY k DESC) FROM '$/keys.csv'",
                "error: Conflicting ordering requirements",
                "a,b b,a",
            ),
            answers(
                "SELECT array_agg(k), array_agg(k ORDER BY k DESC) FROM '$/keys.csv'",
                "[b, a] [b, a]",
                "[a, b] [b, a]",
            ),
        ]),
    },
    Correction {
        name: "any-of-list",
        fault: "`x = ANY(list)` and `array_has` are false where a null in the list could be equal, or null where \
                only the list's values are null.",
        issue: None,
        files: &["sql/src/dialects/operators.rs", "sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[
            answers("SELECT 3 = ANY([1, NULL])", "false", "∅"),
            answers(
                "SELECT array_has([x, 2], 3) FROM '$/numbers.csv'",
                "false, false, ∅, false",
                "false, false, false, false",
            ),
        ]),
    },
    Correction {
        name: "any-of-own-column",
        fault: "`k < ANY (SELECT k …)` compares the subquery's column with itself.",
        issue: None,
        files: &["sql/src/subqueries.rs"],
        parts: &["rule Unknowns"],
        evidence: Evidence::Answers(&[answers(
            "SELECT v FROM '$/keys.csv' WHERE k < ANY (SELECT k FROM '$/keys.csv')",
            "no rows",
            "1",
        )]),
    },
    Correction {
        name: "array-slice-end",
        fault: "`array_slice` refuses an end beyond 32 bits.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT array_slice([1, 2, 3], 1, 3000000000)",
            "error: invalid index: 3000000000",
            "[1, 2, 3]",
        )]),
    },
    Correction {
        name: "bytes",
        fault: "Functions take bytes for text, and find no common type for bytes that Arrow lays out in different ways.",
        issue: None,
        files: &["sql/src/bytes.rs", "sql/src/replaced.rs"],
        parts: &[
            "function bit_length",
            "function character_length",
            "function coalesce",
            "function octet_length",
            "planner ListsOfBytes",
            "rule CommonTypes",
        ],
        evidence: Evidence::Answers(&[
            answers("SELECT length(decode('ff', 'hex'))", "error: non UTF-8", "1"),
            answers("SELECT octet_length(decode('ff', 'hex'))", "error: requires String", "1"),
            answers("SELECT bit_length(decode('ff', 'hex'))", "error: requires String", "8"),
            answers(
                "SELECT coalesce(NULL, decode('6162', 'hex'), arrow_cast('x', 'BinaryView'))",
                "error: coercion failed",
                "6162",
            ),
            answers(
                "SELECT [decode('6162', 'hex'), NULL]",
                "error: Failed to unify argument types of make_array",
                "[6162, ∅]",
            ),
        ]),
    },
    Correction {
        name: "calculated-tie",
        fault: "A correlated scalar subquery groups by the column below a cast in its equality, and refuses other \
                calculations there.",
        issue: None,
        files: &["sql/src/subqueries.rs"],
        parts: &["rule Unknowns"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT (SELECT count(*) FROM '$/events.csv' e WHERE CAST(e.ts AS DATE) = d.day) \
                 FROM '$/days.csv' d ORDER BY day",
                "1, 1, 0",
                "2, 0",
            ),
            answers(
                "SELECT (SELECT count(*) FROM '$/events.csv' e WHERE upper(e.s) = upper(d.s)) \
                 FROM '$/days.csv' d ORDER BY day",
                "error: does not support logical expression ScalarSubquery",
                "2, 0",
            ),
        ]),
    },
    Correction {
        name: "ceil-of-decimal",
        fault: "`ceil` and `floor` of a DECIMAL overflow where the result has one more digit.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT ceil(CAST(9.99 AS DECIMAL(3, 2)))",
            "error: Decimal overflow",
            "10.00",
        )]),
    },
    Correction {
        name: "clocks",
        fault: "A time that the clocks of a zone show twice, or never, ends the query, and a cast of a zone's time \
                has the clocks of UTC.",
        issue: None,
        files: &["sql/src/zones.rs"],
        parts: &["rule Clocks"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT TIMESTAMP '2025-10-26 02:30:00' AT TIME ZONE 'Europe/Berlin'",
                "error: Cannot cast timezone to different timezone",
                "2025-10-26T02:30:00+01:00",
            ),
            answers(
                "SELECT CAST(CAST('2026-07-01T00:00:00Z' AS TIMESTAMPTZ) AT TIME ZONE 'America/New_York' AS DATE)",
                "2026-07-01",
                "2026-06-30",
            ),
        ]),
    },
    Correction {
        name: "compared-cast",
        fault: "A cast that is compared with a constant is taken off, though it loses values or rounds times.",
        issue: None,
        files: &["sql/src/kept_casts.rs"],
        parts: &["rule KeptCasts"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT TRY_CAST(x AS TINYINT) <> 1 FROM '$/values.csv'",
                "true, true",
                "∅, true",
            ),
            answers(
                "SELECT count(*) FROM (SELECT arrow_cast(n, 'Timestamp(Second, None)') AS s FROM '$/sides.csv') \
                 WHERE CAST(s AS TIMESTAMP) = TIMESTAMP '1970-01-01 00:00:01.000001'",
                "1",
                "0",
            ),
        ]),
    },
    Correction {
        name: "computed-window-keys",
        fault: "The order of `length(s) > 5` and of `date + function(x)` is lost, and DataFusion refuses its own \
                plan of a window over it.",
        issue: None,
        files: &["sql/src/windows/keys.rs"],
        parts: &["rule ComputedKeys"],
        evidence: Evidence::Answers(&[answers(
            "SELECT count(*) OVER (PARTITION BY length(s) > 5) FROM '$/texts.csv'",
            "error: SanityCheckPlan",
            "1, 1",
        )]),
    },
    Correction {
        name: "conditions-above-groups",
        fault: "A condition without columns moves below an aggregation that answers over no rows, too, and two \
                equalities of one column that are written differently are taken for a contradiction.",
        issue: None,
        files: &["sql/src/filters.rs"],
        parts: &["rule Conditions", "rule PushDownFilter, left out"],
        evidence: Evidence::Answers(&[
            answers("SELECT count(*) FROM '$/numbers.csv' HAVING random() < 0", "0", "no rows"),
            answers(
                "SELECT a.v FROM '$/keys.csv' a JOIN '$/keys.csv' b ON a.v = b.v AND 'a' = b.k WHERE b.k = 'a'",
                "no rows",
                "1",
            ),
        ]),
    },
    Correction {
        name: "constant-in-subquery",
        fault: "`1 IN (SELECT v …)` loses its condition, and `NOT IN` of a correlated subquery is asked of the \
                correlation, too.",
        issue: None,
        files: &["sql/src/subqueries.rs"],
        parts: &["rule Unknowns"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT id FROM '$/tied.csv' WHERE 1 IN (SELECT v FROM '$/tied_to.csv' WHERE v = 1)",
                "no rows",
                "1, 2, 3",
            ),
            answers(
                "SELECT id FROM '$/tied.csv' a WHERE 3 NOT IN (SELECT 3 FROM '$/tied_to.csv' b WHERE b.x = a.x) \
                 ORDER BY id",
                "no rows",
                "2, 3",
            ),
        ]),
    },
    Correction {
        name: "date-beside-number",
        fault: "A date is compared with a number as the days since 1970.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT day > 1 FROM '$/days.csv'",
            "true, true",
            "error: a DATE and a BIGINT have nothing in common",
        )]),
    },
    Correction {
        name: "date-beside-timestamp",
        fault: "Dates and timestamps meet at nanoseconds, which end in 2262.",
        issue: None,
        files: &[
            "sql/src/coercion.rs",
            "sql/src/meeting.rs",
            "sql/src/instants.rs",
            "sql/src/cast_times.rs",
        ],
        parts: &["planner TimesOfDay", "rule CommonTypes"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT CAST('9999-12-31' AS DATE) > TIMESTAMP '2020-01-01'",
                "error: Cannot cast Date32 value",
                "true",
            ),
            answers(
                "SELECT TIME '10:00:00' < arrow_cast(TIME '11:00:00', 'Time64(Microsecond)')",
                "error: Cannot infer common argument type",
                "true",
            ),
        ]),
    },
    Correction {
        name: "decimal-beside-double",
        fault: "A DOUBLE and a DECIMAL are compared as decimals of 15 places, so that 1e-20 is 0.",
        issue: None,
        files: &["sql/src/coercion.rs", "sql/src/meeting.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT d * 1e-20 = CAST(0 AS DECIMAL(10, 2)) FROM '$/values.csv'",
            "true, true",
            "false, false",
        )]),
    },
    Correction {
        name: "decimal-literals",
        fault: "A number with a point is a DOUBLE before it is calculated with, whatever its digits.",
        issue: None,
        files: &["sql/src/constants.rs", "sql/src/digits.rs"],
        parts: &["planner Constants"],
        evidence: Evidence::Answers(&[
            answers("SELECT 0.06 + 0.01", "0.06999999999999999", "0.07"),
            answers("SELECT 9007199254740993.0", "9007199254740992.0", "9007199254740993"),
        ]),
    },
    Correction {
        name: "distinct-list-orders",
        fault: "`array_agg(DISTINCT x ORDER BY x)` takes the direction of another list's order.",
        issue: None,
        files: &["sql/src/dialects/distinct_lists.rs"],
        parts: &[],
        evidence: Evidence::Answers(&[answers(
            "SELECT array_agg(k ORDER BY k DESC), array_agg(DISTINCT k ORDER BY k) FROM '$/lists.csv'",
            "[2, 2, 1, 1, 1] [2, 1]",
            "[2, 2, 1, 1, 1] [1, 2]",
        )]),
    },
    Correction {
        name: "distinct-on-same-key",
        fault: "`DISTINCT ON (k) … ORDER BY k, k DESC` panics.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT DISTINCT ON (k) k, v FROM '$/keys.csv' ORDER BY k, k DESC, v",
            "error: panicked",
            "a 1, b 2",
        )]),
    },
    Correction {
        name: "duplicate-names",
        fault: "A column and its cast have one name, and the planner refuses both in one list.",
        issue: None,
        files: &["sql/src/casts.rs"],
        parts: &[],
        evidence: Evidence::Answers(&[answers(
            "SELECT v, CAST(v AS TEXT) FROM '$/keys.csv'",
            "error: require unique expression names",
            "1 1, 2 2",
        )]),
    },
    Correction {
        name: "empty-subquery",
        fault: "A scalar subquery without a row is not null where its column is not.",
        issue: None,
        files: &["sql/src/subqueries.rs"],
        parts: &["rule Unknowns"],
        evidence: Evidence::Answers(&[answers(
            "SELECT (SELECT 1 WHERE false) IS NULL",
            "false",
            "true",
        )]),
    },
    Correction {
        name: "expression-memory",
        fault: "What an expression makes of a batch, such as `repeat(s, 10)`, asks no memory pool, whatever its size.",
        issue: None,
        files: &["sql/src/portions.rs", "sql/src/amplify.rs"],
        parts: &[
            "function array_repeat",
            "function array_resize",
            "function array_to_string",
            "function concat",
            "function concat_ws",
            "function generate_series",
            "function lpad",
            "function range",
            "function regexp_replace",
            "function repeat",
            "function replace",
            "function rpad",
            "rule KeepToBudget",
        ],
        evidence: Evidence::Check(|| {
            crate::bare::peak_bytes("SELECT repeat(s, 10) FROM wide") < crate::bare::WIDE_BYTES / 10
        }),
    },
    Correction {
        name: "filter-pushdown",
        fault: "The physical rule moves a condition below a join by the columns' bare names, to the wrong one of two \
                columns of a name. Mended after 55.2.",
        issue: Some(25296),
        files: &["sql/src/session.rs"],
        parts: &["rule FilterPushdown, left out"],
        evidence: Evidence::Answers(&[answers(
            "SELECT a.k FROM '$/left.csv' a RIGHT JOIN '$/right.csv' b ON a.k = b.k \
                 WHERE CASE WHEN b.w > 3 THEN b.f ELSE a.f END ORDER BY a.k",
            "2, ∅",
            "1, 2",
        )]),
    },
    Correction {
        name: "float-cast",
        fault: "A number beyond FLOAT becomes infinite.",
        issue: None,
        files: &["sql/src/kept_casts.rs"],
        parts: &["rule KeptCasts"],
        evidence: Evidence::Answers(&[answers(
            "SELECT CAST(d * 1e300 AS FLOAT) FROM '$/values.csv'",
            "inf, inf",
            "error: does not fit FLOAT",
        )]),
    },
    Correction {
        name: "float-extremes",
        fault: "`min` and `max` of grouped floats forget a NaN.",
        issue: None,
        files: &["sql/src/floats.rs"],
        parts: &[],
        evidence: Evidence::Answers(&[answers(
            "SELECT 1, min(f), max(f) FROM (SELECT CASE WHEN id = 1 THEN 'NaN'::DOUBLE ELSE f END AS f \
                 FROM '$/floats.csv') GROUP BY 1",
            "1 0.0 1.5",
            "1 0.0 NaN",
        )]),
    },
    Correction {
        name: "float-order",
        fault: "Windows, sorts and lists tell −0.0 from 0.0, and a NaN is above or below all numbers by its sign.",
        issue: None,
        files: &["sql/src/floats.rs"],
        parts: &["rule OneOrder"],
        evidence: Evidence::Answers(&[
            answers("SELECT rank() OVER (ORDER BY f) FROM '$/floats.csv'", "1, 2, 3", "1, 1, 3"),
            answers(
                "SELECT [f] = [0.0] FROM '$/floats.csv'",
                "false, true, false",
                "true, true, false",
            ),
            answers("SELECT -'NaN'::DOUBLE = 'NaN'::DOUBLE", "false", "true"),
        ]),
    },
    Correction {
        name: "frames",
        fault: "Frames round their distances to the key's type, take a number beside a day for months, overflow at \
                the largest number of rows, and refuse keys that are structs.",
        issue: None,
        files: &["sql/src/frames.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT count(*) OVER (ORDER BY d RANGE BETWEEN 0.16 PRECEDING AND CURRENT ROW) \
                 FROM (SELECT CAST(id * 0.1 AS DECIMAL(3, 1)) AS d FROM '$/numbers.csv')",
                "1, 2, 3, 3",
                "1, 2, 2, 2",
            ),
            answers(
                "SELECT count(*) OVER (ORDER BY day RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM '$/days.csv'",
                "1, 2",
                "error: says no unit",
            ),
            answers(
                "SELECT count(*) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND 18446744073709551615 FOLLOWING) \
                 FROM '$/numbers.csv' ORDER BY 1",
                "0, 0, 0, 0",
                "1, 2, 3, 4",
            ),
            answers(
                "SELECT count(*) OVER (ORDER BY {a: x}) FROM '$/numbers.csv' ORDER BY 1",
                "error: Cannot run range queries",
                "1, 2, 3, 4",
            ),
        ]),
    },
    Correction {
        name: "grouping-set-keys",
        fault: "A key that is constant below ROLLUP, CUBE or GROUPING SETS is taken for constant above it, and sorts \
                are left out.",
        issue: None,
        files: &["sql/src/grouping_sets.rs"],
        parts: &["rule NothingKnown"],
        evidence: Evidence::Answers(&[answers(
            "SELECT y, count(*) FROM (SELECT 'x' AS y FROM '$/values.csv') GROUP BY ROLLUP (y) ORDER BY y",
            "∅ 2, x 2",
            "x 2, ∅ 2",
        )]),
    },
    Correction {
        name: "guards",
        fault: "Both sides of AND and OR, and all branches of a CASE of conditions, are computed for a whole batch, \
                and casts of constants before there is a row.",
        issue: None,
        files: &["sql/src/guards.rs"],
        parts: &["planner DefaultQueryPlanner, left out", "planner Guarded", "rule KeptCases"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT id FROM '$/zero.csv' WHERE x <> 0 AND 1000 / x > 3",
                "error: Divide by zero",
                "2",
            ),
            answers(
                "SELECT id, CASE WHEN x = 0 THEN false ELSE 1000 / x > 3 END FROM '$/zero.csv'",
                "error: Divide by zero",
                "1 false, 2 true",
            ),
            answers(
                "SELECT CASE WHEN id < 3 THEN 1 ELSE CAST('x' AS INT) END FROM '$/zero.csv'",
                "error: Cannot cast string 'x'",
                "1, 1",
            ),
        ]),
    },
    Correction {
        name: "in-lists",
        fault: "`x IN (…)` of values that are no constants is computed once for all rows, and two lists of one value \
                are put together by what is written there.",
        issue: None,
        files: &["sql/src/in_lists.rs"],
        parts: &["rule Constants"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT abs(x) IN (CASE WHEN a > 1 THEN 2 END, 7) FROM '$/numbers.csv'",
                "false, true, ∅, true",
                "∅, true, ∅, true",
            ),
            answers(
                "SELECT x IN (1, 2, 3, 4) AND x IN (a, b, 8, 9) FROM '$/numbers.csv'",
                "false, false, false, false",
                "true, true, ∅, false",
            ),
            answers(
                "SELECT x NOT IN (0, 1) OR x NOT IN (2, 3) FROM '$/numbers.csv'",
                "true, true, true, true",
                "true, true, ∅, true",
            ),
        ]),
    },
    Correction {
        name: "integer-beside-float",
        fault: "A BIGINT beside a FLOAT has 24 bits, in comparisons, CASE and UNION.",
        issue: None,
        files: &["sql/src/coercion.rs", "sql/src/meeting.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT CAST(id + 16777216 AS BIGINT) = CAST(16777216 AS FLOAT) FROM '$/zero.csv'",
                "true, false",
                "false, false",
            ),
            answers(
                "SELECT max(x) FROM (SELECT CAST(16777217 AS BIGINT) AS x UNION ALL SELECT CAST(0.5 AS FLOAT))",
                "16777216.0",
                "16777217.0",
            ),
        ]),
    },
    Correction {
        name: "integer-overflow",
        fault: "Arithmetic of integers wraps around.",
        issue: None,
        files: &["sql/src/arithmetic.rs"],
        parts: &["rule CheckedArithmetic"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT x * 9223372036854775807 FROM '$/zero.csv'",
                "0, 9223372036854775803",
                "error: integer overflow: 5 * 9223372036854775807 does not fit BIGINT",
            ),
            answers(
                "SELECT id << 64 FROM '$/zero.csv'",
                "1, 2",
                "error: integer overflow: 1 << 64",
            ),
        ]),
    },
    Correction {
        name: "interval-below-a-day",
        fault: "Hours added to a date are lost.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT day + INTERVAL '1 hour' FROM '$/days.csv'",
            "2026-01-01, 2026-01-02",
            "2026-01-01T01:00:00, 2026-01-02T01:00:00",
        )]),
    },
    Correction {
        name: "is-distinct-precedence",
        fault: "`a IS NOT DISTINCT FROM b AND c` is parsed as `a IS NOT DISTINCT FROM (b AND c)`.",
        issue: None,
        files: &["sql/src/syntax/dialect.rs"],
        parts: &[],
        evidence: Evidence::Answers(&[answers(
            "SELECT v FROM '$/keys.csv' WHERE v IS NOT DISTINCT FROM 1 AND k = 'a'",
            "error: Cannot infer common argument type for logical boolean operation",
            "1",
        )]),
    },
    Correction {
        name: "is-true-of-outer-rows",
        fault: "`x IS TRUE` is never null by the logical plan and may be by the physical one, which is refused as a \
                group's key above a join.",
        issue: None,
        files: &["sql/src/session.rs"],
        parts: &["setting datafusion.execution.skip_physical_aggregate_schema_check"],
        evidence: Evidence::Answers(&[answers(
            "SELECT c FROM (SELECT b.flag IS TRUE AS c FROM '$/flags.csv' a JOIN '$/flags.csv' b \
                 ON a.id = b.id) GROUP BY 1 ORDER BY 1",
            "error: Physical input schema should be the same",
            "false, true",
        )]),
    },
    Correction {
        name: "lag-default",
        fault: "The value that stands in for a row which is not there is cast to the column's type.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT lag(x, 1, 0.5) OVER (ORDER BY id) FROM '$/numbers.csv'",
            "0, 1, 2, ∅",
            "0.5, 1.0, 2.0, ∅",
        )]),
    },
    Correction {
        name: "lead-ignore-nulls",
        fault: "`lead` by several rows with IGNORE NULLS forgets values. It is refused.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT lead(x, 2) IGNORE NULLS OVER (ORDER BY id) FROM '$/gaps.csv'",
            "3, 3, 3, 4, ∅, ∅, ∅, ∅",
            "error: `lead` by more than one row takes no IGNORE NULLS",
        )]),
    },
    Correction {
        name: "leaf-expressions",
        fault: "The rule that computes fields of structs early forgets its column above a join.",
        issue: None,
        files: &["sql/src/session.rs"],
        parts: &["setting datafusion.optimizer.enable_leaf_expression_pushdown"],
        evidence: Evidence::Answers(&[answers(
            "SELECT a.n FROM (SELECT n, t, struct(t) AS r FROM '$/sides.csv') a RIGHT JOIN '$/sides.csv' b \
                 ON (a.t = b.t AND CAST(NULL AS BOOLEAN)) WHERE a.r['c0'] LIKE 'a%'",
            "error: No field named __datafusion_extracted_1",
            "no rows",
        )]),
    },
    Correction {
        name: "limit-heap",
        fault: "The rows of `ORDER BY … LIMIT n` are held in a heap, which cannot spill.",
        issue: None,
        files: &["sql/src/large_limits.rs"],
        parts: &["rule LargeLimits"],
        evidence: Evidence::Check(|| {
            crate::bare::is_out_of_memory("SELECT s FROM wide ORDER BY s LIMIT 900", 2 << 20)
        }),
    },
    Correction {
        name: "list-item-zero",
        fault: "`array_agg(x)[0]` becomes `nth_value(x, 0)`, which fails.",
        issue: None,
        files: &["sql/src/text_parts.rs"],
        parts: &["planner TextParts"],
        evidence: Evidence::Answers(&[answers(
            "SELECT array_agg(v ORDER BY v)[0] FROM '$/keys.csv'",
            "error: Nth value indices are 1 based",
            "∅",
        )]),
    },
    Correction {
        name: "list-keys",
        fault: "The keys of groups are taken for keys of the rows that `unnest` makes of their lists.",
        issue: None,
        files: &["sql/src/unnested.rs"],
        parts: &["planner Subqueries", "rule RowsOfLists"],
        evidence: Evidence::Answers(&[answers(
            "SELECT k, u FROM (SELECT k, unnest(array_agg(v)) AS u FROM '$/lists.csv' GROUP BY k) ORDER BY k, u",
            "1 3, 1 1, 1 3, 2 5, 2 4",
            "1 1, 1 3, 1 3, 2 4, 2 5",
        )]),
    },
    Correction {
        name: "list-memory",
        fault: "`array_agg` with an order keeps a value of its own for each row and each that it is ordered by, and \
                first values of lists and structs keep the whole batch.",
        issue: None,
        files: &["tables/src/lists.rs", "tables/src/first_values.rs"],
        parts: &[],
        evidence: Evidence::Untested("accumulators count less than they hold"),
    },
    Correction {
        name: "list-sums",
        fault: "`array_sum` and `array_avg` calculate with doubles.",
        issue: None,
        files: &["functions/src/numbers/lists.rs"],
        parts: &["function array_avg", "function array_sum"],
        evidence: Evidence::Answers(&[answers(
            "SELECT array_sum([9007199254740993, 1])",
            "9007199254740992.0",
            "9007199254740994",
        )]),
    },
    Correction {
        name: "lists-as-text",
        fault: "Functions of text are given the text of a list.",
        issue: None,
        files: &["sql/src/coercion.rs", "sql/src/replaced.rs"],
        parts: &["function character_length", "rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT length([1, 2, 3]), reverse([1, 2])",
            "9 ]2 ,1[",
            "3 [2, 1]",
        )]),
    },
    Correction {
        name: "memory-pool",
        fault: "DataFusion's pools let what asks first starve what asks later: the merge of what sorts have spilled \
                finds nothing.",
        issue: None,
        files: &["sql/src/pool.rs"],
        parts: &[],
        evidence: Evidence::Untested(
            "which step is refused depends on the moments at which they ask",
        ),
    },
    Correction {
        name: "nested-order",
        fault: "A null within a list or struct is the smallest value to a comparison, and the largest to a sort.",
        issue: None,
        files: &["sql/src/nested.rs"],
        parts: &["rule NestedOrder"],
        evidence: Evidence::Answers(&[
            answers("SELECT [1, NULL] > [1, 2]", "false", "true"),
            answers("SELECT array_sort([2, NULL, 1])", "[∅, 1, 2]", "[1, 2, ∅]"),
        ]),
    },
    Correction {
        name: "null-safe-joins",
        fault: "An equality beside `IS NOT DISTINCT FROM` becomes a key of a join in which null equals null.",
        issue: None,
        files: &["sql/src/null_safe.rs"],
        parts: &[
            "rule EliminateCrossJoin, left out",
            "rule ExtractEquijoinPredicate, left out",
            "rule JoinKeys",
        ],
        evidence: Evidence::Answers(&[answers(
            "SELECT count(*) FROM '$/numbers.csv' a JOIN '$/numbers.csv' b ON a.id IS NOT DISTINCT FROM b.id \
                 WHERE a.x = b.x",
            "4",
            "3",
        )]),
    },
    Correction {
        name: "nullif-type",
        fault: "`nullif(x, 0.5)` gives x in the type at which both are compared.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypes"],
        evidence: Evidence::Answers(&[answers(
            "SELECT nullif(id, 0.5) FROM '$/zero.csv'",
            "1.0, 2.0",
            "1, 2",
        )]),
    },
    Correction {
        name: "numbers-with-underscores",
        fault: "`1_000` is parsed as 1 in a column `_000`.",
        issue: None,
        files: &["sql/src/syntax/dialect.rs"],
        parts: &[],
        evidence: Evidence::Answers(&[answers("SELECT 1_000", "1", "1000")]),
    },
    Correction {
        name: "order-by-alias",
        fault: "In a calculated ORDER BY, a name that is a column and something else in the select list is the \
                latter. It is refused.",
        issue: None,
        files: &["sql/src/names.rs"],
        parts: &[],
        evidence: Evidence::Answers(&[answers(
            "SELECT -v AS v FROM '$/keys.csv' ORDER BY v + 0 LIMIT 1",
            "-2",
            "error: `v` in ORDER BY is a column, and something else",
        )]),
    },
    Correction {
        name: "pad-to-negative-length",
        fault: "`lpad` and `rpad` to a length below zero panic.",
        issue: None,
        files: &["sql/src/amplify.rs"],
        parts: &["function lpad", "function rpad"],
        evidence: Evidence::Answers(&[answers(
            "SELECT lpad('x', id - 5) || '.' FROM '$/zero.csv'",
            "panic",
            "., .",
        )]),
    },
    Correction {
        name: "percentile-weight",
        fault: "`percentile_cont` puts the weight between two values in steps of a millionth.",
        issue: None,
        files: &["sql/src/percentiles.rs"],
        parts: &["aggregate percentile_cont"],
        evidence: Evidence::Answers(&[answers(
            "SELECT percentile_cont(0.3333333) WITHIN GROUP (ORDER BY f) FROM (VALUES (0.0), (1.0)) AS t(f)",
            "0.333333",
            "0.3333333",
        )]),
    },
    Correction {
        name: "projection-pushdown",
        fault: "A projection moves below a join by sorting with a condition, which then is of other columns (mended \
                after 55.2), and calculations move below filters and limits.",
        issue: Some(24414),
        files: &["sql/src/projections.rs"],
        parts: &["rule ProjectionPushdown, left out", "rule Projections"],
        evidence: Evidence::Answers(&[
            answers(
                "!sorted SELECT count(*), sum(x + y) FROM (SELECT a.n AS x, b.n AS y FROM '$/sides.csv' a \
                 JOIN '$/other_sides.csv' b ON a.n = b.n AND b.m > a.m)",
                "panic",
                "3 12",
            ),
            answers(
                "SELECT x, CAST(6 * a / (b - 1) AS INT) FROM '$/overflow.csv' WHERE x > 0",
                "error: Divide by zero",
                "1 6",
            ),
        ]),
    },
    Correction {
        name: "ranks-without-sign",
        fault: "`row_number`, `rank`, `dense_rank` and `ntile` have no sign, so that `-rank()` is refused.",
        issue: None,
        files: &["sql/src/windows.rs"],
        parts: &["planner Ranks"],
        evidence: Evidence::Answers(&[answers(
            "SELECT -rank() OVER (ORDER BY id) FROM '$/zero.csv'",
            "error: only supports signed numeric",
            "-1, -2",
        )]),
    },
    Correction {
        name: "regular-expression-of-all",
        fault: "`s ~ '.*'` is false of a null, and `SIMILAR TO` takes its pattern for a regular expression that may \
                match anywhere.",
        issue: None,
        files: &["sql/src/patterns.rs"],
        parts: &["rule SimilarTo"],
        evidence: Evidence::Answers(&[
            answers("SELECT s ~ '.*' FROM '$/texts.csv'", "true, false", "true, ∅"),
            answers(
                "SELECT 'abc' SIMILAR TO 'b', 'abc' SIMILAR TO '%b%'",
                "true false",
                "false true",
            ),
        ]),
    },
    Correction {
        name: "rounding",
        fault: "`round` and `trunc` multiply by a power of ten, which makes infinities and other numbers.",
        issue: None,
        files: &["sql/src/replaced.rs", "sql/src/arithmetic.rs"],
        parts: &["function round", "function trunc", "rule CheckedArithmetic"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT round(1e300, 20), round(123.456, -400), trunc(1e300, 20)",
                "inf NaN inf",
                "1e300 0.0 1e300",
            ),
            answers(
                "SELECT x = round(x, 2) FROM (SELECT CAST(v AS DECIMAL(18, 4)) AS x FROM '$/lists.csv' LIMIT 1)",
                "error: Invalid comparison operation",
                "true",
            ),
        ]),
    },
    Correction {
        name: "series-of-timestamps",
        fault: "A series of timestamps is of nanoseconds, and null where these do not reach. It is refused.",
        issue: None,
        files: &["sql/src/amplify.rs"],
        parts: &["function generate_series", "function range"],
        evidence: Evidence::Untested(
            "timestamps of SQL are nanoseconds in bare DataFusion, and fail before",
        ),
    },
    Correction {
        name: "sliding-frames",
        fault: "Logical and bitwise aggregates take nothing back from a frame that slides, and refuse it.",
        issue: None,
        files: &["tables/src/sliding.rs"],
        parts: &[
            "aggregate bit_and",
            "aggregate bit_or",
            "aggregate bit_xor",
            "aggregate bool_and",
            "aggregate bool_or",
        ],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT bool_or(x > 5) OVER (ORDER BY id ROWS 1 PRECEDING) FROM '$/numbers.csv'",
                "error: `retract_batch` is not implemented",
                "false, false, false, true",
            ),
            answers(
                "SELECT bit_and(x) OVER (ORDER BY id ROWS 1 PRECEDING) FROM '$/numbers.csv'",
                "error: `retract_batch` is not implemented",
                "1, 0, 2, 7",
            ),
        ]),
    },
    Correction {
        name: "sorts-through-limits",
        fault: "A required order moves down through a limit, and the limit keeps other rows.",
        issue: None,
        files: &["sql/src/limit_barriers.rs"],
        parts: &["rule EnsureRequirements, left out", "rule LimitBarriers"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT b FROM (SELECT b FROM '$/numbers.csv' LIMIT 2 OFFSET 1) ORDER BY b",
                "2",
                "2, 9",
            ),
            answers(
                "SELECT b FROM (SELECT b FROM '$/numbers.csv' LIMIT 1 OFFSET 3) ORDER BY b",
                "no rows",
                "4",
            ),
        ]),
    },
    Correction {
        name: "span-parts",
        fault: "The hours of a difference of two times are all of its hours, and `epoch` has years of 360 days.",
        issue: None,
        files: &["sql/src/spans.rs"],
        parts: &["function date_part", "rule CommonTypes"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT extract(hour FROM (TIMESTAMP '2026-01-05 10:00:00' - TIMESTAMP '2026-01-01 08:00:00'))",
                "98",
                "2",
            ),
            answers(
                "SELECT extract(epoch FROM INTERVAL '1000 months')",
                "2592000000.0",
                "2629648800.0",
            ),
        ]),
    },
    Correction {
        name: "spill-channels",
        fault: "Two threads that spill several batches into one file each wait for one another for ever. Mended \
                after 55.2.",
        issue: Some(24883),
        files: &["sql/src/session.rs"],
        parts: &["setting datafusion.execution.max_spill_file_size_bytes"],
        evidence: Evidence::Untested(
            "the fault is a hang that depends on the moments at which threads run",
        ),
    },
    Correction {
        name: "statistics",
        fault: "`corr` of groups cancels to noise where the mean is large, and the last digits of variances depend \
                on the order of rows.",
        issue: None,
        files: &["tables/src/statistics.rs"],
        parts: &[
            "aggregate corr",
            "aggregate covar_pop",
            "aggregate covar_samp",
            "aggregate regr_avgx",
            "aggregate regr_avgy",
            "aggregate regr_count",
            "aggregate regr_intercept",
            "aggregate regr_r2",
            "aggregate regr_slope",
            "aggregate regr_sxx",
            "aggregate regr_sxy",
            "aggregate regr_syy",
            "aggregate stddev",
            "aggregate stddev_pop",
            "aggregate var",
            "aggregate var_pop",
        ],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT g, corr(x, y) FROM '$/near.csv' GROUP BY g",
                "1 NaN",
                "1 0.9607688273866145",
            ),
            answers(
                "SELECT var(x) FROM '$/near.csv'",
                "0.009999983906752163",
                "0.00999999284744509",
            ),
        ]),
    },
    Correction {
        name: "subqueries-of-unions",
        fault: "`IN (SELECT … UNION …)` beside OR names its column twice, and is refused.",
        issue: None,
        files: &["sql/src/subqueries.rs"],
        parts: &["rule Unknowns"],
        evidence: Evidence::Answers(&[answers(
            "SELECT v FROM '$/lists.csv' WHERE k IN (SELECT k FROM '$/lists.csv' UNION SELECT k FROM \
                 '$/lists.csv') OR v = 9 ORDER BY 1",
            "error: require unique expression names",
            "1, 3, 3, 4, 5",
        )]),
    },
    Correction {
        name: "sums",
        fault: "`sum` wraps around, sums of floats round at each step, and `avg` of integers is of doubles.",
        issue: None,
        files: &["tables/src/sums.rs", "tables/src/wide_sums.rs"],
        parts: &["aggregate avg", "aggregate sum"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) AS t(x)",
                "-9223372036854775808",
                "error: does not fit BIGINT",
            ),
            answers("SELECT sum(f) FROM '$/large.csv'", "0.0", "2.0"),
            answers(
                "SELECT avg(x) FROM (VALUES (9007199254740993), (1)) AS t(x)",
                "4503599627370496.0",
                "4503599627370497.0",
            ),
        ]),
    },
    Correction {
        name: "three-valued-subqueries",
        fault: "`IN (SELECT …)` below OR, NOT, CASE and IS NULL takes null for false, and is refused in a select list.",
        issue: None,
        files: &["sql/src/subqueries.rs"],
        parts: &["rule Unknowns"],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT id FROM '$/numbers.csv' WHERE x NOT IN (SELECT u FROM '$/with_null.csv') OR id = 4",
                "2, 3, 4",
                "4",
            ),
            answers(
                "SELECT id FROM '$/numbers.csv' WHERE (x IN (SELECT u FROM '$/with_null.csv')) IS NULL",
                "no rows",
                "2, 3, 4",
            ),
            answers(
                "SELECT x IN (SELECT u FROM '$/with_null.csv') FROM '$/numbers.csv'",
                "error: does not support logical expression InSubquery",
                "true, ∅, ∅, ∅",
            ),
        ]),
    },
    Correction {
        name: "time-functions",
        fault: "`date_trunc` goes through nanoseconds, `date_bin` and `date_part` are null beyond their range, and \
                `to_timestamp` takes the nearest time for a number that is none.",
        issue: None,
        files: &["sql/src/times.rs"],
        parts: &[
            "function date_bin",
            "function date_part",
            "function date_trunc",
            "function to_timestamp",
        ],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT date_trunc('day', CAST('1500-01-01 10:00:00' AS TIMESTAMP(6)))",
                "error: out of range",
                "1500-01-01T00:00:00",
            ),
            answers(
                "SELECT date_part('year', CAST(9000000000000 AS TIMESTAMP(0)))",
                "∅",
                "error: `date_part` knows the years",
            ),
            answers(
                "SELECT to_timestamp(1e300)",
                "2262-04-11T23:47:16.854775807",
                "error: are no time of the years 1677 to 2262",
            ),
        ]),
    },
    Correction {
        name: "time-without-seconds",
        fault: "`'2026-03-01 10:30'` is no timestamp.",
        issue: None,
        files: &["sql/src/kept_casts.rs"],
        parts: &["rule KeptCasts"],
        evidence: Evidence::Answers(&[answers(
            "SELECT CAST(s || '-01 10:30' AS TIMESTAMP) FROM (SELECT '2026-03' AS s)",
            "error: error parsing time",
            "2026-03-01T10:30:00",
        )]),
    },
    Correction {
        name: "union-branches",
        fault: "DataFusion refuses its own merge of sorted branches of a union, and the first rows of branches leave \
                out what a merge would have taken.",
        issue: Some(16171),
        files: &["sql/src/sorted_unions.rs"],
        parts: &["rule CheckedPlan", "rule SanityCheckPlan, left out"],
        evidence: Evidence::Answers(&[answers(
            "SELECT v AS a, v AS b FROM '$/keys.csv' UNION ALL SELECT v AS c, v AS d FROM '$/keys.csv' \
                 GROUP BY 1, 2 ORDER BY a, b DESC",
            "error: SanityCheckPlan",
            "1 1, 1 1, 2 2, 2 2",
        )]),
    },
    Correction {
        name: "union-order",
        fault: "Rows of all branches of a union come as they are ready, on one thread too.",
        issue: None,
        files: &["sql/src/unions_in_order.rs"],
        parts: &["rule UnionsInOrder"],
        evidence: Evidence::Untested(
            "which branch is ready first depends on the moments at which tasks run",
        ),
    },
    Correction {
        name: "using-columns",
        fault: "A column that a join is USING is ambiguous in WHERE, and of a RIGHT or FULL join the left side's.",
        issue: None,
        files: &["sql/src/using.rs", "sql/src/dialects/outer_using.rs"],
        parts: &[],
        evidence: Evidence::Answers(&[
            answers(
                "SELECT a.v FROM '$/keys.csv' a JOIN '$/keys.csv' b USING (k) WHERE k > 'a'",
                "error: Ambiguous reference to unqualified field k",
                "2",
            ),
            answers(
                "SELECT k FROM (SELECT 1 AS k) a RIGHT JOIN (SELECT 2 AS k) b USING (k)",
                "∅",
                "2",
            ),
        ]),
    },
    Correction {
        name: "window-memory",
        fault: "A window over whole partitions holds all of its input, one over equal rows all equals, and neither \
                asks the memory pool.",
        issue: None,
        files: &["sql/src/windows/whole_partitions.rs", "sql/src/windows/running_totals.rs"],
        parts: &["rule EqualsAtOnce", "rule OnePartitionAtATime"],
        evidence: Evidence::Check(|| {
            crate::bare::peak_bytes("SELECT s, count(*) OVER () FROM wide")
                < crate::bare::WIDE_BYTES / 10
                && crate::bare::peak_bytes("SELECT s, sum(n) OVER (ORDER BY one) FROM wide")
                    < crate::bare::WIDE_BYTES / 10
        }),
    },
    Correction {
        name: "window-text",
        fault: "Text views that a window appends to one another keep every buffer that they ever pointed into.",
        issue: None,
        files: &["sql/src/windows/text.rs"],
        parts: &["rule CopiedText"],
        evidence: Evidence::Untested(
            "the buffers that a running window holds are not visible from outside",
        ),
    },
];

/// Parts of the session that correct nothing, each with its purpose.
pub(crate) const ADDITIONS: &[(&str, &str)] = &[
    ("aggregate approx_distinct", "one implementation for each name, with its error"),
    ("aggregate approx_median", "one implementation for each name, with its error"),
    ("aggregate approx_percentile_cont", "one implementation for each name, with its error"),
    ("aggregate median", "one implementation on each path, whose values spill"),
    ("function from_unixtime", "formats and zones as Spark has them"),
    ("function levenshtein", "computed once for each text of a batch"),
    ("function nvl", "any type, and bytes"),
    ("function regexp_count", "computed once for each text of a batch"),
    ("function regexp_instr", "computed once for each text of a batch"),
    ("function regexp_like", "computed once for each text of a batch"),
    ("function regexp_match", "computed once for each text of a batch"),
    ("function to_char", "patterns of PostgreSQL, and of numbers"),
    ("function to_date", "patterns of PostgreSQL"),
    ("function to_timestamp_micros", "patterns of PostgreSQL"),
    ("function to_timestamp_millis", "patterns of PostgreSQL"),
    ("function to_timestamp_nanos", "patterns of PostgreSQL"),
    ("function to_timestamp_seconds", "patterns of PostgreSQL"),
    ("planner Multiples", "a number times an interval"),
    ("planner Quotients", "`/` of two integers is a DOUBLE"),
    ("rule AsOfJoins", "ASOF joins"),
    ("rule DistinctCounts", "distinct counts as groups, which merge and spill"),
    ("rule FanOutSorts", "sorts by `tidemill-sort`"),
    ("rule FilteredWindows", "a FILTER of a window as an argument, for the other window rules"),
    ("rule InParts", "windows over partitions that are put apart by hash"),
    ("rule JoinsInMemory", "joins that fit the budget are held, others sorted"),
    ("rule KeepFirstRows", "the first rows of a group as an aggregate"),
    ("rule KnownToJoins", "estimates of sources for joins"),
    ("rule SetsOfColumns", "grouping sets keep their names when types are settled"),
    ("rule SingleDistinctToGroupBy, left out", "DistinctCounts calls it"),
    ("setting datafusion.execution.batch_size", "smaller batches for a small budget"),
    ("setting datafusion.execution.sort_in_place_threshold_bytes", "a share of the budget"),
    ("setting datafusion.execution.sort_spill_reservation_bytes", "a share of the budget"),
];
