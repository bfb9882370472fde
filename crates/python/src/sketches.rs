//! HyperLogLog sketches for Python: objects around the sketch, which methods change without the
//! interpreter's lock.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidemill_engine::hashing::{hash_values, is_hashable};
use tidemill_engine::sketch::{
    CardinalityEstimator, ExplicitThreshold, Hll, HllComparison, HllParams, HllStorageDialect,
    SketchError, SketchEstimate,
};
use tidemill_engine::{Error, Result};

use crate::column_import::{ValueColumn, column_type_error};
use crate::errors::{corrupt_bytes_exception, to_exception};
use crate::value_hashing::{self, ObjectHasher};

/// Number of values added between two checks of signals.
const VALUES_PER_SIGNAL_CHECK: usize = 1 << 16;

/// Returns the exception for an invalid parameter or corrupt bytes.
pub(crate) fn sketch_exception(py: Python<'_>, error: SketchError) -> PyErr {
    match error {
        SketchError::ParameterOutOfRange { .. } => {
            to_exception(py, Error::usage(error.to_string()))
        }
        other => corrupt_bytes_exception(py, &other.to_string()),
    }
}

/// An estimate as a Python tuple: the value, its standard error, and the 95 % confidence interval.
type EstimateTuple = (f64, f64, (f64, f64));

fn estimate_tuple(estimate: SketchEstimate) -> EstimateTuple {
    (estimate.value, estimate.standard_error, estimate.confidence_interval())
}

fn select_estimator(is_improved: bool) -> CardinalityEstimator {
    if is_improved { CardinalityEstimator::Improved } else { CardinalityEstimator::Published }
}

/// A HyperLogLog sketch.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawHll(Mutex<Hll>);

impl RawHll {
    fn from_hll(hll: Hll) -> Self {
        RawHll(Mutex::new(hll))
    }

    /// Calls `work` with the sketch. It does not wait for the sketch's lock while it holds the interpreter's.
    fn with_hll<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Hll) -> T + Send) -> T {
        py.detach(|| work(&mut self.0.lock()))
    }

    /// Adds one hash, with the interpreter's lock held if possible: adding is as fast as releasing that lock.
    fn push_hash(&self, py: Python<'_>, hash: u64) {
        match self.0.try_lock() {
            Some(mut hll) => hll.add_hash(hash),
            None => self.with_hll(py, |hll| hll.add_hash(hash)),
        }
    }

    /// Calls `work` with two sketches, which may be the same.
    fn with_both<T: Send>(
        &self,
        other: &RawHll,
        py: Python<'_>,
        work: impl FnOnce(&mut Hll, &Hll) -> T + Send,
    ) -> T {
        py.detach(|| {
            let (left, right): (*const RawHll, *const RawHll) = (self, other);
            // Locks are taken in address order, whichever sketch calls, so no two calls deadlock.
            let (mut ours, theirs): (MutexGuard<'_, Hll>, _) = match left.cmp(&right) {
                std::cmp::Ordering::Equal => {
                    let mut ours = self.0.lock();
                    let theirs = ours.clone();
                    return work(&mut ours, &theirs);
                }
                std::cmp::Ordering::Less => {
                    let ours = self.0.lock();
                    (ours, other.0.lock())
                }
                std::cmp::Ordering::Greater => {
                    let theirs = other.0.lock();
                    (self.0.lock(), theirs)
                }
            };
            work(&mut ours, &theirs)
        })
    }
}

#[pymethods]
impl RawHll {
    /// Creates an empty sketch; `explicit` is the threshold, or `None` for the automatic one.
    #[new]
    #[pyo3(signature = (log2m, regwidth, explicit, sparse))]
    fn new(
        py: Python<'_>,
        log2m: u8,
        regwidth: u8,
        explicit: Option<u64>,
        sparse: bool,
    ) -> PyResult<Self> {
        let expthresh = match explicit {
            None => Ok(ExplicitThreshold::Automatic),
            Some(count) => ExplicitThreshold::from_count(count),
        };
        let hll = expthresh
            .and_then(|expthresh| Hll::new(HllParams { log2m, regwidth, expthresh, sparse }));
        hll.map(RawHll::from_hll).map_err(|error| sketch_exception(py, error))
    }

