use proptest::prelude::*;

use super::*;

fn all<I: Isa>(bytes: &[u8; 64], byte: u8) -> [u64; 5] {
    // SAFETY: called with instruction sets that the processor has.
    unsafe {
        let block = I::load(bytes.as_ptr());
        [
            I::equal(block, byte),
            I::equal_folded(block, byte | 0x20),
            I::below(block, byte.clamp(1, 127)),
            I::high(block),
            I::parity(I::equal(block, byte)),
        ]
    }
}

fn positions<I: Isa>(mask: u64, base: u32) -> Vec<u32> {
    let mut out = [0; 64];
    // SAFETY: as above; there is room for 64.
    unsafe { I::positions(mask, base, out.as_mut_ptr()) };
    out[..mask.count_ones() as usize].to_vec()
}

fn model(bytes: &[u8; 64], byte: u8) -> [u64; 5] {
    let of = |test: &dyn Fn(u8) -> bool| {
        (0..64).filter(|i| test(bytes[*i])).fold(0u64, |mask, i| mask | 1 << i)
    };
    let equal = of(&|b| b == byte);
    let parity = (0..64).fold(0, |mask, i| {
        mask | u64::from((equal & (u64::MAX >> (63 - i))).count_ones() % 2) << i
    });
    [
        equal,
        of(&|b| b | 0x20 == byte | 0x20),
        of(&|b| b < byte.clamp(1, 127)),
        of(&|b| b >= 128),
        parity,
    ]
}

proptest! {
    #[test]
    fn every_instruction_set_gives_the_same_bits(
        halves: [[u8; 32]; 2], narrow: bool, byte in prop_oneof![any::<u8>(), 0u8..8], mask: u64, sparse: u64
    ) {
        let bytes: Vec<u8> =
            halves.concat().into_iter().map(|b| if narrow { b % 8 } else { b }).collect();
        let bytes: [u8; 64] = bytes.try_into().unwrap();
        let expected = model(&bytes, byte);
        let listed = |mask: u64| (0..64).filter(|i| mask >> i & 1 == 1).map(|i| i + 7).collect::<Vec<u32>>();
        prop_assert_eq!(all::<Portable>(&bytes, byte), expected);
        #[cfg(target_arch = "aarch64")]
        prop_assert_eq!(all::<Neon>(&bytes, byte), expected);
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("pclmulqdq") {
                prop_assert_eq!(all::<Avx2>(&bytes, byte), expected);
            }
            if level() == Level::Avx512 {
                prop_assert_eq!(all::<Avx512>(&bytes, byte), expected);
            }
        }
        for mask in [mask, mask & sparse, mask & sparse & (mask >> 7), 0, u64::MAX] {
            prop_assert_eq!(positions::<Portable>(mask, 7), listed(mask));
            #[cfg(target_arch = "aarch64")]
            prop_assert_eq!(positions::<Neon>(mask, 7), listed(mask));
            #[cfg(target_arch = "x86_64")]
            if level() == Level::Avx512 {
                prop_assert_eq!(positions::<Avx512>(mask, 7), listed(mask));
            }
        }
    }

    #[test]
    fn a_byte_is_escaped_after_an_odd_run_of_backslashes(dense: [u64; 3], other: [u64; 3]) {
        for words in [dense, [dense[0] & other[0], dense[1] & other[1], dense[2] & other[2]], [u64::MAX; 3]] {
            let mut carry = 0;
            let mut is_escaped = false;
            for word in words {
                let mut expected = 0;
                for bit in 0..64 {
                    if is_escaped {
                        expected |= 1 << bit;
                        is_escaped = false;
                    } else {
                        is_escaped = word >> bit & 1 == 1;
                    }
                }
                prop_assert_eq!(escaped(word, &mut carry), expected);
                prop_assert_eq!(carry, u64::from(is_escaped));
            }
        }
    }

    #[test]
    fn several_integers_are_what_each_is_by_itself(
        values in prop::collection::vec(prop_oneof![
            20 => (-99_999_999i64..100_000_000, 0u32..27).prop_map(|(n, shift)| (n >> shift).to_string()),
            1 => "[0-9]{1,9}",
            1 => "[-0-9]{0,3}",
            1 => Just("NA".to_owned()),
        ], 0..40),
        tail in 0usize..12,
    ) {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        for value in &values {
            text.push(b'7');
            let start = text.len() as u32;
            text.extend_from_slice(value.as_bytes());
            spans.push(Span::plain(start, text.len() as u32));
        }
        text.resize(text.len() + tail, b'8');
        let mut out = vec![std::mem::MaybeUninit::new(i64::MAX); spans.len()];
        let count = ints(&text, &spans, &mut out);
        prop_assert!(count <= spans.len());
        for (value, found) in values.iter().zip(&out[..count]) {
            // SAFETY: all were made with a value.
            let found = unsafe { found.assume_init() };
            prop_assert_eq!(value.parse::<i64>().ok(), Some(found));
        }
        #[cfg(target_arch = "x86_64")]
        if level() == Level::Avx512 && tail >= 8 {
            let is_usual = |value: &String| value.parse::<i64>().is_ok() && value.len() <= 8;
            let usual = values.chunks_exact(8).take_while(|eight| eight.iter().all(is_usual));
            prop_assert_eq!(count, 8 * usual.count());
        }
    }

    #[test]
    fn several_floats_are_what_each_is_by_itself(
        values in prop::collection::vec(prop_oneof![
            30 => (-9_999_999i64..100_000_000, 0u32..27, 0usize..8).prop_map(|(n, shift, point)| {
                let mut text = (n >> shift).to_string();
                let digits = text.trim_start_matches('-').len();
                if point > 0 && point < digits && text.len() < 8 {
                    text.insert(text.len() - point, '.');
                }
                text
            }),
            1 => "-?[0-9.]{1,9}",
            1 => Just("-0.0".to_owned()),
        ], 0..40),
        tail in 0usize..12,
    ) {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        for value in &values {
            text.push(b'7');
            let start = text.len() as u32;
            text.extend_from_slice(value.as_bytes());
            spans.push(Span::plain(start, text.len() as u32));
        }
        text.resize(text.len() + tail, b'8');
        let mut out = vec![std::mem::MaybeUninit::new(f64::MAX); spans.len()];
        let count = floats(&text, &spans, &mut out);
        prop_assert!(count <= spans.len());
        let alone = |span: &Span| crate::fast::float(&text, span.start(), span.len());
        for (span, found) in spans.iter().zip(&out[..count]) {
            // SAFETY: all were made with a value.
            let found = unsafe { found.assume_init() };
            prop_assert_eq!(alone(span).map(f64::to_bits), Some(found.to_bits()));
        }
        #[cfg(target_arch = "x86_64")]
        if level() == Level::Avx512 && tail >= 8 {
            let is_usual = |span: &Span| span.len() <= 8 && alone(span).is_some();
            let usual = spans.chunks_exact(8).take_while(|eight| eight.iter().all(is_usual));
            prop_assert_eq!(count, 8 * usual.count());
        }
    }
}
