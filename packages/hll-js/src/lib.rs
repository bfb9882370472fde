//! `tidemill_sketch::Hll` behind functions that JavaScript calls.
//!
//! A sketch is a number there: its place in a table here. What is longer than a number goes through
//! buffers that this side owns; the other side asks where they are, and writes or reads them in the
//! memory that WebAssembly shares with it:
//!
//! ```text
//! bytes    ← sketches to read, long texts and bytes  → sketches written, messages
//! text     ← a text of up to 12,288 bytes, always in the same place
//! words    ← hashes, integers or floats, 8,192 at a time, always in the same place
//! numbers                                            → estimates: value, standard error, …
//! ```
//!
//! So nothing here takes a pointer, no block is unsafe, and whatever the other side passes, a wrong
//! number at worst answers [`FAILED`]. (A call with the table's number of a sketch that was freed may
//! meet another one: the JavaScript of this package never does that.) `wasm-bindgen` would make the
//! same calls by a generator whose version has to be the library's, and which takes minutes to build.
//!
//! Functions whose name begins with `hll_` are of the table's sketches. A function that can fail
//! returns [`FAILED`], and the message's length is then [`message_length`].

use std::cell::RefCell;

use tidemill_sketch::{
    CardinalityEstimator, ExplicitThreshold, Hll, HllParams, HllStorageDialect, SketchError,
    SketchEstimate, hash_bytes, hash_f64, hash_i64,
};

/// What a function returns that failed; its message is in `bytes`.
const FAILED: u32 = u32::MAX;

/// How many words the buffer for them holds.
const WORDS: usize = 8_192;

/// How many bytes `text` holds.
const TEXT: usize = 12_288;

/// `bytes` is given back to the allocator where it has grown past this.
const BYTES_KEPT: usize = 1 << 20;

/// The most that is written at once: what a 32-bit memory still holds beside the sketch itself.
const WRITTEN_BYTES_MAX: usize = 1 << 30;

#[derive(Default)]
struct State {
    /// By their numbers; nothing where one was freed.
    sketches: Vec<Option<Hll>>,
    /// The numbers of what was freed.
    free: Vec<u32>,
    bytes: Vec<u8>,
    text: Vec<u8>,
    words: Vec<u64>,
    numbers: [f64; 16],
    /// The length of the last message, which is at the beginning of `bytes`.
    message_length: u32,
}

impl State {
    fn put(&mut self, hll: Hll) -> u32 {
        if let Some(number) = self.free.pop()
            && let Some(place) = self.sketches.get_mut(number as usize)
        {
            *place = Some(hll);
            return number;
        }
        self.sketches.push(Some(hll));
        // A table of 2^32 does not fit the memory.
        (self.sketches.len() - 1) as u32
    }

