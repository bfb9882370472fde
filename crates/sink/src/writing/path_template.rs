//! Path templates, such as `out/{state}/{day}.parquet`, and the encoding of values in paths.
//!
//! A column's name in braces stands for its value; `{{` and `}}` are braces of the name
//! itself. The **root** is the folder before the first component that holds a column; the
//! rest, the **pattern**, names each file relative to it. Without columns the pattern is the name of one
//! file.
//!
//! **Value text** is the same as in CSV, with these exceptions, which keep the names of distinct values
//! distinct and prevent a value from being more than a name:
//!
//! | value | in the path |
//! | --- | --- |
//! | null | `__HIVE_DEFAULT_PARTITION__`, as Hive has it |
//! | the string `__HIVE_DEFAULT_PARTITION__` | its first `_` as `%5F` |
//! | the empty string | `%empty` (an escape has two hexadecimal digits, so nothing decodes to it) |
//! | `/`, `%`, control characters; a `.` that would begin a name; `=` in a folder's name, which would turn the text before it into a key | percent-encoded as UTF-8 |
//! | a value that would make a name that readers of folders skip, `_SUCCESS` and the like | its first character percent-encoded |
//! | a name longer than 255 bytes | each value that takes more than its share is cut and ends in `%~` and 32 hexadecimal digits of the whole value's hash |
//!
//! **Ambiguity.** Two different sets of values can still give one name: `{a}-{b}` with
//! (`x-y`, `z`) and (`x`, `y-z`), or `Texas` and `texas` on a file system that folds case.
//! [`assign_paths`] finds these among the names of a run and leaves all other names alone. It
//! writes their values with everything percent-encoded except lower-case letters and digits,
//! and encodes even those that stand between the component's columns. Percent-decoding
//! still returns the value. Such file systems also treat the composed
//! and the decomposed form of `é` as one; there everything beyond ASCII is always percent-encoded.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use arrow::datatypes::{DataType, Schema};
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;
use tidemill_base::suggestions;
use tidemill_remote::location::{Location, refuse_mistyped_url};
use tidemill_source::is_ignored_name;

use crate::error::{Error, Result};

/// Text of a null in a path.
pub(crate) const NULL_PATH_TEXT: &str = "__HIVE_DEFAULT_PARTITION__";
/// Text of the empty string in a path.
const EMPTY_PATH_TEXT: &str = "%empty";
/// Prefix of a staging folder's name.
pub(crate) const STAGING_PREFIX: &str = ".tidemill-";
/// The longest name of a file or folder that common file systems take.
const NAME_BYTES_MAX: usize = 255;
/// Length of the suffix of a shortened value: `%~` and 32 digits.
const CUT_SUFFIX_BYTES: usize = 34;

/// A parsed output URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathTemplate {
    /// The URL as the user wrote it.
    pub(crate) url: String,
    /// The bucket, if the path is a key in a bucket.
    pub(crate) bucket: Option<String>,
    /// The folder that holds everything the template can name; `.` if the path has no folder before it.
    pub(crate) root: PathBuf,
    /// The names below the root: folders, then the file.
    components: Vec<PathComponent>,
    /// The columns, each once, in the order of their first appearance.
    pub(crate) columns: Vec<String>,
}

type PathComponent = Vec<PathSegment>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathSegment {
    Literal(String),
    /// Index into [`PathTemplate::columns`].
    Column(usize),
}

/// Returns an error for a path with a component that is reserved for staging folders: recovery of a dead run
/// would treat the files in it as that run's.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn refuse_staging_name(path: &str) -> Result<()> {
    match path.split('/').any(|part| part.starts_with(STAGING_PREFIX)) {
        true => Err(Error::usage(format!(
            "`{path}` names a file or folder that begins with `{STAGING_PREFIX}`, which is kept for \
             output that is not committed yet"
        ))),
        false => Ok(()),
    }
}

/// Returns true if `name` matches a component, with any text for its columns.
fn component_matches(component: &PathComponent, name: &str) -> bool {
    match component.split_first() {
        None => name.is_empty(),
        Some((PathSegment::Literal(text), rest)) => {
            name.strip_prefix(text.as_str()).is_some_and(|name| segments_match(rest, name))
        }
        Some((PathSegment::Column(_), rest)) => (0..=name.len())
            .filter(|at| name.is_char_boundary(*at))
            .any(|at| segments_match(rest, &name[at..])),
    }
}

fn segments_match(rest: &[PathSegment], name: &str) -> bool {
    component_matches(&rest.to_vec(), name)
}

