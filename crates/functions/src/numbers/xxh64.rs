//! XXH64 with the seed 0: Yann Collet, "xxHash fast digest algorithm", version 0.1.1.
//!
//! This module does not use the `xxhash` crate: no other dependency needs the crate feature for XXH64, and
//! enabling it would rebuild everything that depends on the crate.

const XXH64_PRIMES: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

fn mix_word(state: u64, word: u64) -> u64 {
    state
        .wrapping_add(word.wrapping_mul(XXH64_PRIMES[1]))
        .rotate_left(31)
        .wrapping_mul(XXH64_PRIMES[0])
}

fn word_from_bytes(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

/// Returns the XXH64 hash of bytes.
pub(super) fn xxh64(bytes: &[u8]) -> u64 {
    let (stripes, mut rest) = bytes.as_chunks::<32>();
    let mut hash = match stripes {
        [] => XXH64_PRIMES[4],
        _ => {
            let mut lanes = [
                XXH64_PRIMES[0].wrapping_add(XXH64_PRIMES[1]),
                XXH64_PRIMES[1],
                0,
                0_u64.wrapping_sub(XXH64_PRIMES[0]),
            ];
            for stripe in stripes {
                let (words, _) = stripe.as_chunks::<8>();
                for (lane, bytes) in lanes.iter_mut().zip(words) {
                    *lane = mix_word(*lane, word_from_bytes(bytes));
                }
            }
            let sum = lanes
                .iter()
                .zip([1, 7, 12, 18])
                .fold(0_u64, |sum, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)));
            lanes.iter().fold(sum, |sum, lane| {
                (sum ^ mix_word(0, *lane))
                    .wrapping_mul(XXH64_PRIMES[0])
                    .wrapping_add(XXH64_PRIMES[3])
            })
        }
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    while let Some((eight, after)) = rest.split_first_chunk::<8>() {
        hash = (hash ^ mix_word(0, word_from_bytes(eight)))
            .rotate_left(27)
            .wrapping_mul(XXH64_PRIMES[0])
            .wrapping_add(XXH64_PRIMES[3]);
        rest = after;
    }
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        hash = (hash ^ u64::from(u32::from_le_bytes(*four)).wrapping_mul(XXH64_PRIMES[0]))
            .rotate_left(23)
            .wrapping_mul(XXH64_PRIMES[1])
            .wrapping_add(XXH64_PRIMES[2]);
        rest = after;
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(XXH64_PRIMES[4]))
            .rotate_left(11)
            .wrapping_mul(XXH64_PRIMES[0]);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(XXH64_PRIMES[1]);
    hash = (hash ^ (hash >> 29)).wrapping_mul(XXH64_PRIMES[2]);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::xxh64;

    #[test]
    fn hashes_match_published_values() {
        for (text, expected) in [
            ("", 0xEF46_DB37_51D8_E999),
            ("a", 0xD24E_C4F1_A98C_6E5B),
            ("abc", 0x44BC_2CF5_AD77_0999),
            ("as", 0x1C33_0FB2_D66B_E179),
            ("asd", 0x631C_37CE_72A9_7393),
            ("asdf", 0x4158_72F5_99CE_A71E),
            // Longer than one stripe of 32 bytes.
            (
                "Call me Ishmael. Some years ago--never mind how long precisely-",
                0x02A2_E854_70D6_FD96,
            ),
        ] {
            assert_eq!(xxh64(text.as_bytes()), expected, "{text}");
        }
    }
}
