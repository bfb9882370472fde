//! The table of corrections of DataFusion. A new correction needs an entry here.

/// A fault of DataFusion and its correction.
pub(crate) struct Correction {
    /// Stable name, used in the documentation.
    pub name: &'static str,
    /// The faulty behaviour of DataFusion, in a sentence.
    pub fault: &'static str,
    /// Number of the DataFusion issue, if one is known.
    pub issue: Option<u32>,
    /// The files that correct the fault, relative to `crates`. They can be removed once DataFusion is fixed.
    pub files: &'static [&'static str],
    /// Parts of the session that correct the fault, named as in [`session_parts`](crate::session_parts::session_parts).
    pub parts: &'static [&'static str],
    /// The test that detects the fault.
    pub evidence: Evidence,
}

/// A test that DataFusion still has a fault.
pub(crate) enum Evidence {
    /// Queries on the [fixtures](FIXTURES).
    Queries(&'static [ExpectedAnswers]),
    /// A function that returns true if bare DataFusion has the fault.
    Check(fn() -> bool),
    /// No test, for this reason.
    Untested(&'static str),
}

/// A query, the wrong answer of bare DataFusion, and Tidemill's answer. An answer that begins with `error: ` matches
/// every error whose message contains the rest. A query that begins with `!sorted ` makes bare DataFusion prefer
/// sort-merge joins.
pub(crate) struct ExpectedAnswers {
    pub sql: &'static str,
    pub bare_answer: &'static str,
    pub tidemill_answer: &'static str,
}

const fn answers(sql: &'static str, bare: &'static str, ours: &'static str) -> ExpectedAnswers {
    ExpectedAnswers { sql, bare_answer: bare, tidemill_answer: ours }
}

/// Names and contents of the files that the queries read.
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

/// All corrections, sorted by name.
pub(crate) const CORRECTIONS: &[Correction] = &[
    Correction {
        name: "aggregate-orders",
        fault: "A query with text aggregates or `nth_value` in different orders is refused, and an aggregate without \
            an order takes the order of its neighbour.",
        issue: None,
        files: &[
            "tables/src/aggregates/order_sensitive_aggregates.rs",
            "tables/src/aggregates/row_counter.rs",
        ],
        parts: &[],
        evidence: Evidence::Queries(&[
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
        fault: "`x = ANY(list)` is false instead of null if the list has a null, and `array_has` is null instead of \
            false for a list with a null.",
        issue: None,
        files: &["dialect/src/translation/operators.rs", "sql/src/coercion.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[
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
        files: &["sql/src/null_subquery_conditions.rs"],
        parts: &["rule NullSubqueryConditionsRule"],
        evidence: Evidence::Queries(&[answers(
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
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT array_slice([1, 2, 3], 1, 3000000000)",
            "error: invalid index: 3000000000",
            "[1, 2, 3]",
        )]),
    },
    Correction {
        name: "bytes",
        fault: "Functions read bytes as text, and find no common type for bytes in different Arrow layouts.",
        issue: None,
        files: &["sql/src/bytea.rs", "sql/src/replacement_functions.rs"],
        parts: &[
            "function bit_length",
            "function character_length",
            "function coalesce",
            "function octet_length",
            "planner BinaryListPlanner",
            "rule CommonTypeRule",
        ],
        evidence: Evidence::Queries(&[
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
        fault: "A correlated scalar subquery ignores a cast in its equality and groups by the column below, and \
            refuses other expressions there.",
        issue: None,
        files: &["sql/src/null_subquery_conditions.rs"],
        parts: &["rule NullSubqueryConditionsRule"],
        evidence: Evidence::Queries(&[
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
        fault: "`ceil` and `floor` of a DECIMAL overflow if the result has one more digit.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT ceil(CAST(9.99 AS DECIMAL(3, 2)))",
            "error: Decimal overflow",
            "10.00",
        )]),
    },
    Correction {
        name: "clocks",
        fault: "A local time that a zone's clocks show twice, or never, fails the query, and a cast of a time with a \
            zone uses the clocks of UTC.",
        issue: None,
        files: &["sql/src/local_times.rs"],
        parts: &["rule LocalTimeRule"],
        evidence: Evidence::Queries(&[
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
        fault: "A cast in a comparison with a constant is removed, even if it loses values or rounds times.",
        issue: None,
        files: &["sql/src/opaque_casts.rs"],
        parts: &["rule OpaqueCastRule"],
        evidence: Evidence::Queries(&[
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
        fault: "The order of `length(s) > 5` and of `date + function(x)` is lost, and DataFusion refuses its own plan \
            of a window over such keys.",
        issue: None,
        files: &["sql/src/computed_keys.rs"],
        parts: &["rule ComputedKeyRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT count(*) OVER (PARTITION BY length(s) > 5) FROM '$/texts.csv'",
            "error: SanityCheckPlan",
            "1, 1",
        )]),
    },
    Correction {
        name: "conditions-above-groups",
        fault: "A condition without columns moves below an aggregation that returns a row even over no rows, and two \
            differently written equalities of one column are taken for a contradiction.",
        issue: None,
        files: &["sql/src/filter_pushdown.rs"],
        parts: &["rule FilterPushdownRule", "rule PushDownFilter, left out"],
        evidence: Evidence::Queries(&[
            answers("SELECT count(*) FROM '$/numbers.csv' HAVING random() < 0", "0", "no rows"),
            answers(
                "SELECT a.v FROM '$/keys.csv' a JOIN '$/keys.csv' b ON a.v = b.v AND 'a' = b.k WHERE b.k = 'a'",
                "no rows",
                "1",
            ),
        ]),
    },
    Correction {
        name: "constant-casts",
        fault: "A filter by a cast that is equal to a constant makes the column a constant, by which nothing is sorted.",
        issue: None,
        files: &["sql/src/opaque_casts.rs", "sql/src/short_circuit_evaluation.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT v FROM '$/events.csv' WHERE CAST(ts AS DATE) = DATE '2026-01-01' ORDER BY ts DESC",
            "1, 2",
            "2, 1",
        )]),
    },
    Correction {
        name: "constant-in-subquery",
        fault: "`1 IN (SELECT v …)` loses its condition, and `NOT IN` of a correlated subquery applies to the \
            correlation as well.",
        issue: None,
        files: &["sql/src/null_subquery_conditions.rs"],
        parts: &["rule NullSubqueryConditionsRule"],
        evidence: Evidence::Queries(&[
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
        fault: "A date is compared with a number as the number of days since 1970.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT day > 1 FROM '$/days.csv'",
            "true, true",
            "error: a DATE and a BIGINT have nothing in common",
        )]),
    },
    Correction {
        name: "date-beside-timestamp",
        fault: "The common type of dates and timestamps has nanoseconds, which end in 2262.",
        issue: None,
        files: &[
            "sql/src/coercion.rs",
            "sql/src/common_type.rs",
            "sql/src/numeric_conversions.rs",
            "sql/src/time_casts.rs",
        ],
        parts: &["planner TimeOperandPlanner", "rule CommonTypeRule"],
        evidence: Evidence::Queries(&[
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
        files: &["sql/src/coercion.rs", "sql/src/common_type.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT d * 1e-20 = CAST(0 AS DECIMAL(10, 2)) FROM '$/values.csv'",
            "true, true",
            "false, false",
        )]),
    },
    Correction {
        name: "decimal-literals",
        fault: "A number with a decimal point becomes a DOUBLE before any calculation.",
        issue: None,
        files: &["sql/src/literal_arithmetic.rs", "dialect/src/decimal_literals.rs"],
        parts: &["planner LiteralArithmeticPlanner"],
        evidence: Evidence::Queries(&[
            answers("SELECT 0.06 + 0.01", "0.06999999999999999", "0.07"),
            answers("SELECT 9007199254740993.0", "9007199254740992.0", "9007199254740993"),
        ]),
    },
    Correction {
        name: "decimal-quotients",
        fault: "A quotient of decimals is cut behind its last place.",
        issue: None,
        files: &["sql/src/arithmetic.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT CAST(2 AS DECIMAL(18, 0)) / CAST(3 AS DECIMAL(18, 0))",
            "0.6666",
            "0.6667",
        )]),
    },
    Correction {
        name: "distinct-list-orders",
        fault: "`array_agg(DISTINCT x ORDER BY x)` takes the direction of another list's order.",
        issue: None,
        files: &["dialect/src/translation/distinct_lists.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
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
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT DISTINCT ON (k) k, v FROM '$/keys.csv' ORDER BY k, k DESC, v",
            "error: panicked",
            "a 1, b 2",
        )]),
    },
    Correction {
        name: "duplicate-names",
        fault: "A column and its cast have the same name, and the planner refuses both in one select list.",
        issue: None,
        files: &["sql/src/statement_planning.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT v, CAST(v AS TEXT) FROM '$/keys.csv'",
            "error: require unique expression names",
            "1 1, 2 2",
        )]),
    },
    Correction {
        name: "empty-field-names",
        fault: "A struct field whose name is empty cannot be accessed.",
        issue: None,
        files: &["sql/src/empty_field_names.rs"],
        parts: &["planner EmptyFieldNamePlanner"],
        evidence: Evidence::Queries(&[answers(
            // SQL makes no struct with such a field; a JSON file does.
            "SELECT named_struct('a', 7)['']",
            "error: Field name must be a non-empty string",
            "error: unknown field ``",
        )]),
    },
    Correction {
        name: "empty-subquery",
        fault: "A scalar subquery without rows is not null if its column is not nullable.",
        issue: None,
        files: &["sql/src/null_subquery_conditions.rs"],
        parts: &["rule NullSubqueryConditionsRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT (SELECT 1 WHERE false) IS NULL",
            "false",
            "true",
        )]),
    },
    Correction {
        name: "expression-memory",
        fault: "The result of an expression over a batch, such as `repeat(s, 10)`, is not charged to the memory pool, \
            whatever its size.",
        issue: None,
        files: &["operators/src/expression_memory.rs", "operators/src/amplifying_functions.rs"],
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
            "rule ExpressionMemoryRule",
        ],
        evidence: Evidence::Check(|| {
            crate::bare::peak_bytes("SELECT repeat(s, 10) FROM wide") < crate::bare::WIDE_BYTES / 10
        }),
    },
    Correction {
        name: "filter-pushdown",
        fault: "The physical rule moves a condition below a join by unqualified column names, and picks the wrong one \
            of two columns with the same name. Fixed after 55.2.",
        issue: Some(25296),
        files: &["sql/src/session.rs"],
        parts: &["rule FilterPushdown, left out"],
        evidence: Evidence::Queries(&[answers(
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
        files: &["sql/src/opaque_casts.rs"],
        parts: &["rule OpaqueCastRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT CAST(d * 1e300 AS FLOAT) FROM '$/values.csv'",
            "inf, inf",
            "error: does not fit FLOAT",
        )]),
    },
    Correction {
        name: "float-extremes",
        fault: "`min` and `max` of grouped floats ignore a NaN.",
        issue: None,
        files: &["sql/src/float_order.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT 1, min(f), max(f) FROM (SELECT CASE WHEN id = 1 THEN 'NaN'::DOUBLE ELSE f END AS f \
                 FROM '$/floats.csv') GROUP BY 1",
            "1 0.0 1.5",
            "1 0.0 NaN",
        )]),
    },
    Correction {
        name: "float-order",
        fault: "Windows, sorts and lists distinguish −0.0 from 0.0, and order a NaN above or below all numbers by its \
            sign.",
        issue: None,
        files: &["sql/src/float_order.rs"],
        parts: &["rule FloatOrderRule"],
        evidence: Evidence::Queries(&[
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
        fault: "Frames round their distances to the key's type, take a number beside a date for months, overflow at \
            the largest number of rows, and refuse struct keys.",
        issue: None,
        files: &["sql/src/window_frames.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[
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
            by it are removed.",
        issue: None,
        files: &["sql/src/grouping_sets.rs"],
        parts: &["rule GroupingSetBarrierRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT y, count(*) FROM (SELECT 'x' AS y FROM '$/values.csv') GROUP BY ROLLUP (y) ORDER BY y",
            "∅ 2, x 2",
            "x 2, ∅ 2",
        )]),
    },
    Correction {
        name: "guards",
        fault: "Both sides of AND and OR, and all branches of a CASE of conditions, are evaluated for a whole batch, \
            and casts of constants even without rows.",
        issue: None,
        files: &["sql/src/short_circuit_evaluation.rs"],
        parts: &[
            "planner DefaultQueryPlanner, left out",
            "planner ShortCircuitPlanner",
            "rule CasePreservationRule",
        ],
        evidence: Evidence::Queries(&[
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
        fault: "`x IN (…)` with values that are not constants is evaluated once for all rows, and two lists for one \
            value are combined by their text.",
        issue: None,
        files: &["sql/src/in_lists.rs"],
        parts: &["rule ConstantListRule"],
        evidence: Evidence::Queries(&[
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
        name: "instants",
        fault: "`now()` and `to_timestamp` of a number have no zone, so that `AT TIME ZONE` takes them for local time, and \
            `to_timestamp` clamps a number beyond the range of timestamps.",
        issue: None,
        files: &["sql/src/instant_functions.rs"],
        parts: &[
            "function now",
            "function to_timestamp",
            "function to_timestamp_micros",
            "function to_timestamp_millis",
            "function to_timestamp_nanos",
            "function to_timestamp_seconds",
        ],
        evidence: Evidence::Queries(&[
            answers(
                "SELECT to_timestamp(1767225600) AT TIME ZONE 'Europe/Berlin'",
                "2026-01-01T00:00:00+01:00",
                "2026-01-01T01:00:00+01:00",
            ),
            answers(
                "SELECT now() - now() AT TIME ZONE 'Asia/Tokyo' = INTERVAL '0 hours'",
                "false",
                "true",
            ),
            answers(
                "SELECT to_timestamp(1e300)",
                "2262-04-11T23:47:16.854775807",
                "error: are no time of the years 1677 to 2262",
            ),
        ]),
    },
    Correction {
        name: "integer-beside-float",
        fault: "A BIGINT beside a FLOAT keeps 24 bits, in comparisons, CASE and UNION.",
        issue: None,
        files: &["sql/src/coercion.rs", "sql/src/common_type.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[
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
        fault: "Integer arithmetic wraps around.",
        issue: None,
        files: &["sql/src/arithmetic.rs"],
        parts: &["rule CheckedArithmeticRule"],
        evidence: Evidence::Queries(&[
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
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT day + INTERVAL '1 hour' FROM '$/days.csv'",
            "2026-01-01, 2026-01-02",
            "2026-01-01T01:00:00, 2026-01-02T01:00:00",
        )]),
    },
    Correction {
        name: "is-distinct-precedence",
        fault: "`a IS NOT DISTINCT FROM b AND c` is parsed as `a IS NOT DISTINCT FROM (b AND c)`.",
        issue: None,
        files: &["dialect/src/syntax/dialect.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT v FROM '$/keys.csv' WHERE v IS NOT DISTINCT FROM 1 AND k = 'a'",
            "error: Cannot infer common argument type for logical boolean operation",
            "1",
        )]),
    },
    Correction {
        name: "is-true-of-outer-rows",
        fault: "`x IS TRUE` is not nullable in the logical plan but nullable in the physical plan, which is refused \
            if it is a group key above a join.",
        issue: None,
        files: &["sql/src/session.rs"],
        parts: &["setting datafusion.execution.skip_physical_aggregate_schema_check"],
        evidence: Evidence::Queries(&[answers(
            "SELECT c FROM (SELECT b.flag IS TRUE AS c FROM '$/flags.csv' a JOIN '$/flags.csv' b \
                 ON a.id = b.id) GROUP BY 1 ORDER BY 1",
            "error: Physical input schema should be the same",
            "false, true",
        )]),
    },
    Correction {
        name: "lag-default",
        fault: "The default of `lag` and `lead` is cast to the column's type.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT lag(x, 1, 0.5) OVER (ORDER BY id) FROM '$/numbers.csv'",
            "0, 1, 2, ∅",
            "0.5, 1.0, 2.0, ∅",
        )]),
    },
    Correction {
        name: "lead-ignore-nulls",
        fault: "`lead` by several rows with IGNORE NULLS skips values. Tidemill refuses it.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT lead(x, 2) IGNORE NULLS OVER (ORDER BY id) FROM '$/gaps.csv'",
            "3, 3, 3, 4, ∅, ∅, ∅, ∅",
            "error: `lead` by more than one row takes no IGNORE NULLS",
        )]),
    },
    Correction {
        name: "leaf-expressions",
        fault: "The rule that extracts struct fields early loses its column above a join.",
        issue: None,
        files: &["sql/src/session.rs"],
        parts: &["setting datafusion.optimizer.enable_leaf_expression_pushdown"],
        evidence: Evidence::Queries(&[answers(
            "SELECT a.n FROM (SELECT n, t, struct(t) AS r FROM '$/sides.csv') a RIGHT JOIN '$/sides.csv' b \
                 ON (a.t = b.t AND CAST(NULL AS BOOLEAN)) WHERE a.r['c0'] LIKE 'a%'",
            "error: No field named __datafusion_extracted_1",
            "no rows",
        )]),
    },
    Correction {
        name: "limit-heap",
        fault: "`ORDER BY … LIMIT n` holds its rows in a heap, which cannot spill.",
        issue: None,
        files: &["sql/src/large_limits.rs"],
        parts: &["rule LargeLimitRule"],
        evidence: Evidence::Check(|| {
            crate::bare::is_out_of_memory("SELECT s FROM wide ORDER BY s LIMIT 900", 2 << 20)
        }),
    },
    Correction {
        name: "list-item-zero",
        fault: "`array_agg(x)[0]` becomes `nth_value(x, 0)`, which fails.",
        issue: None,
        files: &["sql/src/text_subscripts.rs"],
        parts: &["planner TextSubscriptPlanner"],
        evidence: Evidence::Queries(&[answers(
            "SELECT array_agg(v ORDER BY v)[0] FROM '$/keys.csv'",
            "error: Nth value indices are 1 based",
            "∅",
        )]),
    },
    Correction {
        name: "list-keys",
        fault: "The keys of groups are taken for keys of the rows that `unnest` makes from the groups' lists.",
        issue: None,
        files: &["sql/src/unnest_keys.rs"],
        parts: &["planner UnnestSubqueryPlanner", "rule UnnestKeysRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT k, u FROM (SELECT k, unnest(array_agg(v)) AS u FROM '$/lists.csv' GROUP BY k) ORDER BY k, u",
            "1 3, 1 1, 1 3, 2 5, 2 4",
            "1 1, 1 3, 1 3, 2 4, 2 5",
        )]),
    },
    Correction {
        name: "list-memory",
        fault: "`array_agg` with an order keeps a separate value for each row and each of its sort keys, and first \
            values of lists and structs keep their whole batch.",
        issue: None,
        files: &["tables/src/aggregates/limited_lists.rs", "tables/src/aggregates/first_values.rs"],
        parts: &[],
        evidence: Evidence::Untested("accumulators report less memory than they hold"),
    },
    Correction {
        name: "list-sums",
        fault: "`array_sum` and `array_avg` calculate in DOUBLE.",
        issue: None,
        files: &["functions/src/nested/sums.rs"],
        parts: &["function array_avg", "function array_sum"],
        evidence: Evidence::Queries(&[answers(
            "SELECT array_sum([9007199254740993, 1])",
            "9007199254740992.0",
            "9007199254740994",
        )]),
    },
    Correction {
        name: "lists-as-text",
        fault: "Text functions receive the text of a list.",
        issue: None,
        files: &["sql/src/coercion.rs", "sql/src/replacement_functions.rs"],
        parts: &["function character_length", "rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT length([1, 2, 3]), reverse([1, 2])",
            "9 ]2 ,1[",
            "3 [2, 1]",
        )]),
    },
    Correction {
        name: "memory-pool",
        fault: "In DataFusion's pools early consumers starve later ones: the merge of spilled sorts gets no memory.",
        issue: None,
        files: &["operators/src/memory_pool.rs"],
        parts: &[],
        evidence: Evidence::Untested("the step that is refused depends on timing"),
    },
    Correction {
        name: "nested-order",
        fault: "A null within a list or struct is the smallest value in a comparison, and the largest in a sort.",
        issue: None,
        files: &["sql/src/nested_order.rs"],
        parts: &["rule NestedOrderRule"],
        evidence: Evidence::Queries(&[
            answers("SELECT [1, NULL] > [1, 2]", "false", "true"),
            answers("SELECT array_sort([2, NULL, 1])", "[∅, 1, 2]", "[1, 2, ∅]"),
        ]),
    },
    Correction {
        name: "null-beside-cast",
        fault: "`TRY_CAST(x AS t) IS DISTINCT FROM NULL` loses the cast.",
        issue: None,
        files: &["sql/src/opaque_casts.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT TRY_CAST(s AS BIGINT) IS DISTINCT FROM NULL FROM '$/texts.csv'",
            "true, false",
            "false, false",
        )]),
    },
    Correction {
        name: "null-safe-joins",
        fault: "An equality beside `IS NOT DISTINCT FROM` becomes a join key for which null equals null.",
        issue: None,
        files: &["sql/src/null_safe_joins.rs"],
        parts: &[
            "rule EliminateCrossJoin, left out",
            "rule ExtractEquijoinPredicate, left out",
            "rule JoinKeyRule",
        ],
        evidence: Evidence::Queries(&[answers(
            "SELECT count(*) FROM '$/numbers.csv' a JOIN '$/numbers.csv' b ON a.id IS NOT DISTINCT FROM b.id \
                 WHERE a.x = b.x",
            "4",
            "3",
        )]),
    },
    Correction {
        name: "nullif-type",
        fault: "`nullif(x, 0.5)` returns x in the common type of both arguments.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &["rule CommonTypeRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT nullif(id, 0.5) FROM '$/zero.csv'",
            "1.0, 2.0",
            "1, 2",
        )]),
    },
    Correction {
        name: "numbers-with-underscores",
        fault: "`1_000` is parsed as 1 in a column `_000`.",
        issue: None,
        files: &["dialect/src/syntax/dialect.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers("SELECT 1_000", "1", "1000")]),
    },
    Correction {
        name: "order-by-alias",
        fault: "In an ORDER BY expression, a name that is both a column and an alias of another expression means the \
            alias. Tidemill refuses it.",
        issue: None,
        files: &["dialect/src/column_names.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT -v AS v FROM '$/keys.csv' ORDER BY v + 0 LIMIT 1",
            "-2",
            "error: `v` in ORDER BY is a column, and something else",
        )]),
    },
    Correction {
        name: "pad-to-negative-length",
        fault: "`lpad` and `rpad` panic at a negative length.",
        issue: None,
        files: &["operators/src/amplifying_functions.rs"],
        parts: &["function lpad", "function rpad"],
        evidence: Evidence::Queries(&[answers(
            "SELECT lpad('x', id - 5) || '.' FROM '$/zero.csv'",
            "panic",
            "., .",
        )]),
    },
    Correction {
        name: "percentile-weight",
        fault: "`percentile_cont` rounds the weight between two values to a millionth.",
        issue: None,
        files: &["sql/src/percentiles.rs"],
        parts: &["aggregate percentile_cont"],
        evidence: Evidence::Queries(&[answers(
            "SELECT percentile_cont(0.3333333) WITHIN GROUP (ORDER BY f) FROM (VALUES (0.0), (1.0)) AS t(f)",
            "0.333333",
            "0.3333333",
        )]),
    },
    Correction {
        name: "projection-pushdown",
        fault: "A projection moves below a sort-merge join with a condition, which then refers to other columns \
            (fixed after 55.2), and calculations move below filters and limits.",
        issue: Some(24414),
        files: &["sql/src/projection_pushdown.rs"],
        parts: &["rule ProjectionPushdown, left out", "rule ProjectionPushdownRule"],
        evidence: Evidence::Queries(&[
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
        fault: "`row_number`, `rank`, `dense_rank` and `ntile` are unsigned, so that `-rank()` is refused.",
        issue: None,
        files: &["operators/src/windows.rs"],
        parts: &["planner SignedRankPlanner"],
        evidence: Evidence::Queries(&[answers(
            "SELECT -rank() OVER (ORDER BY id) FROM '$/zero.csv'",
            "error: only supports signed numeric",
            "-1, -2",
        )]),
    },
    Correction {
        name: "regular-expression-of-all",
        fault: "`s ~ '.*'` is false for a null, and `SIMILAR TO` takes its pattern for a regular expression that may \
            match anywhere.",
        issue: None,
        files: &["sql/src/similar_to.rs"],
        parts: &["rule SimilarToRule"],
        evidence: Evidence::Queries(&[
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
        fault: "`round` and `trunc` multiply by a power of ten, which gives infinities and inexact numbers.",
        issue: None,
        files: &["sql/src/replacement_functions.rs", "sql/src/arithmetic.rs"],
        parts: &["function round", "function trunc", "rule CheckedArithmeticRule"],
        evidence: Evidence::Queries(&[
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
        fault: "A series of timestamps has nanoseconds, and is null beyond their range. Tidemill refuses it.",
        issue: None,
        files: &["operators/src/amplifying_functions.rs"],
        parts: &["function generate_series", "function range"],
        evidence: Evidence::Untested(
            "in bare DataFusion SQL timestamps have nanoseconds, and fail earlier",
        ),
    },
    Correction {
        name: "sliding-frames",
        fault: "Logical and bitwise aggregates cannot remove rows from a sliding frame, and refuse it.",
        issue: None,
        files: &["tables/src/aggregates/sliding_bitwise.rs"],
        parts: &[
            "aggregate bit_and",
            "aggregate bit_or",
            "aggregate bit_xor",
            "aggregate bool_and",
            "aggregate bool_or",
        ],
        evidence: Evidence::Queries(&[
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
        parts: &["rule EnsureRequirements, left out", "rule LimitBarrierRule"],
        evidence: Evidence::Queries(&[
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
        fault: "The hours of a difference of two times include its days, and `epoch` counts 360 days per year.",
        issue: None,
        files: &["sql/src/interval_parts.rs"],
        parts: &["function date_part", "rule CommonTypeRule"],
        evidence: Evidence::Queries(&[
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
        fault: "Two threads that each spill several batches into one file wait for each other forever. Fixed after \
            55.2.",
        issue: Some(24883),
        files: &["sql/src/session.rs"],
        parts: &["setting datafusion.execution.max_spill_file_size_bytes"],
        evidence: Evidence::Untested("the fault is a hang that depends on timing"),
    },
    Correction {
        name: "statistics",
        fault: "`corr` of groups loses all precision if the mean is large, and the last digits of variances depend on \
            the order of rows.",
        issue: None,
        files: &["tables/src/aggregates/statistics.rs"],
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
        evidence: Evidence::Queries(&[
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
        fault: "`IN (SELECT … UNION …)` beside OR names a column twice, and is refused.",
        issue: None,
        files: &["sql/src/null_subquery_conditions.rs"],
        parts: &["rule NullSubqueryConditionsRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT v FROM '$/lists.csv' WHERE k IN (SELECT k FROM '$/lists.csv' UNION SELECT k FROM \
                 '$/lists.csv') OR v = 9 ORDER BY 1",
            "error: require unique expression names",
            "1, 3, 3, 4, 5",
        )]),
    },
    Correction {
        name: "subquery-order",
        fault: "An ORDER BY of a subquery is dropped, so that a LIMIT above it takes other rows.",
        issue: None,
        files: &["sql/src/subquery_sorts.rs"],
        parts: &[
            "rule SubquerySortRemovalRule",
            "setting datafusion.sql_parser.enable_subquery_sort_elimination",
        ],
        evidence: Evidence::Queries(&[answers(
            "SELECT v FROM (SELECT v FROM '$/keys.csv' ORDER BY v DESC) LIMIT 1",
            "1",
            "2",
        )]),
    },
    Correction {
        name: "sums",
        fault: "`sum` wraps around, float sums round at each step, and `avg` of integers calculates in DOUBLE.",
        issue: None,
        files: &["tables/src/aggregates/sum_udafs.rs", "tables/src/aggregates/wide_sums.rs"],
        parts: &["aggregate avg", "aggregate sum"],
        evidence: Evidence::Queries(&[
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
        name: "three-numbers",
        fault: "An integer, a DOUBLE and a DECIMAL in one `IN` are compared as decimals of 15 places.",
        issue: None,
        files: &["sql/src/coercion.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT id FROM '$/zero.csv' WHERE x IN (CAST(1e-16 AS DOUBLE), CAST(1.5 AS DECIMAL(5, 1)))",
            "1",
            "no rows",
        )]),
    },
    Correction {
        name: "three-valued-subqueries",
        fault: "`IN (SELECT …)` below OR, NOT, CASE and IS NULL treats null as false, and is refused in a select \
            list.",
        issue: None,
        files: &["sql/src/null_subquery_conditions.rs"],
        parts: &["rule NullSubqueryConditionsRule"],
        evidence: Evidence::Queries(&[
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
        name: "time-digits",
        fault: "A text of digits alone is a TIME of nanoseconds.",
        issue: None,
        files: &["sql/src/opaque_casts.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[answers(
            "SELECT CAST('2024' AS TIME)",
            "00:00:00.000002024",
            "error: does not fit TIME",
        )]),
    },
    Correction {
        name: "time-functions",
        fault: "`date_trunc` converts to nanoseconds, and `date_bin` and `date_part` are null beyond their range.",
        issue: None,
        files: &["sql/src/date_functions.rs"],
        parts: &["function date_bin", "function date_part", "function date_trunc"],
        evidence: Evidence::Queries(&[
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
        ]),
    },
    Correction {
        name: "time-without-seconds",
        fault: "`'2026-03-01 10:30'` is not accepted as a timestamp.",
        issue: None,
        files: &["sql/src/opaque_casts.rs"],
        parts: &["rule OpaqueCastRule"],
        evidence: Evidence::Queries(&[answers(
            "SELECT CAST(s || '-01 10:30' AS TIMESTAMP) FROM (SELECT '2026-03' AS s)",
            "error: error parsing time",
            "2026-03-01T10:30:00",
        )]),
    },
    Correction {
        name: "union-branches",
        fault: "DataFusion refuses its own merge of a union's sorted branches, and limits on branches drop rows that \
            the merge would have taken.",
        issue: Some(16171),
        files: &["sql/src/sorted_unions.rs"],
        parts: &["rule SortedUnionSanityRule", "rule SanityCheckPlan, left out"],
        evidence: Evidence::Queries(&[answers(
            "SELECT v AS a, v AS b FROM '$/keys.csv' UNION ALL SELECT v AS c, v AS d FROM '$/keys.csv' \
                 GROUP BY 1, 2 ORDER BY a, b DESC",
            "error: SanityCheckPlan",
            "1 1, 1 1, 2 2, 2 2",
        )]),
    },
    Correction {
        name: "union-order",
        fault: "The branches of a union output rows in no fixed order, even on one thread.",
        issue: None,
        files: &["operators/src/ordered_unions.rs"],
        parts: &["rule OrderedUnionRule"],
        evidence: Evidence::Untested("the order depends on timing"),
    },
    Correction {
        name: "using-columns",
        fault: "A USING column is ambiguous in WHERE, and for a RIGHT or FULL join it has the values of the left \
            side.",
        issue: None,
        files: &["dialect/src/using_columns.rs", "dialect/src/translation/outer_using.rs"],
        parts: &[],
        evidence: Evidence::Queries(&[
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
        fault: "A window over whole partitions holds all of its input, a window over equal rows holds all of them, \
            and neither charges the memory pool.",
        issue: None,
        files: &[
            "operators/src/windows/whole_partitions.rs",
            "operators/src/windows/running_totals.rs",
        ],
        parts: &["rule RunningTotalsRule", "rule WholePartitionsRule"],
        evidence: Evidence::Check(|| {
            crate::bare::peak_bytes("SELECT s, count(*) OVER () FROM wide")
                < crate::bare::WIDE_BYTES / 10
                && crate::bare::peak_bytes("SELECT s, sum(n) OVER (ORDER BY one) FROM wide")
                    < crate::bare::WIDE_BYTES / 10
        }),
    },
    Correction {
        name: "window-text",
        fault: "When a window concatenates text views, the result keeps every buffer that they ever pointed into.",
        issue: None,
        files: &["operators/src/windows/text_copies.rs"],
        parts: &["rule CopyTextBelowWindowsRule"],
        evidence: Evidence::Untested(
            "the buffers that a running window holds are not visible from outside",
        ),
    },
];

/// Parts of the session that add a feature rather than correct a fault, each with its purpose.
pub(crate) const ADDITIONS: &[(&str, &str)] = &[
    ("aggregate approx_distinct", "one implementation for each name, with its error"),
    ("aggregate approx_median", "one implementation for each name, with its error"),
    ("aggregate approx_percentile_cont", "one implementation for each name, with its error"),
    ("aggregate median", "one implementation on each path, whose values spill"),
    ("function array_dims", "signed lengths and places of lists"),
    ("function array_length", "signed lengths and places of lists"),
    ("function array_ndims", "signed lengths and places of lists"),
    ("function array_position", "signed lengths and places of lists"),
    ("function array_positions", "signed lengths and places of lists"),
    ("function cardinality", "signed lengths and places of lists"),
    ("function from_unixtime", "formats and zones as Spark has them"),
    ("function levenshtein", "computed once for each text of a batch"),
    ("function nvl", "any type, and bytes"),
    ("function regexp_count", "computed once for each text of a batch"),
    ("function regexp_instr", "computed once for each text of a batch"),
    ("function regexp_like", "computed once for each text of a batch"),
    ("function regexp_match", "computed once for each text of a batch"),
    ("function to_char", "patterns of PostgreSQL, and of numbers"),
    ("function to_date", "patterns of PostgreSQL"),
    ("planner IntervalMultiplicationPlanner", "a number times an interval"),
    ("planner NumericConditionPlanner", "whole numbers as operands of AND and OR"),
    ("planner DivisionPlanner", "`/` of two integers is a DOUBLE"),
    ("rule AsofJoinRule", "ASOF joins"),
    ("rule DistinctAggregatesRule", "distinct counts as groups, which merge and spill"),
    ("rule FanOutSortRule", "sorts by `tidemill-sort`"),
    ("rule WindowFilterRule", "a FILTER of a window as an argument, for the other window rules"),
    ("rule HashPartitionedWindowsRule", "windows over partitions that are put apart by hash"),
    ("rule JoinMemoryRule", "joins that fit the budget are held, others sorted"),
    ("rule FirstRowsRule", "the first rows of a group as an aggregate"),
    ("rule JoinStatisticsRule", "estimates of sources for joins"),
    ("rule GroupingSetColumnRule", "grouping sets keep their names when types are settled"),
    ("rule SingleDistinctToGroupBy, left out", "DistinctCounts calls it"),
    (
        "setting datafusion.sql_parser.default_null_ordering",
        "nulls last in both directions, as DuckDB and ClickHouse have it",
    ),
    ("setting datafusion.execution.batch_size", "smaller batches for a small budget"),
    ("setting datafusion.execution.sort_in_place_threshold_bytes", "a share of the budget"),
    ("setting datafusion.execution.sort_spill_reservation_bytes", "a share of the budget"),
];
