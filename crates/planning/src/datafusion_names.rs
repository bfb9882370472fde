//! The names by which this project recognises DataFusion's rules, functions and memory consumers.
//!
//! The session wraps, replaces or removes rules by name, and corrects functions by name. The memory pool tells a sort
//! from a join by its registered name. A name that matches nothing is no error: if DataFusion renames a part, the
//! correction or the memory accounting would silently stop. So this module defines every such name once, and other
//! code uses the constants.
//!
//! - [`check_names`] asserts that DataFusion has every rule and every function, when a process opens its
//!   first session.
//! - DataFusion lists neither its memory consumers nor its operators. Tests of crate `sql`
//!   (`datafusion_names_tests.rs`) run queries on bare DataFusion that need each of them, and check the registered
//!   names and that Tidemill's rules act on the operators.
//! - Names of Tidemill's own functions are defined beside the functions.

use std::collections::HashSet;
use std::sync::LazyLock;

use datafusion::DATAFUSION_VERSION;
use datafusion::functions::all_default_functions;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::functions_nested::all_default_nested_functions;
use datafusion::functions_table::all_default_table_functions;
use datafusion::functions_window::all_default_window_functions;
use datafusion::optimizer::Optimizer;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use tidemill_base::error::{Error, Result};

/// Functions that return a different value at each call. DataFusion declares `error(message)` volatile, too, but it must
/// not move: it fails only for rows that reach it.
pub const RANDOM_FUNCTIONS: [&str; 2] = ["random", "uuid"];

/// Defines a module with a constant for each name, and a list `ALL` of the names.
macro_rules! names {
    ($(#[$doc:meta])* $module:ident { $($name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        pub mod $module {
            $(
                #[doc = concat!("`", $text, "`.")]
                pub const $name: &str = $text;
            )*
            /// Every name of this module.
            pub const ALL: &[&str] = &[$($name),*];
        }
    };
}

names! {
    /// Names of rules for logical plans.
    optimizer_rules {
        ELIMINATE_CROSS_JOIN = "eliminate_cross_join",
        ELIMINATE_FILTER = "eliminate_filter",
        EXTRACT_EQUIJOIN_PREDICATE = "extract_equijoin_predicate",
        PROPAGATE_EMPTY_RELATION = "propagate_empty_relation",
        PUSH_DOWN_FILTER = "push_down_filter",
        SINGLE_DISTINCT_TO_GROUP_BY = "single_distinct_aggregation_to_group_by",
    }
}

names! {
    /// Names of rules for physical plans.
    physical_rules {
        ENSURE_REQUIREMENTS = "EnsureRequirements",
        FILTER_PUSHDOWN = "FilterPushdown",
        FILTER_PUSHDOWN_POST = "FilterPushdown(Post)",
        JOIN_SELECTION = "join_selection",
        PROJECTION_PUSHDOWN = "ProjectionPushdown",
        SANITY_CHECK_PLAN = "SanityCheckPlan",
    }
}