    /// Reads a sketch from bytes, with `log2m` up to `max_log2m`.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8], max_log2m: u8) -> PyResult<Self> {
        let read = py.detach(|| Hll::from_bytes_with_log2m_max(bytes, max_log2m));
        read.map(RawHll::from_hll).map_err(|error| sketch_exception(py, error))
    }

    /// Encodes the sketch by postgresql-hll's rules, with an optional limit of sparse registers, or by
    /// java-hll's.
    #[pyo3(signature = (sparse_max, is_java))]
    fn to_bytes<'py>(
        &self,
        py: Python<'py>,
        sparse_max: Option<u32>,
        is_java: bool,
    ) -> Bound<'py, PyBytes> {
        let dialect = match is_java {
            true => HllStorageDialect::Java,
            false => HllStorageDialect::Postgres { sparse_registers_max: sparse_max },
        };
        PyBytes::new(py, &self.with_hll(py, |hll| hll.to_bytes(dialect)))
    }

    /// Returns `log2m`, `regwidth`, the explicit threshold (`None` if automatic), and whether it may be
    /// sparse.
    #[getter]
    fn parameters(&self, py: Python<'_>) -> (u8, u8, Option<u64>, bool) {
        let params = self.with_hll(py, |hll| hll.params());
        let explicit = match params.expthresh {
            ExplicitThreshold::Never => Some(0),
            ExplicitThreshold::PowerOfTwo(power) => Some(1 << power),
            _ => None,
        };
        (params.log2m, params.regwidth, explicit, params.sparse)
    }

    #[getter]
    fn is_exact(&self, py: Python<'_>) -> bool {
        self.with_hll(py, |hll| hll.is_exact())
    }

    #[getter]
    fn is_undefined(&self, py: Python<'_>) -> bool {
        self.with_hll(py, |hll| hll.is_undefined())
    }

    /// Bytes of heap memory.
    #[getter]
    fn heap_bytes(&self, py: Python<'_>) -> usize {
        self.with_hll(py, |hll| hll.heap_bytes())
    }

    fn copy(&self, py: Python<'_>) -> Self {
        RawHll::from_hll(self.with_hll(py, |hll| hll.clone()))
    }

    fn equals(&self, py: Python<'_>, other: &Bound<'_, RawHll>) -> bool {
        self.with_both(other.get(), py, |ours, theirs| ours == theirs)
    }

    fn add(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(hash) = ObjectHasher::hash_object(value)? else {
            let hint = "leave it out; add_values leaves nulls out by itself";
            return Err(value_hashing::refused_value_error(value, "is no value to count", hint));
        };
        self.push_hash(value.py(), hash);
        Ok(())
    }

    /// Adds a value by its hash, whose bits are those of a signed integer.
    fn add_hash(&self, py: Python<'_>, hash: i64) {
        self.push_hash(py, hash.cast_unsigned());
    }

    /// Adds the objects of an iterable, all or none.
    fn add_objects(&self, objects: &Bound<'_, PyAny>) -> PyResult<()> {
        let hashes = ObjectHasher::hash_all_objects(objects)?;
        self.with_hll(objects.py(), |hll| hll.add_hashes(&hashes));
        Ok(())
    }

    /// Adds the values of an object that exports Arrow data.
    fn add_arrow(&self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_column(object.py(), ValueColumn::from_arrow(object)?)
    }

    /// Adds the values of a NumPy array.
    fn add_numpy(&self, array: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_column(array.py(), ValueColumn::from_numpy(array)?)
    }

    /// Adds values by their hashes.
    fn add_hash_list(&self, py: Python<'_>, hashes: Vec<i64>) {
        self.with_hll(py, |hll| hll.add_hash_iter(hashes.into_iter().map(i64::cast_unsigned)));
    }

    /// Adds values by their hashes, in an object that exports Arrow data.
    fn add_arrow_hashes(&self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_hash_column(object.py(), ValueColumn::from_arrow(object)?)
    }

    /// Adds values by their hashes, in a NumPy array.
    fn add_numpy_hashes(&self, array: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add_hash_column(array.py(), ValueColumn::from_numpy(array)?)
    }

    fn update(&self, py: Python<'_>, other: &Bound<'_, RawHll>) {
        self.with_both(other.get(), py, |ours, theirs| ours.merge(theirs));
    }

    fn union(&self, py: Python<'_>, other: &Bound<'_, RawHll>) -> Self {
        RawHll::from_hll(self.with_both(other.get(), py, |ours, theirs| ours.union(theirs)))
    }

    fn folded(&self, py: Python<'_>, log2m: u8, regwidth: u8) -> PyResult<Self> {
        let folded = self.with_hll(py, |hll| hll.fold_to_params(log2m, regwidth));
        folded.map(RawHll::from_hll).map_err(|error| sketch_exception(py, error))
    }

    fn cardinality(&self, py: Python<'_>, is_improved: bool) -> f64 {
        self.with_hll(py, |hll| hll.cardinality_with(select_estimator(is_improved)))
    }

    fn estimate(&self, py: Python<'_>, is_improved: bool) -> EstimateTuple {
        estimate_tuple(self.with_hll(py, |hll| hll.estimate(select_estimator(is_improved))))
    }

    /// Compares two sketches: returns the intersection, the difference and the Jaccard index,
    /// each with a flag that is true if the value exceeds its error.
    fn compare(&self, py: Python<'_>, other: &Bound<'_, RawHll>) -> [(EstimateTuple, bool); 3] {
        let HllComparison { intersection, left_only, jaccard, .. } =
            self.with_both(other.get(), py, |ours, theirs| ours.compare(theirs));
        [intersection, left_only, jaccard]
            .map(|found| (estimate_tuple(found), found.margin_of_error() <= found.value))
    }
}

