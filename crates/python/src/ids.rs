//! Exact sets of ids for Python: objects around an id space and around sets of numbers in it. An id has
//! 64 bits; the space determines if these are signed.
//!
//! A space grows in memory, or it is serialized bytes, mostly a mapped file, and then read-only.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arrow::array::{Array, ArrayData};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::ffi::to_ffi;
use memmap2::Mmap;
use parking_lot::{RwLock, RwLockWriteGuard};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyCapsule, PyDict};
use tidemill_engine::sink::StagedFile;
use tidemill_engine::sketch::{IdSet, IdSpace, IdSpaceFull, IdSpaceView, SketchError};
use tidemill_engine::{Error, Result, RunId};

use crate::column_import::{ValueColumn, column_type_error};
use crate::errors::{corrupt_bytes_exception, to_exception};
use crate::sketches::as_u64_values;
use crate::value_hashing;

/// Number of ids processed between two checks of signals: as many as a space divides at once.
const IDS_PER_SIGNAL_CHECK: usize = 1 << 20;

const SIGN_BIT: u64 = 1 << 63;

fn id_space_full_error(error: IdSpaceFull) -> Error {
    let text = error.to_string();
    match text.split_once("\nhint: ") {
        Some((message, hint)) => Error::usage_with_hint(message, hint),
        None => Error::usage(text),
    }
}

/// Checks signals from code that does not hold the interpreter's lock.
fn check_signals() -> PyResult<()> {
    Python::try_attach(|py| py.check_signals()).unwrap_or(Ok(()))
}

/// The reason why a long call ends early.
enum LongCallFailure {
    EngineError(Error),
    PythonException(PyErr),
}

impl From<Error> for LongCallFailure {
    fn from(error: Error) -> Self {
        LongCallFailure::EngineError(error)
    }
}

impl From<PyErr> for LongCallFailure {
    fn from(error: PyErr) -> Self {
        LongCallFailure::PythonException(error)
    }
}

fn to_python_result<T>(py: Python<'_>, done: Result<T, LongCallFailure>) -> PyResult<T> {
    done.map_err(|stop| match stop {
        LongCallFailure::EngineError(error) => to_exception(py, error),
        LongCallFailure::PythonException(error) => error,
    })
}

/// Shared bytes, valid as long as a reference exists.
type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A read-only space in serialized form.
struct SerializedIdSpace {
    view: IdSpaceView<'static>,
    /// The bytes that the view borrows; declared after the view, so that it is dropped later.
    shared_bytes: SharedBytes,
}

impl SerializedIdSpace {
    fn new(held: SharedBytes) -> Result<Self, SketchError> {
        let bytes: &[u8] = (*held).as_ref();
        // SAFETY: the bytes stay at their address while `held` lives. The view lives as long, and is only
        // lent with a shorter lifetime.
        let bytes: &'static [u8] =
            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        Ok(SerializedIdSpace { view: IdSpaceView::open(bytes)?, shared_bytes: held })
    }
}

/// Signedness of the ids of a space.
const SIGN_UNKNOWN: u8 = 0;
const SIGNED: u8 = 1;
const UNSIGNED: u8 = 2;

/// A space: ids and their numbers.
///
/// No method waits for a lock while it holds the interpreter's lock.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawIdSpace {
    inner: IdSpaceStorage,
    /// [`SIGN_UNKNOWN`] until the first ids determine it.
    sign: AtomicU8,
}

enum IdSpaceStorage {
    InMemory(RwLock<IdSpace>),
    Serialized(SerializedIdSpace),
}

/// The treatment of ids that a space does not contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnknownIdPolicy {
    Add,
    Skip,
    Refuse,
}

impl RawIdSpace {
    fn with_storage(inner: IdSpaceStorage, is_signed: Option<bool>) -> Self {
        let sign =
            is_signed.map_or(SIGN_UNKNOWN, |is_signed| if is_signed { SIGNED } else { UNSIGNED });
        RawIdSpace { inner, sign: AtomicU8::new(sign) }
    }

    fn with_serialized(held: SharedBytes) -> Result<Self, SketchError> {
        let laid = SerializedIdSpace::new(held)?;
        let is_signed = laid.view.is_signed();
        Ok(RawIdSpace::with_storage(IdSpaceStorage::Serialized(laid), Some(is_signed)))
    }

