//! Test that the results in `docs/reference/functions-text.md` match those of the functions.

use std::collections::BTreeSet;
use std::path::Path;

use datafusion_common::ScalarValue;

use crate::closure_function::tests::call_in_all_forms;

/// Splits a call of constants into the name of the function and its arguments.
fn parse_call(call: &str) -> (&str, Vec<ScalarValue>) {
    let (name, arguments) = call.strip_suffix(')').unwrap().split_once('(').unwrap();
    let mut values = Vec::new();
    let mut rest = arguments;
    while !rest.is_empty() {
        let value;
        (value, rest) = match rest.strip_prefix('\'') {
            Some(inner) => {
                let (text, behind) = inner.split_once('\'').unwrap();
                (ScalarValue::from(text), behind)
            }
            None => {
                let (number, behind) = rest.split_at(rest.find(", ").unwrap_or(rest.len()));
                let value = match number.parse::<i64>() {
                    Ok(whole) => ScalarValue::from(whole),
                    Err(_) => ScalarValue::from(number.parse::<f64>().unwrap()),
                };
                (value, behind)
            }
        };
        values.push(value);
        rest = rest.strip_prefix(", ").unwrap_or(rest);
    }
    (name, values)
}

#[test]
fn reference_page_examples_match_results() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/functions-text.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut told = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let line = line.replace("\\|", "\u{0}");
        let cells: Vec<&str> = line.split(" | ").collect();
        let [call, expected] = cells.as_slice() else { panic!("{line}") };
        let bare =
            |cell: &str| cell.trim_matches(['|', ' ']).trim_matches('`').replace('\u{0}', "|");
        let (call, expected) = (bare(call), bare(expected));
        let (name, arguments) = parse_call(&call);
        assert_eq!(call_in_all_forms(name, &arguments), expected, "{call}");
        told.insert(name.to_owned());
    }
    // Functions that take or return no constants are described in the text around the tables.
    let of_others: BTreeSet<&str> =
        ["user_agent", "json_raw", "struct_entries", "struct_keys"].into();
    for function in [crate::texts::functions(), crate::web::functions(), crate::json::functions()]
        .into_iter()
        .flatten()
    {
        let name = function.name();
        let is_told = told.contains(name) || of_others.contains(name);
        assert!(is_told, "`{name}` is not in docs/reference/functions-text.md");
        assert!(page.contains(&format!("{name}(")), "{name}");
    }
}
