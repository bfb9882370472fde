//! HyperLogLog: distinct counts in kilobytes, by the storage specification v1.0.0.
//!
//! A value is hashed to 64 bits. The low `log2m` bits choose one of m = 2^log2m registers, and
//! the register keeps the longest run of zeros (plus one) seen at the low end of the remaining bits: a run
//! of k zeros suggests that about 2^k values were added. The mean over all registers gives the
//! estimate, with a standard error of 1.04/√m.
//!
//! ```text
//! hash, 64 bits, highest first   ├──────────── x ──────────────┼──── j, log2m bits ────┤
//! register[j] = max(register[j], min(trailing zeros of x + 1, 2^regwidth − 1));  x = 0 counts for nothing
//!
//! bytes   ┌─────────────────┬──────────────────┬──────────────────────┬──────────
//!         │ version << 4    │ (regwidth−1) << 5│ sparse << 6          │ data,
//!         │ | type          │ | log2m          │ | threshold          │ by type
//!         └─────────────────┴──────────────────┴──────────────────────┴──────────
//! EXPLICIT   the hashes themselves: signed, big-endian, ascending
//! SPARSE     index ‖ value, log2m + regwidth bits each, ascending, most significant bit first
//! FULL       all m registers, regwidth bits each, most significant bit first
//! ```
//!
//! In memory a state passes through four forms, each a function of the added values alone. It starts empty.
//! Up to the threshold it holds the hashes themselves, up to 16 in a list, more in a small open-addressing
//! table; the count is exact. Past the threshold it holds the filled registers, in such a table as well. Once
//! that table would outgrow all m registers, it holds these, packed (`dense_registers.rs`). No form takes
//! more memory than all registers, except for a small constant or a higher explicit threshold. The form of
//! the *bytes* is chosen when writing, by an [`HllStorageDialect`], because the implementations differ there.
//!
//! Sources: Flajolet, Fusy, Gandouet and Meunier, *HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm* (2007), with linear counting for small cardinalities; the
//! storage specification of Aggregate Knowledge; postgresql-hll and java-hll where the
//! specification is silent. Departures:
//! - The large-range correction is computed in floating point: postgresql-hll overflows at
//!   `regwidth` 6 and above and gives NaN.
//! - States of different parameters merge (see [`Hll::merge`]); the other implementations refuse.
//! - java-hll never returns from FULL to SPARSE; here the bytes depend on the registers alone.
//!   If its explicit threshold is above its limit of sparse registers, its SPARSE may also exceed
//!   that limit, until the next value arrives.
//! - postgresql-hll reads the padding of SPARSE words that are narrower than a byte as a register 0 of
//!   value 0, and loses that register of its own sketches; this reader skips the padding.
mod bit_io;
mod comparison;
mod dense_registers;
mod estimate;
mod sparse_tables;

pub use comparison::{HllComparison, UncertainEstimate};
pub use estimate::{CardinalityEstimator, SketchEstimate};

use crate::murmur3::hash_i64s_into;
use crate::state_encoding::StateReader;
use crate::{SketchError, hash_bytes};
use bit_io::{BitReader, BitWriter};
use dense_registers::DenseRegisters;
use sparse_tables::{ExplicitHashSet, SparseRegisterTable};

const STATE: &str = "hll";
const SCHEMA_VERSION: u8 = 1;

const TYPE_UNDEFINED: u8 = 0;
const TYPE_EMPTY: u8 = 1;
const TYPE_EXPLICIT: u8 = 2;
const TYPE_SPARSE: u8 = 3;
const TYPE_FULL: u8 = 4;

/// Cap of the automatic threshold in java-hll, and in memory here.
const AUTOMATIC_THRESHOLD_MAX_JAVA: u64 = 1 << 17;
/// Cap of the automatic threshold in postgresql-hll.
const AUTOMATIC_THRESHOLD_MAX_POSTGRES: u64 = 16_383;

const HEADER_BYTES: usize = 3;

const LOG2M_MIN: u8 = 4;
const LOG2M_MAX: u8 = 31;

fn check_range(
    name: &'static str,
    found: u8,
    min: u8,
    max: u8,
    hint: &'static str,
) -> Result<(), SketchError> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    let [found, min, max] = [found, min, max].map(u64::from);
    Err(SketchError::ParameterOutOfRange { name, found, min, max, hint })
}

/// The number of distinct values up to which an [`Hll`] keeps hashes and counts exactly.
///
/// Variants are ordered by threshold: when two states merge, the smaller threshold applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum ExplicitThreshold {
    /// No hashes are kept: the first value already goes into a register.
    Never,
    /// 2^n values; n is from 0 to 30.
    PowerOfTwo(u8),
    /// As many hashes as fit the space of all registers: ⌊⌈regwidth·m/8⌉/8⌋, at most 2^17.
    #[default]
    Automatic,
}

impl ExplicitThreshold {
    /// Converts `expthresh` of postgresql-hll and java-hll: 0 for none, otherwise a power of two up to
    /// 2^30.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`] for any other number, which the header cannot store.
    pub fn from_count(count: u64) -> Result<Self, SketchError> {
        match count {
            0 => Ok(ExplicitThreshold::Never),
            // At most 30, which the cast keeps.
            count if count.is_power_of_two() && count <= 1 << 30 => {
                Ok(ExplicitThreshold::PowerOfTwo((count.trailing_zeros() & 0x1f) as u8))
            }
            found => Err(SketchError::ParameterOutOfRange {
                name: "explicit",
                found,
                min: 0,
                max: 1 << 30,
                hint: "\nhint: it must be 0 or a power of two",
            }),
        }
    }
}