    fn signedness(&self) -> Option<bool> {
        match self.sign.load(Ordering::Relaxed) {
            SIGNED => Some(true),
            UNSIGNED => Some(false),
            _ => None,
        }
    }

    fn is_signed(&self) -> bool {
        self.signedness().unwrap_or(true)
    }

    /// Determines the signedness by the first ids, and refuses later ids that do not fit it.
    fn settle_signedness(&self, ids: &[u64], are_signed: bool) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let own = if are_signed { SIGNED } else { UNSIGNED };
        let order = Ordering::Relaxed;
        let told = self.sign.compare_exchange(SIGN_UNKNOWN, own, order, order);
        if told.map_or_else(|sign| sign == own, |_| true) {
            return Ok(());
        }
        match ids.iter().find(|id| **id >= SIGN_BIT) {
            None => Ok(()),
            Some(id) if !are_signed => Err(Error::usage_with_hint(
                format!("the id {id} does not fit a space of signed ids"),
                "tm.IdSpace(signed=False) takes ids from 0 to 2**64 - 1",
            )),
            Some(id) => Err(Error::usage_with_hint(
                format!(
                    "the id {} is negative, and the space is of unsigned ids",
                    id.cast_signed()
                ),
                "tm.IdSpace(signed=True) takes ids from -2**63 to 2**63 - 1",
            )),
        }
    }

    fn id_text(&self, id: u64) -> String {
        if self.is_signed() { id.cast_signed().to_string() } else { id.to_string() }
    }

    /// Adds the numbers of ids to a set.
    fn add_numbers_of(&self, ids: &[u64], unknown: UnknownIdPolicy, set: &mut IdSet) -> Result<()> {
        let missing = |id: u64| {
            Error::usage_with_hint(
                format!("the id {} is not in this space", self.id_text(id)),
                match &self.inner {
                    IdSpaceStorage::Serialized(_) => {
                        "a space that was opened does not grow: space.copy() is one in memory that \
                         does; unknown='skip' leaves such ids out"
                    }
                    IdSpaceStorage::InMemory(_) => {
                        "unknown='add' adds it, unknown='skip' leaves it out"
                    }
                },
            )
        };
        let mut known = |numbers: &mut dyn Iterator<Item = Option<u32>>| {
            let mut first = None;
            set.extend(numbers.zip(ids).filter_map(|(number, id)| {
                if number.is_none() && first.is_none() {
                    first = Some(*id);
                }
                number
            }));
            match first {
                Some(id) if unknown == UnknownIdPolicy::Refuse => Err(missing(id)),
                _ => Ok(()),
            }
        };
        match (&self.inner, unknown) {
            (IdSpaceStorage::InMemory(grown), UnknownIdPolicy::Add) => {
                let mut numbers = Vec::with_capacity(ids.len());
                grown.write().insert_all_into(ids, &mut numbers).map_err(id_space_full_error)?;
                set.extend(numbers);
                Ok(())
            }
            (IdSpaceStorage::InMemory(grown), _) => {
                let numbers = grown.read().indexes_of(ids);
                known(&mut numbers.into_iter())
            }
            (IdSpaceStorage::Serialized(laid), _) => {
                known(&mut ids.iter().map(|id| laid.view.index_of(*id)))
            }
        }
    }

    /// Parses the treatment of unknown ids.
    fn parse_unknown_policy(
        &self,
        py: Python<'_>,
        unknown: Option<&str>,
    ) -> PyResult<UnknownIdPolicy> {
        let is_laid = matches!(self.inner, IdSpaceStorage::Serialized(_));
        match unknown {
            None if is_laid => Ok(UnknownIdPolicy::Refuse),
            Some("add") if is_laid => Err(to_exception(
                py,
                Error::usage_with_hint(
                    "a space that was opened does not grow",
                    "space.copy() is one in memory that does",
                ),
            )),
            None | Some("add") => Ok(UnknownIdPolicy::Add),
            Some("skip") => Ok(UnknownIdPolicy::Skip),
            Some("error") => Ok(UnknownIdPolicy::Refuse),
            Some(other) => Err(to_exception(
                py,
                Error::usage_with_hint(
                    format!("`unknown` is `{other}`"),
                    "it is 'add', 'skip' or 'error'",
                ),
            )),
        }
    }

    fn serialize(&self) -> Cow<'_, [u8]> {
        match &self.inner {
            IdSpaceStorage::InMemory(grown) => {
                let mut bytes = Vec::new();
                let mut space = grown.write();
                space.set_signed(self.is_signed());
                RwLockWriteGuard::downgrade(space).encode(&mut bytes);
                bytes.into()
            }
            IdSpaceStorage::Serialized(laid) => (*laid.shared_bytes).as_ref().into(),
        }
    }

    /// Calls `take` with the ids of a set, in pieces.
    fn for_each_id(
        &self,
        set: &IdSet,
        mut take: impl FnMut(&[u64]),
    ) -> Result<(), LongCallFailure> {
        fn take_in_pieces(
            ids: &mut dyn Iterator<Item = u64>,
            take: &mut dyn FnMut(&[u64]),
        ) -> Result<(), LongCallFailure> {
            let mut some = Vec::with_capacity(
                IDS_PER_SIGNAL_CHECK.min(ids.size_hint().1.unwrap_or(IDS_PER_SIGNAL_CHECK)),
            );
            loop {
                some.clear();
                some.extend(ids.take(IDS_PER_SIGNAL_CHECK));
                if some.is_empty() {
                    return Ok(());
                }
                take(&some);
                check_signals()?;
            }
        }
        match &self.inner {
            IdSpaceStorage::InMemory(grown) => {
                take_in_pieces(&mut grown.read().ids_in_set(set), &mut take)
            }
            IdSpaceStorage::Serialized(laid) => {
                take_in_pieces(&mut laid.view.ids_in_set(set), &mut take)
            }
        }
    }

    /// Returns the bits of a Python id; `None` if it cannot be an id of this space.
    fn id_bits(&self, id: &Bound<'_, PyAny>) -> Option<u64> {
        match self.is_signed() {
            true => id.extract::<i64>().ok().map(i64::cast_unsigned),
            false => id.extract().ok(),
        }
    }

    /// Returns the number of an id, if the space contains it.
    fn find_number(&self, bits: u64) -> Option<u32> {
        match &self.inner {
            IdSpaceStorage::InMemory(grown) => grown.read().index_of(bits),
            IdSpaceStorage::Serialized(laid) => laid.view.index_of(bits),
        }
    }

    fn id_count(&self) -> u32 {
        match &self.inner {
            IdSpaceStorage::InMemory(grown) => grown.read().len(),
            IdSpaceStorage::Serialized(laid) => laid.view.len(),
        }
    }

    /// Returns the set of the ids of a column.
    fn set_of_column(
        &self,
        py: Python<'_>,
        column: ValueColumn,
        unknown: UnknownIdPolicy,
    ) -> PyResult<RawIdSet> {
        let of = column.data_type().clone();
        let are_signed = of != DataType::UInt64;
        if !of.is_integer() && of != DataType::Null {
            return Err(column_type_error(
                py,
                "ids are whole numbers, and these are",
                &of,
                "sketches take any values: tm.Hll",
            ));
        }
        let mut set = IdSet::new();
        column.for_each_piece(py, IDS_PER_SIGNAL_CHECK, |piece| {
            let piece = match as_u64_values(piece) {
                Some(_) => Arc::clone(piece),
                None => cast(piece, &DataType::Int64)
                    .map_err(|error| Error::Internal(format!("ids as whole numbers: {error}")))?,
            };
            let Some(all) = as_u64_values(&piece) else { return Ok(()) };
            let some: Vec<u64>;
            let ids = match piece.nulls().filter(|nulls| nulls.null_count() > 0) {
                None => all,
                Some(nulls) => {
                    some = nulls.valid_indices().map(|at| all[at]).collect();
                    &some
                }
            };
            self.settle_signedness(ids, are_signed)?;
            self.add_numbers_of(ids, unknown, &mut set)
        })?;
        Ok(RawIdSet::from_set(set))
    }
}

