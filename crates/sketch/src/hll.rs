//! HyperLogLog: how many different values, in kilobytes, by the storage specification v1.0.0.
//!
//! A value is hashed to 64 bits. The low `log2m` bits choose one of m = 2^log2m registers, and
//! the register keeps the longest run of zeros (plus one) seen at the low end of the rest: a run
//! of k zeros suggests that about 2^k values went by. The mean over all registers is the
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
//! In memory a state goes through four forms, each a function of what was added alone:
//! nothing; up to the threshold the hashes themselves, up to 16 of them in a list, more in a small
//! open-addressing table (the count is exact); past it the filled registers, in such a table as
//! well; and, once that table would outgrow them, all m registers, one byte each. The forms of the
//! *bytes* are chosen when writing, by a [`Dialect`], because the implementations differ there.
//!
//! Sources: Flajolet, Fusy, Gandouet and Meunier, *HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm* (2007), with linear counting for small cardinalities; the
//! storage specification of Aggregate Knowledge; postgresql-hll and java-hll where the
//! specification is silent. Departures:
//! - The large-range correction is computed in floating point: postgresql-hll overflows at
//!   `regwidth` 6 and above and gives NaN.
//! - States of different parameters merge (see [`Hll::merge`]); the others refuse.
//! - java-hll never returns from FULL to SPARSE; here the bytes depend on the registers alone.

use crate::SketchError;
use crate::wire::Reader;

const STATE: &str = "hll";
const SCHEMA_VERSION: u8 = 1;

const TYPE_UNDEFINED: u8 = 0;
const TYPE_EMPTY: u8 = 1;
const TYPE_EXPLICIT: u8 = 2;
const TYPE_SPARSE: u8 = 3;
const TYPE_FULL: u8 = 4;

/// The automatic threshold's cap: java-hll's, and the one this implementation keeps in memory.
const AUTOMATIC_MAX_JAVA: u64 = 1 << 17;
/// postgresql-hll's cap.
const AUTOMATIC_MAX_POSTGRES: u64 = 16_383;

/// Up to how many different values an [`Hll`] keeps the values' hashes and counts exactly.
///
/// The order is by threshold: of two states that merge, the smaller threshold holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum ExplicitThreshold {
    /// None: the first value already goes into a register.
    Never,
    /// 2^n values; n is from 0 to 30.
    PowerOfTwo(u8),
    /// As many as fit the space of all registers: ⌊⌈regwidth·m/8⌉/8⌋, at most 2^17.
    #[default]
    Automatic,
}

/// The parameters of an [`Hll`].
///
/// ```
/// use tidemill_sketch::{Hll, HllParams};
/// let params = HllParams { log2m: 11, regwidth: 5, ..HllParams::default() };
/// assert_eq!(Hll::new(params)?.relative_error(), 0.0);
/// # Ok::<(), tidemill_sketch::SketchError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HllParams {
    /// The base-2 logarithm of the number of registers. Default: 14, a standard error of 0.8%
    /// in 12 KiB (16 KiB in memory). From 4 to 31; postgresql-hll reads up to 17, java-hll up
    /// to 30, js-hll up to 24.
    pub log2m: u8,
    /// Bits to a register. Default: 6, enough for any 64-bit hash. From 1 to 8; 5 reaches
    /// some 10^12 values.
    pub regwidth: u8,
    /// Up to how many values the count is exact. Default: automatic, 1,536 values with the
    /// other defaults.
    pub expthresh: ExplicitThreshold,
    /// Whether SPARSE may be written. Default: yes. In memory few registers are always kept
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
        let check = |name, found: u8, min: u8, max: u8, hint| {
            if (min..=max).contains(&found) {
                return Ok(());
            }
            Err(SketchError::ParameterOutOfRange {
                name,
                found: found.into(),
                min: min.into(),
                max: max.into(),
                hint,
            })
        };
        check("log2m", self.log2m, 4, 31, "\nhint: 14 gives a standard error of 0.8%")?;
        check("regwidth", self.regwidth, 1, 8, "\nhint: 6 is enough for any 64-bit hash")?;
        if let ExplicitThreshold::PowerOfTwo(n) = self.expthresh {
            check("expthresh", n, 0, 30, "\nhint: it is the exponent of a power of two")?;
        }
        Ok(self)
    }

    fn register_count(self) -> usize {
        1 << self.log2m
    }

    fn register_max(self) -> u8 {
        u8::MAX >> (8 - self.regwidth)
    }

    fn full_bytes(self) -> usize {
        (self.register_count() * usize::from(self.regwidth)).div_ceil(8)
    }

    /// How many values EXPLICIT may hold.
    fn explicit_max(self, automatic_max: u64) -> u64 {
        match self.expthresh {
            ExplicitThreshold::Never => 0,
            ExplicitThreshold::PowerOfTwo(n) => 1 << n,
            ExplicitThreshold::Automatic => (self.full_bytes() as u64 / 8).min(automatic_max),
        }
    }

    /// Past how many filled registers the sparse table would outgrow the dense registers: at
    /// this many its slots (a power of two, at most three quarters full, 8 bytes each) take
    /// at most m bytes.
    fn sparse_max(self) -> usize {
        self.register_count() / 16
    }

    /// The largest parameters that hold both states' values.
    fn meet(self, other: Self) -> Self {
        HllParams {
            log2m: self.log2m.min(other.log2m),
            regwidth: self.regwidth.min(other.regwidth),
            expthresh: self.expthresh.min(other.expthresh),
            sparse: self.sparse && other.sparse,
        }
    }

    /// The register of a hash, and what the hash puts there (0: nothing).
    #[inline]
    fn locate(self, hash: u64) -> (u64, u8) {
        let rest = hash >> self.log2m;
        (hash & ((1 << self.log2m) - 1), rank(rest, self.register_max()))
    }
}

