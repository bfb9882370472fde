//! The functions that look into JSON.
//!
//! Those of DuckDB and PostgreSQL refuse a text that is no JSON, with its place; those of Spark and ClickHouse,
//! `get_json_object` and `JSONExtract…`, answer null, as they do for what is not there.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, StringViewArray};
use arrow::datatypes::DataType;
use datafusion_common::{DataFusionError, Result as PlanResult};
use datafusion_expr::{ColumnarValue, ScalarUDF};

use super::paths::{Path, Step, Wrong, either};
use super::scan::{Malformed, Scanner, Sort, compact, unescape};
use super::{SECTION, nested};
use crate::call::{
    Asked, Call, Function, Integers, Items, Kind, Texts, failed, is_text, list_of, refused, shown,
    views,
};

const TEXT: Kind = Kind::Text;
const KEY: Kind = Kind::Key;

/// The refusal of a text that is no JSON.
pub(super) fn no_json(text: &str, malformed: Malformed) -> DataFusionError {
    let Malformed { at, what } = malformed;
    failed(
        format!("`{}` is no JSON: {what} behind {at} bytes", shown(text)),
        "json_valid(x) tells which rows have JSON; get_json_object(x, '$.a') answers null of others",
    )
}

fn no_path(text: &str, wrong: &Wrong) -> DataFusionError {
    let Wrong { at, what } = wrong;
    refused(
        format!("the path `{}` is not understood at character {}: {what}", shown(text), at + 1),
        "it is written as '$.a.b[0]', '$.a[*].b', '/a/b/0', or 'a' for a key",
    )
}

fn read_path(text: &str) -> PlanResult<Path> {
    Path::read(text).map_err(|wrong| no_path(text, &wrong))
}

fn stars_not_constant(text: &str) -> DataFusionError {
    refused(
        format!("the path `{}` may lead to several values, and is no constant", shown(text)),
        "a star stands in a path that is written in the query, where its answer is known to be a list",
    )
}

/// The paths of a batch: an argument that is a text, a number or a list of texts.
enum Paths {
    Constant(Option<Path>),
    /// All of a list's paths, for each row the same.
    List(Option<Vec<Option<Path>>>),
    Texts(Texts),
    Numbers(Integers),
    Lists(ArrayRef),
}

impl Paths {
    fn of(call: &Call, index: usize) -> PlanResult<Self> {
        let Some(value) = call.value(index) else {
            return Ok(Paths::Constant(Some(Path::default())));
        };
        let data_type = value.data_type();
        // A null that has no type.
        if data_type.is_null() {
            return Ok(Paths::Constant(None));
        }
        if is_text(&data_type) {
            let texts = call.texts(index)?;
            return Ok(match &texts {
                Texts::Constant(text) => {
                    Paths::Constant(text.as_deref().map(read_path).transpose()?)
                }
                Texts::Column(_) => Paths::Texts(texts),
            });
        }
        if data_type == DataType::Int64 {
            let numbers = call.integers(index)?;
            return Ok(match &numbers {
                Integers::Constant(number) => {
                    Paths::Constant(number.map(|number| Path::of(vec![Step::Index(number)])))
                }
                Integers::Column(_) => Paths::Numbers(numbers),
            });
        }
        Ok(match value {
            ColumnarValue::Scalar(value) if value.is_null() => Paths::List(None),
            ColumnarValue::Scalar(value) => {
                let lists = value.to_array()?;
                Paths::List(Some(listed_paths(&lists, 0)?))
            }
            ColumnarValue::Array(lists) => Paths::Lists(Arc::clone(lists)),
        })
    }

