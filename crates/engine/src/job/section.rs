//! A section of a job: each of its keys is taken out as what it has to be, and what is left over is a mistake.

use tidemill_base::error::{Error, Result};
use tidemill_base::suggestions;

use super::tree::{Node, Origin, Tree, Value};

/// A table of the file whose keys are taken out one by one.
pub(super) struct Section<'a> {
    pub(super) origin: &'a str,
    /// `source.options`; none for the top of the file.
    pub(super) title: Option<String>,
    pub(super) tree: Tree,
}

impl<'a> Section<'a> {
    pub(super) fn section(&self, node: Node, title: &str) -> Result<Section<'a>> {
        match node.value {
            Value::Table(tree) => {
                Ok(Section { origin: self.origin, title: Some(title.to_owned()), tree })
            }
            _ => Err(self.wrong_type(&node, title, "a table")),
        }
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Node> {
        let position = self.tree.0.iter().position(|(name, _)| name == key)?;
        Some(self.tree.0.remove(position).1)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>> {
        let Some(node) = self.take(key) else { return Ok(None) };
        node.into_text().map(Some).map_err(|node| self.wrong_type(&node, key, "a string"))
    }

    pub(super) fn required_text(&mut self, key: &str, section: &Origin) -> Result<String> {
        let title = self.title();
        match self.text(key)? {
            Some(text) => Ok(text),
            None => {
                // What stands there instead may be the key, misspelt.
                let meant = self
                    .tree
                    .0
                    .iter()
                    .find(|(name, _)| suggestions::nearest_candidate(name, [key]).is_some());
                match meant {
                    Some((name, node)) => {
                        let message = suggestions::unknown_name_message("key", name, &[key]);
                        Err(self.error_at(&node.place, in_section(&message, &title), None))
                    }
                    None => Err(self.error_at(section, format!("{title} needs `{key}`"), None)),
                }
            }
        }
    }

    pub(super) fn text_or_number(&mut self, key: &str) -> Result<Option<String>> {
        let Some(node) = self.take(key) else { return Ok(None) };
        match node.value {
            Value::Integer(number) => Ok(Some(number.to_string())),
            Value::Float(number) => Ok(Some(number.to_string())),
            Value::Text(text) => Ok(Some(text)),
            _ => Err(self.wrong_type(&node, key, "a string or a number")),
        }
    }

    pub(super) fn parsed_with<T, E: Into<Error>>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(node) = self.take(key) else { return Ok(None) };
        let place = node.place.clone();
        let text = node.into_text().map_err(|node| self.wrong_type(&node, key, "a string"))?;
        parse(&text).map(Some).map_err(|error| match error.into() {
            Error::Usage { message, hint } => self.error_at(&place, message, hint.as_deref()),
            other => other,
        })
    }

    pub(super) fn boolean(&mut self, key: &str) -> Result<Option<bool>> {
        match self.take(key) {
            None => Ok(None),
            Some(Node { value: Value::Boolean(boolean), .. }) => Ok(Some(boolean)),
            Some(node) => Err(self.wrong_type(&node, key, "true or false")),
        }
    }

    pub(super) fn count(&mut self, key: &str) -> Result<Option<usize>> {
        match self.take(key) {
            None => Ok(None),
            Some(node) => match node.value {
                Value::Integer(number) if number > 0 => match usize::try_from(number) {
                    Ok(number) => Ok(Some(number)),
                    Err(_) => Err(self.wrong_type(&node, key, "a smaller number")),
                },
                Value::Integer(number) => Err(self.error_at(
                    &node.place,
                    format!("`{key}`{} must be at least 1, not {number}", self.of()),
                    None,
                )),
                _ => Err(self.wrong_type(&node, key, "a whole number")),
            },
        }
    }