#[pymethods]
impl RawIdSpace {
    #[new]
    fn new(signed: Option<bool>) -> Self {
        RawIdSpace::with_storage(IdSpaceStorage::InMemory(RwLock::default()), signed)
    }

    /// Reads a space from bytes; `grows` determines if it can grow.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8], grows: bool) -> PyResult<Self> {
        let read = py.detach(|| RawIdSpace::decode(bytes, grows));
        read.map_err(|error| corrupt_bytes_exception(py, &error.to_string()))
    }

    /// Opens a space in a file, which is mapped.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| -> Result<Self> {
            let file = File::open(&path).map_err(|error| Error::io("read", &path, error))?;
            // SAFETY: truncating the file while it is mapped ends the process at the next access behind
            // its end, as documented; overwriting it changes the numbers.
            let map = unsafe { Mmap::map(&file) };
            let map = map.map_err(|error| Error::io("map", &path, error))?;
            RawIdSpace::with_serialized(Arc::new(map)).map_err(|error| Error::Corrupt {
                path: path.display().to_string(),
                offset: None,
                reason: error.to_string(),
                hint: None,
            })
        });
        opened.map_err(|error| to_exception(py, error))
    }

    /// Writes the space to a file, which appears once it is complete.
    fn save(&self, py: Python<'_>, path: PathBuf, overwrite: bool) -> PyResult<()> {
        let saved = py.detach(|| -> Result<()> {
            let bytes = self.serialize();
            let mut file = StagedFile::create(&path, overwrite, &RunId::new())?;
            for piece in bytes.chunks(IDS_PER_SIGNAL_CHECK) {
                file.write_all(piece).map_err(|error| Error::io("write", &path, error))?;
                // The staged file is removed when `file` is dropped.
                check_signals().map_err(|_| Error::Interrupted)?;
            }
            Ok(file.commit(bytes.len() as u64)?)
        });
        saved.map_err(|error| to_exception(py, error))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.serialize()))
    }

    /// Returns a copy in memory that can grow.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        let copied = py.detach(|| match &self.inner {
            IdSpaceStorage::InMemory(grown) => Ok(RawIdSpace::with_storage(
                IdSpaceStorage::InMemory(RwLock::new(grown.read().clone())),
                self.signedness(),
            )),
            IdSpaceStorage::Serialized(laid) => {
                RawIdSpace::decode((*laid.shared_bytes).as_ref(), true)
            }
        });
        copied.map_err(|error| corrupt_bytes_exception(py, &error.to_string()))
    }

    #[getter]
    fn grows(&self) -> bool {
        matches!(self.inner, IdSpaceStorage::InMemory(_))
    }

    #[getter]
    fn signed(&self) -> Option<bool> {
        self.signedness()
    }

    #[getter]
    fn heap_bytes(&self, py: Python<'_>) -> usize {
        py.detach(|| match &self.inner {
            IdSpaceStorage::InMemory(grown) => grown.read().heap_bytes(),
            IdSpaceStorage::Serialized(_) => 0,
        })
    }

    fn len(&self, py: Python<'_>) -> u32 {
        py.detach(|| self.id_count())
    }

    fn has(&self, py: Python<'_>, id: &Bound<'_, PyAny>) -> bool {
        self.id_bits(id).is_some_and(|bits| py.detach(|| self.find_number(bits)).is_some())
    }

    /// True if the ids of both spaces have the same numbers.
    fn equals(&self, py: Python<'_>, other: &Bound<'_, RawIdSpace>) -> PyResult<bool> {
        let other = other.get();
        if std::ptr::eq(self, other) {
            return Ok(true);
        }
        let done = py.detach(|| -> Result<bool, LongCallFailure> {
            let count = self.id_count();
            if count != other.id_count() || (count > 0 && self.is_signed() != other.is_signed()) {
                return Ok(false);
            }
            for first in (0..count).step_by(IDS_PER_SIGNAL_CHECK) {
                // The spaces are read one after the other, so that no two locks are held.
                let some: IdSet = (first..count.min(first.saturating_add(1 << 20))).collect();
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                self.for_each_id(&some, |ids| ours.extend_from_slice(ids))?;
                other.for_each_id(&some, |ids| theirs.extend_from_slice(ids))?;
                if ours != theirs {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        to_python_result(py, done)
    }

    fn set_of_arrow(&self, object: &Bound<'_, PyAny>, unknown: Option<&str>) -> PyResult<RawIdSet> {
        let py = object.py();
        self.set_of_column(
            py,
            ValueColumn::from_arrow(object)?,
            self.parse_unknown_policy(py, unknown)?,
        )
    }

    fn set_of_numpy(&self, array: &Bound<'_, PyAny>, unknown: Option<&str>) -> PyResult<RawIdSet> {
        let py = array.py();
        self.set_of_column(
            py,
            ValueColumn::from_numpy(array)?,
            self.parse_unknown_policy(py, unknown)?,
        )
    }

    /// Returns the set of objects. Either all ids or none are added to the space.
    fn set_of_objects(
        &self,
        objects: &Bound<'_, PyAny>,
        unknown: Option<&str>,
    ) -> PyResult<RawIdSet> {
        let py = objects.py();
        let unknown = self.parse_unknown_policy(py, unknown)?;
        let (mut ids, mut large, mut negative) = (Vec::new(), false, None);
        for (number, object) in objects.try_iter()?.enumerate() {
            let object = object?;
            if object.is_none() {
                continue;
            }
            let has_index = !object.is_instance_of::<PyBool>();
            ids.push(match (object.extract::<i64>(), object.extract::<u64>()) {
                (Ok(id), _) if has_index => {
                    if id < 0 {
                        negative.get_or_insert(id);
                    }
                    id.cast_unsigned()
                }
                (_, Ok(id)) if has_index => {
                    large = true;
                    id
                }
                _ => {
                    let hint = "ids are whole numbers of 64 bits; sketches take any values: tm.Hll";
                    return Err(value_hashing::refused_value_error(&object, "is no id", hint));
                }
            });
            if number % IDS_PER_SIGNAL_CHECK == IDS_PER_SIGNAL_CHECK - 1 {
                py.check_signals()?;
            }
        }
        if let (true, Some(negative)) = (large, negative) {
            let error =
                format!("ids of which one is {negative} and one above 2**63 - 1 need 65 bits");
            return Err(to_exception(py, Error::usage(error)));
        }
        let done = py.detach(|| {
            let mut set = IdSet::new();
            self.settle_signedness(&ids, !large)?;
            self.add_numbers_of(&ids, unknown, &mut set)?;
            Ok(RawIdSet::from_set(set))
        });
        done.map_err(|error| to_exception(py, error))
    }

    /// Returns the set of all ids.
    fn all(&self, py: Python<'_>) -> RawIdSet {
        py.detach(|| RawIdSet::from_set((0..self.id_count()).collect()))
    }

    /// Reads a set in the Roaring format.
    fn set_from_bytes(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<RawIdSet> {
        let read = py.detach(|| -> Result<_, String> {
            let set = IdSet::decode(bytes).map_err(|error| error.to_string())?;
            let count = self.id_count();
            match set.iter().last() {
                Some(last) if last >= count => Err(format!(
                    "the set has the number {last}, and the space {count} ids: it is of another space"
                )),
                _ => Ok(RawIdSet::from_set(set)),
            }
        });
        read.map_err(|error| corrupt_bytes_exception(py, &error))
    }
}

impl RawIdSpace {
    fn decode(bytes: &[u8], grows: bool) -> Result<Self, SketchError> {
        if !grows {
            return RawIdSpace::with_serialized(Arc::new(bytes.to_vec()));
        }
        let is_signed = IdSpaceView::open(bytes)?.is_signed();
        let space = IdSpace::decode(bytes)?;
        // The signedness of an empty space is not determined yet.
        let is_signed = Some(is_signed).filter(|_| !space.is_empty());
        Ok(RawIdSpace::with_storage(IdSpaceStorage::InMemory(RwLock::new(space)), is_signed))
    }
}

/// A set of numbers of a space's ids.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawIdSet(RwLock<IdSet>);

impl RawIdSet {
    fn from_set(set: IdSet) -> Self {
        RawIdSet(RwLock::new(set))
    }

    /// Calls `work` with two sets, which may be the same.
    fn with_both<T: Send>(
        &self,
        other: &RawIdSet,
        py: Python<'_>,
        work: impl FnOnce(&IdSet, &IdSet) -> T + Send,
    ) -> T {
        py.detach(|| {
            if std::ptr::eq(self, other) {
                let both = self.0.read();
                return work(&both, &both);
            }
            // Recursive reads, because a waiting writer would block a second normal read.
            let (ours, theirs) = (self.0.read_recursive(), other.0.read_recursive());
            work(&ours, &theirs)
        })
    }
}

#[pymethods]
impl RawIdSet {
    fn len(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.0.read().len())
    }

    #[getter]
    fn heap_bytes(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.read().heap_bytes())
    }

    fn has(&self, space: &Bound<'_, RawIdSpace>, id: &Bound<'_, PyAny>) -> bool {
        let Some(bits) = space.get().id_bits(id) else { return false };
        let space = space.get();
        id.py()
            .detach(|| space.find_number(bits).is_some_and(|number| self.0.read().contains(number)))
    }

    /// Removes an id; returns true if the set contained it.
    fn discard(&self, space: &Bound<'_, RawIdSpace>, id: &Bound<'_, PyAny>) -> bool {
        let Some(bits) = space.get().id_bits(id) else { return false };
        let space = space.get();
        id.py()
            .detach(|| space.find_number(bits).is_some_and(|number| self.0.write().remove(number)))
    }

    /// Combines two sets: `|`, `&`, `-` or `^`.
    fn combined(&self, py: Python<'_>, operation: char, other: &Bound<'_, RawIdSet>) -> Self {
        RawIdSet::from_set(self.with_both(other.get(), py, |a, b| match operation {
            '|' => a | b,
            '&' => a & b,
            '-' => a - b,
            _ => a ^ b,
        }))
    }

    /// Changes this set by another: `|`, `&`, `-` or `^`.
    fn change(&self, py: Python<'_>, operation: char, other: &Bound<'_, RawIdSet>) {
        let other = other.get();
        py.detach(|| {
            if std::ptr::eq(self, other) {
                if matches!(operation, '-' | '^') {
                    *self.0.write() = IdSet::new();
                }
                return;
            }
            // A copy, so that no two locks are held, which another call may take in the other order. It takes
            // as long as the change does.
            let theirs = other.0.read().clone();
            let mut ours = self.0.write();
            match operation {
                '|' => ours.union_with(&theirs),
                '&' => ours.intersect_with(&theirs),
                '-' => ours.subtract(&theirs),
                _ => ours.symmetric_difference_with(&theirs),
            }
        });
    }

    fn intersection_len(&self, py: Python<'_>, other: &Bound<'_, RawIdSet>) -> u64 {
        self.with_both(other.get(), py, IdSet::intersection_len)
    }

    fn copy(&self, py: Python<'_>) -> Self {
        RawIdSet::from_set(py.detach(|| self.0.read().clone()))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| {
            let mut bytes = Vec::new();
            self.0.read().encode(&mut bytes);
            bytes
        });
        PyBytes::new(py, &bytes)
    }

    /// Returns the ids in the order of their numbers.
    fn ids(&self, py: Python<'_>, space: &Bound<'_, RawIdSpace>) -> PyResult<RawIds> {
        let space = space.get();
        let done = py.detach(|| {
            // A copy, because others may change the set meanwhile; it takes a bit for each id.
            let set = self.0.read().clone();
            let mut ids = Vec::with_capacity(usize::try_from(set.len()).unwrap_or(0));
            space.for_each_id(&set, |some| ids.extend_from_slice(some))?;
            let len = ids.len();
            Ok(RawIds { buffer: Buffer::from_vec(ids), len, is_signed: space.is_signed() })
        });
        to_python_result(py, done)
    }
}

/// Ids for NumPy, Arrow and Python, in memory that nothing else uses.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawIds {
    buffer: Buffer,
    len: usize,
    is_signed: bool,
}