names! {
    /// Names of scalar functions.
    scalars {
        ABS = "abs",
        ARRAY_APPEND = "array_append",
        ARRAY_CONCAT = "array_concat",
        ARRAY_DISTINCT = "array_distinct",
        ARRAY_ELEMENT = "array_element",
        ARRAY_EXCEPT = "array_except",
        ARRAY_HAS = "array_has",
        ARRAY_HAS_ALL = "array_has_all",
        ARRAY_HAS_ANY = "array_has_any",
        ARRAY_INTERSECT = "array_intersect",
        ARRAY_LENGTH = "array_length",
        ARRAY_MAX = "array_max",
        ARRAY_MIN = "array_min",
        ARRAY_NDIMS = "array_ndims",
        ARRAY_POP_BACK = "array_pop_back",
        ARRAY_POP_FRONT = "array_pop_front",
        ARRAY_POSITION = "array_position",
        ARRAY_POSITIONS = "array_positions",
        ARRAY_PREPEND = "array_prepend",
        ARRAY_REMOVE = "array_remove",
        ARRAY_REMOVE_ALL = "array_remove_all",
        ARRAY_REMOVE_N = "array_remove_n",
        ARRAY_REPEAT = "array_repeat",
        ARRAY_REPLACE = "array_replace",
        ARRAY_REPLACE_ALL = "array_replace_all",
        ARRAY_REPLACE_N = "array_replace_n",
        ARRAY_RESIZE = "array_resize",
        ARRAY_REVERSE = "array_reverse",
        ARRAY_SLICE = "array_slice",
        ARRAY_SORT = "array_sort",
        ARRAY_TO_STRING = "array_to_string",
        ARRAY_UNION = "array_union",
        BIT_LENGTH = "bit_length",
        BTRIM = "btrim",
        CARDINALITY = "cardinality",
        CEIL = "ceil",
        CHARACTER_LENGTH = "character_length",
        COALESCE = "coalesce",
        CONCAT = "concat",
        CONCAT_WS = "concat_ws",
        CONTAINS = "contains",
        DATE_BIN = "date_bin",
        DATE_PART = "date_part",
        DATE_TRUNC = "date_trunc",
        ENDS_WITH = "ends_with",
        FLOOR = "floor",
        GENERATE_SERIES = "generate_series",
        GET_FIELD = "get_field",
        GREATEST = "greatest",
        ISNAN = "isnan",
        ISZERO = "iszero",
        LEAST = "least",
        LEFT = "left",
        LEVENSHTEIN = "levenshtein",
        LOWER = "lower",
        LPAD = "lpad",
        LTRIM = "ltrim",
        MAKE_ARRAY = "make_array",
        MAP_EXTRACT = "map_extract",
        MAP_KEYS = "map_keys",
        MAP_VALUES = "map_values",
        NAMED_STRUCT = "named_struct",
        NULLIF = "nullif",
        NVL = "nvl",
        NVL2 = "nvl2",
        OCTET_LENGTH = "octet_length",
        RANDOM = "random",
        RANGE = "range",
        REGEXP_LIKE = "regexp_like",
        REGEXP_REPLACE = "regexp_replace",
        REPEAT = "repeat",
        REPLACE = "replace",
        REVERSE = "reverse",
        RIGHT = "right",
        ROUND = "round",
        RPAD = "rpad",
        RTRIM = "rtrim",
        SPLIT_PART = "split_part",
        STARTS_WITH = "starts_with",
        STRING_TO_ARRAY = "string_to_array",
        STRPOS = "strpos",
        STRUCT = "struct",
        SUBSTR = "substr",
        TO_CHAR = "to_char",
        TO_DATE = "to_date",
        TO_TIMESTAMP = "to_timestamp",
        TO_TIMESTAMP_MICROS = "to_timestamp_micros",
        TO_TIMESTAMP_MILLIS = "to_timestamp_millis",
        TO_TIMESTAMP_NANOS = "to_timestamp_nanos",
        TO_TIMESTAMP_SECONDS = "to_timestamp_seconds",
        TRUNC = "trunc",
        UPPER = "upper",
        UUID = "uuid",
    }
}

names! {
    /// Names of aggregate functions.
    aggregates {
        ANY_VALUE = "any_value",
        APPROX_DISTINCT = "approx_distinct",
        APPROX_MEDIAN = "approx_median",
        APPROX_PERCENTILE_CONT = "approx_percentile_cont",
        ARRAY_AGG = "array_agg",
        AVG = "avg",
        BIT_AND = "bit_and",
        BIT_OR = "bit_or",
        BIT_XOR = "bit_xor",
        BOOL_AND = "bool_and",
        BOOL_OR = "bool_or",
        CORR = "corr",
        COUNT = "count",
        COVAR_POP = "covar_pop",
        COVAR_SAMP = "covar_samp",
        FIRST_VALUE = "first_value",
        GROUPING = "grouping",
        LAST_VALUE = "last_value",
        MAX = "max",
        MEDIAN = "median",
        MIN = "min",
        NTH_VALUE = "nth_value",
        PERCENTILE_CONT = "percentile_cont",
        REGR_AVGX = "regr_avgx",
        REGR_AVGY = "regr_avgy",
        REGR_COUNT = "regr_count",
        REGR_INTERCEPT = "regr_intercept",
        REGR_R2 = "regr_r2",
        REGR_SLOPE = "regr_slope",
        REGR_SXX = "regr_sxx",
        REGR_SXY = "regr_sxy",
        REGR_SYY = "regr_syy",
        STDDEV = "stddev",
        STDDEV_POP = "stddev_pop",
        STRING_AGG = "string_agg",
        SUM = "sum",
        VAR = "var",
        VAR_POP = "var_pop",
    }
}