    /// A row's path, where there is one for each.
    fn with<T>(
        &self,
        row: usize,
        then: impl FnOnce(&Path) -> PlanResult<Option<T>>,
    ) -> PlanResult<Option<T>> {
        match self {
            Paths::Constant(Some(path)) => then(path),
            Paths::Texts(texts) => match texts.get(row) {
                Some(text) => {
                    let path = read_path(text)?;
                    if path.has_stars() {
                        return Err(stars_not_constant(text));
                    }
                    then(&path)
                }
                None => Ok(None),
            },
            Paths::Numbers(numbers) => match numbers.get(row) {
                Some(number) => then(&Path::of(vec![Step::Index(number)])),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn are_lists(&self) -> bool {
        matches!(self, Paths::List(_) | Paths::Lists(_))
    }

    /// A row's paths.
    fn list(&self, row: usize) -> PlanResult<Option<Vec<Option<Path>>>> {
        match self {
            Paths::Lists(lists) if lists.is_valid(row) => listed_paths(lists, row).map(Some),
            _ => Ok(None),
        }
    }
}

fn listed_paths(lists: &ArrayRef, row: usize) -> PlanResult<Vec<Option<Path>>> {
    let items = match lists.data_type() {
        DataType::List(_) => lists.as_list::<i32>().value(row),
        DataType::LargeList(_) => lists.as_list::<i64>().value(row),
        _ => lists.as_fixed_size_list().value(row),
    };
    let read = |text: &str| {
        let path = read_path(text)?;
        match path.has_stars() {
            true => Err(refused(
                format!("the path `{}` of a list may lead to several values", shown(text)),
                "json_extract(x, '$.a[*]') takes such a path alone",
            )),
            false => Ok(path),
        }
    };
    views(&items)?.iter().map(|text| text.map(read).transpose()).collect()
}

/// Looks at a constant path before there are rows, and tells the type of the answers of each.
fn checked(asked: &Asked<'_>, each: DataType) -> PlanResult<DataType> {
    let given = asked.data_type(1);
    if asked.count() > 1 && !is_text(given) && *given != DataType::Int64 && !given.is_null() {
        return Ok(list_of(each));
    }
    let path = asked.text(1).map(read_path).transpose()?;
    Ok(match path {
        Some(path) if path.has_stars() => list_of(each),
        _ => each,
    })
}

/// The same of a function that answers one value.
fn checked_one(asked: &Asked<'_>, each: DataType) -> PlanResult<DataType> {
    match asked.text(1).map(read_path).transpose()? {
        Some(path) if path.has_stars() => Err(refused(
            format!("`{}` takes a path to one value", asked.name()),
            "json_extract(x, '$.a[*]') has the values of a path with stars as a list",
        )),
        _ => Ok(each),
    }
}

/// What a value becomes in an answer.
type Shows = fn(&str, &mut String) -> bool;

/// As JSON.
fn as_json(value: &str, made: &mut String) -> bool {
    compact(value, made);
    true
}

/// As text: a string without its quotes; null is one of SQL's.
fn as_text(value: &str, made: &mut String) -> bool {
    match Sort::of(value) {
        Sort::Null => false,
        Sort::Text => {
            unescape(value.get(1..value.len() - 1).unwrap_or_default(), made);
            true
        }
        _ => as_json(value, made),
    }
}

fn is_scalar(value: &str) -> bool {
    !matches!(Sort::of(value), Sort::Object | Sort::Array)
}

/// The parts of JSON that paths lead to.
fn extracted(call: &Call, shows: Shows) -> PlanResult<ArrayRef> {
    let texts = call.texts(0)?;
    let paths = Paths::of(call, 1)?;
    let mut scanner = Scanner::default();
    if paths.are_lists() {
        return of_lists(call, &texts, &paths, shows);
    }
    if let Paths::Constant(Some(path)) = &paths
        && path.has_stars()
    {
        let (mut found, mut item) = (Vec::new(), String::new());
        return call.lists(|row, items| {
            let Some(text) = texts.get(row) else { return Ok(false) };
            scanner.all(text, path.steps(), &mut found).map_err(|error| no_json(text, error))?;
            for value in &found {
                add(items, value, shows, &mut item)?;
            }
            Ok(true)
        });
    }
    call.written(|row, made| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let found = paths.with(row, |path| {
            scanner.find(text, path.steps()).map_err(|error| no_json(text, error))
        })?;
        Ok(found.is_some_and(|value| shows(value, made)))
    })
}

/// What the same steps lead to in texts that a struct or a list has.
pub(super) fn by_steps(
    call: &Call,
    texts: &StringViewArray,
    steps: &[Step],
    is_text_wanted: bool,
) -> PlanResult<ArrayRef> {
    let mut scanner = Scanner::default();
    call.written(|row, made| {
        if texts.is_null(row) {
            return Ok(false);
        }
        let text = texts.value(row);
        let found = scanner.find(text, steps).map_err(|error| no_json(text, error))?;
        Ok(found.is_some_and(|value| match is_text_wanted {
            true => as_text(value, made),
            false => as_json(value, made),
        }))
    })
}

fn add(items: &mut Items, value: &str, shows: Shows, item: &mut String) -> PlanResult<()> {
    item.clear();
    let is_value = shows(value, item);
    items.add(is_value.then_some(item.as_str()))
}

/// A list of parts for a list of paths.
fn of_lists(call: &Call, texts: &Texts, paths: &Paths, shows: Shows) -> PlanResult<ArrayRef> {
    let (mut scanner, mut item) = (Scanner::default(), String::new());
    call.lists(|row, items| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let own;
        let all = match paths {
            Paths::List(all) => all.as_ref(),
            other => {
                own = other.list(row)?;
                own.as_ref()
            }
        };
        let Some(all) = all else { return Ok(false) };
        for path in all {
            let found = match path {
                Some(path) => {
                    scanner.find(text, path.steps()).map_err(|error| no_json(text, error))?
                }
                None => None,
            };
            match found {
                Some(value) => add(items, value, shows, &mut item)?,
                None => items.add(None)?,
            }
        }
        Ok(true)
    })
}

/// The steps that arguments are, each a key or a number.
struct Steps {
    constant: Option<Vec<Step>>,
    columns: Vec<Paths>,
    read: fn(&str) -> Step,
    /// The first item's number.
    first: i64,
}

impl Steps {
    fn of(call: &Call, read: fn(&str) -> Step, first: i64) -> PlanResult<Self> {
        let mut steps = Steps { constant: Some(Vec::new()), columns: Vec::new(), read, first };
        for index in 1..call.count() {
            let is_text = call.value(index).is_some_and(|value| is_text(&value.data_type()));
            let column = match is_text {
                true => Paths::Texts(call.texts(index)?),
                false => Paths::Numbers(call.integers(index)?),
            };
            let is_constant = matches!(call.value(index), Some(ColumnarValue::Scalar(_)));
            let step = if is_constant { steps.step(&column, 0) } else { None };
            match (step, &mut steps.constant) {
                (Some(step), Some(all)) => all.push(step),
                _ => steps.constant = None,
            }
            steps.columns.push(column);
        }
        Ok(steps)
    }

    fn step(&self, column: &Paths, row: usize) -> Option<Step> {
        match column {
            Paths::Texts(texts) => texts.get(row).map(self.read),
            Paths::Numbers(numbers) => {
                let number = numbers.get(row)?;
                let index = if number < 0 { number } else { number.checked_sub(self.first)? };
                // Of numbers from 1 there is no item 0.
                Some(Step::Index(index)).filter(|_| (number < 0) == (index < 0))
            }
            _ => None,
        }
    }

