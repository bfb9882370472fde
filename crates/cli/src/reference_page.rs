//! Generates the reference page `docs/reference/command-line.md` from the clap definition, and tests that the
//! page is current.
//!
//! Flags that several verbs share appear once, at the end. `TIDEMILL_GOLDEN=write` writes the page.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};

use crate::args::Cli;

const OWN_FLAGS_HEADING: &str = "Options";

#[test]
fn reference_page_matches_command_line() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/command-line.md");
    let mut command = Cli::command();
    command.build();
    let page = render_page(&mut command);
    if std::env::var_os("TIDEMILL_GOLDEN").is_some() {
        std::fs::write(&path, page).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap();
    let differs = written.lines().zip(page.lines()).position(|(old, new)| old != new);
    assert!(
        written == page,
        "{} is out of date from line {} on: TIDEMILL_GOLDEN=write cargo test --release -p \
         tidemill-cli writes it",
        path.display(),
        differs.unwrap_or_else(|| written.lines().count().min(page.lines().count())) + 1,
    );
}

#[test]
fn page_contains_every_verb_and_flag() {
    let mut command = Cli::command();
    command.build();
    let page = render_page(&mut command);
    for verb in command.get_subcommands() {
        assert!(page.contains(&format!("\n## `tidemill {}`\n", verb.get_name())), "{verb}");
        for flag in verb.get_arguments().filter_map(Arg::get_long).filter(|flag| *flag != "help") {
            assert!(page.contains(&format!("`--{flag}")), "{verb} --{flag}");
        }
    }
}

/// Flag tables by heading; each value is the rows of one Markdown table.
type FlagTables = BTreeMap<String, String>;

fn render_page(command: &mut Command) -> String {
    let shared = shared_flag_tables(command);
    let mut page = String::from(
        "<!-- Made from crates/cli/src/args.rs: TIDEMILL_GOLDEN=write cargo test --release -p \
         tidemill-cli -->\n\n# The command line\n\n",
    );
    write_about(&mut page, command);
    page.push_str("| verb | |\n| --- | --- |\n");
    for verb in command.get_subcommands() {
        let name = verb.get_name();
        let what = verb.get_about().map(styled_to_plain).unwrap_or_default();
        writeln!(
            page,
            "| [`{name}`](#tidemill-{name}) | {} |",
            table_cell(what.trim_end_matches('.'))
        )
        .unwrap();
    }
    page.push_str(
        "\n`tidemill --help` and `tidemill VERB --help` say what stands here; `-h` says it in \
         fewer words.\n",
    );
    write_after_help(&mut page, command);
    let names: Vec<String> =
        command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for name in names {
        let verb = command.find_subcommand_mut(&name).unwrap();
        write_section(&mut page, verb, &format!("tidemill {name}"), 2, &shared);
    }
    page.push_str("\n## Flags of several verbs\n");
    for (heading, rows) in &shared {
        write!(page, "\n### {heading}\n\n| flag | |\n| --- | --- |\n{rows}").unwrap();
    }
    page
}

fn write_section(
    page: &mut String,
    verb: &mut Command,
    title: &str,
    level: usize,
    shared: &FlagTables,
) {
    write!(page, "\n{} `{title}`\n\n", "#".repeat(level)).unwrap();
    write_about(page, verb);
    let usage = styled_to_plain(&verb.render_usage());
    let usage = usage.trim_start_matches("Usage: ").replace("\n       ", "\n");
    writeln!(page, "```text\n{}\n```", usage.trim_end()).unwrap();
    let positionals: Vec<&Arg> = verb.get_positionals().filter(|arg| !arg.is_hide_set()).collect();
    if !positionals.is_empty() {
        page.push_str("\n| argument | |\n| --- | --- |\n");
        for arg in positionals {
            let name = arg.get_value_names().map_or(arg.get_id().as_str(), |names| &names[0]);
            writeln!(page, "| `{name}` | {} |", help_cell(arg)).unwrap();
        }
    }
    let groups = flag_tables(verb);
    if let Some(rows) = groups.get(OWN_FLAGS_HEADING).filter(|rows| !rows.is_empty()) {
        write!(page, "\n| flag | |\n| --- | --- |\n{rows}").unwrap();
    }
    for (heading, rows) in groups.iter().filter(|(heading, _)| *heading != OWN_FLAGS_HEADING) {
        if shared.get(heading) != Some(rows) {
            write!(page, "\n| {} | |\n| --- | --- |\n{rows}", heading.to_lowercase()).unwrap();
        }
    }
    let also: Vec<String> = groups
        .iter()
        .filter(|(heading, rows)| shared.get(*heading) == Some(rows))
        .map(|(heading, _)| {
            format!("[{}](#{})", heading.to_lowercase(), heading.to_lowercase().replace(' ', "-"))
        })
        .collect();
    match also.as_slice() {
        [] => {}
        [one] => writeln!(page, "\nAnd the flags of {one}.").unwrap(),
        [all @ .., last] => {
            writeln!(page, "\nAnd the flags of {} and {last}.", all.join(", ")).unwrap();
        }
    }
    write_after_help(page, verb);
    let names: Vec<String> =
        verb.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for name in names {
        let below = verb.find_subcommand_mut(&name).unwrap();
        write_section(page, below, &format!("{title} {name}"), level + 1, shared);
    }
}

