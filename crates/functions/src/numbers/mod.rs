//! Functions of numbers and of values of any type.
//!
//! - `numerals`: PostgreSQL's patterns of numbers.
//! - `hashes`: which number stands for a value? `xxh64`: which one for bytes? `bits`: which bits has it?
//! - `measures`: in which bucket is a number, and how is it read? `floats`: formulas.
//! - `bins`: bounds of ranges. `kinds`: of which type is a value? `uuids`: versions and times of UUIDs.

mod bins;
mod bits;
mod floats;
mod hashes;
mod kinds;
mod measures;
pub(crate) mod numerals;
#[cfg(test)]
mod tests;
mod uuids;
mod xxh64;

use datafusion_expr::ScalarUDF;

use crate::callable::Function;

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    use bits::OfBits;
    use floats::{Formula, Is};
    use hashes::OfBytes;
    use measures::Readable;
    let mut all = vec![
        kinds::TypeOf.registered(),
        kinds::Raised.registered(),
        hashes::HashOf.registered(),
        hashes::SampleRank.registered(),
        measures::WidthBucket.registered(),
        measures::Bar.registered(),
        measures::ReadBytes.registered(),
        bits::ToBase.registered(),
        uuids::OfUuid::Version.registered(),
        uuids::OfUuid::Timestamp.registered(),
        floats::Sign.registered(),
        bins::EquiWidthBins.registered(),
        floats::NextAfter.registered(),
        floats::Binomial.registered(),
    ];
    let of_bytes = [
        OfBytes::Md5,
        OfBytes::Md5Upper,
        OfBytes::Md5Lower,
        OfBytes::Sha1,
        OfBytes::Sha224,
        OfBytes::Sha256,
        OfBytes::Sha384,
        OfBytes::Sha512,
        OfBytes::Sha2,
        OfBytes::Crc32,
        OfBytes::XxHash64,
    ];
    all.extend(of_bytes.map(Function::registered));
    let of_bits = [OfBits::Count, OfBits::Binary, OfBits::Hex, OfBits::Unhex, OfBits::Unbin];
    all.extend(of_bits.map(Function::registered));
    let readable = [Readable::Bytes, Readable::Size, Readable::DecimalSize, Readable::Quantity];
    all.extend(readable.map(Function::registered));
    all.extend(Formula::ALL.map(Function::registered));
    all.extend([Is::Finite, Is::Infinite, Is::NoNumber, Is::Negative].map(Function::registered));
    all
}
