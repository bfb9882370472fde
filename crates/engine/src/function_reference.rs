//! Generates `docs/reference/functions.md`, the reference of SQL functions, from a session's registry.
//!
//! Descriptions come from the functions themselves. Planning calls of each aggregate shows whether it is
//! mergeable. The test compares the page with the current functions, so the page cannot be out of date.
//! `TIDEMILL_GOLDEN=write` writes it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use datafusion::logical_expr::Documentation;
use datafusion::prelude::SessionContext;
use tidemill_base::RunSettings;
use tidemill_query::{Query, QueryPlan};
use tidemill_tables::aggregates::aggregate_functions::TidemillAggregate;
use tidemill_tables::sessions;

/// Descriptions that replace DataFusion 55's, which belong to another function or do not apply here.
const DESCRIPTION_OVERRIDES: [(&str, &str); 7] = [
    ("any_value", "Returns the first value of the input that is not null."),
    (
        "first_value",
        "Returns the value of the first row by the ORDER BY, or of the input where there is none; of equals that of the first of the input.",
    ),
    (
        "last_value",
        "Returns the value of the last row by the ORDER BY, or of the input where there is none; of equals that of the last of the input.",
    ),
    ("array_remove", "Removes all elements from the array equal to the given value."),
    (
        "array_replace",
        "Replaces all occurrences of the specified element with another specified element.",
    ),
    ("bool_or", "Returns true if any non-null input value is true, otherwise false."),
    ("covar_pop", "Returns the population covariance of a set of number pairs."),
];

/// Functions that need DataFusion's own file reader.
const OMITTED_FUNCTIONS: [&str; 2] = ["file_row_index", "input_file_name"];

/// Name prefix of functions that the planner inserts for other syntax.
const INTERNAL_NAME_PREFIX: &str = "tidemill_";

/// The line of a function on the page.
struct FunctionEntry {
    call_syntax: Vec<String>,
    aliases: Vec<String>,
    section: &'static str,
    description: String,
}

fn new_session_context() -> SessionContext {
    sessions::open_session(64 << 20, &crate::RunSettings::new(128 << 20)).unwrap()
}

#[test]
fn reference_page_matches_registered_functions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/functions.md");
    let page = render_page(&new_session_context());
    if std::env::var_os("TIDEMILL_GOLDEN").is_some() {
        std::fs::write(&path, page).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap();
    let shorter = written.lines().count().min(page.lines().count());
    let differs = written.lines().zip(page.lines()).position(|(old, new)| old != new);
    assert!(
        written == page,
        "{} is out of date from line {} on: TIDEMILL_GOLDEN=write cargo test --release -p \
         tidemill-engine --lib reference writes it",
        path.display(),
        differs.unwrap_or(shorter) + 1,
    );
}

#[test]
fn aggregate_is_mergeable_if_a_call_runs_as_a_partial_table() {
    let mergeable = |name: &str| is_any_mergeable(&candidate_calls(name));
    for name in [
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "unique",
        "quantile",
        "top_k",
        "collect",
        "median",
        "stddev",
        "corr",
        "bool_and",
        "bit_xor",
        "array_agg",
        "string_agg",
        "first_value",
        "any_value",
        "nth_value",
        "percentile_cont",
    ] {
        assert!(mergeable(name), "{name}");
    }
    for name in ["approx_percentile_cont_with_weight", "grouping"] {
        assert!(!mergeable(name), "{name}");
    }
}