    fn get(&self, number: u32) -> Option<&Hll> {
        self.sketches.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Hll> {
        self.sketches.get_mut(number as usize)?.as_mut()
    }

    fn put_or_fail(&mut self, hll: Result<Hll, SketchError>) -> u32 {
        match hll {
            Ok(hll) => self.put(hll),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn fail(&mut self, message: &str) -> u32 {
        // As the option is called on the other side.
        let message = message.replace("max_log2m", "maxLog2m");
        self.bytes.clear();
        self.bytes.extend_from_slice(message.as_bytes());
        self.message_length = message.len() as u32;
        FAILED
    }

    fn tell(&mut self, estimates: &[SketchEstimate]) {
        for (place, estimate) in self.numbers.chunks_exact_mut(2).zip(estimates) {
            place.copy_from_slice(&[estimate.value, estimate.standard_error]);
        }
    }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(work)
}

/// Does something to a sketch; nothing where there is none of that number.
fn change(number: u32, work: impl FnOnce(&mut Hll)) {
    with(|state| state.get_mut(number).map(work));
}

/// Reads something off a sketch; the default where there is none of that number.
fn read<R: Default>(number: u32, work: impl FnOnce(&Hll) -> R) -> R {
    with(|state| state.get(number).map(work).unwrap_or_default())
}

/// A parameter of a sketch: what is too large for one stays too large.
fn narrow(parameter: u32) -> u8 {
    u8::try_from(parameter).unwrap_or(u8::MAX)
}

fn estimator(ertl: u32) -> CardinalityEstimator {
    if ertl != 0 { CardinalityEstimator::Improved } else { CardinalityEstimator::Published }
}

/// Where `bytes` is, with room for so many, to be written.
#[unsafe(no_mangle)]
pub extern "C" fn bytes_of_length(length: usize) -> *mut u8 {
    with(|state| {
        if state.bytes.capacity() > BYTES_KEPT && length <= BYTES_KEPT {
            state.bytes = Vec::new();
        }
        if state.bytes.len() < length {
            state.bytes.resize(length, 0);
        }
        state.bytes.as_mut_ptr()
    })
}

/// Where `bytes` is, as the last call left it.
#[unsafe(no_mangle)]
pub extern "C" fn bytes() -> *const u8 {
    with(|state| state.bytes.as_ptr())
}

/// Where `text` is.
#[unsafe(no_mangle)]
pub extern "C" fn text() -> *mut u8 {
    with(|state| {
        state.text.resize(TEXT, 0);
        state.text.as_mut_ptr()
    })
}

/// Where `words` is.
#[unsafe(no_mangle)]
pub extern "C" fn words() -> *mut u64 {
    with(|state| {
        state.words.resize(WORDS, 0);
        state.words.as_mut_ptr()
    })
}

/// Where `numbers` is.
#[unsafe(no_mangle)]
pub extern "C" fn numbers() -> *const f64 {
    with(|state| state.numbers.as_ptr())
}

/// How long the last message is.
#[unsafe(no_mangle)]
pub extern "C" fn message_length() -> u32 {
    with(|state| state.message_length)
}

/// A new sketch; `explicit` below 0 is the automatic threshold.
#[unsafe(no_mangle)]
pub extern "C" fn hll_new(log2m: u32, regwidth: u32, explicit: i64, sparse: u32) -> u32 {
    with(|state| {
        let [log2m, regwidth] = [log2m, regwidth].map(narrow);
        let expthresh = u64::try_from(explicit)
            .map_or(Ok(ExplicitThreshold::Automatic), ExplicitThreshold::from_count);
        let hll = expthresh.and_then(|expthresh| {
            Hll::new(HllParams { log2m, regwidth, expthresh, sparse: sparse != 0 })
        });
        state.put_or_fail(hll)
    })
}

/// A sketch of the first bytes of `bytes`; `sparse` false rules SPARSE out from now on.
#[unsafe(no_mangle)]
pub extern "C" fn hll_read(length: usize, log2m_max: u32, sparse: u32) -> u32 {
    with(|state| {
        let bytes = state.bytes.get(..length).unwrap_or_default();
        let hll = Hll::from_bytes_with_log2m_max(bytes, narrow(log2m_max)).and_then(|hll| {
            if sparse != 0 {
                return Ok(hll);
            }
            // The smaller of each parameter holds: only `sparse` is.
            let mut without = Hll::new(HllParams { sparse: false, ..hll.params() })?;
            without.merge_owned(hll);
            Ok(without)
        });
        state.put_or_fail(hll)
    })
}

/// Writes a sketch to `bytes` and returns the length; `sparse_registers_max` below 0 is none.
#[unsafe(no_mangle)]
pub extern "C" fn hll_write(number: u32, java: u32, sparse_registers_max: i64) -> u32 {
    with(|state| {
        let dialect = if java != 0 {
            HllStorageDialect::Java
        } else {
            HllStorageDialect::Postgres {
                sparse_registers_max: u32::try_from(sparse_registers_max).ok(),
            }
        };
        let mut bytes = std::mem::take(&mut state.bytes);
        bytes.clear();
        if let Some(hll) = state.get(number) {
            let length = hll.encoded_len(dialect);
            if length > WRITTEN_BYTES_MAX {
                return state.fail(&format!(
                    "the sketch is {length} bytes long when written, but {WRITTEN_BYTES_MAX} is the most\n\
                     hint: `folded` makes it smaller"
                ));
            }
            bytes = hll.to_bytes(dialect);
        }
        state.bytes = bytes;
        state.bytes.len() as u32
    })
}

/// Forgets a sketch.
#[unsafe(no_mangle)]
pub extern "C" fn hll_free(number: u32) {
    with(|state| {
        if let Some(place) = state.sketches.get_mut(number as usize)
            && place.take().is_some()
        {
            state.free.push(number);
        }
    });
}

/// A copy of a sketch.
#[unsafe(no_mangle)]
pub extern "C" fn hll_copy(number: u32) -> u32 {
    with(|state| match state.get(number).cloned() {
        Some(hll) => state.put(hll),
        None => FAILED,
    })
}

/// A sketch of smaller parameters.
#[unsafe(no_mangle)]
pub extern "C" fn hll_folded(number: u32, log2m: u32, regwidth: u32) -> u32 {
    with(|state| {
        match state.get(number).map(|hll| hll.fold_to_params(narrow(log2m), narrow(regwidth))) {
            Some(folded) => state.put_or_fail(folded),
            None => FAILED,
        }
    })
}

/// Adds all that another sketch has seen.
#[unsafe(no_mangle)]
pub extern "C" fn hll_update(number: u32, other: u32) {
    with(|state| {
        // With itself: nothing to do.
        if number == other {
            return;
        }
        let Some(mut into) = state.sketches.get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        if let Some(other) = state.get(other) {
            into.merge(other);
        }
        if let Some(place) = state.sketches.get_mut(number as usize) {
            *place = Some(into);
        }
    });
}

/// Adds a value by its hash.
#[unsafe(no_mangle)]
pub extern "C" fn hll_add_hash(number: u32, hash: u64) {
    change(number, |hll| hll.add_hash(hash));
}

/// Adds an integer.
#[unsafe(no_mangle)]
pub extern "C" fn hll_add_i64(number: u32, value: i64) {
    change(number, |hll| hll.add_hash(hash_i64(value)));
}

/// Adds a number of JavaScript.
#[unsafe(no_mangle)]
pub extern "C" fn hll_add_number(number: u32, value: f64) {
    change(number, |hll| hll.add_hash(hash_number(value)));
}

/// The hash of a number of JavaScript, which has no way to tell 1.0 from 1: one that is whole and fits
/// is an integer.
fn hash_number(value: f64) -> u64 {
    // Both ends are floats: −2^63, and 2^63, which no longer fits.
    if value.trunc() == value && (i64::MIN as f64..-(i64::MIN as f64)).contains(&value) {
        hash_i64(value as i64)
    } else {
        hash_f64(value)
    }
}

/// Adds the first bytes of `text` as one value.
#[unsafe(no_mangle)]
pub extern "C" fn hll_add_text(number: u32, length: usize) {
    with(|state| {
        let hash = hash_bytes(state.text.get(..length).unwrap_or_default(), 0);
        if let Some(hll) = state.get_mut(number) {
            hll.add_hash(hash);
        }
    });
}

/// Adds the first bytes of `bytes` as one value.
#[unsafe(no_mangle)]
pub extern "C" fn hll_add_bytes(number: u32, length: usize) {
    with(|state| {
        let hash = hash_bytes(state.bytes.get(..length).unwrap_or_default(), 0);
        if let Some(hll) = state.get_mut(number) {
            hll.add_hash(hash);
        }
    });
}

/// Adds the first of `words` as hashes.
#[unsafe(no_mangle)]
pub extern "C" fn hll_add_hashes(number: u32, count: usize) {
    add_words(number, count, |hash| hash);
}

/// Adds the first of `words` as integers.
#[unsafe(no_mangle)]
pub extern "C" fn hll_add_i64s(number: u32, count: usize) {
    add_words(number, count, |value| hash_i64(value.cast_signed()));
}

/// Adds the first of `words` as numbers of JavaScript.
#[unsafe(no_mangle)]
pub extern "C" fn hll_add_numbers(number: u32, count: usize) {
    add_words(number, count, |bits| hash_number(f64::from_bits(bits)));
}

fn add_words(number: u32, count: usize, hash: impl Fn(u64) -> u64) {
    with(|state| {
        let mut words = std::mem::take(&mut state.words);
        if let (Some(hll), Some(words)) = (state.get_mut(number), words.get_mut(..count)) {
            for word in &mut *words {
                *word = hash(*word);
            }
            hll.add_hashes(words);
        }
        state.words = words;
    });
}

/// Puts the estimate and its standard error into `numbers`.
#[unsafe(no_mangle)]
pub extern "C" fn hll_estimate(number: u32, ertl: u32) {
    with(|state| {
        let Some(estimate) = state.get(number).map(|hll| hll.estimate(estimator(ertl))) else {
            return;
        };
        state.tell(&[estimate]);
    });
}

/// Puts the intersection, what only the first has, and the Jaccard index into `numbers`, each with its
/// standard error.
#[unsafe(no_mangle)]
pub extern "C" fn hll_compare(number: u32, other: u32) {
    with(|state| {
        let (Some(left), Some(right)) = (state.get(number), state.get(other)) else {
            return;
        };
        let compared = left.compare(right);
        state.tell(&[compared.intersection, compared.left_only, compared.jaccard]);
    });
}

/// The estimated number of different values.
#[unsafe(no_mangle)]
pub extern "C" fn hll_cardinality(number: u32, ertl: u32) -> f64 {
    read(number, |hll| hll.cardinality_with(estimator(ertl)))
}

/// Whether two sketches have the same parameters and content.
#[unsafe(no_mangle)]
pub extern "C" fn hll_equals(number: u32, other: u32) -> bool {
    with(|state| state.get(number) == state.get(other))
}

/// The base-2 logarithm of the number of registers.
#[unsafe(no_mangle)]
pub extern "C" fn hll_log2m(number: u32) -> u32 {
    read(number, |hll| hll.params().log2m.into())
}

/// Bits of a register.
#[unsafe(no_mangle)]
pub extern "C" fn hll_regwidth(number: u32) -> u32 {
    read(number, |hll| hll.params().regwidth.into())
}

/// Up to how many values the count is exact; below 0 where that is automatic.
#[unsafe(no_mangle)]
pub extern "C" fn hll_explicit(number: u32) -> f64 {
    read(number, |hll| match hll.params().expthresh {
        ExplicitThreshold::Never => 0.0,
        ExplicitThreshold::PowerOfTwo(n) => 2f64.powi(n.into()),
        _ => -1.0,
    })
}

/// Whether SPARSE may be written.
#[unsafe(no_mangle)]
pub extern "C" fn hll_sparse(number: u32) -> bool {
    read(number, |hll| hll.params().sparse)
}

/// Whether the count is exact.
#[unsafe(no_mangle)]
pub extern "C" fn hll_is_exact(number: u32) -> bool {
    read(number, Hll::is_exact)
}

/// Whether there is no count.
#[unsafe(no_mangle)]
pub extern "C" fn hll_is_undefined(number: u32) -> bool {
    read(number, Hll::is_undefined)
}

/// The memory that a sketch takes beside its place in the table.
#[unsafe(no_mangle)]
pub extern "C" fn hll_heap_bytes(number: u32) -> usize {
    read(number, Hll::heap_bytes)
}
