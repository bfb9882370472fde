//! Hexadecimal encoding and decoding of bytes, two digits per byte.

use std::fmt::Write as _;

/// Decodes `digits` of either case, without a prefix.
///
/// Returns `None` for an odd number of digits and for any other character.
pub fn decode_hex(digits: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, rest) = digits.as_ref().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |[high, low]: &[u8; 2]| u8::try_from(value(*high)? << 4 | value(*low)?).ok();
    pairs.iter().map(byte).collect()
}

/// Encodes `bytes` as lower-case digits without a prefix.
pub fn encode_hex(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_either_case_are_decoded() {
        for (digits, expected) in [
            ("", Some(vec![])),
            ("00fF", Some(vec![0, 255])),
            ("0", None),
            ("0g", None),
            ("+f", None),
            ("é", None),
        ] {
            assert_eq!(decode_hex(digits), expected, "{digits}");
        }
    }

    #[test]
    fn encoded_bytes_decode_to_themselves() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode_hex(encode_hex(&bytes)), Some(bytes));
    }
}