#[inline]
fn rank(rest: u64, register_max: u8) -> u8 {
    if rest == 0 {
        return 0;
    }
    // At most 63: `rest` is not zero.
    let zeros = (rest.trailing_zeros() & 0xff) as u8;
    (zeros + 1).min(register_max)
}

/// Whose rules decide between SPARSE and FULL when writing. Reading needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// postgresql-hll: SPARSE where it is smaller than FULL.
    Postgres {
        /// `hll_set_max_sparse`: SPARSE up to this many filled registers *instead*.
        /// Default: none set.
        sparse_registers_max: Option<u32>,
    },
    /// java-hll: SPARSE up to 2^⌊log2(m·regwidth / (log2m + regwidth))⌋ filled registers.
    Java,
}

impl Default for Dialect {
    fn default() -> Self {
        Dialect::Postgres { sparse_registers_max: None }
    }
}

impl Dialect {
    fn writes_sparse(self, params: HllParams, filled: usize) -> bool {
        let full_bits = params.register_count() as u64 * u64::from(params.regwidth);
        let word_bits = u64::from(params.log2m + params.regwidth);
        let filled = filled as u64;
        match self {
            Dialect::Postgres { sparse_registers_max: None } => filled * word_bits < full_bits,
            Dialect::Postgres { sparse_registers_max: Some(max) } => filled <= max.into(),
            // Never zero: m·regwidth is at least twice the width of a word, except where a
            // register has one bit; then no register fits.
            Dialect::Java => (full_bits / word_bits)
                .checked_ilog2()
                .is_some_and(|exponent| filled <= 1 << exponent),
        }
    }

    fn automatic_max(self) -> u64 {
        match self {
            Dialect::Postgres { .. } => AUTOMATIC_MAX_POSTGRES,
            Dialect::Java => AUTOMATIC_MAX_JAVA,
        }
    }
}

/// A count of different values: exact while they are few, then an estimate of constant size.
///
/// Takes hashes of 64 bits ([`hash_i64`](crate::hash_i64), [`hash_bytes`](crate::hash_bytes)).
/// The state is a function of the *set* of hashes: the order and grouping of adds and merges
/// leaves no trace, neither in the answer nor in the bytes.
///
/// Memory: none while empty, 32, 64 or 128 bytes for up to 4, 8 or 16 values, then between 11 and 16
/// bytes a value until the threshold, at most about max(m, 16 × threshold) bytes. Cost of an add: 1 to 2
/// ns once the registers are dense, 2 to 5 ns before.
///
/// ```
/// use tidemill_sketch::{Hll, hash_i64};
/// let mut users = Hll::default();
/// for id in 0..100_000 {
///     users.add_hash(hash_i64(id % 50_000));
/// }
/// assert!((users.cardinality() / 50_000.0 - 1.0).abs() < 4.0 * users.relative_error());
/// ```
#[derive(Debug, Clone)]
pub struct Hll {
    params: HllParams,
    repr: Repr,
}

#[derive(Debug, Clone)]
enum Repr {
    /// The union with something of unknown content: absorbs everything.
    Undefined,
    Empty,
    /// The hashes themselves.
    Explicit(ExplicitSet),
    /// The filled registers, at most `sparse_max` of them.
    Sparse(RegisterTable),
    /// All registers, more than `sparse_max` of them filled.
    Dense(Box<[u8]>),
}

impl Default for Hll {
    fn default() -> Self {
        Hll { params: HllParams::default(), repr: Repr::Empty }
    }
}

/// Two states are equal if they have the same parameters and content.
impl PartialEq for Hll {
    fn eq(&self, other: &Self) -> bool {
        self.params == other.params
            && match (&self.repr, &other.repr) {
                (Repr::Undefined, Repr::Undefined) | (Repr::Empty, Repr::Empty) => true,
                (Repr::Explicit(a), Repr::Explicit(b)) => a.sorted() == b.sorted(),
                (Repr::Sparse(a), Repr::Sparse(b)) => a.sorted() == b.sorted(),
                (Repr::Dense(a), Repr::Dense(b)) => a == b,
                _ => false,
            }
    }
}

