//! The rules, planners, functions and settings in which a session of Tidemill differs from one of DataFusion.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use datafusion::prelude::{SessionConfig, SessionContext};
use tidemill_base::RunSettings;
use tidemill_tables::sessions;

fn our_session() -> SessionContext {
    let settings = RunSettings { threads: 2, ..RunSettings::new(256 << 20) };
    sessions::open_session(128 << 20, &settings).unwrap()
}

/// Returns the name of a value's type, taken from the start of its `Debug` output.
fn type_name(value: &dyn Debug) -> String {
    let shown = format!("{value:?}");
    shown.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

fn type_names<T: Debug>(values: &[T]) -> BTreeSet<String> {
    values.iter().map(|value| type_name(value)).collect()
}

/// Returns the names by which a query can call each DataFusion function, keyed by its kind and own name, and whether
/// Tidemill replaces the function under that name.
pub(crate) fn replaced_functions() -> BTreeMap<String, Vec<(String, bool)>> {
    let bare = SessionContext::new_with_config(SessionConfig::new()).state();
    let ours = our_session().state();
    let mut found: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    let mut add = |kind: &str, own: &str, name: &String, is_ours| {
        found.entry(format!("{kind} {own}")).or_default().push((name.clone(), is_ours));
    };
    for (name, function) in bare.scalar_functions() {
        let is_ours = ours.scalar_functions().get(name) != Some(function);
        add("function", function.name(), name, is_ours);
    }
    for (name, function) in bare.aggregate_functions() {
        let is_ours = ours.aggregate_functions().get(name) != Some(function);
        add("aggregate", function.name(), name, is_ours);
    }
    for (name, function) in bare.window_functions() {
        let is_ours = ours.window_functions().get(name) != Some(function);
        add("window function", function.name(), name, is_ours);
    }
    found
}

/// Returns the rules, planners, functions and settings that differ, each with its kind: `rule Conditions`,
/// `setting datafusion.…`.
pub(crate) fn session_parts() -> BTreeSet<String> {
    let bare = SessionContext::new_with_config(SessionConfig::new()).state();
    let ours = our_session().state();
    let mut parts = BTreeSet::new();
    let mut add = |kind: &str, ours: BTreeSet<String>, theirs: BTreeSet<String>| {
        parts.extend(ours.difference(&theirs).map(|name| format!("{kind} {name}")));
        parts.extend(theirs.difference(&ours).map(|name| format!("{kind} {name}, left out")));
    };
    add("rule", type_names(&ours.analyzer().rules), type_names(&bare.analyzer().rules));
    add("rule", type_names(ours.optimizers()), type_names(bare.optimizers()));
    add("rule", type_names(ours.physical_optimizers()), type_names(bare.physical_optimizers()));
    add("planner", type_names(ours.expr_planners()), type_names(bare.expr_planners()));
    add("planner", type_names(ours.relation_planners()), type_names(bare.relation_planners()));
    add(
        "planner",
        BTreeSet::from([type_name(ours.query_planner())]),
        BTreeSet::from([type_name(bare.query_planner())]),
    );
    let settings = |entries: Vec<datafusion::config::ConfigEntry>| {
        entries.into_iter().map(|entry| (entry.key, entry.value)).collect::<BTreeSet<_>>()
    };
    let (own, theirs) =
        (settings(ours.config_options().entries()), settings(bare.config_options().entries()));
    parts.extend(own.difference(&theirs).map(|(key, _)| format!("setting {key}")));
    for (function, names) in replaced_functions() {
        if names.iter().any(|(_, is_ours)| *is_ours) {
            parts.insert(function);
        }
    }
    parts
}
