//! The peers that read JSON lines.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use sonic_rs::{JsonValueTrait, LazyValue, PointerNode, PointerTree};

use crate::cases::{Case, Kind, Wanted};
use crate::columns::{Column, Columns};
use crate::{BATCH_ROWS, Parser, Result};

/// - `arrow-json`: its decoder, with a schema of the wanted columns only;
/// - `serde_json`, `simd-json`, `sonic-rs`: by serde, a visitor that appends the wanted values
///   to Arrow builders and ignores the others; `simd-json` writes into its input, so it gets
///   a copy of each line;
/// - `sonic-get`: sonic-rs's `get_many`, which skips what is not wanted, into Arrow builders;
/// - `sonic-get-unchecked`: the same without looking whether what it skips is JSON at all.
pub fn parser(case: &Case, name: &str) -> Result<Box<dyn Parser>> {
    let by_serde = || (Builders::new(case), Node::tree(&case.wanted));
    Ok(match name {
        "arrow-json" => Box::new(ArrowJson(
            arrow_json::ReaderBuilder::new(Arc::new(case.schema()))
                .with_batch_size(BATCH_ROWS)
                .build_decoder()?,
        )),
        "serde_json" => {
            let (builders, tree) = by_serde();
            Box::new(SerdeJson { builders, tree })
        }
        "simd-json" => {
            let (builders, tree) = by_serde();
            let buffers = simd_json::Buffers::new(4096);
            Box::new(SimdJson { builders, tree, line: Vec::new(), buffers })
        }
        "sonic-rs" => {
            let (builders, tree) = by_serde();
            Box::new(SonicRs { builders, tree })
        }
        "sonic-get" | "sonic-get-unchecked" => Box::new(SonicGet::new(case, name == "sonic-get")),
        _ => return Err(format!("no parser `{name}`").into()),
    })
}

fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', block).map(move |end| {
        let line = &block[start..end];
        start = end + 1;
        line
    })
}

struct ArrowJson(arrow_json::reader::Decoder);

impl Parser for ArrowJson {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let mut rest = block;
        while !rest.is_empty() {
            let read = self.0.decode(rest)?;
            rest = &rest[read..];
            if self.0.len() == BATCH_ROWS || rest.is_empty() {
                self.0.flush()?.iter().for_each(&mut *out);
            }
        }
        Ok(())
    }
}

struct SerdeJson {
    builders: Builders,
    tree: Vec<Node>,
}

impl Parser for SerdeJson {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        for line in lines(block) {
            let mut deserializer = serde_json::Deserializer::from_slice(line);
            self.builders.object(&self.tree).deserialize(&mut deserializer)?;
            deserializer.end()?;
            self.builders.end_row(out)?;
        }
        self.builders.columns.flush(out)
    }
}

struct SimdJson {
    builders: Builders,
    tree: Vec<Node>,
    line: Vec<u8>,
    buffers: simd_json::Buffers,
}

impl Parser for SimdJson {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        for line in lines(block) {
            self.line.clear();
            self.line.extend_from_slice(line);
            let mut deserializer = simd_json::Deserializer::from_slice_with_buffers(
                &mut self.line,
                &mut self.buffers,
            )?;
            self.builders.object(&self.tree).deserialize(&mut deserializer)?;
            self.builders.end_row(out)?;
        }
        self.builders.columns.flush(out)
    }
}

struct SonicRs {
    builders: Builders,
    tree: Vec<Node>,
}

impl Parser for SonicRs {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        for line in lines(block) {
            let mut deserializer = sonic_rs::Deserializer::from_slice(line);
            self.builders.object(&self.tree).deserialize(&mut deserializer)?;
            deserializer.end()?;
            self.builders.end_row(out)?;
        }
        self.builders.columns.flush(out)
    }
}

struct SonicGet {
    columns: Columns,
    paths: PointerTree,
    kinds: Vec<Kind>,
    checked: bool,
}