    /// What a row's steps lead to.
    fn find<'a>(
        &self,
        scanner: &mut Scanner,
        text: &'a str,
        row: usize,
    ) -> Result<Option<&'a str>, Malformed> {
        if let Some(steps) = &self.constant {
            return scanner.find(text, steps);
        }
        let steps = self.columns.iter().map(|column| self.step(column, row));
        match steps.collect::<Option<Vec<Step>>>() {
            Some(steps) => scanner.find(text, &steps),
            None => Ok(None),
        }
    }
}

/// A function that makes something of the value at the end of a path, of which there may be one.
fn at_path(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    shows: Shows,
    takes: fn(&str) -> bool,
) -> ScalarUDF {
    Function::new(SECTION, calls, what)
        .also(aliases)
        .takes(&[TEXT, KEY], 1)
        .settles(|asked| checked_one(asked, DataType::Utf8View))
        .runs(move |call| {
            let (texts, paths) = (call.texts(0)?, Paths::of(call, 1)?);
            let mut scanner = Scanner::default();
            call.written(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                let found = paths.with(row, |path| {
                    scanner.find(text, path.steps()).map_err(|error| no_json(text, error))
                })?;
                Ok(found.is_some_and(|value| takes(value) && shows(value, made)))
            })
        })
}

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    let mut all = of_paths();
    all.extend(of_values());
    all.extend(lenient());
    all
}

fn nested_or(
    asked: &Asked<'_>,
    is_text_wanted: bool,
    of_json: impl FnOnce() -> PlanResult<DataType>,
) -> PlanResult<DataType> {
    let given = asked.data_type(0);
    match nested::is_nested(given) {
        true => nested::answer(asked, &constant_path(asked)?, is_text_wanted),
        false if is_text(given) || given.is_null() => of_json(),
        false => Err(refused(
            format!(
                "`{}` takes JSON in a TEXT, a struct, a list or a map, and this is a {}",
                asked.name(),
                tidemill_base::column_types::sql_type_name(given)
            ),
            "to_json(x) makes JSON of any value",
        )),
    }
}

/// The path of a call, which has to be a constant.
fn constant_path(asked: &Asked<'_>) -> PlanResult<Path> {
    match (asked.text(1), asked.integer(1)) {
        (Some(text), _) => read_path(text),
        (None, Some(number)) => Ok(Path::of(vec![Step::Index(number)])),
        _ => Err(refused(
            format!("`{}` of a struct, a list or a map takes a constant path", asked.name()),
            "map_extract(m, key) and list[n] take what is calculated",
        )),
    }
}

fn of_paths() -> Vec<ScalarUDF> {
    let extract = |calls: &[&'static str], what: &str, is_text_wanted: bool| {
        let shows: Shows = if is_text_wanted { as_text } else { as_json };
        Function::new(SECTION, calls, what)
            .takes(&[Kind::Any, Kind::Any], 2)
            .settles(move |asked| {
                let given = asked.data_type(1);
                let is_path = is_text(given)
                    || given.is_integer()
                    || given.is_null()
                    || matches!(given, DataType::List(_) | DataType::LargeList(_));
                if !is_path {
                    return Err(refused(
                        format!("`{}` takes a path as its second argument", asked.name()),
                        "it is written as '$.a.b[0]', '/a/b/0', 'a' for a key, 0 for an item, or as a list of paths",
                    ));
                }
                nested_or(asked, is_text_wanted, || checked(asked, DataType::Utf8View))
            })
            .runs(move |call| {
                match call.value(0).is_some_and(|value| nested::is_nested(&value.data_type())) {
                    true => nested::extracted(call, &path_of(call)?, is_text_wanted),
                    false => extracted(call, shows),
                }
            })
    };
    vec![
        extract(
            &["json_extract(json, path)", "json_extract(json, [path, …])"],
            "The JSON at the end of a path, as it is written; of a path with stars, or several paths, a list.",
            false,
        ),
        extract(
            &["json_extract_string(json, path)", "json_extract_string(json, [path, …])"],
            "The value at the end of a path as text; of a path with stars, or several paths, a list.",
            true,
        ),
        Function::new(
            SECTION,
            &["json_extract_path(json, path)", "json_extract_path(json, key, key, …)"],
            "The JSON at the end of a path, or under keys within keys, as it is written.",
        )
        .takes(&[TEXT, KEY], 2)
        .and_more(KEY)
        .settles(keys_or_path)
        .runs(|call| by_keys_or_path(call, as_json)),
        Function::new(
            SECTION,
            &["json_extract_path_text(json, path)", "json_extract_path_text(json, key, key, …)"],
            "The value at the end of a path, or under keys within keys, as text.",
        )
        .also(&["jsonb_extract_path_text"])
        .takes(&[TEXT, KEY], 2)
        .and_more(KEY)
        .settles(keys_or_path)
        .runs(|call| by_keys_or_path(call, as_text)),
        at_path(
            &["json_extract_scalar(json, path)"],
            "The value at the end of a path as text, if it is neither an object nor an array; null otherwise.",
            &["json_value"],
            as_text,
            is_scalar,
        ),
    ]
}

/// The path of a call of rows, which was seen to be a constant.
fn path_of(call: &Call) -> PlanResult<Path> {
    match Paths::of(call, 1)? {
        Paths::Constant(Some(path)) => Ok(path),
        _ => Ok(Path::default()),
    }
}

fn keys_or_path(asked: &Asked<'_>) -> PlanResult<DataType> {
    match asked.count() {
        2 => checked(asked, DataType::Utf8View),
        _ => Ok(DataType::Utf8View),
    }
}

fn by_keys_or_path(call: &Call, shows: Shows) -> PlanResult<ArrayRef> {
    if call.count() == 2 {
        return extracted(call, shows);
    }
    let (texts, steps) = (call.texts(0)?, Steps::of(call, either, 0)?);
    let mut scanner = Scanner::default();
    call.written(|row, made| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let found = steps.find(&mut scanner, text, row).map_err(|error| no_json(text, error))?;
        Ok(found.is_some_and(|value| shows(value, made)))
    })
}