/// Aggregates that return lists of the first rows by an order (`tidemill_dialect::translation::function_calls`).
const FIRST_ROWS_AGGREGATES: [(&str, &str, &str); 3] = [
    (
        "maximum`, `minimum",
        "`maximum(x, n)`, `maximum(x, n, weight)`",
        "The n largest values, largest first, or the smallest, smallest first; one that is there twice twice. With a weight \
         the values of the n heaviest, or lightest, rows: a list of `{value, weight}`, ties in the order of the values. NULL \
         where there are no values.\n\nTakes any type that has an order. Exact; a state holds n values.",
    ),
    (
        "sample",
        "`sample(x, n)`, `sample(x, n, seed)`",
        "n values by chance, without replacement, in no order: a list, and all values where there are no more; NULL where \
         there are none.\n\nTakes any type. Drawn by a hash of the seed, a whole number (default: 0), and of the number of the \
         record in its file and the file's name, so that the same files and seed give the same sample, whatever the threads, \
         the memory and the splits. Takes records of one source, as they are or through a subquery that makes a row of each: no join. Text is read by one thread a file.",
    ),
    (
        "weighted_sample",
        "`weighted_sample(x, n, weight)`, `weighted_sample(x, n, weight, seed)`",
        "As `sample`, a value being drawn with a chance in proportion to its weight among those that are left (Efraimidis and \
         Spirakis, 2006). Rows whose weight is not above 0 are left out.",
    ),
];

fn render_page(context: &SessionContext) -> String {
    let state = context.state();
    let mut page = String::from(
        "<!-- Made from the functions' own definitions: TIDEMILL_GOLDEN=write cargo test \
         --release -p tidemill-engine --lib reference -->\n\n# SQL functions\n\n\
         All that a query may call. [SQL](../sql.md) is the guide; this page is the list, made \
         from the functions' own definitions. Those that Tidemill does not add are \
         [Apache DataFusion](https://datafusion.apache.org/user-guide/sql/)'s, and so is what is \
         said of them here.\n\n## Functions that Tidemill adds\n\n\
         Aggregates with a state that merges. They leave nulls out and take a `FILTER (WHERE …)`.\n",
    );
    for added in TidemillAggregate::ALL {
        let told = added.documentation();
        let calls = std::iter::once(&told.syntax_example)
            .chain(told.alternative_syntax.iter().flatten())
            .map(|call| format!("`{call}`"))
            .collect::<Vec<_>>();
        let description = &told.description;
        write!(page, "\n### `{}`\n\n{}\n\n{description}\n\n", added.sql_name(), calls.join(", "))
            .unwrap();
        for (name, what) in told.arguments.iter().flatten() {
            writeln!(page, "- `{name}`: {what}").unwrap();
        }
    }

    for (name, calls, what) in FIRST_ROWS_AGGREGATES {
        write!(page, "\n### `{name}`\n\n{calls}\n\n{what}\n").unwrap();
    }

    let aggregates = collect_entries(
        state
            .aggregate_functions()
            .values()
            .map(|function| (function.name(), function.aliases(), function.documentation())),
    );
    let is_added = |name: &str| TidemillAggregate::ALL.iter().any(|added| added.sql_name() == name);
    let (merging, others): (Vec<_>, Vec<_>) = aggregates
        .iter()
        .filter(|(name, _)| !is_added(name))
        .partition(|(name, _)| is_any_mergeable(&candidate_calls(name)));
    page.push_str(
        "\n## Aggregates that merge\n\nThe same in [partial tables](../merge.md), in a job's \
         `[tables]` and in `--partial`.\n\n",
    );
    write_table(&mut page, &merging);
    page.push_str(
        "\nWith DISTINCT, too, `count`, `sum`, `avg`, `median`, `var`, `stddev`, `array_agg` and `string_agg` merge.\n\n## Other aggregates\n\nA query that calls one of \
         these runs on DataFusion's path, and has no states to be merged.\n\n",
    );
    write_table(&mut page, &others);

    let scalars = collect_entries(
        state
            .scalar_functions()
            .values()
            .map(|function| (function.name(), function.aliases(), function.documentation())),
    );
    let mut sections: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for entry in &scalars {
        sections.entry(entry.1.section).or_default().push(entry);
    }
    page.push_str("\n## Functions of a record\n\nThey are called anywhere, in a map too.\n");
    for (section, entries) in &sections {
        write!(page, "\n### {section}\n\n").unwrap();
        write_table(&mut page, entries);
    }

    let windows = collect_entries(
        state
            .window_functions()
            .values()
            .map(|function| (function.name(), function.aliases(), function.documentation())),
    );
    page.push_str(
        "\n## Window functions\n\nWith `OVER (PARTITION BY … ORDER BY …)`; every aggregate can be \
         one, too. Over rows they run on DataFusion's path; over a finished table, after a \
         `GROUP BY`, the aggregation below them still merges.\n\n",
    );
    write_table(&mut page, &windows.iter().collect::<Vec<_>>());
    page
}

