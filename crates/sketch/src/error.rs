//! The error type of this crate.

/// An error from decoding a state or from an invalid parameter.
///
/// Adding and merging never fail; only decoding and choosing parameters do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SketchError {
    /// A parameter lies outside its range: a mistake of the caller.
    #[error("`{name}` is {found}, but must be from {min} to {max}{hint}")]
    ParameterOutOfRange {
        /// The parameter's name.
        name: &'static str,
        /// The given value.
        found: u64,
        /// The smallest allowed value.
        min: u64,
        /// The largest allowed value.
        max: u64,
        /// Empty, or a line break and a line that starts with `hint: `.
        hint: &'static str,
    },
    /// The bytes are another type of state, or a version that this release does not know.
    #[error(
        "not a `{state}` state that this version reads: the first byte is {found:#04x}, \
         expected {expected}"
    )]
    UnknownFormat {
        /// Name of the requested state type.
        state: &'static str,
        /// Description of the accepted first bytes.
        expected: &'static str,
        /// The first byte.
        found: u8,
    },
    /// The bytes end before the state is complete.
    #[error("`{state}` state ends at byte {offset}: {needed} more expected there")]
    Truncated {
        /// Name of the decoded state type.
        state: &'static str,
        /// Offset at which the missing bytes should start.
        offset: usize,
        /// Minimum number of bytes required from there.
        needed: usize,
    },
    /// The bytes continue after the state's end.
    #[error("`{state}` state ends at byte {offset}, but {extra} more follow")]
    TrailingBytes {
        /// Name of the decoded state type.
        state: &'static str,
        /// Offset of the state's end.
        offset: usize,
        /// Number of bytes that follow.
        extra: usize,
    },
    /// The bytes hold more than the caller accepts.
    #[error("`{state}` state holds {found} items, more than the {most} that are accepted")]
    TooMany {
        /// Name of the decoded state type.
        state: &'static str,
        /// Number of items in the bytes.
        found: u64,
        /// Maximum number of accepted items.
        most: u64,
    },
    /// The bytes violate the rules of the format: they are damaged or come from another program.
    #[error("damaged `{state}` state at byte {offset}: {problem}")]
    Corrupt {
        /// Name of the decoded state type.
        state: &'static str,
        /// Offset at which the violation was noticed: at or just after the bytes at fault.
        offset: usize,
        /// The violated rule.
        problem: &'static str,
    },
}
