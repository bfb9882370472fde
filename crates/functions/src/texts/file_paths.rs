//! Splitting and joining of file paths and object addresses, as in DuckDB.
//!
//! The separators of a path are named `system`, `forward_slash`, `backslash` or `both_slash`, which is the
//! default. Any other word means the default too, as in DuckDB.

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};

use super::TEXT_SECTION;
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, PlannedCall, TextOperand, excerpt_for_message,
    is_text_type, list_type, query_error, usage_error,
};

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &["parse_path(path)", "parse_path(path, separators)"],
            "The names in a path, as a list, which begins with the separator where the path does: \
             `parse_path('/a/b.csv')` is `[/, a, b.csv]`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text], 1)
        .with_null_trailing_arguments()
        .with_return_type(list_type(DataType::Utf8View))
        .into_udf(|call| {
            let paths = PathWithSeparators::from_arguments(call, 1)?;
            call.build_text_lists(|row, items| {
                let Some((path, separators)) = paths.get(row) else { return Ok(false) };
                if separators.leading_separator(path).is_some() {
                    items.append_item(path.get(..1))?;
                }
                for name in separators.path_names(path) {
                    items.append_item(Some(name))?;
                }
                Ok(true)
            })
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["parse_dirname(path)", "parse_dirname(path, separators)"],
            "The first folder of a path, or the separator that the path begins with: `parse_dirname('a/b/c.csv')` is \
             `a`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text], 1)
        .with_null_trailing_arguments()
        .into_udf(|call| {
            let paths = PathWithSeparators::from_arguments(call, 1)?;
            call.build_borrowed_texts(|row| Ok(paths.get(row).map(|(path, of)| of.first_folder(path))))
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["parse_dirpath(path)", "parse_dirpath(path, separators)"],
            "A path without its last name: `parse_dirpath('a/b/c.csv')` is `a/b`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Text], 1)
        .with_null_trailing_arguments()
        .into_udf(|call| {
            let paths = PathWithSeparators::from_arguments(call, 1)?;
            call.build_borrowed_texts(|row| Ok(paths.get(row).map(|(path, of)| of.folder(path))))
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &[
                "parse_filename(path)",
                "parse_filename(path, separators)",
                "parse_filename(path, trims_extension)",
                "parse_filename(path, trims_extension, separators)",
            ],
            "The last name of a path, without its extension where `trims_extension` is true: \
             `parse_filename('a/b.tar.gz')` is `b.tar.gz`.",
        )
        .with_arguments(&[ArgumentKind::Text, ArgumentKind::Any, ArgumentKind::Text], 1)
        .with_null_trailing_arguments()
        .with_return_type_closure(check_filename_arguments)
        .into_udf(|call| {
            // The type of the second of two arguments tells a separator from a flag.
            let second = call.argument(1).map(|value| value.data_type());
            let is_separators = call.argument_count() == 2 && second.as_ref().is_some_and(is_text_type);
            let paths = PathWithSeparators::from_arguments(call, if is_separators { 1 } else { 2 })?;
            let trims: BooleanArray = match call.argument_count() {
                1 => BooleanArray::from(vec![false; call.row_count()]),
                _ if is_separators => BooleanArray::from(vec![false; call.row_count()]),
                _ => cast_with_options(&call.argument_column(1)?, &DataType::Boolean, &STRICT_CAST_OPTIONS)?
                    .as_boolean()
                    .clone(),
            };
            call.build_borrowed_texts(|row| {
                Ok(paths.get(row).map(|(path, separators)| {
                    let name = separators.last_name(path);
                    match trims.is_valid(row) && trims.value(row) {
                        true => name.rfind('.').map_or(name, |end| &name[..end]),
                        false => name,
                    }
                }))
            })
        }),
        ClosureFunction::new(
            TEXT_SECTION,
            &["path_join(path, path1, …)"],
            "Paths joined to one, without `.`, `..` and empty names: `path_join('a/b', '../c.csv')` is `a/c.csv`.",
        )
        .with_arguments(&[ArgumentKind::Text], 1)
        .with_variadic_argument(ArgumentKind::Text)
        .into_udf(|call| {
            let paths = (0..call.argument_count()).map(|index| call.text_operand(index));
            let paths: Vec<TextOperand> = paths.collect::<PlanResult<_>>()?;
            call.build_texts(|row, made| {
                let parts: Option<Vec<&str>> = paths.iter().map(|path| path.get(row)).collect();
                let Some(parts) = parts else { return Ok(false) };
                let [first, rest @ ..] = parts.as_slice() else { return Ok(false) };
                let mut joined = NormalizedPath::parse(first)?;
                for part in rest {
                    joined.join_path(NormalizedPath::parse(part)?)?;
                }
                joined.write(made);
                Ok(true)
            })
        }),
    ]
}

/// Checks the arguments of `parse_filename` behind the path.
fn check_filename_arguments(asked: &PlannedCall<'_>) -> PlanResult<DataType> {
    let given = asked.argument_type(1);
    if !(given.is_null() || *given == DataType::Boolean || is_text_type(given)) {
        return Err(usage_error(
            format!(
                "`parse_filename` takes a BOOLEAN or a TEXT as its second argument, and this is a {}",
                sql_type_name(given)
            ),
            "parse_filename(x, true) leaves the extension out",
        ));
    }
    if let Some(word) = asked.constant_text(1).filter(|_| asked.argument_count() > 2)
        && !["true", "false", "t", "f", "yes", "no", "y", "n", "on", "off", "1", "0"]
            .contains(&word.to_lowercase().as_str())
    {
        return Err(usage_error(
            format!("`{}` is neither true nor false", excerpt_for_message(word)),
            "parse_filename(x, true, 'forward_slash') leaves the extension out",
        ));
    }
    Ok(DataType::Utf8View)
}

/// The characters that separate the names of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathSeparators {
    Slash,
    Backslash,
    Both,
}

impl PathSeparators {
    fn from_name(name: &str) -> Self {
        match name {
            "forward_slash" | "system" => PathSeparators::Slash,
            "backslash" => PathSeparators::Backslash,
            _ => PathSeparators::Both,
        }
    }

    fn contains(self, letter: char) -> bool {
        match self {
            PathSeparators::Slash => letter == '/',
            PathSeparators::Backslash => letter == '\\',
            PathSeparators::Both => letter == '/' || letter == '\\',
        }
    }

    /// Returns the separator at the beginning of a path.
    fn leading_separator(self, path: &str) -> Option<&str> {
        path.starts_with(|letter| self.contains(letter)).then(|| &path[..1])
    }

    fn path_names(self, path: &str) -> impl Iterator<Item = &str> {
        path.split(move |letter| self.contains(letter)).filter(|name| !name.is_empty())
    }

    fn first_folder(self, path: &str) -> &str {
        match (self.leading_separator(path), path.find(|letter| self.contains(letter))) {
            (Some(root), _) => root,
            (None, Some(end)) => &path[..end],
            (None, None) => "",
        }
    }

    fn folder(self, path: &str) -> &str {
        match (self.leading_separator(path), path.rfind(|letter| self.contains(letter))) {
            (Some(root), _) if root == path => root,
            (_, Some(end)) => &path[..end],
            (_, None) => "",
        }
    }

    fn last_name(self, path: &str) -> &str {
        path.rsplit(|letter| self.contains(letter)).next().unwrap_or(path)
    }
}

/// The path and the separators of each row.
struct PathWithSeparators {
    paths: TextOperand,
    separators: TextOperand,
}

impl PathWithSeparators {
    fn from_arguments(call: &CallBatch, separators: usize) -> PlanResult<Self> {
        Ok(PathWithSeparators {
            paths: call.text_operand(0)?,
            separators: call.text_operand(separators)?,
        })
    }

    fn get(&self, row: usize) -> Option<(&str, PathSeparators)> {
        let separators =
            self.separators.get(row).map_or(PathSeparators::Both, PathSeparators::from_name);
        Some((self.paths.get(row)?, separators))
    }
}

/// A path or an address in its normal form.
#[derive(Debug)]
struct NormalizedPath<'a> {
    /// `s3://bucket`, `file:` or empty.
    prefix: String,
    is_absolute: bool,
    names: Vec<&'a str>,
    /// True if the path ends with a separator.
    is_folder: bool,
}

impl<'a> NormalizedPath<'a> {
    fn parse(text: &'a str) -> PlanResult<Self> {
        let (prefix, is_absolute, path) = match (text.find("://"), strip_file_scheme(text)) {
            (_, Some(path)) if !path.starts_with("//") => (text[..5].to_owned(), true, path),
            (Some(end), file) if end > 1 && !text[..end].contains(['/', '\\']) => {
                let behind = &text[end + 3..];
                let (authority, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
                let authority_fits = file.is_none()
                    || (authority.is_empty() && !path.is_empty())
                    || authority == "localhost";
                if !authority_fits {
                    return Err(query_error(
                        format!(
                            "`{}` names the host `{}`",
                            excerpt_for_message(text),
                            excerpt_for_message(authority)
                        ),
                        "a file has no other host than localhost: file:///a/b.csv",
                    ));
                }
                let scheme = match file {
                    Some(_) => text[..end].to_owned(),
                    None => text[..end].to_ascii_lowercase(),
                };
                (format!("{scheme}://{authority}"), true, path)
            }
            _ => (String::new(), text.starts_with(['/', '\\']), text),
        };
        let mut location =
            NormalizedPath { prefix, is_absolute, names: Vec::new(), is_folder: false };
        location.push_names(path.split(['/', '\\']));
        location.is_folder = path.ends_with(['/', '\\']);
        Ok(location)
    }

    fn push_names(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            match (name, self.names.last()) {
                ("" | ".", _) => {}
                ("..", None) if self.is_absolute => {}
                ("..", Some(last)) if *last != ".." => {
                    self.names.pop();
                }
                _ => self.names.push(name),
            }
        }
    }

    /// Appends a relative path, or adopts an absolute path that lies below this one.
    fn join_path(&mut self, other: NormalizedPath<'a>) -> PlanResult<()> {
        if other.is_absolute {
            let leads_on = self.is_absolute
                && self.prefix == other.prefix
                && other.names.starts_with(&self.names);
            if !leads_on {
                let (mut from, mut to) = (String::new(), String::new());
                self.write(&mut from);
                other.write(&mut to);
                return Err(query_error(
                    format!(
                        "`path_join` cannot join the absolute path `{}` to `{}`",
                        excerpt_for_message(&to),
                        excerpt_for_message(&from)
                    ),
                    "a path behind the first one is relative: path_join('/a', 'b')",
                ));
            }
            self.names = other.names;
        } else {
            self.push_names(other.names.into_iter());
        }
        self.is_folder = other.is_folder;
        Ok(())
    }

    fn write(&self, made: &mut String) {
        made.push_str(&self.prefix);
        match (self.is_absolute, self.names.is_empty()) {
            (true, _) => made.push('/'),
            (false, true) => made.push('.'),
            (false, false) => {}
        }
        for (index, name) in self.names.iter().enumerate() {
            if index > 0 {
                made.push('/');
            }
            made.push_str(name);
        }
        if self.is_folder && !self.names.is_empty() {
            made.push('/');
        }
    }
}

/// Returns the text behind `file:`, if it is empty or an absolute path.
fn strip_file_scheme(text: &str) -> Option<&str> {
    let scheme = text.get(..5)?;
    let path = &text[5..];
    let is_file =
        scheme.eq_ignore_ascii_case("file:") && (path.is_empty() || path.starts_with('/'));
    is_file.then_some(path)
}

#[cfg(test)]
mod tests {
    use crate::closure_function::tests::{call_in_all_forms, check_text_calls, text_constant};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    #[test]
    fn path_functions_match_duckdb() {
        check_text_calls(&[
            ("parse_path", &["path/to/file.csv\\file2.csv"], "[path, to, file.csv, file2.csv]"),
            ("parse_path", &["path/to/file.csv", "@"], "[path, to, file.csv]"),
            ("parse_path", &["\\path\\to\\file", "forward_slash"], "[\\path\\to\\file]"),
            ("parse_path", &["//path/to//file.csv", "forward_slash"], "[/, path, to, file.csv]"),
            ("parse_path", &["a\\b", "system"], "[a\\b]"),
            ("parse_path", &["a/b\\", "backslash"], "[a/b]"),
            ("parse_path", &["/\\\\/", "both_slash"], "[/]"),
            ("parse_path", &["\\/a"], "[\\, a]"),
            ("parse_path", &["é/ü"], "[é, ü]"),
            ("parse_path", &["", ""], "[]"),
            ("parse_dirname", &["a/b/c"], "a"),
            ("parse_dirname", &["///a/b"], "/"),
            ("parse_dirname", &["a"], ""),
            ("parse_dirname", &["a/"], "a"),
            ("parse_dirname", &["\\", "backslash"], "\\"),
            ("parse_dirname", &["/", "backslash"], ""),
            ("parse_dirpath", &["path/to/file.csv\\file2.csv"], "path/to/file.csv"),
            ("parse_dirpath", &["///path/to//file.csv", "forward_slash"], "///path/to/"),
            ("parse_dirpath", &["/a"], ""),
            ("parse_dirpath", &["/"], "/"),
            ("parse_dirpath", &["//"], "/"),
            ("parse_dirpath", &["a"], ""),
            ("parse_filename", &["path/to/file.csv\\file2.csv"], "file2.csv"),
            ("parse_filename", &["a/b/"], ""),
            ("parse_filename", &["/", "backslash"], "/"),
            ("parse_filename", &["a/b.c", "true"], "b.c"),
            ("parse_filename", &["a/b.c", "true", "system"], "b"),
            ("parse_filename", &["a/b.c", "no", "system"], "b.c"),
            (
                "parse_filename",
                &["a/b.c", "maybe", "system"],
                "`maybe` is neither true nor false\nhint: parse_filename(x, true, 'forward_slash') leaves the extension out",
            ),
        ]);
        let (yes, none) = (ScalarValue::from(true), ScalarValue::Null);
        for (name, args, expected) in [
            ("parse_filename", vec![text_constant("a.b.c"), yes.clone()], "a.b"),
            ("parse_filename", vec![text_constant("a/.bashrc"), yes.clone()], ""),
            ("parse_filename", vec![text_constant("a/.."), yes.clone()], "."),
            ("parse_filename", vec![text_constant("a.b/"), yes.clone()], ""),
            ("parse_filename", vec![text_constant("a.b/c"), yes.clone()], "c"),
            (
                "parse_filename",
                vec![text_constant("x/é.ü"), yes.clone(), text_constant("both_slash")],
                "é",
            ),
            (
                "parse_filename",
                vec![text_constant("a/b.c\\d"), yes.clone(), text_constant("backslash")],
                "d",
            ),
            ("parse_filename", vec![text_constant("a/b.c"), none.clone()], "b.c"),
            ("parse_filename", vec![text_constant("a/b.c"), none.clone(), none.clone()], "b.c"),
            ("parse_filename", vec![none.clone(), yes], "NULL"),
            ("parse_path", vec![text_constant("a/b"), none.clone()], "[a, b]"),
            ("parse_dirname", vec![none.clone(), text_constant("")], "NULL"),
            ("parse_dirpath", vec![none.clone()], "NULL"),
            (
                "parse_filename",
                vec![text_constant("a"), ScalarValue::from(1_i64)],
                "`parse_filename` takes a BOOLEAN or a TEXT as its second argument, and this is a BIGINT\nhint: parse_filename(x, true) leaves the extension out",
            ),
        ] {
            assert_eq!(call_in_all_forms(name, &args), expected, "{name}{args:?}");
        }
    }

    #[test]
    fn path_join_matches_duckdb() {
        check_text_calls(&[
            ("path_join", &["dir//subdir/", "./file"], "dir/subdir/file"),
            ("path_join", &["dir/subdir", "../sibling"], "dir/sibling"),
            ("path_join", &["dir", "subdir", "file.txt"], "dir/subdir/file.txt"),
            ("path_join", &["dir/..", "../.."], "../.."),
            ("path_join", &["/usr/local", "../.."], "/"),
            ("path_join", &["/a", "/a/b"], "/a/b"),
            ("path_join", &["file:/usr/local", "../bin"], "file:/usr/bin"),
            ("path_join", &["file:", "a"], "file:/a"),
            ("path_join", &["file:a", "..", ".."], ".."),
            ("path_join", &["FILE:///a", "b"], "FILE:///a/b"),
            ("path_join", &["file://localhost/a", "b"], "file://localhost/a/b"),
            ("path_join", &["S3://Foo", "bar//baz/"], "s3://Foo/bar/baz/"),
            ("path_join", &["s3://foo", "../.."], "s3://foo/"),
            ("path_join", &["s3://foo/a", ".."], "s3://foo/"),
            ("path_join", &["s3://"], "s3:///"),
            // One letter is a drive, not a scheme.
            ("path_join", &["a://b//c", "d"], "a:/b/c/d"),
            ("path_join", &["://a", "b"], ":/a/b"),
            ("path_join", &["a\\b\\", "c"], "a/b/c"),
            ("path_join", &["\\\\server\\share", "..", "x"], "/server/x"),
            ("path_join", &["C:\\a", "b"], "C:/a/b"),
            ("path_join", &["a/b/", "../"], "a/"),
            ("path_join", &["a/", ""], "a"),
            ("path_join", &["a/", ".."], "."),
            ("path_join", &["../"], "../"),
            ("path_join", &["", ""], "."),
            ("path_join", &["a", "..", "..", "b"], "../b"),
            (
                "path_join",
                &["a", "/b"],
                "`path_join` cannot join the absolute path `/b` to `a`\nhint: a path behind the first one is relative: path_join('/a', 'b')",
            ),
            (
                "path_join",
                &["file://h/a", "b"],
                "`file://h/a` names the host `h`\nhint: a file has no other host than localhost: file:///a/b.csv",
            ),
        ]);
        assert_eq!(
            call_in_all_forms(
                "path_join",
                &[text_constant("a"), ScalarValue::Utf8(None), text_constant("b")]
            ),
            "NULL"
        );
    }

    proptest! {
        #[test]
        fn joined_path_is_normalized(x in "[ab./:]{0,9}", y in "[ab./]{0,9}") {
            let joined = call_in_all_forms("path_join", &[text_constant(&x), text_constant(&y)]);
            if !joined.contains("hint:") {
                prop_assert_eq!(call_in_all_forms("path_join", &[text_constant(&joined)]), joined);
            }
        }
    }
}
