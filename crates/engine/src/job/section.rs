//! A section of a job file. Typed accessors take its keys out one by one, and a remaining key is an error.

use tidemill_base::error::{Error, Result};
use tidemill_base::suggestions;

use super::value_tree::{JobFileValue, JobValueNode, JobValueOrigin, JobValueTree};

/// A table of a job file, with the keys that no accessor has taken yet.
pub(super) struct JobSection<'a> {
    pub(super) origin: &'a str,
    /// The dotted name, such as `source.options`; `None` for the top level of the file.
    pub(super) title: Option<String>,
    pub(super) remaining: JobValueTree,
}

impl<'a> JobSection<'a> {
    pub(super) fn child_section(&self, node: JobValueNode, title: &str) -> Result<JobSection<'a>> {
        match node.value {
            JobFileValue::Table(tree) => Ok(JobSection {
                origin: self.origin,
                title: Some(title.to_owned()),
                remaining: tree,
            }),
            _ => Err(self.wrong_type_error(&node, title, "a table")),
        }
    }

    pub(super) fn take_node(&mut self, key: &str) -> Option<JobValueNode> {
        let position = self.remaining.0.iter().position(|(name, _)| name == key)?;
        Some(self.remaining.0.remove(position).1)
    }

    pub(super) fn take_text(&mut self, key: &str) -> Result<Option<String>> {
        let Some(node) = self.take_node(key) else { return Ok(None) };
        node.into_text().map(Some).map_err(|node| self.wrong_type_error(&node, key, "a string"))
    }

    pub(super) fn take_required_text(
        &mut self,
        key: &str,
        section: &JobValueOrigin,
    ) -> Result<String> {
        let title = self.display_title();
        match self.take_text(key)? {
            Some(text) => Ok(text),
            None => {
                // A remaining key may be a misspelling of the required one.
                let meant = self
                    .remaining
                    .0
                    .iter()
                    .find(|(name, _)| suggestions::nearest_candidate(name, [key]).is_some());
                match meant {
                    Some((name, node)) => {
                        let message = suggestions::unknown_name_message("key", name, &[key]);
                        Err(self.error_at_origin(
                            &node.origin,
                            insert_section_name(&message, &title),
                            None,
                        ))
                    }
                    None => {
                        Err(self.error_at_origin(section, format!("{title} needs `{key}`"), None))
                    }
                }
            }
        }
    }

    pub(super) fn take_text_or_number(&mut self, key: &str) -> Result<Option<String>> {
        let Some(node) = self.take_node(key) else { return Ok(None) };
        match node.value {
            JobFileValue::Integer(number) => Ok(Some(number.to_string())),
            JobFileValue::Float(number) => Ok(Some(number.to_string())),
            JobFileValue::Text(text) => Ok(Some(text)),
            _ => Err(self.wrong_type_error(&node, key, "a string or a number")),
        }
    }

    pub(super) fn take_parsed<T, E: Into<Error>>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(node) = self.take_node(key) else { return Ok(None) };
        let place = node.origin.clone();
        let text =
            node.into_text().map_err(|node| self.wrong_type_error(&node, key, "a string"))?;
        parse(&text).map(Some).map_err(|error| match error.into() {
            Error::Usage { message, hint } => {
                self.error_at_origin(&place, message, hint.as_deref())
            }
            other => other,
        })
    }

    pub(super) fn take_boolean(&mut self, key: &str) -> Result<Option<bool>> {
        match self.take_node(key) {
            None => Ok(None),
            Some(JobValueNode { value: JobFileValue::Boolean(boolean), .. }) => Ok(Some(boolean)),
            Some(node) => Err(self.wrong_type_error(&node, key, "true or false")),
        }
    }

    pub(super) fn take_count(&mut self, key: &str) -> Result<Option<usize>> {
        match self.take_node(key) {
            None => Ok(None),
            Some(node) => match node.value {
                JobFileValue::Integer(number) if number > 0 => match usize::try_from(number) {
                    Ok(number) => Ok(Some(number)),
                    Err(_) => Err(self.wrong_type_error(&node, key, "a smaller number")),
                },
                JobFileValue::Integer(number) => Err(self.error_at_origin(
                    &node.origin,
                    format!("`{key}`{} must be at least 1, not {number}", self.location_suffix()),
                    None,
                )),
                _ => Err(self.wrong_type_error(&node, key, "a whole number")),
            },
        }
    }

    /// Takes a number of lines, which may be 0.
    pub(super) fn take_line_count(&mut self, key: &str) -> Result<Option<u64>> {
        match self.take_node(key) {
            None => Ok(None),
            Some(node) => match node.value {
                JobFileValue::Integer(number) => match u64::try_from(number) {
                    Ok(number) => Ok(Some(number)),
                    Err(_) => Err(self.wrong_type_error(&node, key, "a number of lines from 0 on")),
                },
                _ => Err(self.wrong_type_error(&node, key, "a whole number")),
            },
        }
    }

    /// Takes a character of one byte that separates or encloses fields.
    pub(super) fn take_character(&mut self, key: &str) -> Result<Option<u8>> {
        let Some(node) = self.take_node(key) else { return Ok(None) };
        let place = node.origin.clone();
        let what = "a string of one character";
        let text = node.into_text().map_err(|node| self.wrong_type_error(&node, key, what))?;
        match tidemill_source::parse_option_character(&text) {
            Some(byte) => Ok(Some(byte)),
            None => Err(self.error_at_origin(
                &place,
                format!(
                    "`{key}`{} must be one ASCII character, not `{text}`",
                    self.location_suffix()
                ),
                None,
            )),
        }
    }

    /// Takes a character as [`take_character`](Self::take_character) does. The empty string turns the
    /// character off.
    pub(super) fn take_optional_character(&mut self, key: &str) -> Result<Option<Option<u8>>> {
        match self.remaining.get_mut(key) {
            Some(JobValueNode { value: JobFileValue::Text(text), .. }) if text.is_empty() => {
                self.take_node(key);
                Ok(Some(None))
            }
            _ => Ok(self.take_character(key)?.map(Some)),
        }
    }

    pub(super) fn take_texts(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(node) = self.take_node(key) else { return Ok(None) };
        let what = "a string or a list of strings";
        match node.value {
            JobFileValue::List(nodes) => {
                let texts = nodes
                    .into_iter()
                    .map(JobValueNode::into_text)
                    .collect::<Result<_, JobValueNode>>();
                texts.map(Some).map_err(|node| self.wrong_type_error(&node, key, what))
            }
            _ => match node.into_text() {
                Ok(text) => Ok(Some(vec![text])),
                Err(node) => Err(self.wrong_type_error(&node, key, what)),
            },
        }
    }

    /// Returns an error if a key remains, because it is unknown.
    pub(super) fn check_no_keys_left(&self, known: &[&str]) -> Result<()> {
        let Some((name, node)) = self.remaining.0.first() else { return Ok(()) };
        let message = suggestions::unknown_name_message("key", name, known);
        let message = match &self.title {
            Some(_) => insert_section_name(&message, &self.display_title()),
            None => message,
        };
        Err(self.error_at_origin(&node.origin, message, None))
    }

    pub(super) fn display_title(&self) -> String {
        match &self.title {
            Some(title) => format!("`[{title}]`"),
            None => "the job".to_owned(),
        }
    }

    /// Returns ` in [source]`, or nothing for the top level of the file.
    pub(super) fn location_suffix(&self) -> String {
        self.title.as_ref().map_or_else(String::new, |title| format!(" in `[{title}]`"))
    }

    pub(super) fn wrong_type_error(&self, node: &JobValueNode, key: &str, wanted: &str) -> Error {
        let message = format!(
            "`{key}`{} must be {wanted}, not {}",
            self.location_suffix(),
            node.value.type_description()
        );
        self.error_at_origin(&node.origin, message, None)
    }

    pub(super) fn error_at_node(
        &self,
        node: &JobValueNode,
        message: String,
        hint: Option<&str>,
    ) -> Error {
        self.error_at_origin(&node.origin, message, hint)
    }

    pub(super) fn error_at_origin(
        &self,
        place: &JobValueOrigin,
        message: String,
        hint: Option<&str>,
    ) -> Error {
        let message = match place {
            JobValueOrigin::Line(line) => format!("{}:{line}: {message}", self.origin),
            JobValueOrigin::Override(key, typed) => {
                let typed = tidemill_base::redaction::redact_override_value(key, typed);
                format!("--set {key}={typed}: {message}")
            }
            JobValueOrigin::Unknown => format!("{}: {message}", self.origin),
        };
        Error::Usage { message, hint: hint.map(str::to_owned) }
    }
}

/// Inserts `in [section]` behind the name of an unknown key.
pub(super) fn insert_section_name(message: &str, title: &str) -> String {
    match message.match_indices('`').nth(1) {
        Some((end, _)) => format!("{} in {title}{}", &message[..=end], &message[end + 1..]),
        None => message.to_owned(),
    }
}
