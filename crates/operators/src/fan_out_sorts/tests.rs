use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, DictionaryArray, Float64Array, Int64Array,
    ListArray, NullArray, RecordBatch, StringArray, StringViewArray, StructArray, make_comparator,
};
use arrow::compute::{SortOptions, concat_batches};
use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use futures::StreamExt;
use proptest::prelude::*;
use tidemill_base::RunSettings;
use tidemill_base::error::Result;

use tidemill_sql::IntoTidemillError;
use tidemill_sql::session::{self, SessionExtensions};

/// Returns a batch with columns of all kinds, whose values and nulls derive from the numbers.
fn batch(numbers: &[(u8, i64)]) -> RecordBatch {
    let some = |index: usize| {
        let of = move |(kind, number): &(u8, i64)| {
            (kind >> (index % 8) & 1 == 0).then(|| number.rotate_left(index as u32 * 7))
        };
        numbers.iter().map(of)
    };
    let text = |number: i64| match number.rem_euclid(4) {
        0 => String::new(),
        1 => format!("ü\0{number}"),
        2 => "long and the same for many, ".repeat(3),
        _ => (number % 10).to_string(),
    };
    let texts = |index| some(index).map(move |it| it.map(text));
    let lists = ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>(
        some(4).map(|it| it.map(|it| (0..it.rem_euclid(3)).map(move |at| Some(it ^ at)))),
    );
    let inner: ArrayRef = Arc::new(some(5).collect::<Int64Array>());
    let field = Arc::new(Field::new("x", DataType::Int64, true));
    let codes: DictionaryArray<Int32Type> =
        texts(6).collect::<Vec<_>>().iter().map(|it| it.as_deref()).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("row", Arc::new(Int64Array::from_iter_values(0..numbers.len() as i64))),
        ("small", Arc::new(some(0).map(|it| it.map(|it| it % 3)).collect::<Int64Array>())),
        ("text", Arc::new(texts(1).collect::<StringArray>())),
        ("view", Arc::new(texts(2).collect::<StringViewArray>())),
        (
            "float",
            Arc::new(
                some(3)
                    .map(|it| it.map(|it| f64::from_bits(it.cast_unsigned())))
                    .collect::<Float64Array>(),
            ),
        ),
        ("list", Arc::new(lists)),
        ("struct", Arc::new(StructArray::new(vec![field].into(), vec![inner], None))),
        ("codes", Arc::new(codes)),
        ("flag", Arc::new(some(7).map(|it| it.map(|it| it % 2 == 0)).collect::<BooleanArray>())),
        (
            "bytes",
            Arc::new(
                some(8)
                    .map(|it| it.map(|it| it.to_be_bytes()))
                    .collect::<Vec<_>>()
                    .iter()
                    .map(|it| it.as_ref().map(|it| &it[..]))
                    .collect::<BinaryArray>(),
            ),
        ),
        ("nothing", Arc::new(NullArray::new(numbers.len()))),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

fn sorted(
    partitions: Vec<Vec<RecordBatch>>,
    order: &str,
    memory_bytes: usize,
    settings: &RunSettings,
) -> Result<Vec<RecordBatch>> {
    let context = session::open_session(memory_bytes, settings, SessionExtensions::default())?;
    let schema = partitions[0][0].schema();
    let table = MemTable::try_new(schema, partitions).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    let statement =
        tidemill_dialect::statement::parse_select(&format!("SELECT * FROM t ORDER BY {order}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let plan = tidemill_sql::statement_planning::statement_to_plan(&context.state(), statement)
            .into_tidemill_error()?;
        let frame = context.execute_logical_plan(plan).await.into_tidemill_error()?;
        let mut stream = frame.execute_stream().await.into_tidemill_error()?;
        let mut batches = Vec::new();
        while let Some(batch) = stream.next().await.transpose().into_tidemill_error()? {
            batches.push(batch);
        }
        Ok(batches)
    })
}

fn shown(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("∅");
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
        .collect();
    let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>();
    (0..batch.num_rows()).map(|at| row(at).join("|")).collect()
}

/// Normalizes values as SQL compares them: −0.0 equals 0.0, and all NaNs are equal.
fn comparable(values: &ArrayRef) -> ArrayRef {
    let Some(floats) = values.as_primitive_opt::<Float64Type>() else { return Arc::clone(values) };
    let settled = |float: f64| match float {
        float if float.is_nan() => f64::NAN,
        float => float + 0.0,
    };
    Arc::new(floats.unary::<_, Float64Type>(settled))
}

/// Returns the rows in order, by a stable sort.
fn model(batch: &RecordBatch, order: &[(usize, SortOptions)]) -> Vec<usize> {
    let comparators: Vec<_> = order
        .iter()
        .map(|(column, options)| {
            let values = comparable(batch.column(*column));
            make_comparator(&values, &values, *options).unwrap()
        })
        .collect();
    let mut rows: Vec<usize> = (0..batch.num_rows()).collect();
    rows.sort_by(|a, b| {
        comparators
            .iter()
            .map(|compare| compare(*a, *b))
            .find(|it| it.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    rows
}

/// Columns that DataFusion compares like the model.
const SORTABLE: [&str; 8] = ["small", "text", "view", "float", "codes", "flag", "bytes", "row"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sort_matches_stable_reference_sort(
        numbers in prop::collection::vec((any::<u8>(), any::<i64>()), 1..400),
        repeats in 1..60usize,
        by in prop::collection::vec((0..SORTABLE.len(), any::<bool>(), any::<bool>()), 1..4),
        pieces in 1..5usize,
        memory in prop::sample::select(vec![1usize << 20, 64 << 20]),
    ) {
        let numbers: Vec<_> = numbers.iter().copied().cycle().take(numbers.len() * repeats).collect();
        let all = batch(&numbers);
        let cut = all.num_rows().div_ceil(pieces);
        let parts = (0..pieces)
            .map(|piece| all.slice((piece * cut).min(all.num_rows()), cut.min(all.num_rows().saturating_sub(piece * cut))))
            .collect::<Vec<_>>();
        let order = by.iter().map(|(column, descending, nulls_first)| {
            let options = SortOptions { descending: *descending, nulls_first: *nulls_first };
            (all.schema().index_of(SORTABLE[*column]).unwrap(), options)
        });
        let order: Vec<_> = order.collect();
        let words = by.iter().map(|(column, descending, nulls_first)| format!(
            "{} {} NULLS {}",
            SORTABLE[*column],
            if *descending { "DESC" } else { "ASC" },
            if *nulls_first { "FIRST" } else { "LAST" },
        ));
        let words = words.collect::<Vec<_>>().join(", ");
        let rows = shown(&all);
        let expected: Vec<&str> = model(&all, &order).into_iter().map(|row| rows[row].as_str()).collect();
        let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
        let found = sorted(vec![parts.clone()], &words, memory, &settings).unwrap();
        let found: Vec<String> = found.iter().flat_map(shown).collect();
        prop_assert!(found.iter().map(String::as_str).eq(expected.iter().copied()), "ORDER BY {}", words);
        // Each of several inputs is a task, and ties come in the order of tasks.
        let found = sorted(parts.into_iter().map(|part| vec![part]).collect(), &words, memory, &settings);
        let found = found.unwrap();
        let whole = concat_batches(&found[0].schema(), &found).unwrap();
        let in_order = model(&whole, &order);
        prop_assert!(in_order.iter().copied().eq(0..whole.num_rows()), "ORDER BY {}", words);
        let (mut found, mut expected) = (shown(&whole), rows.clone());
        found.sort();
        expected.sort();
        prop_assert!(found == expected);
    }
}

/// Column types are preserved, dictionaries included.
#[test]
fn columns_keep_their_types() {
    let all = batch(&[(0, 5), (255, 3), (7, -9)]);
    let settings = RunSettings { threads: 1, ..RunSettings::new(64 << 20) };
    let found = sorted(vec![vec![all.clone()]], "text, float DESC", 32 << 20, &settings).unwrap();
    let types = |schema: &Schema| {
        schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>()
    };
    assert_eq!(types(&found[0].schema()), types(&all.schema()));
}

/// Tests a row that is larger than the sorter accepts, and one whose key is.
#[test]
fn oversized_payloads_are_spilled_and_oversized_keys_refused() {
    let long = |letter: char, bytes: usize| letter.to_string().repeat(bytes);
    let texts: Vec<String> = (0..40)
        .map(|at: u8| {
            long(char::from(b'a' + at % 26), if at.is_multiple_of(3) { 700_000 } else { 10 })
        })
        .collect();
    let keys: Vec<i64> = (0..40).map(|at| (at * 17) % 40).collect();
    let all = RecordBatch::try_from_iter([
        ("k", Arc::new(Int64Array::from(keys.clone())) as ArrayRef),
        ("text", Arc::new(StringArray::from(texts.clone())) as ArrayRef),
    ])
    .unwrap();
    let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
    let found = sorted(vec![vec![all.clone()]], "k", 4 << 20, &settings).unwrap();
    assert!(found.iter().all(|batch| batch.get_array_memory_size() < 8 << 20));
    let whole = concat_batches(&found[0].schema(), &found).unwrap();
    let mut expected: Vec<(i64, &str)> =
        keys.iter().copied().zip(texts.iter().map(String::as_str)).collect();
    expected.sort();
    let text = whole.column(1).as_any().downcast_ref::<StringArray>().unwrap();
    assert!(text.iter().map(Option::unwrap).eq(expected.iter().map(|(_, text)| *text)));
    let error = sorted(vec![vec![all]], "text", 4 << 20, &settings).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("out of memory: what a row is sorted by has "), "{said}");
}

#[test]
fn cancelled_run_interrupts_its_sorts() {
    let all = batch(&(0..20_000).map(|at| (0, at)).collect::<Vec<_>>());
    let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
    settings.cancel.cancel();
    let error = sorted(vec![vec![all]], "row DESC", 1 << 20, &settings).unwrap_err();
    assert!(matches!(error, tidemill_base::error::Error::Interrupted), "{error}");
}

/// A missing folder is reported when the sort spills, and not before.
#[test]
fn missing_spill_folder_is_named_only_when_needed() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let settings =
        RunSettings { threads: 2, spill_dirs: vec![missing.clone()], ..RunSettings::new(64 << 20) };
    let small = batch(&[(0, 1)]);
    sorted(vec![vec![small]], "text", 1 << 20, &settings).unwrap();
    let large = batch(&(0..40_000).map(|at| (0, at)).collect::<Vec<_>>());
    let error = sorted(vec![vec![large]], "row DESC", 1 << 20, &settings).unwrap_err();
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
}