impl SonicGet {
    fn new(case: &Case, checked: bool) -> Self {
        let mut paths = PointerTree::new();
        for wanted in &case.wanted {
            let path: Vec<_> =
                wanted.path.iter().map(|key| PointerNode::Key(key.clone().into())).collect();
            paths.add_path(&path);
        }
        let kinds = case.wanted.iter().map(|wanted| wanted.kind).collect();
        Self { columns: Columns::new(case), paths, kinds, checked }
    }
}

impl Parser for SonicGet {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        for line in lines(block) {
            let found = match self.checked {
                true => sonic_rs::get_many(line, &self.paths)?,
                // SAFETY: the lines are JSON: the other parsers have read them before.
                false => unsafe { sonic_rs::get_many_unchecked(line, &self.paths)? },
            };
            for ((column, value), kind) in
                self.columns.columns.iter_mut().zip(&found).zip(&self.kinds)
            {
                append_lazy(column, value.as_ref(), *kind)?;
            }
            self.columns.end_row(out)?;
        }
        self.columns.flush(out)
    }
}

fn append_lazy(column: &mut Column, value: Option<&LazyValue>, kind: Kind) -> Result<()> {
    let Some(value) = value.filter(|value| value.as_raw_str() != "null") else {
        column.null();
        return Ok(());
    };
    match kind {
        Kind::Text | Kind::Time => column.text(value.as_str().ok_or("not a string")?),
        Kind::Int | Kind::Float | Kind::Bool => column.text(value.as_raw_str()),
    }
}

/// A key on the way to a wanted value: keys below it, or the column itself.
struct Node {
    key: String,
    column: Option<usize>,
    below: Vec<Node>,
}

impl Node {
    fn tree(wanted: &[Wanted]) -> Vec<Node> {
        let mut roots: Vec<Node> = Vec::new();
        for (index, wanted) in wanted.iter().enumerate() {
            let mut nodes = &mut roots;
            for (depth, key) in wanted.path.iter().enumerate() {
                let at = nodes.iter().position(|node| node.key == *key).unwrap_or_else(|| {
                    nodes.push(Node { key: key.clone(), column: None, below: Vec::new() });
                    nodes.len() - 1
                });
                if depth + 1 == wanted.path.len() {
                    nodes[at].column = Some(index);
                }
                nodes = &mut nodes[at].below;
            }
        }
        roots
    }
}

struct Builders {
    columns: Columns,
}

impl Builders {
    fn new(case: &Case) -> Self {
        Self { columns: Columns::new(case) }
    }

    fn object<'a>(&'a mut self, keys: &'a [Node]) -> Object<'a> {
        Object { builders: self, keys }
    }

    /// Ends a row; a column whose key was not there gets a null.
    fn end_row(&mut self, out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let row = self.columns.rows;
        for column in &mut self.columns.columns {
            if column.len() == row {
                column.null();
            }
        }
        self.columns.end_row(out)
    }
}

/// Reads an object and appends the wanted ones of its values.
struct Object<'a> {
    builders: &'a mut Builders,
    keys: &'a [Node],
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut next = 0;
        while let Some(found) = map.next_key_seed(Key { keys: self.keys, next })? {
            let Some(at) = found else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            next = at + 1;
            let node = &self.keys[at];
            match node.column {
                Some(column) => {
                    map.next_value_seed(Value(&mut self.builders.columns.columns[column]))?;
                }
                None => {
                    map.next_value_seed(Object { builders: self.builders, keys: &node.below })?
                }
            }
        }
        Ok(())
    }
}

/// Finds a key among the wanted ones, the one after the last found first.
struct Key<'a> {
    keys: &'a [Node],
    next: usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a key")
    }

    #[inline]
    fn visit_str<E: de::Error>(self, key: &str) -> Result<Option<usize>, E> {
        if self.keys.get(self.next).is_some_and(|node| node.key == key) {
            return Ok(Some(self.next));
        }
        Ok(self.keys.iter().position(|node| node.key == key))
    }
}

/// Appends a value to its column.
struct Value<'a>(&'a mut Column);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Value<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a scalar value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.0.null();
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.0.bool(value).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.0.int(value).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.0.int(i64::try_from(value).map_err(E::custom)?).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.0.float(value).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        self.0.text(value).map_err(E::custom)
    }
}