/// The type of a value as DuckDB calls it.
pub(super) fn duck_type(value: &str) -> &'static str {
    match Sort::of(value) {
        Sort::Object => "OBJECT",
        Sort::Array => "ARRAY",
        Sort::Text => "VARCHAR",
        Sort::Flag => "BOOLEAN",
        Sort::Null => "NULL",
        Sort::Number => match (value.parse::<u64>(), value.parse::<i64>()) {
            (Ok(_), _) => "UBIGINT",
            (_, Ok(_)) => "BIGINT",
            _ => "DOUBLE",
        },
    }
}

/// The type of a value as PostgreSQL calls it.
fn plain_type(value: &str) -> &'static str {
    match Sort::of(value) {
        Sort::Object => "object",
        Sort::Array => "array",
        Sort::Text => "string",
        Sort::Flag => "boolean",
        Sort::Null => "null",
        Sort::Number => "number",
    }
}

/// What a row's path leads to, if its text is JSON.
fn found<'a>(
    texts: &'a Texts,
    paths: &Paths,
    scanner: &mut Scanner,
    row: usize,
) -> PlanResult<Option<&'a str>> {
    let Some(text) = texts.get(row) else { return Ok(None) };
    paths.with(row, |path| scanner.find(text, path.steps()).map_err(|error| no_json(text, error)))
}

fn length(scanner: &mut Scanner, value: &str) -> Result<Option<i64>, Malformed> {
    let mut count = 0;
    match Sort::of(value) {
        Sort::Array => scanner.each_item(value, |_| count += 1)?,
        Sort::Object => scanner.members(value, |_, _| count += 1)?,
        _ => return Ok(None),
    }
    Ok(Some(count))
}

/// Adds the keys of an object; whether it is one.
fn add_keys(scanner: &mut Scanner, value: &str, items: &mut Items) -> PlanResult<bool> {
    if Sort::of(value) != Sort::Object {
        return Ok(false);
    }
    let (mut key, mut done) = (String::new(), Ok(()));
    let seen = scanner.members(value, |own, _| {
        if done.is_ok() {
            key.clear();
            unescape(own, &mut key);
            done = items.add(Some(&key));
        }
    });
    seen.map_err(|error| no_json(value, error))?;
    done?;
    Ok(true)
}

fn of_values() -> Vec<ScalarUDF> {
    vec![
        Function::new(SECTION, &["json_valid(text)"], "Whether a text is JSON.")
            .also(&["isvalidjson"])
            .takes(&[TEXT], 1)
            .gives(DataType::Boolean)
            .runs(|call| {
                let texts = call.texts(0)?;
                let mut scanner = Scanner::default();
                call.flags(|row| Ok(texts.get(row).map(|text| scanner.whole(text).is_ok())))
            }),
        Function::new(
            SECTION,
            &["json(text)"],
            "JSON without the spaces between its signs; a text that is none is refused.",
        )
        .takes(&[TEXT], 1)
        .runs(|call| {
            let texts = call.texts(0)?;
            let mut scanner = Scanner::default();
            call.written(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                compact(scanner.whole(text).map_err(|error| no_json(text, error))?, made);
                Ok(true)
            })
        }),
        Function::new(
            SECTION,
            &["json_unquote(json)"],
            "What a JSON string says, without its quotes; other JSON as it is.",
        )
        .takes(&[TEXT], 1)
        .runs(|call| {
            let texts = call.texts(0)?;
            let mut scanner = Scanner::default();
            call.written(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                let value = scanner.whole(text).map_err(|error| no_json(text, error))?;
                Ok(as_text(value, made) || as_json(value, made))
            })
        }),
        Function::new(
            SECTION,
            &["json_exists(json, path)"],
            "Whether there is something at the end of a path, be it null.",
        )
        .takes(&[TEXT, KEY], 2)
        .settles(|asked| checked_one(asked, DataType::Boolean))
        .runs(|call| {
            let (texts, paths) = (call.texts(0)?, Paths::of(call, 1)?);
            let mut scanner = Scanner::default();
            call.flags(|row| {
                let Some(text) = texts.get(row) else { return Ok(None) };
                paths.with(row, |path| {
                    let found = scanner.find(text, path.steps());
                    Ok(Some(found.map_err(|error| no_json(text, error))?.is_some()))
                })
            })
        }),
        Function::new(
            SECTION,
            &["json_type(json)", "json_type(json, path)"],
            "The type of JSON: OBJECT, ARRAY, VARCHAR, UBIGINT, BIGINT, DOUBLE, BOOLEAN or NULL.",
        )
        .takes(&[TEXT, KEY], 1)
        .settles(|asked| checked_one(asked, DataType::Utf8View))
        .runs(|call| {
            let (texts, paths) = (call.texts(0)?, Paths::of(call, 1)?);
            let mut scanner = Scanner::default();
            call.parts(|row| Ok(found(&texts, &paths, &mut scanner, row)?.map(duck_type)))
        }),
        Function::new(
            SECTION,
            &["json_typeof(json)"],
            "The type of JSON: object, array, string, number, boolean or null.",
        )
        .also(&["jsonb_typeof"])
        .takes(&[TEXT], 1)
        .runs(|call| {
            let (texts, paths) = (call.texts(0)?, Paths::of(call, 1)?);
            let mut scanner = Scanner::default();
            call.parts(|row| Ok(found(&texts, &paths, &mut scanner, row)?.map(plain_type)))
        }),
        Function::new(
            SECTION,
            &["json_array_length(json)", "json_array_length(json, path)"],
            "How many items an array has; null of what is none.",
        )
        .also(&["jsonb_array_length"])
        .takes(&[TEXT, KEY], 1)
        .settles(|asked| checked_one(asked, DataType::Int64))
        .runs(|call| {
            let (texts, paths) = (call.texts(0)?, Paths::of(call, 1)?);
            let mut scanner = Scanner::default();
            call.numbers(|row| {
                let value = found(&texts, &paths, &mut scanner, row)?;
                let array = value.filter(|value| Sort::of(value) == Sort::Array);
                match array {
                    Some(array) => {
                        length(&mut scanner, array).map_err(|error| no_json(array, error))
                    }
                    None => Ok(None),
                }
            })
        }),
        Function::new(
            SECTION,
            &["json_keys(json)", "json_keys(json, path)"],
            "The keys of an object as a list, in their order; null of what is none.",
        )
        .also(&["json_object_keys", "jsonb_object_keys"])
        .takes(&[TEXT, KEY], 1)
        .settles(|asked| checked_one(asked, list_of(DataType::Utf8View)))
        .runs(|call| {
            let (texts, paths) = (call.texts(0)?, Paths::of(call, 1)?);
            let mut scanner = Scanner::default();
            call.lists(|row, items| match found(&texts, &paths, &mut scanner, row)? {
                Some(value) => add_keys(&mut scanner, value, items),
                None => Ok(false),
            })
        }),
    ]
}