    /// A number of lines, which may be 0.
    pub(super) fn lines(&mut self, key: &str) -> Result<Option<u64>> {
        match self.take(key) {
            None => Ok(None),
            Some(node) => match node.value {
                Value::Integer(number) => match u64::try_from(number) {
                    Ok(number) => Ok(Some(number)),
                    Err(_) => Err(self.wrong_type(&node, key, "a number of lines from 0 on")),
                },
                _ => Err(self.wrong_type(&node, key, "a whole number")),
            },
        }
    }

    /// One character that is one byte: what separates or encloses fields.
    pub(super) fn character(&mut self, key: &str) -> Result<Option<u8>> {
        let Some(node) = self.take(key) else { return Ok(None) };
        let place = node.place.clone();
        let what = "a string of one character";
        let text = node.into_text().map_err(|node| self.wrong_type(&node, key, what))?;
        match tidemill_source::parse_option_character(&text) {
            Some(byte) => Ok(Some(byte)),
            None => Err(self.error_at(
                &place,
                format!("`{key}`{} must be one ASCII character, not `{text}`", self.of()),
                None,
            )),
        }
    }

    /// The same, where the empty string means that there is no such character.
    pub(super) fn character_or_none(&mut self, key: &str) -> Result<Option<Option<u8>>> {
        match self.tree.get_mut(key) {
            Some(Node { value: Value::Text(text), .. }) if text.is_empty() => {
                self.take(key);
                Ok(Some(None))
            }
            _ => Ok(self.character(key)?.map(Some)),
        }
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        let Some(node) = self.take(key) else { return Ok(None) };
        let what = "a string or a list of strings";
        match node.value {
            Value::List(nodes) => {
                let texts = nodes.into_iter().map(Node::into_text).collect::<Result<_, Node>>();
                texts.map(Some).map_err(|node| self.wrong_type(&node, key, what))
            }
            _ => match node.into_text() {
                Ok(text) => Ok(Some(vec![text])),
                Err(node) => Err(self.wrong_type(&node, key, what)),
            },
        }
    }

    /// Whatever has not been taken is unknown.
    pub(super) fn finish(&self, known: &[&str]) -> Result<()> {
        let Some((name, node)) = self.tree.0.first() else { return Ok(()) };
        let message = suggestions::unknown_name_message("key", name, known);
        let message = match &self.title {
            Some(_) => in_section(&message, &self.title()),
            None => message,
        };
        Err(self.error_at(&node.place, message, None))
    }

    pub(super) fn title(&self) -> String {
        match &self.title {
            Some(title) => format!("`[{title}]`"),
            None => "the job".to_owned(),
        }
    }

    /// ` in [source]`, or nothing at the top of the file.
    pub(super) fn of(&self) -> String {
        self.title.as_ref().map_or_else(String::new, |title| format!(" in `[{title}]`"))
    }

    pub(super) fn wrong_type(&self, node: &Node, key: &str, wanted: &str) -> Error {
        let message = format!("`{key}`{} must be {wanted}, not {}", self.of(), node.value.kind());
        self.error_at(&node.place, message, None)
    }

    pub(super) fn error(&self, node: &Node, message: String, hint: Option<&str>) -> Error {
        self.error_at(&node.place, message, hint)
    }

    pub(super) fn error_at(&self, place: &Origin, message: String, hint: Option<&str>) -> Error {
        let message = match place {
            Origin::Line(line) => format!("{}:{line}: {message}", self.origin),
            Origin::Override(key, typed) => {
                let typed = tidemill_base::redaction::redact_override_value(key, typed);
                format!("--set {key}={typed}: {message}")
            }
            Origin::Unknown => format!("{}: {message}", self.origin),
        };
        Error::Usage { message, hint: hint.map(str::to_owned) }
    }
}

/// Puts `in [section]` behind the name of an unknown key.
pub(super) fn in_section(message: &str, title: &str) -> String {
    match message.match_indices('`').nth(1) {
        Some((end, _)) => format!("{} in {title}{}", &message[..=end], &message[end + 1..]),
        None => message.to_owned(),
    }
}