names! {
    /// Names of window functions that are not aggregates.
    windows {
        CUME_DIST = "cume_dist",
        DENSE_RANK = "dense_rank",
        FIRST_VALUE = "first_value",
        LAG = "lag",
        LAST_VALUE = "last_value",
        LEAD = "lead",
        NTH_VALUE = "nth_value",
        NTILE = "ntile",
        PERCENT_RANK = "percent_rank",
        RANK = "rank",
        ROW_NUMBER = "row_number",
    }
}

names! {
    /// Names of table functions.
    tables {
        GENERATE_SERIES = "generate_series",
        RANGE = "range",
    }
}

names! {
    /// Parts of the names that operators register with the memory pool.
    consumers {
        /* Beginnings of names. */
        EXTERNAL_SORTER = "ExternalSorter",
        EXTERNAL_SORTER_MERGE = "ExternalSorterMerge",
        SORT_PRESERVING_MERGE = "SortPreservingMerge",
        /* Parts of names. */
        AGGREGATE = "Aggregate",
        JOIN = "Join",
        RECURSIVE = "Recursive",
        REPARTITION = "Repartition",
        SORT_MERGE_JOIN = "SMJ",
        TOP_K = "TopK",
    }
}

/// Part of DataFusion's error message for two columns with the same name.
pub const DUPLICATE_NAMES_MESSAGE: &str = "require unique expression names";

/// Checks that DataFusion has every rule and every function that is recognized by name. The first call in a
/// process takes about 50 µs; later calls reuse its result.
///
/// # Errors
/// [`Error::Internal`] that lists the missing names. It occurs only after an upgrade of DataFusion, which then
/// needs a change of this module.
pub fn check_names() -> Result<()> {
    static MISSING: LazyLock<Vec<String>> = LazyLock::new(|| missing_names(&required_names()));
    refuse_missing_names(&MISSING)
}

/// Fails if a name is missing.
///
/// # Errors
/// [`Error::Internal`] that lists the missing names.
pub fn refuse_missing_names(missing: &[String]) -> Result<()> {
    match missing {
        [] => Ok(()),
        missing => Err(Error::Internal(format!(
            "DataFusion {DATAFUSION_VERSION} has no {}; crates/planning/src/datafusion_names.rs lists the names \
             that are recognised",
            missing.join(", ")
        ))),
    }
}

/// The names of one kind that DataFusion must have.
pub struct RequiredNames {
    /// The kind of the names, such as `physical rule`.
    pub kind: &'static str,
    /// Names that the code recognizes.
    pub names: Vec<&'static str>,
    /// Returns DataFusion's own list of names of the kind.
    pub list_known_names: fn() -> HashSet<String>,
}

/// Returns all names that DataFusion lists somewhere.
pub fn required_names() -> Vec<RequiredNames> {
    let of = |kind, names: &[&'static str], known| RequiredNames {
        kind,
        names: names.to_vec(),
        list_known_names: known,
    };
    let of_texts = tidemill_functions::ONCE_PER_TEXT.iter().copied();
    let scalars = scalars::ALL.iter().copied().chain(of_texts).collect::<Vec<_>>();
    vec![
        of("optimizer rule", optimizer_rules::ALL, || {
            Optimizer::new().rules.iter().map(|rule| rule.name().to_owned()).collect()
        }),
        of("physical rule", physical_rules::ALL, || {
            PhysicalOptimizer::new().rules.iter().map(|rule| rule.name().to_owned()).collect()
        }),
        of("scalar function", &scalars, || {
            let all = all_default_functions().into_iter().chain(all_default_nested_functions());
            all.map(|function| function.name().to_owned()).collect()
        }),
        of("aggregate function", aggregates::ALL, || {
            let all = all_default_aggregate_functions().into_iter();
            all.map(|function| function.name().to_owned()).collect()
        }),
        of("window function", windows::ALL, || {
            let all = all_default_window_functions().into_iter();
            all.map(|function| function.name().to_owned()).collect()
        }),
        of("table function", tables::ALL, || {
            let all = all_default_table_functions().into_iter();
            all.map(|function| function.name().to_owned()).collect()
        }),
    ]
}

/// Returns the names that DataFusion does not have, each with its kind.
pub fn missing_names(required: &[RequiredNames]) -> Vec<String> {
    let mut missing = Vec::new();
    for RequiredNames { kind, names, list_known_names: known } in required {
        let known = known();
        let unknown = names.iter().filter(|name| !known.contains(**name));
        missing.extend(unknown.map(|name| format!("{kind} `{name}`")));
    }
    missing
}