/// Returns the flag tables of a verb by heading.
fn flag_tables(verb: &Command) -> FlagTables {
    let mut groups = FlagTables::new();
    let told = |arg: &&Arg| {
        let is_own = !matches!(arg.get_id().as_str(), "help" | "version");
        is_own && !arg.is_positional() && !arg.is_hide_set()
    };
    for arg in verb.get_arguments().filter(told) {
        let rows = groups
            .entry(arg.get_help_heading().unwrap_or(OWN_FLAGS_HEADING).to_owned())
            .or_default();
        writeln!(rows, "| {} | {} |", flag_cell(arg), help_cell(arg)).unwrap();
    }
    groups
}

/// Returns the flag tables that are equal in all verbs that have them, if several verbs do.
fn shared_flag_tables(command: &Command) -> FlagTables {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for verb in command.get_subcommands() {
        for (heading, rows) in flag_tables(verb) {
            if heading != OWN_FLAGS_HEADING {
                seen.entry(heading).or_default().push(rows);
            }
        }
    }
    seen.retain(|_, tables| tables.len() > 1 && tables.iter().all(|rows| *rows == tables[0]));
    seen.into_iter().map(|(heading, mut tables)| (heading, tables.swap_remove(0))).collect()
}

/// Returns the table cell of a flag's names: `--output FILE`, `-o`.
fn flag_cell(arg: &Arg) -> String {
    let mut flag = format!("--{}", arg.get_long().unwrap());
    if arg.get_action().takes_values() {
        let value = arg.get_value_names().map_or("VALUE", |names| &names[0]);
        match arg.is_require_equals_set() {
            true => write!(flag, "[={value}]").unwrap(),
            false => write!(flag, " {value}").unwrap(),
        }
    }
    let mut names = vec![format!("`{}`", flag.replace('|', "\\|"))];
    names.extend(arg.get_short().map(|short| format!("`-{short}`")));
    for alias in arg.get_visible_aliases().unwrap_or_default() {
        names.push(format!("`--{alias}`"));
    }
    names.join(", ")
}

fn help_cell(arg: &Arg) -> String {
    let mut help = table_cell(
        &arg.get_long_help().or_else(|| arg.get_help()).map(styled_to_plain).unwrap_or_default(),
    );
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if arg.get_action().takes_values() && !choices.is_empty() && !arg.is_require_equals_set() {
        write!(help, ": {}", choices.join(", ")).unwrap();
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        write!(help, " \\[default: {}\\]", defaults.join(", ")).unwrap();
    }
    help
}

fn write_about(page: &mut String, command: &Command) {
    let text = command
        .get_long_about()
        .or_else(|| command.get_about())
        .map(styled_to_plain)
        .unwrap_or_default();
    for paragraph in text.trim().split("\n\n") {
        writeln!(page, "{}\n", markdown_line(paragraph)).unwrap();
    }
}

/// Writes the examples as a code block, and the paragraphs after them.
fn write_after_help(page: &mut String, command: &Command) {
    let Some(text) = command.get_after_help().map(styled_to_plain) else { return };
    for paragraph in text.trim().split("\n\n") {
        match paragraph.strip_prefix("Examples:\n") {
            Some(examples) => {
                page.push_str("\n```sh\n");
                for line in examples.lines() {
                    writeln!(page, "{}", line.strip_prefix("  ").unwrap_or(line)).unwrap();
                }
                page.push_str("```\n");
            }
            None => writeln!(page, "\n{}", markdown_line(paragraph)).unwrap(),
        }
    }
}

fn styled_to_plain(text: &StyledStr) -> String {
    text.to_string()
}

/// Returns a paragraph as one line of Markdown: flags become code, and characters that Markdown would
/// interpret are escaped.
fn markdown_line(text: &str) -> String {
    let mut inside_code = false;
    let words = text.split_whitespace().map(|word| {
        let flag = word.trim_end_matches([',', ';', ':', '.']);
        let is_flag = word.starts_with("--") && !inside_code;
        inside_code ^= word.matches('`').count() % 2 == 1;
        match is_flag {
            true => format!("`{flag}`{}", &word[flag.len()..]),
            false => word.to_owned(),
        }
    });
    let line = words.collect::<Vec<_>>().join(" ");
    let mut inside_code = false;
    let mut escaped = String::new();
    for character in line.chars() {
        match character {
            '`' => inside_code = !inside_code,
            '*' | '_' | '<' | '[' | ']' | '$' if !inside_code => escaped.push('\\'),
            _ => {}
        }
        escaped.push(character);
    }
    escaped
}

fn table_cell(text: &str) -> String {
    markdown_line(text).replace('|', "\\|")
}