/// The parameters of an [`Hll`].
///
/// ```
/// use tidemill_sketch::{Hll, HllParams};
/// let params = HllParams { log2m: 11, regwidth: 5, ..HllParams::default() };
/// assert_eq!(Hll::new(params)?.relative_standard_error(), 0.0);
/// # Ok::<(), tidemill_sketch::SketchError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HllParams {
    /// The base-2 logarithm of the number of registers. Default: 14, a standard error of 0.8%
    /// in 12 KiB. From 4 to 31; postgresql-hll reads up to 17, java-hll up
    /// to 30, js-hll up to 24.
    pub log2m: u8,
    /// Bits per register. Default: 6, enough for any 64-bit hash. From 1 to 8; 5 reaches
    /// some 10^12 values.
    pub regwidth: u8,
    /// Number of values up to which the count is exact. Default: automatic, 1,536 values with the
    /// other defaults.
    pub expthresh: ExplicitThreshold,
    /// Allows writing SPARSE. Default: yes. In memory few registers are always kept
    /// sparsely.
    pub sparse: bool,
}

impl Default for HllParams {
    fn default() -> Self {
        HllParams { log2m: 14, regwidth: 6, expthresh: ExplicitThreshold::Automatic, sparse: true }
    }
}

impl HllParams {
    fn validate(self) -> Result<Self, SketchError> {
        let hint = "\nhint: 14 gives a standard error of 0.8%";
        check_range("log2m", self.log2m, LOG2M_MIN, LOG2M_MAX, hint)?;
        let hint = "\nhint: 6 is enough for any 64-bit hash";
        check_range("regwidth", self.regwidth, 1, 8, hint)?;
        if let ExplicitThreshold::PowerOfTwo(n) = self.expthresh {
            check_range("expthresh", n, 0, 30, "\nhint: it is the exponent of a power of two")?;
        }
        Ok(self)
    }

    fn register_count(self) -> usize {
        1 << self.log2m
    }

    fn register_max(self) -> u8 {
        u8::MAX >> (8 - self.regwidth)
    }

    fn packed_register_bytes(self) -> usize {
        // The division is exact: there are at least 16 registers. In this order the result fits 32 bits.
        self.register_count() / 8 * usize::from(self.regwidth)
    }

    /// Returns the maximum number of values in EXPLICIT.
    fn explicit_hashes_max(self, automatic_max: u64) -> u64 {
        match self.expthresh {
            ExplicitThreshold::Never => 0,
            ExplicitThreshold::PowerOfTwo(n) => 1 << n,
            ExplicitThreshold::Automatic => {
                (self.packed_register_bytes() as u64 / 8).min(automatic_max)
            }
        }
    }

    /// Returns the maximum number of registers that are kept sparsely: as many as fit a table of slots (a
    /// power of two, at most three quarters full, 8 bytes each) within the space of all registers.
    fn sparse_registers_max(self) -> usize {
        match (self.packed_register_bytes() / 8).checked_ilog2() {
            Some(exponent) if exponent >= 2 => (1 << exponent) / 4 * 3,
            _ => 0,
        }
    }

    /// Returns the slot count at which the table of hashes stops growing, slightly above the threshold. From
    /// there the table fills up, so that it stays within the space of all registers if the threshold does.
    fn explicit_slots_max(self) -> usize {
        usize::try_from(self.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_JAVA))
            .unwrap_or(usize::MAX - 8)
            + 8
    }

    /// Returns the largest parameters that can represent the values of both states.
    fn smaller_params(self, other: Self) -> Self {
        HllParams {
            log2m: self.log2m.min(other.log2m),
            regwidth: self.regwidth.min(other.regwidth),
            expthresh: self.expthresh.min(other.expthresh),
            sparse: self.sparse && other.sparse,
        }
    }

    /// Returns the register of a hash and the value that the hash gives it (0: none).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "an index is below 2^31")]
    fn locate_register(self, hash: u64) -> (usize, u8) {
        let rest = hash >> self.log2m;
        ((hash & ((1 << self.log2m) - 1)) as usize, zero_run_rank(rest, self.register_max()))
    }
}

#[inline]
fn zero_run_rank(rest: u64, register_max: u8) -> u8 {
    if rest == 0 {
        return 0;
    }
    // At most 63: `rest` is not zero.
    let zeros = (rest.trailing_zeros() & 0xff) as u8;
    (zeros + 1).min(register_max)
}

/// The implementation whose rules decide between SPARSE and FULL when writing. Reading needs no dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HllStorageDialect {
    /// postgresql-hll: SPARSE where it is smaller than FULL.
    Postgres {
        /// `hll_set_max_sparse`: SPARSE up to this many filled registers *instead*.
        /// Default: none set.
        sparse_registers_max: Option<u32>,
    },
    /// java-hll: SPARSE up to 2^⌊log2(m·regwidth / (log2m + regwidth))⌋ filled registers.
    Java,
}