impl Eq for Hll {}

impl Hll {
    /// An empty state with the given parameters; [`Hll::default`] for the usual ones.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`].
    pub fn new(params: HllParams) -> Result<Self, SketchError> {
        Ok(Hll { params: params.validate()?, repr: Repr::Empty })
    }

    /// The parameters, which a merge may have reduced.
    #[must_use]
    pub fn params(&self) -> HllParams {
        self.params
    }

    /// Adds a value by its hash.
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        if let Repr::Dense(registers) = &mut self.repr {
            let (index, value) = self.params.locate(hash);
            raise(registers, index, value);
        } else {
            self.add_hash_small(hash);
        }
    }

    /// Adds values by their hashes: the same as a call of [`Hll::add_hash`] for each.
    pub fn add_hashes(&mut self, mut hashes: &[u64]) {
        if let Repr::Empty = self.repr
            && self.params.explicit_max(AUTOMATIC_MAX_JAVA) > 0
            && !hashes.is_empty()
        {
            self.repr = Repr::Explicit(ExplicitSet::default());
        }
        if let Repr::Explicit(set) = &mut self.repr {
            hashes = set.list(hashes);
            if set.len() as u64 > self.params.explicit_max(AUTOMATIC_MAX_JAVA) {
                self.promote();
            }
        }
        for &hash in hashes {
            self.add_hash(hash);
        }
    }

    fn add_hash_small(&mut self, hash: u64) {
        match &mut self.repr {
            Repr::Undefined => {}
            Repr::Empty if self.params.explicit_max(AUTOMATIC_MAX_JAVA) > 0 => {
                let mut set = ExplicitSet::default();
                set.insert(hash);
                self.repr = Repr::Explicit(set);
            }
            Repr::Explicit(set) => {
                if set.insert(hash)
                    && set.len() as u64 > self.params.explicit_max(AUTOMATIC_MAX_JAVA)
                {
                    self.promote();
                }
            }
            Repr::Empty | Repr::Sparse(_) | Repr::Dense(_) => {
                let (index, value) = self.params.locate(hash);
                self.promote();
                self.add_register(index, value);
            }
        }
    }

    /// Goes over from the hashes to registers.
    fn promote(&mut self) {
        match &mut self.repr {
            Repr::Undefined | Repr::Sparse(_) | Repr::Dense(_) => {}
            Repr::Empty => self.repr = Repr::Sparse(RegisterTable::default()),
            Repr::Explicit(set) => {
                let set = std::mem::take(set);
                self.repr = Repr::Sparse(RegisterTable::default());
                for hash in set.iter() {
                    let (index, value) = self.params.locate(hash);
                    self.add_register(index, value);
                }
            }
        }
    }

    /// Raises one register; the state must hold registers already.
    fn add_register(&mut self, index: u64, value: u8) {
        match &mut self.repr {
            Repr::Sparse(table) => {
                if value > 0 && table.raise(index, value) && table.len() > self.params.sparse_max()
                {
                    let mut registers = vec![0; self.params.register_count()].into_boxed_slice();
                    for (index, value) in table.iter() {
                        raise(&mut registers, index, value);
                    }
                    self.repr = Repr::Dense(registers);
                }
            }
            Repr::Dense(registers) => raise(registers, index, value),
            Repr::Undefined | Repr::Empty | Repr::Explicit(_) => {
                debug_assert!(false, "promoted before");
            }
        }
    }

    /// Adds all that `other` has seen.
    ///
    /// Where the parameters differ, the result has the smaller of each (and is sparse if both
    /// are): registers of the larger `log2m` are folded down to exactly what they would have
    /// been, and values of the larger `regwidth` are clamped. (One hash in 2^(64 − log2m),
    /// all zero above the index, leaves no trace in registers and cannot be folded.)
    ///
    /// Cost: one pass over the registers if both are dense, else over what is filled.
    pub fn merge(&mut self, other: &Hll) {
        self.reduce(self.params.meet(other.params));
        match (&mut self.repr, &other.repr) {
            (Repr::Undefined, _) | (_, Repr::Empty) => {}
            (_, Repr::Undefined) => self.repr = Repr::Undefined,
            (Repr::Empty, _) if self.params == other.params => self.repr = other.repr.clone(),
            (Repr::Dense(registers), Repr::Dense(more))
                if self.params.log2m == other.params.log2m =>
            {
                let max = self.params.register_max();
                for (register, value) in registers.iter_mut().zip(more) {
                    *register = (*register).max((*value).min(max));
                }
            }
            (_, Repr::Explicit(set)) => {
                self.add_hashes(set.listed());
                for hash in set.unlisted() {
                    self.add_hash(hash);
                }
            }
            (_, Repr::Sparse(_) | Repr::Dense(_)) => {
                self.promote();
                self.add_registers_of(other);
            }
        }
    }

    /// As [`Hll::merge`], in the memory of the one that owns more.
    pub fn merge_owned(&mut self, mut other: Hll) {
        if other.heap_bytes() > self.heap_bytes() {
            std::mem::swap(self, &mut other);
        }
        self.merge(&other);
    }

    /// Goes over to smaller parameters.
    fn reduce(&mut self, params: HllParams) {
        if params == self.params {
            return;
        }
        let before = std::mem::replace(self, Hll { params, repr: Repr::Empty });
        match before.repr {
            Repr::Undefined | Repr::Empty => self.repr = before.repr,
            Repr::Explicit(set) => {
                let excess = set.len() as u64 > params.explicit_max(AUTOMATIC_MAX_JAVA);
                self.repr = Repr::Explicit(set);
                if excess {
                    self.promote();
                }
            }
            Repr::Sparse(_) | Repr::Dense(_) => {
                self.promote();
                self.add_registers_of(&before);
            }
        }
    }

    /// Raises our registers by those of a state with at least our parameters.
    fn add_registers_of(&mut self, other: &Hll) {
        // Of the other's index, the low bits are our index. The bits above them are the low
        // bits of our `x`: if one is set, the run of zeros ends there; if not, it goes on for
        // as long as the other's run.
        let low_bits = self.params.log2m;
        let folded_bits = other.params.log2m - low_bits;
        let max = self.params.register_max();
        let mut fold = |index: u64, value: u8| {
            let value = match rank(index >> low_bits, max) {
                0 => value.saturating_add(folded_bits).min(max),
                ends_there => ends_there,
            };
            self.add_register(index & ((1 << low_bits) - 1), value);
        };
        match &other.repr {
            Repr::Sparse(table) => table.iter().for_each(|(index, value)| fold(index, value)),
            Repr::Dense(registers) => (0..)
                .zip(registers.iter())
                .filter(|&(_, &value)| value > 0)
                .for_each(|(index, &value)| fold(index, value)),
            Repr::Undefined | Repr::Empty | Repr::Explicit(_) => {}
        }
    }

    /// The estimated number of different values: exact while their hashes are kept.
    ///
    /// NaN if the state [is undefined](Hll::is_undefined), infinite if the registers are too
    /// narrow for what went by. java-hll's `cardinality` is this, rounded up. Cost: O(m).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    pub fn cardinality(&self) -> f64 {
        match &self.repr {
            Repr::Undefined => f64::NAN,
            Repr::Empty => 0.0,
            Repr::Explicit(set) => set.len() as f64,
            Repr::Sparse(_) | Repr::Dense(_) => self.estimate(),
        }
    }

    /// The estimate from the registers.
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    fn estimate(&self) -> f64 {
        // How many registers hold each value: the sum below is then over few terms and does
        // not depend on the registers' order.
        let mut histogram = [0u64; 256];
        let m = self.params.register_count() as f64;
        match &self.repr {
            Repr::Undefined | Repr::Empty | Repr::Explicit(_) => {}
            Repr::Sparse(table) => {
                histogram[0] = (self.params.register_count() - table.len()) as u64;
                for (_, value) in table.iter() {
                    histogram[usize::from(value)] += 1;
                }
            }
            Repr::Dense(registers) => {
                for &value in registers {
                    histogram[usize::from(value)] += 1;
                }
            }
        }
        let zeros = histogram[0] as f64;
        let sum: f64 = (0i32..256)
            .zip(histogram)
            .rev()
            .filter(|&(_, count)| count > 0)
            .map(|(value, count)| count as f64 * 2f64.powi(-value))
            .sum();
        let alpha = match self.params.log2m {
            4 => 0.673,
            5 => 0.697,
            6 => 0.709,
            _ => 0.7213 / (1.0 + 1.079 / m),
        };
        let estimate = alpha * m * m / sum;
        if zeros > 0.0 && estimate < 2.5 * m {
            return m * (m / zeros).ln();
        }
        // The number of distinct (register, run) outcomes: near it, collisions hide values.
        let outcomes =
            2f64.powi(i32::from(self.params.register_max()) - 1 + i32::from(self.params.log2m));
        if estimate <= outcomes / 30.0 {
            estimate
        } else if estimate < outcomes {
            -outcomes * (1.0 - estimate / outcomes).ln()
        } else {
            f64::INFINITY
        }
    }

    /// The estimated number of different values, rounded: [`Hll::cardinality`] as an integer.
    ///
    /// 0 if the state is undefined. Cost: O(m).
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative; a float too large for the integer becomes its maximum"
    )]
    pub fn count(&self) -> u64 {
        self.cardinality().round() as u64
    }

    /// The standard error of the estimate as a share of it: 1.04/√m, or 0 while exact.
    ///
    /// About two estimates in three are within one standard error, 19 in 20 within two.
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        match self.repr {
            Repr::Empty | Repr::Explicit(_) => 0.0,
            Repr::Sparse(_) | Repr::Dense(_) => 1.04 / 2f64.powi(self.params.log2m.into()).sqrt(),
            Repr::Undefined => f64::NAN,
        }
    }

    /// Whether the count is exact: nothing but hashes has been kept so far.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        matches!(self.repr, Repr::Empty | Repr::Explicit(_))
    }

    /// Whether the state is UNDEFINED: read so, or merged with such a one. It has no count.
    #[must_use]
    pub fn is_undefined(&self) -> bool {
        matches!(self.repr, Repr::Undefined)
    }

    /// The heap memory the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.repr {
            Repr::Undefined | Repr::Empty => 0,
            Repr::Explicit(set) => size_of_val(&*set.slots),
            Repr::Sparse(table) => size_of_val(&*table.slots),
            Repr::Dense(registers) => registers.len(),
        }
    }

    /// Appends the state's canonical bytes: [`Hll::to_bytes`] in the default dialect.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(Dialect::default(), out);
    }

    /// Reads a state in any dialect: the same as [`Hll::from_bytes`].
    ///
    /// # Errors
    /// As [`Hll::from_bytes`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        Self::from_bytes(bytes)
    }

    /// The state by the storage specification, schema version 1.
    ///
    /// EXPLICIT, SPARSE or FULL by the dialect's rules, as a function of the content alone.
    ///
    /// ```
    /// use tidemill_sketch::{Dialect, Hll};
    /// let mut hll = Hll::default();
    /// assert_eq!(hll.to_bytes(Dialect::default()), [0x11, 0xae, 0x7f]);
    /// hll.add_hash(1);
    /// assert_eq!(
    ///     hll.to_bytes(Dialect::Java),
    ///     [0x12, 0xae, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1]
    /// );
    /// ```
    #[must_use]
    pub fn to_bytes(&self, dialect: Dialect) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(dialect, &mut out);
        out
    }

    fn write(&self, dialect: Dialect, out: &mut Vec<u8>) {
        let params = self.params;
        match &self.repr {
            Repr::Undefined => self.write_header(TYPE_UNDEFINED, out),
            Repr::Empty => self.write_header(TYPE_EMPTY, out),
            Repr::Explicit(set) => {
                if set.len() as u64 > params.explicit_max(dialect.automatic_max()) {
                    let mut registers = self.clone();
                    registers.promote();
                    return registers.write(dialect, out);
                }
                self.write_header(TYPE_EXPLICIT, out);
                out.reserve(set.len() * 8);
                for value in set.sorted() {
                    out.extend_from_slice(&value.to_be_bytes());
                }
            }
            Repr::Sparse(table) => {
                if params.sparse && dialect.writes_sparse(params, table.len()) {
                    self.write_sparse(table.sorted().into_iter(), table.len(), out);
                } else {
                    let mut registers = vec![0; params.register_count()];
                    for (index, value) in table.iter() {
                        raise(&mut registers, index, value);
                    }
                    self.write_full(&registers, out);
                }
            }
            Repr::Dense(registers) => {
                let filled = registers.iter().filter(|&&value| value > 0).count();
                if params.sparse && dialect.writes_sparse(params, filled) {
                    let words = (0..).zip(registers.iter().copied());
                    self.write_sparse(words.filter(|&(_, value)| value > 0), filled, out);
                } else {
                    self.write_full(registers, out);
                }
            }
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
        words: impl Iterator<Item = (u64, u8)>,
        filled: usize,
        out: &mut Vec<u8>,
    ) {
        self.write_header(TYPE_SPARSE, out);
        let word_bits = u32::from(self.params.log2m + self.params.regwidth);
        out.reserve((filled * word_bits as usize).div_ceil(8));
        let mut bits = BitWriter::new(out);
        for (index, value) in words {
            bits.put(index << self.params.regwidth | u64::from(value), word_bits);
        }
        bits.finish();
    }

    fn write_full(&self, registers: &[u8], out: &mut Vec<u8>) {
        self.write_header(TYPE_FULL, out);
        out.reserve(self.params.full_bytes());
        let mut bits = BitWriter::new(out);
        for &value in registers {
            bits.put(value.into(), self.params.regwidth.into());
        }
        bits.finish();
    }

    /// Reads a state written by this or another implementation of the storage specification,
    /// schema version 1.
    ///
    /// Takes time and memory in proportion to the input: whatever `log2m` the header claims,
    /// a FULL state has all its registers, and any other is kept sparsely.
    ///
    /// # Errors
    /// [`SketchError::UnknownFormat`] for another schema version or type,
    /// [`SketchError::ParameterOutOfRange`] for a `log2m` below 4, and
    /// [`SketchError::Truncated`], [`SketchError::TrailingBytes`] or [`SketchError::Corrupt`]
    /// where the data contradicts the header. EXPLICIT must ascend and stay within its
    /// threshold; SPARSE must ascend and be allowed by its header.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = Reader::new(STATE, bytes);
        let version_and_type = reader.u8()?;
        let kind = version_and_type & 0x0f;
        if version_and_type >> 4 != SCHEMA_VERSION || kind > TYPE_FULL {
            return Err(SketchError::UnknownFormat {
                state: STATE,
                expected: "from 0x10 to 0x14 (storage specification, schema version 1)",
                found: version_and_type,
            });
        }
        let widths = reader.u8()?;
        let cutoffs = reader.u8()?;
        let params = HllParams {
            log2m: widths & 0x1f,
            regwidth: (widths >> 5) + 1,
            expthresh: match cutoffs & 0x3f {
                0 => ExplicitThreshold::Never,
                63 => ExplicitThreshold::Automatic,
                c @ 1..=31 => ExplicitThreshold::PowerOfTwo(c - 1),
                _ => {
                    return Err(
                        reader.corrupt("the explicit threshold is not one of 0 to 31 or 63")
                    );
                }
            },
            sparse: cutoffs & 0x40 != 0,
        };
        if cutoffs & 0x80 != 0 {
            return Err(reader.corrupt("the highest bit of the third byte is set"));
        }
        let mut hll = Hll::new(params)?;
        match kind {
            TYPE_UNDEFINED => hll.repr = Repr::Undefined,
            TYPE_EXPLICIT => hll.read_explicit(&mut reader)?,
            TYPE_SPARSE => hll.read_sparse(&mut reader)?,
            TYPE_FULL => hll.read_full(&mut reader)?,
            _ => {}
        }
        reader.finish()?;
        Ok(hll)
    }

    fn read_explicit(&mut self, reader: &mut Reader<'_>) -> Result<(), SketchError> {
        let count = reader.remaining() / 8;
        if count as u64 > self.params.explicit_max(AUTOMATIC_MAX_JAVA) {
            return Err(reader.corrupt("more explicit values than the header's threshold"));
        }
        if count > 0 {
            self.repr = Repr::Explicit(ExplicitSet::with_room(count));
        }
        let mut before = None;
        while reader.remaining() > 0 {
            let mut value = [0; 8];
            value.copy_from_slice(reader.take(8)?);
            let value = i64::from_be_bytes(value);
            if before.is_some_and(|before| before >= value) {
                return Err(reader.corrupt("explicit values do not ascend"));
            }
            before = Some(value);
            self.add_hash(value.cast_unsigned());
        }
        Ok(())
    }

    fn read_sparse(&mut self, reader: &mut Reader<'_>) -> Result<(), SketchError> {
        if !self.params.sparse {
            return Err(reader.corrupt("sparse registers, although the header rules them out"));
        }
        self.promote();
        let word_bits = u32::from(self.params.log2m + self.params.regwidth);
        let data = reader.take(reader.remaining())?;
        let mut bits = BitReader::new(data);
        let mut before = None;
        while let Some(word) = bits.take(word_bits) {
            let index = word >> self.params.regwidth;
            let value = (word & 0xff) as u8 & self.params.register_max();
            if value == 0 {
                // Not a register: the padding of a narrow word, or a careless writer's.
                continue;
            }
            if before.is_some_and(|before| before >= index) {
                return Err(reader.corrupt("sparse registers do not ascend"));
            }
            before = Some(index);
            self.add_register(index, value);
        }
        if bits.rest() != 0 {
            return Err(reader.corrupt("padding bits are set"));
        }
        Ok(())
    }

    fn read_full(&mut self, reader: &mut Reader<'_>) -> Result<(), SketchError> {
        let data = reader.take(self.params.full_bytes())?;
        let mut bits = BitReader::new(data);
        let registers: Box<[u8]> = (0..self.params.register_count())
            .map_while(|_| bits.take(self.params.regwidth.into()))
            .map(|value| (value & 0xff) as u8)
            .collect();
        if bits.rest() != 0 {
            return Err(reader.corrupt("padding bits are set"));
        }
        self.promote();
        if registers.iter().filter(|&&value| value > 0).count() > self.params.sparse_max() {
            self.repr = Repr::Dense(registers);
        } else {
            for (index, &value) in (0..).zip(&registers) {
                self.add_register(index, value);
            }
        }
        Ok(())
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an index is below 2^31")]
fn raise(registers: &mut [u8], index: u64, value: u8) {
    if let Some(register) = registers.get_mut(index as usize)
        && value > *register
    {
        *register = value;
    }
}

/// Spreads keys over a power of two of slots: the high bits of the product with 2^64/φ
/// (Knuth, *The Art of Computer Programming* 6.4). Hashes are random already, but registers
/// arrive in their order, and hostile input in any.
#[inline]
fn slot_of(key: u64, slot_count: usize) -> usize {
    let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Below `slot_count`, which is at least 4.
    #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
    let slot = (spread >> (64 - slot_count.trailing_zeros())) as usize;
    slot
}

/// As [`slot_of`], of any number of slots: the high half of the product with it (Lemire, *Fast
/// Random Integer Generation in an Interval*, 2019).
#[inline]
fn place_of(key: u64, slot_count: usize) -> usize {
    let spread = u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
    let place = ((spread * slot_count as u128) >> 64) as usize;
    place
}

const SLOTS_MIN: usize = 4;

/// Up to this many hashes are looked up one by one.
const LIST_MAX: usize = 16;

/// A set of 64-bit hashes, 0 marking a free slot. Up to [`LIST_MAX`] slots are a list, filled from
/// the start; more are a table: open addressing with linear probing, at most three quarters full.
#[derive(Debug, Clone, Default)]
struct ExplicitSet {
    /// 0, 4, 8 or 16 of a list; of a table 32, and from there on each time half as many again.
    slots: Box<[u64]>,
    /// How many slots are taken.
    taken: usize,
    /// Whether the hash 0, which has no slot, is in the set.
    zero: bool,
}

impl ExplicitSet {
    /// An empty set in which so many hashes have room.
    fn with_room(count: usize) -> Self {
        let slots = match count {
            0 => 0,
            1..=LIST_MAX => count.next_power_of_two().max(SLOTS_MIN),
            _ => (count + count / 3 + 1).max(2 * LIST_MAX),
        };
        ExplicitSet { slots: vec![0; slots].into_boxed_slice(), taken: 0, zero: false }
    }

    fn len(&self) -> usize {
        self.taken + usize::from(self.zero)
    }

    /// Returns whether the hash is new.
    fn insert(&mut self, hash: u64) -> bool {
        if hash == 0 {
            return !std::mem::replace(&mut self.zero, true);
        }
        let length = self.slots.len();
        if length <= LIST_MAX {
            if self.slots[..self.taken].contains(&hash) {
                return false;
            }
            if self.taken == length {
                self.grow();
                return self.insert(hash);
            }
            self.slots[self.taken] = hash;
            self.taken += 1;
            return true;
        }
        let mut slot = place_of(hash, length);
        while self.slots[slot] != 0 {
            if self.slots[slot] == hash {
                return false;
            }
            slot += 1;
            if slot == length {
                slot = 0;
            }
        }
        self.slots[slot] = hash;
        self.taken += 1;
        if self.taken * 4 > length * 3 {
            self.grow();
        }
        true
    }

    /// Inserts hashes as long as the set is a list and stays one, growing it once at most. Returns
    /// those that are left.
    fn list<'a>(&mut self, hashes: &'a [u64]) -> &'a [u64] {
        if self.slots.len() > LIST_MAX {
            return hashes;
        }
        let mut list = [0; LIST_MAX];
        list[..self.taken].copy_from_slice(&self.slots[..self.taken]);
        let mut taken = self.taken;
        let mut left = hashes;
        while let [hash, rest @ ..] = left {
            if *hash == 0 {
                self.zero = true;
            } else if !list[..taken].contains(hash) {
                let Some(slot) = list.get_mut(taken) else { break };
                *slot = *hash;
                taken += 1;
            }
            left = rest;
        }
        if taken > self.slots.len() {
            self.slots = ExplicitSet::with_room(taken).slots;
        }
        self.slots[..taken].copy_from_slice(&list[..taken]);
        self.taken = taken;
        left
    }

    #[cold]
    fn grow(&mut self) {
        let length = match self.slots.len() {
            0 => SLOTS_MIN,
            length @ ..=LIST_MAX => 2 * length,
            length => length + length / 2,
        };
        let longer = vec![0; length].into_boxed_slice();
        let before = std::mem::replace(&mut self.slots, longer);
        self.taken = 0;
        if length <= LIST_MAX {
            self.slots[..before.len()].copy_from_slice(&before);
            self.taken = before.len();
            return;
        }
        for &hash in before.iter().filter(|&&hash| hash != 0) {
            self.insert(hash);
        }
    }

    /// The hashes that are in a list.
    fn listed(&self) -> &[u64] {
        if self.slots.len() <= LIST_MAX { &self.slots[..self.taken] } else { &[] }
    }

    /// The others.
    fn unlisted(&self) -> impl Iterator<Item = u64> + '_ {
        let table = if self.slots.len() <= LIST_MAX { &[] } else { &*self.slots };
        table.iter().copied().filter(|&hash| hash != 0).chain(self.zero.then_some(0))
    }

    fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.listed().iter().copied().chain(self.unlisted())
    }

    /// As the storage specification orders them: as signed integers.
    fn sorted(&self) -> Vec<i64> {
        let mut sorted: Vec<i64> = self.iter().map(u64::cast_signed).collect();
        sorted.sort_unstable();
        sorted
    }
}

