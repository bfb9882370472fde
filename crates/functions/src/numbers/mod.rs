//! Functions of numbers and of values of any type.
//!
//! - `numerals`: PostgreSQL's patterns of numbers.
//! - `hashes`: which number stands for a value? `xxh64`: which one for bytes? `bits`: which bits has it?
//! - `measures`: in which bucket is a number, and how is it read? `floats`: formulas.
//! - `kinds`: of which type is a value?

mod bits;
mod floats;
mod hashes;
mod kinds;
mod lists;
mod measures;
pub(crate) mod numerals;
#[cfg(test)]
mod tests;
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
        floats::Sign.registered(),
        lists::OfItems::Sum.registered(),
        lists::OfItems::Mean.registered(),
    ];
    let of_bytes = [
        OfBytes::Md5,
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
    let of_bits = [OfBits::Count, OfBits::Binary, OfBits::Hex, OfBits::Unhex];
    all.extend(of_bits.map(Function::registered));
    let readable = [Readable::Bytes, Readable::Size, Readable::DecimalSize, Readable::Quantity];
    all.extend(readable.map(Function::registered));
    all.extend(Formula::ALL.map(Function::registered));
    all.extend([Is::Finite, Is::Infinite, Is::NoNumber].map(Function::registered));
    all
}