impl Default for HllStorageDialect {
    fn default() -> Self {
        HllStorageDialect::Postgres { sparse_registers_max: None }
    }
}

impl HllStorageDialect {
    fn writes_sparse(self, params: HllParams, filled: usize) -> bool {
        let full_bits = params.register_count() as u64 * u64::from(params.regwidth);
        let word_bits = u64::from(params.log2m + params.regwidth);
        let filled = filled as u64;
        match self {
            HllStorageDialect::Postgres { sparse_registers_max: None } => {
                filled * word_bits < full_bits
            }
            HllStorageDialect::Postgres { sparse_registers_max: Some(max) } => filled <= max.into(),
            // The quotient is zero only for registers of one bit, where no register fits:
            // otherwise m·regwidth is at least twice the width of a word.
            HllStorageDialect::Java => (full_bits / word_bits)
                .checked_ilog2()
                .is_some_and(|exponent| filled <= 1 << exponent),
        }
    }

    fn automatic_threshold_max(self) -> u64 {
        match self {
            HllStorageDialect::Postgres { .. } => AUTOMATIC_THRESHOLD_MAX_POSTGRES,
            HllStorageDialect::Java => AUTOMATIC_THRESHOLD_MAX_JAVA,
        }
    }
}

/// A distinct count: exact while the values are few, beyond that an estimate of constant size.
///
/// Takes hashes of 64 bits ([`hash_i64`](crate::hash_i64), [`hash_bytes`](crate::hash_bytes)).
/// The state is a function of the *set* of hashes: order and grouping of adds and merges
/// leave no trace, neither in the answer nor in the bytes.
///
/// Memory: none while empty; 32, 64 or 128 bytes for up to 4, 8 or 16 values; then between 8 and 16
/// bytes a value until the threshold. The maximum is FULL's registers, regwidth · m / 8 bytes (or 8
/// bytes for each value of a higher threshold), and 150 bytes, plus a constant of 4 · 2^regwidth
/// bytes once the registers are dense. (During a conversion both forms exist.)
/// Cost of an add: see [`Hll::add_hashes`] and [`Hll::add_i64s`] for batches; single adds cost more.
///
/// ```
/// use tidemill_sketch::{Hll, hash_i64};
/// let mut users = Hll::default();
/// for id in 0..100_000 {
///     users.add_hash(hash_i64(id % 50_000));
/// }
/// assert!((users.cardinality() / 50_000.0 - 1.0).abs() < 4.0 * users.relative_standard_error());
/// ```
#[derive(Debug, Clone)]
pub struct Hll {
    params: HllParams,
    form: HllRepresentation,
}

#[derive(Debug, Clone)]
enum HllRepresentation {
    /// The union with a state of unknown content; absorbs everything.
    Undefined,
    Empty,
    /// The hashes themselves.
    Explicit(ExplicitHashSet),
    /// The filled registers, at most `sparse_registers_max` of them.
    Sparse(SparseRegisterTable),
    /// All registers, more than `sparse_registers_max` of them filled.
    Dense(Box<DenseRegisters>),
}

impl Default for Hll {
    fn default() -> Self {
        Hll { params: HllParams::default(), form: HllRepresentation::Empty }
    }
}

/// Two states are equal if they have the same parameters and content.
impl PartialEq for Hll {
    fn eq(&self, other: &Self) -> bool {
        self.params == other.params
            && match (&self.form, &other.form) {
                (HllRepresentation::Undefined, HllRepresentation::Undefined)
                | (HllRepresentation::Empty, HllRepresentation::Empty) => true,
                (HllRepresentation::Explicit(a), HllRepresentation::Explicit(b)) => {
                    a.sorted_hashes() == b.sorted_hashes()
                }
                (HllRepresentation::Sparse(a), HllRepresentation::Sparse(b)) => {
                    a.sorted_registers() == b.sorted_registers()
                }
                (HllRepresentation::Dense(a), HllRepresentation::Dense(b)) => a == b,
                _ => false,
            }
    }
}

impl Eq for Hll {}

impl Hll {
    /// Creates an empty state with the given parameters; [`Hll::default`] uses the default ones.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`].
    pub fn new(params: HllParams) -> Result<Self, SketchError> {
        Ok(Hll { params: params.validate()?, form: HllRepresentation::Empty })
    }

    /// Returns the parameters, which a merge may have reduced.
    #[must_use]
    pub fn params(&self) -> HllParams {
        self.params
    }