/// The filled registers by index: open addressing as in [`ExplicitSet`], a slot holding
/// `index << 8 | value`, and 0, which is no register's content, while it is free.
#[derive(Debug, Clone, Default)]
struct RegisterTable {
    slots: Box<[u64]>,
    taken: usize,
}

impl RegisterTable {
    fn len(&self) -> usize {
        self.taken
    }

    /// Raises a register to `value`, which is not 0; returns whether it was free.
    fn raise(&mut self, index: u64, value: u8) -> bool {
        if self.slots.is_empty() {
            self.slots = Box::new([0; SLOTS_MIN]);
        }
        let mask = self.slots.len() - 1;
        let mut slot = slot_of(index, self.slots.len());
        while self.slots[slot] != 0 {
            if self.slots[slot] >> 8 == index {
                self.slots[slot] = self.slots[slot].max(index << 8 | u64::from(value));
                return false;
            }
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = index << 8 | u64::from(value);
        self.taken += 1;
        if self.taken * 4 > self.slots.len() * 3 {
            self.grow();
        }
        true
    }

    #[cold]
    fn grow(&mut self) {
        let doubled = vec![0; self.slots.len() * 2].into_boxed_slice();
        let before = std::mem::replace(self, RegisterTable { slots: doubled, taken: 0 });
        for (index, value) in before.iter() {
            self.raise(index, value);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u8)> + '_ {
        let taken = self.slots.iter().filter(|&&slot| slot != 0);
        taken.map(|&slot| (slot >> 8, (slot & 0xff) as u8))
    }

    fn sorted(&self) -> Vec<(u64, u8)> {
        let mut sorted: Vec<_> = self.iter().collect();
        sorted.sort_unstable();
        sorted
    }
}

/// Appends bits to bytes, most significant first.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// The bits not yet written, at the low end.
    pending: u64,
    pending_bits: u32,
}