/// The values of one path, in the order of [`PathTemplate::columns`]; `None` is null.
pub(crate) type PathKey = Vec<Option<Box<str>>>;

impl PathTemplate {
    /// Parses an output path.
    ///
    /// # Errors
    /// [`Error::Usage`] for unbalanced braces, columns without text between them, and names
    /// that are ambiguous or would leave the root.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        refuse_mistyped_url(url)?;
        let (bucket, path) = match Location::parse(url) {
            Ok(Some(Location::S3 { bucket, key })) => (Some(bucket), parse_object_key(url, key)?),
            _ => (None, parse_local_path(url)?),
        };
        let mut columns: Vec<String> = Vec::new();
        let mut parts: Vec<PathSegment> = Vec::new();
        let mut literal = String::new();
        let mut rest = path.chars().peekable();
        let unbalanced = |brace: char| {
            Error::usage_with_hint(
                format!("`{url}` has a `{brace}` without its partner"),
                "a column's name stands in braces, `{day}`; a brace that is part of a file's \
                 name is written twice, `{{`",
            )
        };
        while let Some(c) = rest.next() {
            match c {
                '{' if rest.peek() == Some(&'{') => {
                    rest.next();
                    literal.push('{');
                }
                '}' if rest.peek() == Some(&'}') => {
                    rest.next();
                    literal.push('}');
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some('{') | None => return Err(unbalanced('{')),
                            Some(c) => name.push(c),
                        }
                    }
                    if name.is_empty() {
                        return Err(Error::usage(format!(
                            "`{url}` has braces without a column's name"
                        )));
                    }
                    if !literal.is_empty() {
                        parts.push(PathSegment::Literal(std::mem::take(&mut literal)));
                    }
                    let index = columns.iter().position(|column| *column == name);
                    let index = index.unwrap_or_else(|| {
                        columns.push(name);
                        columns.len() - 1
                    });
                    parts.push(PathSegment::Column(index));
                }
                '}' => return Err(unbalanced('}')),
                c => literal.push(c),
            }
        }
        if !literal.is_empty() {
            parts.push(PathSegment::Literal(literal));
        }
        let mut template = Self::split_at_root(url, &parts)?;
        template.columns = columns;
        template.bucket = bucket;
        template.validate()?;
        Ok(template)
    }

    /// Splits the parts at slashes, and separates the root from the components.
    fn split_at_root(url: &str, parts: &[PathSegment]) -> Result<Self> {
        let mut all: Vec<PathComponent> = vec![Vec::new()];
        let mut absolute = false;
        for (i, part) in parts.iter().enumerate() {
            match part {
                PathSegment::Literal(text) => {
                    absolute |= i == 0 && text.starts_with('/');
                    for (j, piece) in text.split('/').enumerate() {
                        if j > 0 {
                            all.push(Vec::new());
                        }
                        if !piece.is_empty()
                            && let Some(component) = all.last_mut()
                        {
                            component.push(PathSegment::Literal(piece.to_owned()));
                        }
                    }
                }
                PathSegment::Column(_) => {
                    if let Some(component) = all.last_mut() {
                        component.push(part.clone());
                    }
                }
            }
        }
        let folder = || {
            Error::usage_with_hint(
                format!("`{url}` names a folder, not a file"),
                "end it with a file's name, as in `out/result.csv` or `out/{day}.csv`",
            )
        };
        let dots = |component: &PathComponent| matches!(component.as_slice(), [PathSegment::Literal(name)] if name == "." || name == "..");
        if all.last().is_none_or(|last| last.is_empty() || dots(last)) {
            return Err(folder());
        }
        let has_column = |component: &PathComponent| {
            component.iter().any(|part| matches!(part, PathSegment::Column(_)))
        };
        let first = all.iter().position(has_column).unwrap_or(all.len() - 1);
        let mut root = PathBuf::from(if absolute { "/" } else { "" });
        for component in &all[..first] {
            if let [PathSegment::Literal(name)] = component.as_slice() {
                root.push(name);
            }
        }
        if root.as_os_str().is_empty() {
            root.push(".");
        }
        let components: Vec<PathComponent> =
            all.split_off(first).into_iter().filter(|component| !component.is_empty()).collect();
        if components.iter().any(dots) {
            return Err(Error::usage(format!("`{url}` has a `.` or `..` behind a column")));
        }
        let url = url.to_owned();
        Ok(PathTemplate { url, bucket: None, root, components, columns: Vec::new() })
    }

    /// Returns true if some values would have the path below the root.
    pub(crate) fn can_name_path(&self, below: &Path) -> bool {
        let names: Vec<_> = below.iter().map(|name| name.to_string_lossy()).collect();
        names.len() == self.components.len()
            && self
                .components
                .iter()
                .zip(&names)
                .all(|(component, name)| component_matches(component, name))
    }

    fn validate(&self) -> Result<()> {
        let url = &self.url;
        if self.bucket.is_none() {
            refuse_staging_name(&self.root.display().to_string())?;
        }
        for component in &self.components {
            let literal: usize = component
                .iter()
                .map(|part| match part {
                    PathSegment::Literal(text) => text.len(),
                    PathSegment::Column(_) => 0,
                })
                .sum();
            let columns =
                component.iter().filter(|part| matches!(part, PathSegment::Column(_))).count();
            if literal > NAME_BYTES_MAX {
                return Err(Error::usage(format!(
                    "`{url}` has a name of {literal} bytes; file systems take {NAME_BYTES_MAX}"
                )));
            }
            if let Some(PathSegment::Literal(text)) = component.first()
                && (text.starts_with(STAGING_PREFIX)
                    || (columns > 0 && STAGING_PREFIX.starts_with(text.as_str())))
            {
                return Err(Error::usage(format!(
                    "`{url}` may name a file that begins with `{STAGING_PREFIX}`, which is kept for \
                     output that is not committed yet"
                )));
            }
            if columns == 0 {
                continue;
            }
            if (NAME_BYTES_MAX - literal) / columns < CUT_SUFFIX_BYTES + 6 {
                return Err(Error::usage_with_hint(
                    format!("`{url}` leaves too little room for {columns} values in one name"),
                    "put some of the columns into folders of their own, `{a}/{b}.csv`",
                ));
            }
            if component
                .iter()
                .any(|part| matches!(part, PathSegment::Literal(text) if text.contains('%')))
            {
                return Err(Error::usage(format!(
                    "`{url}` has a `%` in a name with a column; there it marks an encoded character"
                )));
            }
            let adjacent = component
                .windows(2)
                .any(|pair| matches!(pair, [PathSegment::Column(_), PathSegment::Column(_)]));
            if adjacent {
                return Err(Error::usage_with_hint(
                    format!("`{url}` has two columns with nothing between them"),
                    "put text between them, `{a}-{b}`, so that their values can be told apart",
                ));
            }
        }
        Ok(())
    }

    /// Returns true if the template names one file per value.
    pub(crate) fn is_partitioned(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Returns the part below the root as the user wrote it, normalized for the comparison of two runs.
    pub(crate) fn pattern(&self) -> String {
        let mut out = String::new();
        for (i, component) in self.components.iter().enumerate() {
            if i > 0 {
                out.push('/');
            }
            for part in component {
                match part {
                    PathSegment::Literal(text) => out.push_str(&escape_braces(text)),
                    PathSegment::Column(index) => {
                        // Writing to a `String` cannot fail.
                        let _ = write!(out, "{{{}}}", self.columns[*index]);
                    }
                }
            }
        }
        out
    }

    /// Returns the one file that a template without columns names.
    pub(crate) fn file_path(&self) -> PathBuf {
        let name = match self.components.first().map(Vec::as_slice) {
            Some([PathSegment::Literal(name)]) => name,
            _ => "",
        };
        join_below(&self.root, name)
    }

    /// Returns the end of the last component, from which the format is inferred.
    pub(crate) fn suffix(&self) -> &str {
        match self.components.last().and_then(|component| component.last()) {
            Some(PathSegment::Literal(text)) => text,
            _ => "",
        }
    }

    /// Returns the columns' positions in a schema.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown column, with the nearest name, and for nested columns.
    pub(crate) fn resolve_columns(&self, schema: &Schema) -> Result<Vec<usize>> {
        let mut positions = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let Some((position, field)) = schema.column_with_name(column) else {
                let names: Vec<&str> =
                    schema.fields().iter().map(|field| field.name().as_str()).collect();
                let message = suggestions::unknown_name_message("column", column, &names);
                return Err(Error::usage(format!("in the path `{}`: {message}", self.url)));
            };
            if is_nested_type(field.data_type()) || !is_routable_type(field.data_type()) {
                return Err(Error::usage_with_hint(
                    format!(
                        "column `{column}` of type `{}` cannot be part of the path `{}`",
                        field.data_type(),
                        self.url
                    ),
                    "a path takes numbers, strings, booleans, dates and times; select one field of it",
                ));
            }
            positions.push(position);
        }
        Ok(positions)
    }

    /// Renders one component for the values of a key.
    fn render_component(
        &self,
        component: &PathComponent,
        key: &PathKey,
        rule: EncodingRule,
    ) -> String {
        // Strict encoding also encodes the letter that ends a value.
        let mut separators = Vec::new();
        if rule.is_strict {
            for pair in component.windows(2) {
                if let [PathSegment::Column(_), PathSegment::Literal(text)] = pair {
                    separators.extend(text.chars().next().map(|c| c.to_ascii_lowercase()));
                }
            }
        }
        let keep = |c: char| {
            if rule.is_strict {
                (c.is_ascii_lowercase() || c.is_ascii_digit()) && !separators.contains(&c)
            } else {
                !(matches!(c, '/' | '%')
                    || c.is_control()
                    || (rule.is_folder && c == '=')
                    || (rule.is_ascii_only && !c.is_ascii()))
            }
        };
        let mut texts: Vec<String> = Vec::with_capacity(component.len());
        for (i, part) in component.iter().enumerate() {
            texts.push(match part {
                PathSegment::Literal(text) => text.clone(),
                PathSegment::Column(index) => encode_value(key[*index].as_deref(), i == 0, keep),
            });
        }
        let name = texts.concat();
        if is_ignored_name(&name) && !name.starts_with('.') {
            // Readers must not skip the files written here. Such a name is all ASCII.
            let mut parts = component.iter().zip(&mut texts);
            let column = parts.find(|(part, _)| matches!(part, PathSegment::Column(_)));
            if let Some((_, text)) = column
                && let Some(first) = text.bytes().next()
            {
                *text = format!("%{first:02X}{}", &text[1..]);
            }
        }
        if texts.iter().map(String::len).sum::<usize>() > NAME_BYTES_MAX {
            self.shorten_values(component, key, &mut texts);
        }
        texts.concat()
    }

    /// Shortens the values that take more than their share of a name.
    fn shorten_values(&self, component: &PathComponent, key: &PathKey, texts: &mut [String]) {
        let mut literal = 0;
        let mut columns = 0;
        for (part, text) in component.iter().zip(texts.iter()) {
            match part {
                PathSegment::Literal(_) => literal += text.len(),
                PathSegment::Column(_) => columns += 1,
            }
        }
        let share = (NAME_BYTES_MAX - literal) / columns.max(1);
        for (part, text) in component.iter().zip(texts) {
            if let PathSegment::Column(index) = part
                && text.len() > share
            {
                let mut end = share - CUT_SUFFIX_BYTES;
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                // Do not cut within an escape.
                if let Some(percent) = text[..end].rfind('%')
                    && end - percent < 3
                {
                    end = percent;
                }
                text.truncate(end);
                let value = key[*index].as_deref().unwrap_or_default();
                let _ = write!(text, "%~{:032x}", fnv_1a_128(value.as_bytes()));
            }
        }
    }
}