#[pymethods]
impl RawIds {
    fn len(&self) -> usize {
        self.len
    }

    /// Returns `count` ids from `first` on as Python integers.
    fn some<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        count: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let ids = self.buffer.typed_data::<u64>();
        let end = first.saturating_add(count).min(ids.len());
        let some = ids.get(first..end).unwrap_or_default().iter();
        some.map(|id| match self.is_signed {
            true => id.cast_signed().into_bound_py_any(py),
            false => id.into_bound_py_any(py),
        })
        .collect()
    }

    /// The array interface of NumPy.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.len,))?;
        let kind = if self.is_signed { "i8" } else { "u8" };
        let order = if cfg!(target_endian = "little") { "<" } else { ">" };
        interface.set_item("typestr", format!("{order}{kind}"))?;
        interface.set_item("data", (self.buffer.as_ptr() as usize, false))?;
        Ok(interface)
    }

    /// Returns the capsules of an Arrow array of the ids.
    fn capsules<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let data_type = if self.is_signed { DataType::Int64 } else { DataType::UInt64 };
        let data = ArrayData::builder(data_type).len(self.len).add_buffer(self.buffer.clone());
        let exported = data.build().and_then(|data| to_ffi(&data));
        let (array, schema) = exported.map_err(|error| {
            to_exception(py, Error::Internal(format!("ids as an array: {error}")))
        })?;
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}