impl<'a> BitWriter<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter { out, pending: 0, pending_bits: 0 }
    }

    /// Appends the low `width` bits, at most 56.
    fn put(&mut self, bits: u64, width: u32) {
        self.pending = self.pending << width | bits;
        self.pending_bits += width;
        while self.pending_bits >= 8 {
            self.pending_bits -= 8;
            self.out.push((self.pending >> self.pending_bits & 0xff) as u8);
        }
    }

    /// Fills the last byte up with zeros.
    fn finish(mut self) {
        if self.pending_bits > 0 {
            self.put(0, 8 - self.pending_bits);
        }
    }
}

/// Takes bits from bytes, most significant first.
struct BitReader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    pending: u64,
    pending_bits: u32,
}

impl<'a> BitReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes: bytes.iter(), pending: 0, pending_bits: 0 }
    }

    /// The next `width` bits, at most 56; none if fewer are left.
    fn take(&mut self, width: u32) -> Option<u64> {
        while self.pending_bits < width {
            self.pending = self.pending << 8 | u64::from(*self.bytes.next()?);
            self.pending_bits += 8;
        }
        self.pending_bits -= width;
        Some(self.pending >> self.pending_bits & ((1 << width) - 1))
    }

    /// The bits that were too few for the last call of `take`.
    fn rest(&self) -> u64 {
        self.pending & ((1 << self.pending_bits) - 1)
    }
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
    fn the_automatic_threshold_is_what_would_fill_the_registers() {
        let check = |log2m, regwidth, expect_postgres, expect_java| {
            let params = HllParams { log2m, regwidth, ..HllParams::default() };
            assert_eq!(params.explicit_max(AUTOMATIC_MAX_POSTGRES), expect_postgres);
            assert_eq!(params.explicit_max(AUTOMATIC_MAX_JAVA), expect_java);
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
        assert!(Dialect::Java.writes_sparse(params, 512));
        assert!(!Dialect::Java.writes_sparse(params, 513));
        let postgres = Dialect::default();
        assert!(postgres.writes_sparse(params, 639));
        assert!(!postgres.writes_sparse(params, 640));
    }

    #[test]
    fn a_rank_is_the_run_of_zeros_plus_one() {
        let check = |rest, register_max, expect| assert_eq!(rank(rest, register_max), expect);
        check(0, 31, 0);
        check(1, 31, 1);
        check(0b1000, 31, 4);
        check(1 << 40, 31, 31);
        check(1 << 40, 63, 41);
        check(1 << 59, 255, 60);
    }

    #[test]
    fn bits_come_back_as_they_were_put() {
        let words = [(0b101, 3), (0x1ff, 9), (0, 1), (0x3fff_ffff_ffff, 46), (1, 5)];
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        for (word, width) in words {
            writer.put(word, width);
        }
        writer.finish();
        assert_eq!(bytes.len(), 8);
        let mut reader = BitReader::new(&bytes);
        for (word, width) in words {
            assert_eq!(reader.take(width), Some(word));
        }
        assert_eq!(reader.take(1), None);
        assert_eq!(reader.rest(), 0);
    }
}
