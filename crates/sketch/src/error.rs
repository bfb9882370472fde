//! The one error of this crate.

/// Why a state could not be read, or a parameter not be used.
///
/// Adding and merging never fail; only reading bytes and choosing parameters do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SketchError {
    /// A parameter lies outside its range: the caller's mistake.
    #[error("`{name}` is {found}, but must be from {min} to {max}{hint}")]
    ParameterOutOfRange {
        /// The parameter's name.
        name: &'static str,
        /// What was given.
        found: u64,
        /// The smallest value allowed.
        min: u64,
        /// The largest value allowed.
        max: u64,
        /// Either nothing or a line break and a line that starts with `hint: `.
        hint: &'static str,
    },
    /// The bytes are another kind of state, or a version that this release does not know.
    #[error(
        "not a `{state}` state that this version reads: the first byte is {found:#04x}, \
         expected {expected}"
    )]
    UnknownFormat {
        /// The state that was asked for.
        state: &'static str,
        /// The first bytes that would have been right, in words.
        expected: &'static str,
        /// The first byte found.
        found: u8,
    },
    /// The bytes end before the state does.
    #[error("`{state}` state ends at byte {offset}: {needed} more expected there")]
    Truncated {
        /// The state that was being read.
        state: &'static str,
        /// Where the missing bytes should start.
        offset: usize,
        /// How many bytes were needed from there, at least.
        needed: usize,
    },
    /// The bytes go on after the state's end.
    #[error("`{state}` state ends at byte {offset}, but {extra} more follow")]
    TrailingBytes {
        /// The state that was read.
        state: &'static str,
        /// Where the state ends.
        offset: usize,
        /// How many bytes follow.
        extra: usize,
    },
    /// The bytes hold more than the caller accepts.
    #[error("`{state}` state holds {found} items, more than the {most} that are accepted")]
    TooMany {
        /// The state that was being read.
        state: &'static str,
        /// How many there are.
        found: u64,
        /// How many are accepted.
        most: u64,
    },
    /// The bytes contradict the format's rules, so they are damaged or were not written by it.
    #[error("damaged `{state}` state at byte {offset}: {problem}")]
    Corrupt {
        /// The state that was being read.
        state: &'static str,
        /// Where the contradiction was noticed: at, or just after, the bytes at fault.
        offset: usize,
        /// Which rule is broken.
        problem: &'static str,
    },
}