    /// Adds a value by its hash.
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        if let HllRepresentation::Dense(registers) = &mut self.form {
            let (index, value) = self.params.locate_register(hash);
            registers.raise_register(index, value);
        } else {
            self.add_hash_before_dense(hash);
        }
    }

    /// Adds values by their hashes: equivalent to a call of [`Hll::add_hash`] for each.
    ///
    /// Cost: for a million values 0.9 ns each at log2m 11 and 2.9 ns at 14 (`--example speed -- hll`, on a
    /// machine with other load).
    pub fn add_hashes(&mut self, mut hashes: &[u64]) {
        if let HllRepresentation::Empty = self.form
            && self.params.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_JAVA) > 0
            && !hashes.is_empty()
        {
            self.form = HllRepresentation::Explicit(ExplicitHashSet::default());
        }
        if let HllRepresentation::Explicit(set) = &mut self.form {
            hashes = set.insert_while_list(hashes);
            if set.len() as u64 > self.params.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_JAVA) {
                self.promote_to_registers();
            }
        }
        while let [hash, rest @ ..] = hashes {
            if let HllRepresentation::Dense(registers) = &mut self.form {
                return registers.add_hashes(hashes);
            }
            if let HllRepresentation::Undefined = self.form {
                return;
            }
            self.add_hash_before_dense(*hash);
            hashes = rest;
        }
    }

    /// Adds integers, hashed by [`hash_i64`](crate::hash_i64): equivalent to a call of [`Hll::add_hash`] for
    /// each hash.
    ///
    /// Cost: for a million values, hashing included, 3.4 ns each at log2m 11 and 5.5 ns at 14, of which 2.5
    /// ns are the hash (measured as for [`Hll::add_hashes`], with AVX2).
    ///
    /// ```
    /// use tidemill_sketch::Hll;
    /// let mut hll = Hll::default();
    /// hll.add_i64s(&[3, 1, 3]);
    /// assert_eq!(hll.count(), 2);
    /// ```
    pub fn add_i64s(&mut self, values: &[i64]) {
        // Hashed separately from the registers: hashing vectorizes, and a mispredicted branch in the
        // registers' code would discard hashes in flight.
        let mut hashes = [0; 128];
        for values in values.chunks(hashes.len()) {
            let hashes = &mut hashes[..values.len()];
            hash_i64s_into(values, hashes);
            self.add_hashes(hashes);
        }
    }

    /// Adds strings or bytes, hashed by [`hash_bytes`] with seed 0.
    ///
    /// ```
    /// use tidemill_sketch::Hll;
    /// let mut hll = Hll::default();
    /// hll.add_byte_strings(["ana", "bo", "ana"]);
    /// assert_eq!(hll.count(), 2);
    /// ```
    pub fn add_byte_strings<T: AsRef<[u8]>>(&mut self, values: impl IntoIterator<Item = T>) {
        self.add_hash_iter(values.into_iter().map(|value| hash_bytes(value.as_ref(), 0)));
    }

    /// Adds values by an iterator over their hashes: equivalent to [`Hll::add_hash`] for each.
    #[inline]
    pub fn add_hash_iter(&mut self, hashes: impl IntoIterator<Item = u64>) {
        let mut hashes = hashes.into_iter();
        loop {
            match &mut self.form {
                HllRepresentation::Undefined => return,
                HllRepresentation::Dense(registers) => {
                    let mut some = [0; 128];
                    loop {
                        let mut taken = 0;
                        for (slot, hash) in some.iter_mut().zip(&mut hashes) {
                            *slot = hash;
                            taken += 1;
                        }
                        if taken == 0 {
                            return;
                        }
                        registers.add_hashes(&some[..taken]);
                    }
                }
                HllRepresentation::Empty
                | HllRepresentation::Explicit(_)
                | HllRepresentation::Sparse(_) => {
                    let Some(hash) = hashes.next() else { return };
                    self.add_hash_before_dense(hash);
                }
            }
        }
    }

    fn add_hash_before_dense(&mut self, hash: u64) {
        match &mut self.form {
            HllRepresentation::Undefined => {}
            HllRepresentation::Empty
                if self.params.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_JAVA) > 0 =>
            {
                let mut set = ExplicitHashSet::default();
                set.insert(hash, self.params.explicit_slots_max());
                self.form = HllRepresentation::Explicit(set);
            }
            HllRepresentation::Explicit(set) => {
                if set.insert(hash, self.params.explicit_slots_max())
                    && set.len() as u64
                        > self.params.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_JAVA)
                {
                    self.promote_to_registers();
                }
            }
            HllRepresentation::Empty
            | HllRepresentation::Sparse(_)
            | HllRepresentation::Dense(_) => {
                let (index, value) = self.params.locate_register(hash);
                self.promote_to_registers();
                self.raise_register(index, value);
            }
        }
    }

    /// Converts the state from hashes to registers.
    fn promote_to_registers(&mut self) {
        match &mut self.form {
            HllRepresentation::Undefined
            | HllRepresentation::Sparse(_)
            | HllRepresentation::Dense(_) => {}
            HllRepresentation::Empty => {
                self.form = HllRepresentation::Sparse(SparseRegisterTable::default())
            }
            HllRepresentation::Explicit(set) => {
                let set = std::mem::take(set);
                self.form = HllRepresentation::Sparse(SparseRegisterTable::default());
                for hash in set.iter() {
                    let (index, value) = self.params.locate_register(hash);
                    self.raise_register(index, value);
                }
            }
        }
    }

    /// Raises one register; the state must hold registers already.
    fn raise_register(&mut self, index: usize, value: u8) {
        match &mut self.form {
            HllRepresentation::Sparse(table) => {
                let max = self.params.sparse_registers_max();
                if value > 0 && table.raise_register(index as u64, value, max) && table.len() > max
                {
                    self.form = HllRepresentation::Dense(Box::new(densify(self.params, table)));
                }
            }
            HllRepresentation::Dense(registers) => registers.raise_register(index, value),
            HllRepresentation::Undefined
            | HllRepresentation::Empty
            | HllRepresentation::Explicit(_) => {
                debug_assert!(false, "promoted before");
            }
        }
    }

    /// Adds all values that `other` has seen.
    ///
    /// If the parameters differ, the result has the smaller of each (and is sparse if both
    /// are): registers of the larger `log2m` are folded down to exactly the values that they would
    /// have had, and values of the larger `regwidth` are clamped. (One hash in 2^(64 − log2m),
    /// all zero above the index, leaves no trace in registers and cannot be folded.)
    ///
    /// Cost: one pass over the registers if both are dense, otherwise over the filled ones.
    pub fn merge(&mut self, other: &Hll) {
        self.reduce_params(self.params.smaller_params(other.params));
        match (&mut self.form, &other.form) {
            (HllRepresentation::Undefined, _) | (_, HllRepresentation::Empty) => {}
            (_, HllRepresentation::Undefined) => self.form = HllRepresentation::Undefined,
            (HllRepresentation::Empty, _) if self.params == other.params => {
                self.form = other.form.clone()
            }
            (HllRepresentation::Dense(registers), HllRepresentation::Dense(more))
                if self.params.log2m == other.params.log2m =>
            {
                registers.raise_to_max(more);
            }
            (_, HllRepresentation::Explicit(set)) => {
                self.add_hashes(set.listed_hashes());
                self.add_hash_iter(set.unlisted_hashes());
            }
            (_, HllRepresentation::Sparse(_) | HllRepresentation::Dense(_)) => {
                self.promote_to_registers();
                self.merge_registers_from(other);
            }
        }
    }

    /// Merges like [`Hll::merge`], in the memory of the state that owns more.
    pub fn merge_owned(&mut self, mut other: Hll) {
        if other.heap_bytes() > self.heap_bytes() {
            std::mem::swap(self, &mut other);
        }
        self.merge(&other);
    }

    /// Converts the state to smaller parameters.
    fn reduce_params(&mut self, params: HllParams) {
        if params == self.params {
            return;
        }
        let before = std::mem::replace(self, Hll { params, form: HllRepresentation::Empty });
        match before.form {
            HllRepresentation::Undefined | HllRepresentation::Empty => self.form = before.form,
            HllRepresentation::Explicit(set) => {
                let excess =
                    set.len() as u64 > params.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_JAVA);
                if excess {
                    self.form = HllRepresentation::Explicit(set);
                    self.promote_to_registers();
                } else {
                    self.form = HllRepresentation::Explicit(
                        set.shrink_to_slots(params.explicit_slots_max()),
                    );
                }
            }
            HllRepresentation::Sparse(_) | HllRepresentation::Dense(_) => {
                self.promote_to_registers();
                self.merge_registers_from(&before);
            }
        }
    }

    /// Raises the registers to those of `other`, whose parameters are at least as large.
    fn merge_registers_from(&mut self, other: &Hll) {
        // The low bits of the other state's index are this state's index. The bits above them are the low
        // bits of this state's `x`. If one of them is set, the run of zeros ends there; if not, the run
        // continues for as long as the other state's run.
        let low_bits = self.params.log2m;
        let folded_bits = other.params.log2m - low_bits;
        let max = self.params.register_max();
        let mut fold = |index: usize, value: u8| {
            let value = match zero_run_rank((index >> low_bits) as u64, max) {
                0 => value.saturating_add(folded_bits).min(max),
                ends_there => ends_there,
            };
            self.raise_register(index & ((1 << low_bits) - 1), value);
        };
        match &other.form {
            HllRepresentation::Sparse(table) => {
                table.iter().for_each(|(index, value)| fold(index, value))
            }
            HllRepresentation::Dense(registers) => registers.for_each_filled(fold),
            HllRepresentation::Undefined
            | HllRepresentation::Empty
            | HllRepresentation::Explicit(_) => {}
        }
    }

    /// Returns the state that a smaller `log2m` and `regwidth` would have produced, to compare or store it
    /// beside such states. [`Hll::merge`] applies the same conversion to the larger of two states.
    ///
    /// A register's index loses its high bits, which become the low bits of the word whose zeros are
    /// counted. If one of them is set, the run of zeros ends there; otherwise the register's own run follows
    /// them. The result is clamped to the narrower register, and a register at its maximum
    /// stays at the smaller maximum. So only precision is lost (with the exception stated at
    /// [`Hll::merge`]). The automatic threshold shrinks with the registers.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`] if either parameter is above the state's own, or below the
    /// minimum.
    ///
    /// ```
    /// use tidemill_sketch::{Hll, HllParams};
    /// let ids: Vec<i64> = (0..10_000).collect();
    /// let mut fine = Hll::default();
    /// fine.add_i64s(&ids);
    /// let mut coarse = Hll::new(HllParams { log2m: 11, regwidth: 5, ..HllParams::default() })?;
    /// coarse.add_i64s(&ids);
    /// assert_eq!(fine.fold_to_params(11, 5)?, coarse);
    /// # Ok::<(), tidemill_sketch::SketchError>(())
    /// ```
    pub fn fold_to_params(&self, log2m: u8, regwidth: u8) -> Result<Hll, SketchError> {
        let hint = "\nhint: folding makes a state coarser, never finer";
        check_range("log2m", log2m, LOG2M_MIN, self.params.log2m, hint)?;
        check_range("regwidth", regwidth, 1, self.params.regwidth, hint)?;
        let mut folded = self.clone();
        folded.reduce_params(HllParams { log2m, regwidth, ..self.params });
        Ok(folded)
    }

    /// Returns the estimated number of distinct values: exact while their hashes are kept.
    ///
    /// NaN if the state [is undefined](Hll::is_undefined), infinite if the registers are too narrow for the
    /// number of values. Uses the published estimator: the result of postgresql-hll, and rounded up the
    /// result of java-hll's `cardinality`; [`Hll::cardinality_with`] has a better one. Cost: one addition for
    /// each possible register value; after a merge or a decode O(m) once.
    #[must_use]
    pub fn cardinality(&self) -> f64 {
        self.cardinality_with(CardinalityEstimator::Published)
    }

    /// Returns the estimated number of distinct values, rounded: [`Hll::cardinality`] as an integer.
    ///
    /// 0 if the state is undefined. Cost: as [`Hll::cardinality`].
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative; a float too large for the integer becomes its maximum"
    )]
    pub fn count(&self) -> u64 {
        self.cardinality().round() as u64
    }

    /// Returns the standard error relative to the estimate: 1.04/√m, or 0 while exact.
    /// [`Hll::estimate`] returns the standard error at the state's own count.
    ///
    /// About two estimates in three are within one standard error, 19 in 20 within two.
    #[must_use]
    pub fn relative_standard_error(&self) -> f64 {
        match self.form {
            HllRepresentation::Empty | HllRepresentation::Explicit(_) => 0.0,
            HllRepresentation::Sparse(_) | HllRepresentation::Dense(_) => {
                1.04 / 2f64.powi(self.params.log2m.into()).sqrt()
            }
            HllRepresentation::Undefined => f64::NAN,
        }
    }

    /// Returns true if the count is exact: the state still holds only hashes.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        matches!(self.form, HllRepresentation::Empty | HllRepresentation::Explicit(_))
    }

    /// Returns true if the state is UNDEFINED: decoded as such, or merged with such a state. It has no count.
    #[must_use]
    pub fn is_undefined(&self) -> bool {
        matches!(self.form, HllRepresentation::Undefined)
    }

    /// Returns the heap memory that the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            HllRepresentation::Undefined | HllRepresentation::Empty => 0,
            HllRepresentation::Explicit(set) => set.heap_bytes(),
            HllRepresentation::Sparse(table) => table.heap_bytes(),
            HllRepresentation::Dense(registers) => {
                size_of::<DenseRegisters>() + registers.heap_bytes()
            }
        }
    }

    /// Appends the state's canonical bytes: [`Hll::to_bytes`] in the default dialect.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write_as(HllStorageDialect::default(), out);
    }

    /// Reads a state in any dialect, like [`Hll::from_bytes`].
    ///
    /// # Errors
    /// As [`Hll::from_bytes`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        Self::from_bytes(bytes)
    }

    /// Returns the state by the storage specification, schema version 1.
    ///
    /// The dialect's rules select EXPLICIT, SPARSE or FULL, as a function of the content alone.
    ///
    /// ```
    /// use tidemill_sketch::{Hll, HllStorageDialect};
    /// let mut hll = Hll::default();
    /// assert_eq!(hll.to_bytes(HllStorageDialect::default()), [0x11, 0xae, 0x7f]);
    /// hll.add_hash(1);
    /// assert_eq!(
    ///     hll.to_bytes(HllStorageDialect::Java),
    ///     [0x12, 0xae, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1]
    /// );
    /// ```
    #[must_use]
    pub fn to_bytes(&self, dialect: HllStorageDialect) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_as(dialect, &mut out);
        out
    }

    fn write_as(&self, dialect: HllStorageDialect, out: &mut Vec<u8>) {
        let params = self.params;
        match &self.form {
            HllRepresentation::Undefined => self.write_header(TYPE_UNDEFINED, out),
            HllRepresentation::Empty => self.write_header(TYPE_EMPTY, out),
            HllRepresentation::Explicit(set) => {
                if set.len() as u64 > params.explicit_hashes_max(dialect.automatic_threshold_max())
                {
                    let mut registers = self.clone();
                    registers.promote_to_registers();
                    return registers.write_as(dialect, out);
                }
                self.write_header(TYPE_EXPLICIT, out);
                out.reserve(set.len() * 8);
                for value in set.sorted_hashes() {
                    out.extend_from_slice(&value.to_be_bytes());
                }
            }
            HllRepresentation::Sparse(table) => {
                if params.sparse && dialect.writes_sparse(params, table.len()) {
                    self.write_sparse(table.len(), out, |put| {
                        table
                            .sorted_registers()
                            .into_iter()
                            .for_each(|(index, value)| put(index, value));
                    });
                } else {
                    self.write_full(&densify(params, table), out);
                }
            }
            HllRepresentation::Dense(registers) => {
                let filled = registers.filled_count();
                if params.sparse && dialect.writes_sparse(params, filled) {
                    self.write_sparse(filled, out, |put| registers.for_each_filled(put));
                } else {
                    self.write_full(registers, out);
                }
            }
        }
    }

    /// Returns the length of [`Hll::to_bytes`]. For a decoded state it may be much larger than the
    /// input: a dialect that does not use SPARSE for the state writes all registers, up to 2^31
    /// of them by the state's own parameters. Cost: as [`Hll::cardinality`].
    #[must_use]
    pub fn encoded_len(&self, dialect: HllStorageDialect) -> usize {
        let params = self.params;
        let registers = |filled: usize| {
            if params.sparse && dialect.writes_sparse(params, filled) {
                (filled * usize::from(params.log2m + params.regwidth)).div_ceil(8)
            } else {
                params.packed_register_bytes()
            }
        };
        HEADER_BYTES
            + match &self.form {
                HllRepresentation::Undefined | HllRepresentation::Empty => 0,
                HllRepresentation::Explicit(set)
                    if set.len() as u64
                        <= params.explicit_hashes_max(dialect.automatic_threshold_max()) =>
                {
                    8 * set.len()
                }
                HllRepresentation::Explicit(_) => {
                    let mut promoted = self.clone();
                    promoted.promote_to_registers();
                    return promoted.encoded_len(dialect);
                }
                HllRepresentation::Sparse(table) => registers(table.len()),
                HllRepresentation::Dense(dense) => registers(dense.filled_count()),
            }
    }

    fn write_header(&self, kind: u8, out: &mut Vec<u8>) {
        let HllParams { log2m, regwidth, expthresh, sparse } = self.params;
        let threshold = match expthresh {
            ExplicitThreshold::Never => 0,
            ExplicitThreshold::PowerOfTwo(n) => n + 1,
            ExplicitThreshold::Automatic => 63,
        };
        out.extend_from_slice(&[
            SCHEMA_VERSION << 4 | kind,
            (regwidth - 1) << 5 | log2m,
            u8::from(sparse) << 6 | threshold,
        ]);
    }

    fn write_sparse(
        &self,
        filled: usize,
        out: &mut Vec<u8>,
        words: impl FnOnce(&mut dyn FnMut(usize, u8)),
    ) {
        self.write_header(TYPE_SPARSE, out);
        let word_bits = u32::from(self.params.log2m + self.params.regwidth);
        out.reserve((filled * word_bits as usize).div_ceil(8));
        let mut bits = BitWriter::new(out);
        words(&mut |index, value| {
            bits.put_bits((index as u64) << self.params.regwidth | u64::from(value), word_bits);
        });
        bits.finish();
    }

    fn write_full(&self, registers: &DenseRegisters, out: &mut Vec<u8>) {
        self.write_header(TYPE_FULL, out);
        out.reserve(self.params.packed_register_bytes());
        registers.write_full(out);
    }

    /// Reads a state written by this or another implementation of the storage specification,
    /// schema version 1.
    ///
    /// Takes time and memory in proportion to the input for any `log2m` in the header:
    /// a FULL state contains all its registers, and any other state is kept sparsely.
    ///
    /// # Errors
    /// [`SketchError::UnknownFormat`] for another schema version or type,
    /// [`SketchError::ParameterOutOfRange`] for a `log2m` below 4, and
    /// [`SketchError::Truncated`], [`SketchError::TrailingBytes`] or [`SketchError::Corrupt`]
    /// if the data contradicts the header. EXPLICIT must ascend and stay within its
    /// threshold; SPARSE must ascend and be allowed by its header.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SketchError> {
        Self::from_bytes_with_log2m_max(bytes, LOG2M_MAX)
    }

    /// Reads a state like [`Hll::from_bytes`], with a `log2m` of at most `log2m_max`: for untrusted bytes
    /// whose state will grow.
    ///
    /// Decoding is bounded by the input either way. But an empty state of four bytes may request
    /// 2^31 registers. Values added later would fill them, and a dialect
    /// without SPARSE would write them all after the first value (see [`Hll::encoded_len`]).
    ///
    /// # Errors
    /// As [`Hll::from_bytes`], and [`SketchError::ParameterOutOfRange`] for a larger `log2m`.
    pub fn from_bytes_with_log2m_max(bytes: &[u8], log2m_max: u8) -> Result<Self, SketchError> {
        let mut reader = StateReader::new(STATE, bytes);
        let version_and_type = reader.read_u8()?;
        let kind = version_and_type & 0x0f;
        if version_and_type >> 4 != SCHEMA_VERSION || kind > TYPE_FULL {
            return Err(SketchError::UnknownFormat {
                state: STATE,
                expected: "from 0x10 to 0x14 (storage specification, schema version 1)",
                found: version_and_type,
            });
        }
        let widths = reader.read_u8()?;
        let cutoffs = reader.read_u8()?;
        let params = HllParams {
            log2m: widths & 0x1f,
            regwidth: (widths >> 5) + 1,
            expthresh: match cutoffs & 0x3f {
                0 => ExplicitThreshold::Never,
                63 => ExplicitThreshold::Automatic,
                c @ 1..=31 => ExplicitThreshold::PowerOfTwo(c - 1),
                _ => {
                    return Err(
                        reader.corrupt_error("the explicit threshold is not one of 0 to 31 or 63")
                    );
                }
            },
            sparse: cutoffs & 0x40 != 0,
        };
        if cutoffs & 0x80 != 0 {
            return Err(reader.corrupt_error("the highest bit of the third byte is set"));
        }
        let hint = "\nhint: allow a larger `max_log2m` if the state is from where you trust";
        check_range("log2m", params.log2m, LOG2M_MIN, log2m_max, hint)?;
        let mut hll = Hll::new(params)?;
        match kind {
            TYPE_UNDEFINED => hll.form = HllRepresentation::Undefined,
            TYPE_EXPLICIT => hll.read_explicit(&mut reader)?,
            TYPE_SPARSE => hll.read_sparse(&mut reader)?,
            TYPE_FULL => hll.read_full(&mut reader)?,
            _ => {}
        }
        reader.expect_end()?;
        Ok(hll)
    }

    fn read_explicit(&mut self, reader: &mut StateReader<'_>) -> Result<(), SketchError> {
        let count = reader.remaining() / 8;
        if count as u64 > self.params.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_JAVA) {
            return Err(reader.corrupt_error("more explicit values than the header's threshold"));
        }
        if count > 0 {
            self.form = HllRepresentation::Explicit(ExplicitHashSet::with_capacity(
                count,
                self.params.explicit_slots_max(),
            ));
        }
        let mut before = None;
        while reader.remaining() > 0 {
            let mut value = [0; 8];
            value.copy_from_slice(reader.take_bytes(8)?);
            let value = i64::from_be_bytes(value);
            if before.is_some_and(|before| before >= value) {
                return Err(reader.corrupt_error("explicit values do not ascend"));
            }
            before = Some(value);
            self.add_hash(value.cast_unsigned());
        }
        Ok(())
    }

    fn read_sparse(&mut self, reader: &mut StateReader<'_>) -> Result<(), SketchError> {
        if !self.params.sparse {
            return Err(
                reader.corrupt_error("sparse registers, although the header rules them out")
            );
        }
        self.promote_to_registers();
        let word_bits = u32::from(self.params.log2m + self.params.regwidth);
        let data = reader.take_bytes(reader.remaining())?;
        let mut bits = BitReader::new(data);
        let mut before = None;
        while let Some(word) = bits.take_bits(word_bits) {
            #[expect(clippy::cast_possible_truncation, reason = "an index is below 2^31")]
            let index = (word >> self.params.regwidth) as usize;
            let value = (word & 0xff) as u8 & self.params.register_max();
            if value == 0 {
                // Not a register: the padding of a narrow word, or a zero that another writer left in.
                continue;
            }
            if before.is_some_and(|before| before >= index) {
                return Err(reader.corrupt_error("sparse registers do not ascend"));
            }
            before = Some(index);
            self.raise_register(index, value);
        }
        if bits.remaining_bits() != 0 {
            return Err(reader.corrupt_error("padding bits are set"));
        }
        Ok(())
    }

    fn read_full(&mut self, reader: &mut StateReader<'_>) -> Result<(), SketchError> {
        let data = reader.take_bytes(self.params.packed_register_bytes())?;
        let registers = DenseRegisters::read_full(self.params, data);
        if registers.filled_count() > self.params.sparse_registers_max() {
            self.form = HllRepresentation::Dense(Box::new(registers));
        } else {
            self.promote_to_registers();
            registers.for_each_filled(|index, value| self.raise_register(index, value));
        }
        Ok(())
    }
}