type RegisteredFunctionDocs<'a> = (&'a str, &'a [String], Option<&'a Documentation>);

/// Collects functions by name, each once: a registry also lists a function under its aliases.
fn collect_entries<'a>(
    functions: impl Iterator<Item = RegisteredFunctionDocs<'a>>,
) -> BTreeMap<String, FunctionEntry> {
    let mut entries = BTreeMap::new();
    for (name, aliases, told) in functions {
        if OMITTED_FUNCTIONS.contains(&name) || name.starts_with(INTERNAL_NAME_PREFIX) {
            continue;
        }
        let mut aliases = aliases.to_vec();
        aliases.sort();
        let instead =
            DESCRIPTION_OVERRIDES.iter().find(|(other, _)| *other == name).map(|(_, what)| *what);
        let entry = match told {
            Some(told) => FunctionEntry {
                call_syntax: told
                    .syntax_example
                    .lines()
                    .map(collapse_whitespace)
                    .filter(|call| !call.is_empty())
                    .map(|call| match (instead, call.find('(')) {
                        (Some(_), Some(at)) => format!("{name}{}", &call[at..]),
                        _ => call,
                    })
                    .collect(),
                aliases,
                section: told.doc_section.label.trim_end_matches(" Functions"),
                description: instead
                    .map_or_else(|| first_sentence(&told.description), str::to_owned),
            },
            None => FunctionEntry {
                call_syntax: vec![format!("{name}(…)")],
                aliases,
                section: "Other",
                description: String::new(),
            },
        };
        entries.insert(name.to_owned(), entry);
    }
    entries
}

fn write_table(page: &mut String, entries: &[(&String, &FunctionEntry)]) {
    let codes = |texts: &[String]| {
        let codes: Vec<String> =
            texts.iter().map(|text| format!("`{}`", text.replace('|', "\\|"))).collect();
        codes.join(", ")
    };
    page.push_str("| function | |\n| --- | --- |\n");
    for (_, entry) in entries {
        let mut what = entry.description.replace('|', "\\|");
        if !entry.aliases.is_empty() {
            write!(what, " Also {}.", codes(&entry.aliases)).unwrap();
        }
        writeln!(page, "| {} | {} |", codes(&entry.call_syntax), what.trim()).unwrap();
    }
}

fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn first_sentence(text: &str) -> String {
    let paragraph = text.trim().split("\n\n").next().unwrap_or_default();
    let line = collapse_whitespace(paragraph);
    let ends = ["e.g.", "i.e.", "etc."];
    let stop = line
        .match_indices(". ")
        .map(|(at, _)| at + 1)
        .find(|at| !ends.iter().any(|end| line[..*at].ends_with(end)));
    let sentence = line[..stop.unwrap_or(line.len())].trim_end_matches(':');
    match sentence.ends_with('.') {
        true => sentence.to_owned(),
        false => format!("{sentence}."),
    }
}

/// Returns candidate calls of an aggregate function, over `x` (a number) and `s` (a text).
fn candidate_calls(name: &str) -> Vec<String> {
    [
        "(x)",
        "(x > 1)",
        "()",
        "(x, 3)",
        "(x, 0.5)",
        "(0.5) WITHIN GROUP (ORDER BY x)",
        "(x, x)",
        "(s)",
        "(s, ',')",
    ]
    .map(|arguments| format!("{name}{arguments}"))
    .to_vec()
}

/// Returns true if one of the calls is planned as a partial table.
fn is_any_mergeable(calls: &[String]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(&path, "x,s\n1,a\n2,b\n").unwrap();
    calls.iter().any(|call| {
        let sql = format!("SELECT {call} AS answer FROM '{}'", path.display());
        let query = Query { sql, ..Query::default() };
        QueryPlan::new(&query, &RunSettings::new(64 << 20))
            .and_then(|plan| plan.explain())
            .is_ok_and(|explain| explain.mergeable)
    })
}
