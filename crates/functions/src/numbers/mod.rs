//! Functions of numbers and of values of any type.
//!
//! - `number_patterns`: PostgreSQL's format patterns for numbers.
//! - `hashes`: hashes and digests of values. `xxh64`: the XXH64 hash. `bits`: bits and digits of numbers and
//!   bytes.
//! - `buckets_and_sizes`: bucket numbers, bars and human-readable sizes. `floats`: formulas.
//! - `equi_width_bins`: bounds of ranges. `typeof_and_error`: the type of a value, and errors raised by a
//!   query. `uuids`: versions and times of UUIDs.

mod bits;
mod buckets_and_sizes;
mod equi_width_bins;
mod floats;
mod hashes;
pub(crate) mod number_patterns;
#[cfg(test)]
mod tests;
mod typeof_and_error;
mod uuids;
mod xxh64;

use datafusion_expr::ScalarUDF;

use crate::row_function::RowFunction;

/// Returns all functions of this module.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    use bits::BitFunction;
    use buckets_and_sizes::ReadableNumberFunction;
    use floats::{FloatFormula, FloatPredicate};
    use hashes::DigestFunction;
    let mut all = vec![
        typeof_and_error::TypeOfFunction.into_udf(),
        typeof_and_error::ErrorFunction.into_udf(),
        hashes::HashFunction.into_udf(),
        hashes::SampleRankFunction.into_udf(),
        buckets_and_sizes::WidthBucketFunction.into_udf(),
        buckets_and_sizes::BarFunction.into_udf(),
        buckets_and_sizes::ParseFormattedBytesFunction.into_udf(),
        bits::ToBaseFunction.into_udf(),
        uuids::UuidFunction::Version.into_udf(),
        uuids::UuidFunction::Timestamp.into_udf(),
        floats::SignFunction.into_udf(),
        equi_width_bins::EquiWidthBinsFunction.into_udf(),
        floats::NextAfterFunction.into_udf(),
        floats::BinomialFunction.into_udf(),
    ];
    let of_bytes = [
        DigestFunction::Md5,
        DigestFunction::Md5Upper,
        DigestFunction::Md5Lower,
        DigestFunction::Sha1,
        DigestFunction::Sha224,
        DigestFunction::Sha256,
        DigestFunction::Sha384,
        DigestFunction::Sha512,
        DigestFunction::Sha2,
        DigestFunction::Crc32,
        DigestFunction::XxHash64,
    ];
    all.extend(of_bytes.map(RowFunction::into_udf));
    let of_bits = [
        BitFunction::Count,
        BitFunction::Binary,
        BitFunction::Hex,
        BitFunction::Unhex,
        BitFunction::Unbin,
    ];
    all.extend(of_bits.map(RowFunction::into_udf));
    let readable = [
        ReadableNumberFunction::FormatBytes,
        ReadableNumberFunction::ReadableSize,
        ReadableNumberFunction::ReadableDecimalSize,
        ReadableNumberFunction::ReadableQuantity,
    ];
    all.extend(readable.map(RowFunction::into_udf));
    all.extend(FloatFormula::ALL.map(RowFunction::into_udf));
    all.extend(
        [
            FloatPredicate::Finite,
            FloatPredicate::Infinite,
            FloatPredicate::NotANumber,
            FloatPredicate::Negative,
        ]
        .map(RowFunction::into_udf),
    );
    all
}