/// Builds all registers from the filled ones.
fn densify(params: HllParams, table: &SparseRegisterTable) -> DenseRegisters {
    let mut registers = DenseRegisters::new(params);
    for (index, value) in table.iter() {
        registers.raise_register(index, value);
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_state_is_small() {
        assert!(size_of::<Hll>() <= 48, "{}", size_of::<Hll>());
        assert_eq!(Hll::default().heap_bytes(), 0);
    }

    #[test]
    fn automatic_threshold_fits_the_space_of_the_registers() {
        let check = |log2m, regwidth, expect_postgres, expect_java| {
            let params = HllParams { log2m, regwidth, ..HllParams::default() };
            assert_eq!(
                params.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_POSTGRES),
                expect_postgres
            );
            assert_eq!(params.explicit_hashes_max(AUTOMATIC_THRESHOLD_MAX_JAVA), expect_java);
        };
        check(11, 5, 160, 160);
        check(14, 6, 1536, 1536);
        check(17, 8, 16_383, 16_384);
        check(30, 8, 16_383, 1 << 17);
        check(4, 1, 0, 0);
    }

    #[test]
    fn javas_sparse_limit_is_a_power_of_two() {
        let params = HllParams { log2m: 11, regwidth: 5, ..HllParams::default() };
        assert!(HllStorageDialect::Java.writes_sparse(params, 512));
        assert!(!HllStorageDialect::Java.writes_sparse(params, 513));
        let postgres = HllStorageDialect::default();
        assert!(postgres.writes_sparse(params, 639));
        assert!(!postgres.writes_sparse(params, 640));
    }

    #[test]
    fn a_rank_is_the_run_of_zeros_plus_one() {
        let check =
            |rest, register_max, expect| assert_eq!(zero_run_rank(rest, register_max), expect);
        check(0, 31, 0);
        check(1, 31, 1);
        check(0b1000, 31, 4);
        check(1 << 40, 31, 31);
        check(1 << 40, 63, 41);
        check(1 << 59, 255, 60);
    }
}