/// The rule by which values are encoded in a name.
#[derive(Debug, Clone, Copy, Default)]
struct EncodingRule {
    /// True if everything beyond ASCII is percent-encoded.
    is_ascii_only: bool,
    /// True if only lower-case letters and digits stay as they are.
    is_strict: bool,
    /// True if the name is a folder's, where `key=value` is a column.
    is_folder: bool,
}

/// Returns the relative paths of a run's keys, all distinct, even on a file system that `folds` names.
///
/// # Errors
/// [`Error::Usage`] if two keys cannot get distinct paths, which requires two long values with the
/// same 128-bit hash.
pub(crate) fn assign_paths(
    template: &PathTemplate,
    keys: &[PathKey],
    folds: bool,
) -> Result<Vec<String>> {
    let fold = |text: &str| if folds { text.to_ascii_lowercase() } else { text.to_owned() };
    let mut paths = vec![String::new(); keys.len()];
    // Keys of one group have the same values in all columns so far, and the same folder.
    let mut groups = vec![0_usize; keys.len()];
    let mut seen = vec![false; template.columns.len()];
    for (depth, component) in template.components.iter().enumerate() {
        let folder = depth + 1 < template.components.len();
        let plain = EncodingRule { is_ascii_only: folds, is_strict: false, is_folder: folder };
        for part in component {
            if let PathSegment::Column(index) = part {
                seen[*index] = true;
            }
        }
        let identity = |key: &PathKey| -> PathKey {
            key.iter().zip(&seen).map(|(value, seen)| value.clone().filter(|_| *seen)).collect()
        };
        // Nulls and columns not seen yet look alike in an identity, but a column is seen for
        // all keys or for none.
        let mut next_groups: HashMap<(usize, PathKey), usize> = HashMap::new();
        let mut owners: HashMap<(usize, String), (usize, bool)> = HashMap::new();
        let mut names: Vec<(usize, usize)> = Vec::with_capacity(keys.len());
        let mut rendered: Vec<String> = Vec::new();
        let mut examples: Vec<usize> = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let count = next_groups.len();
            let next = *next_groups.entry((groups[i], identity(key))).or_insert(count);
            if next == count {
                let name = template.render_component(component, key, plain);
                owners
                    .entry((groups[i], fold(&name)))
                    .and_modify(|(_, contested)| *contested = true)
                    .or_insert((next, false));
                rendered.push(name);
                examples.push(i);
            }
            names.push((groups[i], next));
        }
        for (next, name) in rendered.iter_mut().enumerate() {
            let example = examples[next];
            let owner = owners.get(&(groups[example], fold(name)));
            if owner.is_some_and(|(_, contested)| *contested) {
                let hard = EncodingRule { is_strict: true, ..plain };
                *name = template.render_component(component, &keys[example], hard);
            }
        }
        for (i, path) in paths.iter_mut().enumerate() {
            if depth > 0 {
                path.push('/');
            }
            path.push_str(&rendered[names[i].1]);
            groups[i] = names[i].1;
        }
    }
    let mut taken = HashMap::with_capacity(paths.len());
    for (i, path) in paths.iter().enumerate() {
        if let Some(other) = taken.insert(fold(path), i) {
            let key: &PathKey = &keys[other];
            return Err(Error::usage(format!(
                "two values of `{}` would both be written to `{path}`: {key:?} and {:?}",
                template.url, keys[i]
            )));
        }
    }
    Ok(paths)
}