/// A function of ClickHouse's that looks up keys, and null for a text that is no JSON.
fn by_keys(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    gives: DataType,
    of: fn(&Call, &Keys) -> PlanResult<ArrayRef>,
) -> ScalarUDF {
    Function::new(SECTION, calls, what)
        .also(aliases)
        .takes(&[TEXT], 1)
        .and_more(KEY)
        .gives(gives)
        .runs(move |call| {
            let texts = call.texts(0)?;
            let steps = Steps::of(call, |key| Step::Key(key.to_owned()), 1)?;
            of(call, &Keys { texts, places: Places::Within(steps) })
        })
}

/// A function of ClickHouse's that looks for a key wherever it stands, and null for a text that is no JSON.
fn anywhere(
    calls: &[&'static str],
    what: &str,
    aliases: &[&str],
    gives: DataType,
    of: fn(&Call, &Keys) -> PlanResult<ArrayRef>,
) -> ScalarUDF {
    Function::new(SECTION, calls, what).also(aliases).takes(&[TEXT, TEXT], 2).gives(gives).runs(
        move |call| {
            let texts = call.texts(0)?;
            of(call, &Keys { texts, places: Places::Anywhere(call.texts(1)?) })
        },
    )
}

fn strings(call: &Call, keys: &Keys) -> PlanResult<ArrayRef> {
    let mut scanner = Scanner::default();
    call.written(|row, made| {
        let value = keys.find(&mut scanner, row);
        let value = value.filter(|value| Sort::of(value) == Sort::Text);
        Ok(value.is_some_and(|value| as_text(value, made)))
    })
}

fn raws(call: &Call, keys: &Keys) -> PlanResult<ArrayRef> {
    let mut scanner = Scanner::default();
    call.written(|row, made| {
        Ok(keys.find(&mut scanner, row).is_some_and(|value| as_json(value, made)))
    })
}

fn integers(call: &Call, keys: &Keys) -> PlanResult<ArrayRef> {
    let mut scanner = Scanner::default();
    call.numbers(|row| Ok(keys.find(&mut scanner, row).and_then(integer)))
}

fn floats(call: &Call, keys: &Keys) -> PlanResult<ArrayRef> {
    let mut scanner = Scanner::default();
    let numbers: Float64Array =
        (0..call.rows()).map(|row| keys.find(&mut scanner, row).and_then(float)).collect();
    Ok(Arc::new(numbers))
}

fn flags(call: &Call, keys: &Keys) -> PlanResult<ArrayRef> {
    let mut scanner = Scanner::default();
    let flags: BooleanArray = (0..call.rows())
        .map(|row| match keys.find(&mut scanner, row)? {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        })
        .collect();
    Ok(Arc::new(flags))
}

fn are_there(call: &Call, keys: &Keys) -> PlanResult<ArrayRef> {
    let mut scanner = Scanner::default();
    call.flags(|row| Ok(keys.texts.get(row).map(|_| keys.find(&mut scanner, row).is_some())))
}

/// Texts, and the keys that are looked up in them.
struct Keys {
    texts: Texts,
    places: Places,
}

enum Places {
    Within(Steps),
    /// The first key of a name, in the order in which the text has them.
    Anywhere(Texts),
}

impl Keys {
    /// What a row's keys lead to; none where its text is no JSON.
    fn find(&self, scanner: &mut Scanner, row: usize) -> Option<&str> {
        let text = self.texts.get(row)?;
        match &self.places {
            Places::Within(steps) => steps.find(scanner, text, row).ok().flatten(),
            Places::Anywhere(names) => scanner.anywhere(text, names.get(row)?).ok().flatten(),
        }
    }
}

/// A whole number, also of a string.
fn integer(value: &str) -> Option<i64> {
    let digits = match Sort::of(value) {
        Sort::Number => value,
        Sort::Text => value.get(1..value.len() - 1)?,
        Sort::Flag => return Some(i64::from(value == "true")),
        _ => return None,
    };
    digits.parse().ok().or_else(|| {
        let float: f64 = digits.parse().ok()?;
        // Up to here a DOUBLE has all whole numbers.
        let is_whole = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
        #[allow(clippy::cast_possible_truncation)]
        is_whole.then_some(float as i64)
    })
}

/// A number, also of a string.
fn float(value: &str) -> Option<f64> {
    match Sort::of(value) {
        Sort::Number => value.parse().ok(),
        Sort::Text => {
            value.get(1..value.len() - 1)?.parse().ok().filter(|float: &f64| float.is_finite())
        }
        _ => None,
    }
}

fn lenient() -> Vec<ScalarUDF> {
    vec![
        Function::new(
            SECTION,
            &["get_json_object(text, path)"],
            "The value at the end of a path as text; of a path with stars a JSON array of all; null of a text that \
             is no JSON.",
        )
        .takes(&[TEXT, TEXT], 2)
        .settles(|asked| {
            asked.text(1).map(read_path).transpose()?;
            Ok(DataType::Utf8View)
        })
        .runs(get_json_object),
        by_keys(
            &["jsonextractstring(text, key, …)"],
            "The string under keys, or numbers from 1, within one another; null of what is none.",
            &[],
            DataType::Utf8View,
            strings,
        ),
        anywhere(
            &["simplejsonextractstring(text, key)"],
            "The string under the first key of that name, however deep it stands; null of what is none.",
            &["visitparamextractstring"],
            DataType::Utf8View,
            strings,
        ),
        by_keys(
            &["jsonextractraw(text, key, …)"],
            "The JSON under keys, or numbers from 1, within one another.",
            &[],
            DataType::Utf8View,
            raws,
        ),
        anywhere(
            &["simplejsonextractraw(text, key)"],
            "The JSON under the first key of that name, however deep it stands.",
            &["visitparamextractraw"],
            DataType::Utf8View,
            raws,
        ),
        by_keys(
            &["jsonextractint(text, key, …)"],
            "The whole number under keys, or numbers from 1, within one another; null of what is none.",
            &["jsonextractuint"],
            DataType::Int64,
            integers,
        ),
        anywhere(
            &["simplejsonextractint(text, key)"],
            "The whole number under the first key of that name, however deep it stands; null of what is none.",
            &["visitparamextractint", "simplejsonextractuint", "visitparamextractuint"],
            DataType::Int64,
            integers,
        ),
        by_keys(
            &["jsonextractfloat(text, key, …)"],
            "The number under keys, or numbers from 1, within one another; null of what is none.",
            &[],
            DataType::Float64,
            floats,
        ),
        anywhere(
            &["simplejsonextractfloat(text, key)"],
            "The number under the first key of that name, however deep it stands; null of what is none.",
            &["visitparamextractfloat"],
            DataType::Float64,
            floats,
        ),
        by_keys(
            &["jsonextractbool(text, key, …)"],
            "What is true or false under keys, or numbers from 1, within one another; null of what is neither.",
            &[],
            DataType::Boolean,
            flags,
        ),
        anywhere(
            &["simplejsonextractbool(text, key)"],
            "What is true or false under the first key of that name, however deep it stands; null of what is \
             neither.",
            &["visitparamextractbool"],
            DataType::Boolean,
            flags,
        ),
        by_keys(
            &["jsonhas(text, key, …)"],
            "Whether there is something under keys, or numbers from 1, within one another; false of a text that is \
             no JSON.",
            &[],
            DataType::Boolean,
            are_there,
        ),
        anywhere(
            &["simplejsonhas(text, key)"],
            "Whether there is a key of that name, however deep it stands; false of a text that is no JSON.",
            &["visitparamhas"],
            DataType::Boolean,
            are_there,
        ),
        by_keys(
            &["jsonlength(text, key, …)"],
            "How many items or members there are under keys, or numbers from 1, within one another; null of what has \
             none.",
            &[],
            DataType::Int64,
            |call, keys| {
                let mut scanner = Scanner::default();
                call.numbers(|row| {
                    let value = keys.find(&mut scanner, row);
                    Ok(value.and_then(|value| length(&mut scanner, value).ok().flatten()))
                })
            },
        ),
        by_keys(
            &["jsonextractkeys(text, key, …)"],
            "The keys of the object under keys, or numbers from 1, within one another, as a list; null of what is \
             none.",
            &[],
            list_of(DataType::Utf8View),
            |call, keys| {
                let mut scanner = Scanner::default();
                call.lists(|row, items| match keys.find(&mut scanner, row) {
                    Some(value) => add_keys(&mut scanner, value, items),
                    None => Ok(false),
                })
            },
        ),
        by_keys(
            &["jsonextractarrayraw(text, key, …)"],
            "The items of the array under keys, or numbers from 1, within one another, as a list of JSON; null of \
             what is none.",
            &[],
            list_of(DataType::Utf8View),
            |call, keys| {
                let (mut scanner, mut item) = (Scanner::default(), String::new());
                call.lists(|row, items| {
                    let value = keys.find(&mut scanner, row);
                    let Some(value) = value.filter(|value| Sort::of(value) == Sort::Array) else {
                        return Ok(false);
                    };
                    let mut done = Ok(());
                    let seen = scanner.each_item(value, |each| {
                        if done.is_ok() {
                            done = add(items, each, as_json, &mut item);
                        }
                    });
                    seen.map_err(|error| no_json(value, error))?;
                    done?;
                    Ok(true)
                })
            },
        ),
    ]
}

fn get_json_object(call: &Call) -> PlanResult<ArrayRef> {
    let (texts, names) = (call.texts(0)?, call.texts(1)?);
    let constant = names.constant().map(read_path).transpose()?;
    let (mut scanner, mut found) = (Scanner::default(), Vec::new());
    call.written(|row, made| {
        let (Some(text), Some(name)) = (texts.get(row), names.get(row)) else { return Ok(false) };
        let own;
        let path = match &constant {
            Some(path) => path,
            None => {
                own = read_path(name)?;
                &own
            }
        };
        if !path.has_stars() {
            let value = scanner.find(text, path.steps()).ok().flatten();
            return Ok(value.is_some_and(|value| as_text(value, made)));
        }
        if scanner.all(text, path.steps(), &mut found).is_err() || found.is_empty() {
            return Ok(false);
        }
        made.push('[');
        for (index, value) in found.iter().enumerate() {
            if index > 0 {
                made.push(',');
            }
            compact(value, made);
        }
        made.push(']');
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::tests::{answer, called, check, shown_value, text};
    use arrow::array::StringArray;
    use datafusion_common::ScalarValue;

    const ORDER: &str = r#"{"a":{"b":[1, 2,{"c":"x"}]},"a.b":7,"n":null}"#;

    #[test]
    fn json_is_found_as_in_duckdb() {
        check(&[
            ("json_extract", &[ORDER, "$.a.b[0]"], "1"),
            ("json_extract", &[ORDER, "$.a"], r#"{"b":[1,2,{"c":"x"}]}"#),
            ("json_extract", &[ORDER, "a"], r#"{"b":[1,2,{"c":"x"}]}"#),
            ("json_extract", &[ORDER, "a.b"], "7"),
            ("json_extract", &[ORDER, "$.\"a.b\""], "7"),
            ("json_extract", &[ORDER, "/a/b/2/c"], "\"x\""),
            ("json_extract", &[ORDER, "$.a.b[-1].c"], "\"x\""),
            ("json_extract", &[ORDER, "$.a.b[#-1].c"], "\"x\""),
            ("json_extract", &[ORDER, "$.a.b[*]"], r#"[1, 2, {"c":"x"}]"#),
            ("json_extract", &[r#"{"a":{"x":1,"y":[2]}}"#, "$.a.*"], "[1, [2]]"),
            ("json_extract", &[r#"{"a":[{"b":1},{"b":2},{}]}"#, "$.a[*].b"], "[1, 2]"),
            ("json_extract", &[ORDER, "$.x"], "NULL"),
            ("json_extract", &[ORDER, "n"], "null"),
            ("json_extract", &["{\"a\":1}", "$"], "{\"a\":1}"),
            ("json_extract", &["{\"a\":1}", ""], "{\"a\":1}"),
            ("json_extract", &["{\"a\":1,\"a\":2}", "a"], "1"),
            ("json_extract", &["[1]", "$[5]"], "NULL"),
            ("json_extract", &["[1,2,3]", "1"], "NULL"),
            ("json_extract", &["{\"1\":5}", "1"], "5"),
            ("json_extract", &["{\"a/b\":1}", "/a~1b"], "1"),
            ("json_extract", &["{\"A\":1}", "a"], "NULL"),
            ("json_extract", &["{\"a\":1.50}", "a"], "1.50"),
            ("json_extract_string", &[ORDER, "n"], "NULL"),
            ("json_extract_string", &[r#"{"a":"x\n\u00e9\"y"}"#, "a"], "x\né\"y"),
            ("json_extract_string", &[r#"{"a":{"b": 1}}"#, "a"], r#"{"b":1}"#),
            (
                "json_extract_string",
                &[r#"{"a":["x",null,{"b":2}]}"#, "$.a[*]"],
                r#"[x, NULL, {"b":2}]"#,
            ),
            ("json_extract_path", &[r#"{"a":{"b":[5]}}"#, "a", "b", "0"], "5"),
            ("json_extract_path_text", &[r#"{"a":{"b":"c"}}"#, "a", "b"], "c"),
            ("json_extract_path_text", &[r#"{"a":"b"}"#, "a"], "b"),
            ("json_value", &["{\"a\":[1]}", "a"], "NULL"),
            ("json_value", &["{\"a\":\"s\"}", "a"], "s"),
            ("json_extract_scalar", &["{\"a\":\"s\"}", "$.a"], "s"),
            ("json_extract_scalar", &["{\"a\":[1]}", "$.a"], "NULL"),
            ("json_exists", &[ORDER, "n"], "true"),
            ("json_exists", &[ORDER, "m"], "false"),
            (
                "json_extract",
                &["{\"a\":1", "a"],
                "`{\"a\":1` is no JSON: the text ends before all brackets are closed behind 6 bytes\nhint: json_valid(x) tells which rows have JSON; get_json_object(x, '$.a') answers null of others",
            ),
            (
                "json_extract",
                &["{\"a\":1} x", "$.b[0]"],
                "`{\"a\":1} x` is no JSON: something follows the value behind 8 bytes\nhint: json_valid(x) tells which rows have JSON; get_json_object(x, '$.a') answers null of others",
            ),
            (
                "json_extract",
                &[ORDER, "$.a["],
                "the path `$.a[` is not understood at character 4: a bracket is not closed\nhint: it is written as '$.a.b[0]', '$.a[*].b', '/a/b/0', or 'a' for a key",
            ),
            (
                "json_exists",
                &[ORDER, "$.*"],
                "`json_exists` takes a path to one value\nhint: json_extract(x, '$.a[*]') has the values of a path with stars as a list",
            ),
        ]);
        let n = |number: i64| ScalarValue::from(number);
        assert_eq!(answer("json_extract", &[text("[1,2,3]"), n(1)]), "2");
        assert_eq!(answer("json_extract", &[text("[1,2,3]"), n(-1)]), "3");
        assert_eq!(answer("json_extract_string", &[text("[1,\"2\"]"), n(1)]), "2");
        assert_eq!(answer("json_extract", &[text("[1]"), ScalarValue::Utf8(None)]), "NULL");
        assert_eq!(answer("json_extract_string", &[text("[1]"), ScalarValue::Null]), "NULL");
        assert_eq!(answer("json_extract", &[ScalarValue::Utf8(None), text("a")]), "NULL");
        let list = ScalarValue::List(ScalarValue::new_list_nullable(
            &[text("a"), text("$.n"), text("x")],
            &DataType::Utf8,
        ));
        assert_eq!(
            answer("json_extract_string", &[text(ORDER), list]),
            r#"[{"b":[1,2,{"c":"x"}]}, NULL, NULL]"#
        );
        assert_eq!(
            answer("json_extract", &[ScalarValue::from(1.5), text("a")]),
            "`json_extract` takes JSON in a TEXT, a struct, a list or a map, and this is a DOUBLE\nhint: to_json(x) makes JSON of any value"
        );
    }

    #[test]
    fn paths_that_are_a_column_are_each_rows_own() {
        let column =
            |texts: Vec<&str>| ColumnarValue::Array(Arc::new(StringArray::from(texts)) as ArrayRef);
        let args = vec![column(vec![ORDER, ORDER, ORDER]), column(vec!["$.a.b[0]", "n", "x"])];
        let made = called("json_extract", args, 3).unwrap();
        let made: Vec<String> = (0..3).map(|row| shown_value(&made, row)).collect();
        assert_eq!(made, ["1", "null", "NULL"]);
        let args = vec![column(vec![ORDER]), column(vec!["$.*"])];
        let error = called("json_extract", args, 1).unwrap_err();
        assert!(crate::call::tests::told(error).contains("is no constant"));
    }

    #[test]
    fn json_has_types_lengths_and_keys() {
        check(&[
            ("json_type", &["{\"a\":1}"], "OBJECT"),
            ("json_type", &["[]"], "ARRAY"),
            ("json_type", &["{\"a\":1}", "a"], "UBIGINT"),
            ("json_type", &["{\"a\":-1}", "a"], "BIGINT"),
            ("json_type", &["{\"a\":1.5}", "a"], "DOUBLE"),
            ("json_type", &["{\"a\":\"s\"}", "a"], "VARCHAR"),
            ("json_type", &["{\"a\":null}", "a"], "NULL"),
            ("json_type", &["{\"a\":true}", "a"], "BOOLEAN"),
            ("json_type", &["{\"a\":true}", "b"], "NULL"),
            ("json_typeof", &["[1]"], "array"),
            ("jsonb_typeof", &["\"x\""], "string"),
            ("json_keys", &["{\"a\":1,\"b\\u00e9\":{\"c\":2},\"a\":3}"], "[a, bé, a]"),
            ("json_keys", &["[1]"], "NULL"),
            ("json_keys", &["{\"a\":{\"c\":1}}", "a"], "[c]"),
            ("json_keys", &["{}"], "[]"),
            ("json_array_length", &["[1,[2,3],{}]"], "3"),
            ("json_array_length", &["[]"], "0"),
            ("json_array_length", &["{\"a\":[1]}", "a"], "1"),
            ("json_array_length", &["{\"a\":[1]}"], "NULL"),
            ("json_valid", &["{"], "false"),
            ("json_valid", &["1"], "true"),
            ("json", &[" [1, { \"a b\" : 2 } ]"], "[1,{\"a b\":2}]"),
            ("json_unquote", &["\"a\\tb\""], "a\tb"),
            ("json_unquote", &["null"], "null"),
        ]);
    }

    #[test]
    fn texts_that_are_no_json_are_null_to_spark_and_clickhouse() {
        check(&[
            ("get_json_object", &[ORDER, "$.a.b[0]"], "1"),
            ("get_json_object", &[ORDER, "$.a.b[*].c"], "[\"x\"]"),
            ("get_json_object", &[ORDER, "$.x"], "NULL"),
            ("get_json_object", &["{\"a\":1", "$.a"], "NULL"),
            ("get_json_object", &["-", "$.a"], "NULL"),
            ("jsonextractstring", &[r#"{"a":{"b":"c"}}"#, "a", "b"], "c"),
            ("jsonextractstring", &[r#"{"a":5}"#, "a"], "NULL"),
            ("jsonextractstring", &["{", "a"], "NULL"),
            ("jsonextractint", &[r#"{"a":5}"#, "a"], "5"),
            ("jsonextractint", &[r#"{"a":"5"}"#, "a"], "5"),
            ("jsonextractint", &[r#"{"a":5.0}"#, "a"], "5"),
            ("jsonextractint", &[r#"{"a":5.5}"#, "a"], "NULL"),
            ("jsonextractint", &[r#"{"a":1e300}"#, "a"], "NULL"),
            ("jsonextractfloat", &[r#"{"a":5.5}"#, "a"], "5.5"),
            ("jsonextractfloat", &[r#"{"a":"inf"}"#, "a"], "NULL"),
            ("jsonextractbool", &[r#"{"a":true}"#, "a"], "true"),
            ("jsonextractbool", &[r#"{"a":1}"#, "a"], "NULL"),
            ("jsonextractraw", &[r#"{"a":[1, 2]}"#, "a"], "[1,2]"),
            ("jsonhas", &[r#"{"a":null}"#, "a"], "true"),
            ("jsonhas", &[r#"{"a":null}"#, "b"], "false"),
            ("jsonhas", &["-", "b"], "false"),
            ("jsonlength", &[r#"{"a":[1,2]}"#, "a"], "2"),
            ("jsonlength", &[r#"{"a":[1,2]}"#], "1"),
            ("jsonextractkeys", &[r#"{"a":{"b":1,"c":2}}"#, "a"], "[b, c]"),
            ("jsonextractarrayraw", &[r#"{"a":[1, "x"]}"#, "a"], "[1, \"x\"]"),
        ]);
        let n = |number: i64| ScalarValue::from(number);
        assert_eq!(answer("jsonextractint", &[text("[7,8]"), n(1)]), "7");
        assert_eq!(answer("jsonextractint", &[text("[7,8]"), n(-1)]), "8");
        assert_eq!(answer("jsonextractint", &[text("[7,8]"), n(0)]), "NULL");
    }
}