impl RawHll {
    fn add_column(&self, py: Python<'_>, column: ValueColumn) -> PyResult<()> {
        let of = column.data_type();
        // A column of nulls has no values.
        if *of == DataType::Null {
            return Ok(());
        }
        if !is_hashable(of) {
            let hint = "numbers, texts, bytes, truth values, times and decimals have a hash";
            return Err(column_type_error(py, "a sketch takes no values", of, hint));
        }
        column.for_each_piece(py, VALUES_PER_SIGNAL_CHECK, |piece| {
            add_array(&mut self.0.lock(), piece)
        })
    }

    fn add_hash_column(&self, py: Python<'_>, column: ValueColumn) -> PyResult<()> {
        let of = column.data_type();
        if !matches!(of, DataType::Null | DataType::Int64 | DataType::UInt64) {
            let hint = "hashes are whole numbers of 64 bits; add_values hashes other values";
            return Err(column_type_error(py, "a sketch takes no hashes", of, hint));
        }
        column.for_each_piece(py, VALUES_PER_SIGNAL_CHECK, |piece| {
            if let Some(words) = as_u64_values(piece) {
                add_valid_hashes(&mut self.0.lock(), piece, words);
            }
            Ok(())
        })
    }
}

/// Returns the values of an array of 64-bit integers, those of null slots included.
pub(crate) fn as_u64_values(array: &ArrayRef) -> Option<&[u64]> {
    match array.data_type() {
        DataType::Int64 => {
            Some(array.as_primitive::<Int64Type>().values().inner().typed_data::<u64>())
        }
        DataType::UInt64 => Some(array.as_primitive::<UInt64Type>().values()),
        _ => None,
    }
}

fn add_valid_hashes(hll: &mut Hll, array: &ArrayRef, hashes: &[u64]) {
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => hll.add_hashes(hashes),
        Some(nulls) => hll.add_hash_iter(nulls.valid_indices().map(|at| hashes[at])),
    }
}

fn add_array(hll: &mut Hll, piece: &ArrayRef) -> Result<()> {
    if *piece.data_type() == DataType::Int64 && piece.null_count() == 0 {
        hll.add_i64s(piece.as_primitive::<Int64Type>().values());
        return Ok(());
    }
    let (hashes, nulls) = hash_values(piece)?;
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => hll.add_hashes(&hashes),
        Some(nulls) => hll.add_hash_iter(nulls.valid_indices().map(|at| hashes[at])),
    }
    Ok(())
}