/// Escapes a name as a template that stands for exactly this name.
pub(crate) fn escape_braces(name: &str) -> String {
    name.replace('{', "{{").replace('}', "}}")
}

fn encode_value(value: Option<&str>, begins: bool, keep: impl Fn(char) -> bool) -> String {
    let Some(value) = value else { return NULL_PATH_TEXT.to_owned() };
    if value.is_empty() {
        return EMPTY_PATH_TEXT.to_owned();
    }
    let mut out = String::with_capacity(value.len());
    for (i, c) in value.chars().enumerate() {
        let special = i == 0 && ((begins && c == '.') || value == NULL_PATH_TEXT);
        if keep(c) && !special {
            out.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Computes Fowler, Noll and Vo's hash with 128 bits: it names long values, and defends against nothing.
pub(crate) fn fnv_1a_128(bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

fn is_nested_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_nested_type(values),
        DataType::RunEndEncoded(_, values) => is_nested_type(values.data_type()),
        other => other.is_nested(),
    }
}

/// Returns the key of an output in a bucket.
fn parse_object_key(url: &str, key: String) -> Result<String> {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    if key.is_empty() || key.ends_with('/') || key.split('/').all(plain) {
        // Later code refuses a folder as it does on disk.
        return Ok(if key.is_empty() { "/".into() } else { key });
    }
    Err(Error::usage_with_hint(
        format!("`{url}` cannot be written"),
        "keys with empty parts (`a//b`), `.` or `..` are not supported",
    ))
}

/// Returns the local path that a URL names.
fn parse_local_path(url: &str) -> Result<String> {
    if url.is_empty() {
        return Err(Error::usage("the output has no name"));
    }
    if url.contains('\0') {
        return Err(Error::usage("the output's name holds a null character"));
    }
    if let Some(rest) = url.strip_prefix("file://") {
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        if !path.starts_with('/') {
            return Err(Error::usage_with_hint(
                format!("`{url}` names another machine's file"),
                "a file's URL has three slashes, `file:///folder/file.csv`",
            ));
        }
        let decoded = percent_encoding::percent_decode_str(path).decode_utf8();
        return match decoded {
            Ok(path) => Ok(path.into_owned()),
            Err(_) => Err(Error::usage(format!("`{url}` is not UTF-8"))),
        };
    }
    if let Some((scheme, _)) = url.split_once("://")
        && !scheme.is_empty()
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    {
        return Err(Error::usage_with_hint(
            format!("output to `{scheme}://` is not supported"),
            "write to a local file, to s3://bucket/key or to standard output, `-`",
        ));
    }
    Ok(url.to_owned())
}
/// Returns a path in the destination as a user would write it: `day.csv`, not `./day.csv`.
pub(crate) fn join_below(root: &Path, target: &str) -> PathBuf {
    if root == Path::new(".") { PathBuf::from(target) } else { root.join(target) }
}

/// Returns true if the router can group rows by columns of this type.
fn is_routable_type(data_type: &DataType) -> bool {
    RowConverter::supports_fields(&[SortField::new(data_type.clone())])
}
