use proptest::prelude::*;

use super::*;

fn all_masks_of_byte<I: Isa>(bytes: &[u8; 64], byte: u8) -> [u64; 7] {
    // SAFETY: called only with instruction sets of this processor.
    unsafe {
        let block = I::load(bytes.as_ptr());
        [
            I::equal(block, byte),
            I::equal_folded(block, byte | 0x20),
            I::below(block, byte.clamp(1, 127)),
            I::high(block),
            I::parity(I::equal(block, byte)),
            {
                let brackets = I::equal_folded(block, b'{') | I::equal_folded(block, b'}');
                I::structural(block, brackets | I::equal(block, b':'))
            },
            I::equal(I::or(block, I::load([byte; 64].as_ptr())), byte | 0x20),
        ]
    }
}

fn positions<I: Isa>(mask: u64, base: u32) -> Vec<u32> {
    let mut out = [0; 64];
    // SAFETY: as above; there is room for 64.
    unsafe { I::positions(mask, base, out.as_mut_ptr()) };
    out[..mask.count_ones() as usize].to_vec()
}

fn all_picked<I: Isa>(bytes: &[u8; 64], mask: u64) -> Vec<u8> {
    let mut out = [0; 64];
    // SAFETY: as above.
    unsafe { I::picked(bytes.as_ptr(), I::load(bytes.as_ptr()), mask, out.as_mut_ptr()) };
    out[..mask.count_ones() as usize].to_vec()
}

fn all_masks<I: Isa>(
    one: &[u64; 8],
    other: &[u64; 8],
    carry: u64,
    inside: u64,
) -> ([[u64; 8]; 6], u64) {
    let mut out = [[0; 8]; 6];
    // SAFETY: as above.
    unsafe {
        let (one, other) = (I::masks(one), I::masks(other));
        let (carried, inside) = I::carried(one, inside);
        let found = [
            I::both(one, other),
            I::either(one, other),
            I::one_of(one, other),
            I::without(one, other),
            I::before(one, carry),
            carried,
        ];
        for (masks, out) in found.into_iter().zip(&mut out) {
            I::write(masks, out);
            assert_eq!(I::any(masks), out.iter().any(|mask| *mask != 0));
        }
        (out, inside)
    }
}

fn masks_of_byte_model(bytes: &[u8; 64], byte: u8) -> [u64; 7] {
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
        of(&|b| b"{}[]:,\n".contains(&b)),
        of(&|b| b | byte == byte | 0x20),
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
        let some: [u8; 64] = std::array::from_fn(|at| match bytes[at] {
            byte if narrow => b"{}[]:,\n\x1b"[usize::from(byte % 8)],
            byte => byte,
        });
        let bytes = if sparse % 2 == 0 { bytes } else { some };
        let expected = masks_of_byte_model(&bytes, byte);
        let listed = |mask: u64| (0..64).filter(|i| mask >> i & 1 == 1).map(|i| i + 7).collect::<Vec<u32>>();
        prop_assert_eq!(all_masks_of_byte::<Portable>(&bytes, byte), expected);
        #[cfg(target_arch = "aarch64")]
        prop_assert_eq!(all_masks_of_byte::<Neon>(&bytes, byte), expected);
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("pclmulqdq") {
                prop_assert_eq!(all_masks_of_byte::<Avx2>(&bytes, byte), expected);
            }
            if level() == Level::Avx512 {
                prop_assert_eq!(all_masks_of_byte::<Avx512>(&bytes, byte), expected);
            }
        }
        let picked = |mask: u64| (0..64).filter(|i| mask >> i & 1 == 1).map(|i| bytes[i]).collect::<Vec<u8>>();
        for mask in [mask, mask & sparse, mask & sparse & (mask >> 7), 0, u64::MAX] {
            prop_assert_eq!(positions::<Portable>(mask, 7), listed(mask));
            prop_assert_eq!(all_picked::<Portable>(&bytes, mask), picked(mask));
            #[cfg(target_arch = "aarch64")]
            prop_assert_eq!(positions::<Neon>(mask, 7), listed(mask));
            #[cfg(target_arch = "x86_64")]
            if level() == Level::Avx512 {
                prop_assert_eq!(positions::<Avx512>(mask, 7), listed(mask));
                prop_assert_eq!(all_picked::<Avx512>(&bytes, mask), picked(mask));
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
                prop_assert_eq!(find_escaped_bytes(word, &mut carry), expected);
                prop_assert_eq!(carry, u64::from(is_escaped));
            }
        }
    }

    #[test]
    fn bulk_integer_parsing_agrees_with_single_parsing(
        values in prop::collection::vec(prop_oneof![
            20 => (-99_999_999i64..100_000_000, 0u32..27).prop_map(|(n, shift)| (n >> shift).to_string()),
            1 => "[0-9]{1,9}",
            1 => "[-0-9]{0,3}",
            1 => Just("NA".to_owned()),
        ], 0..40),
        tail in 0usize..12, is_canonical: bool,
    ) {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        for value in &values {
            text.push(b'7');
            let start = text.len() as u32;
            text.extend_from_slice(value.as_bytes());
            spans.push(ValueSpan::new_plain(start, text.len() as u32));
        }
        text.resize(text.len() + tail, b'8');
        let mut out = vec![std::mem::MaybeUninit::new(i64::MAX); spans.len()];
        let several = if is_canonical { parse_canonical_ints } else { parse_ints };
        let count = several(&text, &spans, &mut out);
        prop_assert!(count <= spans.len());
        for (value, found) in values.iter().zip(&out[..count]) {
            // SAFETY: all were made with a value.
            let found = unsafe { found.assume_init() };
            prop_assert_eq!(value.parse::<i64>().ok(), Some(found));
        }
        #[cfg(target_arch = "x86_64")]
        if level() == Level::Avx512 && tail >= 8 {
            let is_usual = |value: &String| {
                let is_wanted =
                    !is_canonical || crate::canonical_spelling::is_canonical_integer(value.as_bytes());
                value.parse::<i64>().is_ok() && value.len() <= 8 && is_wanted
            };
            let usual = values.chunks_exact(8).take_while(|eight| eight.iter().all(is_usual));
            prop_assert_eq!(count, 8 * usual.count());
        }
    }

    #[test]
    fn bulk_float_parsing_agrees_with_single_parsing(
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
            1 => "-?0{0,2}[0-9](\\.[0-9]{1,3})?",
        ], 0..40),
        tail in 0usize..12, is_canonical: bool,
    ) {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        for value in &values {
            text.push(b'7');
            let start = text.len() as u32;
            text.extend_from_slice(value.as_bytes());
            spans.push(ValueSpan::new_plain(start, text.len() as u32));
        }
        text.resize(text.len() + tail, b'8');
        let mut out = vec![std::mem::MaybeUninit::new(f64::MAX); spans.len()];
        let several = if is_canonical { parse_canonical_floats } else { parse_floats };
        let count = several(&text, &spans, &mut out);
        prop_assert!(count <= spans.len());
        let one = if is_canonical { crate::fast_value_parsing::parse_canonical_float } else { crate::fast_value_parsing::parse_float };
        let alone = |span: &ValueSpan| one(&text, span.start(), span.len());
        for (span, found) in spans.iter().zip(&out[..count]) {
            // SAFETY: all were made with a value.
            let found = unsafe { found.assume_init() };
            prop_assert_eq!(alone(span).map(f64::to_bits), Some(found.to_bits()));
        }
        #[cfg(target_arch = "x86_64")]
        if level() == Level::Avx512 && tail >= 8 {
            let is_usual = |span: &ValueSpan| span.len() <= 8 && alone(span).is_some();
            let usual = spans.chunks_exact(8).take_while(|eight| eight.iter().all(is_usual));
            prop_assert_eq!(count, 8 * usual.count());
        }
    }

    #[test]
    fn bulk_scalar_spans_agree_with_single_spans(
        values in prop::collection::vec(prop_oneof![
            20 => (0u32..100_000_000, 0u32..27).prop_map(|(n, shift)| (n >> shift).to_string()),
            10 => "-?(0|[1-9][0-9]{0,3})\\.[0-9]{1,3}",
            5 => "-?[0-9.]{1,9}",
            1 => Just("null".to_owned()),
            1 => Just("-".to_owned()),
            1 => Just(" 1".to_owned()),
        ], 0..40),
        quoted in 0u8..3, stride in 2usize..5, tail in 0usize..9,
    ) {
        // Between them stand other entries, and one after the last.
        let (mut text, mut index) = (b"        ".to_vec(), Vec::new());
        let mut written = Vec::new();
        for value in &values {
            let value = match quoted {
                0 => value.clone(),
                1 => format!("\"{value}\""),
                _ => format!("\"{value}"),
            };
            for _ in 1..stride {
                index.push(text.len() as u32);
                text.push(b':');
            }
            text.extend_from_slice(value.as_bytes());
            index.push(text.len() as u32);
            text.push(b',');
            written.push(value);
        }
        text.resize(text.len() + tail, b' ');
        let mut out = vec![std::mem::MaybeUninit::new(ValueSpan::NULL); values.len()];
        // Spans between entries have any contents; the first entry may stand before the text.
        for first in [stride - 2, 0] {
            if first == 0 && !index.is_empty() {
                index[0] = u32::MAX;
            }
            let count = spans_between_entries(&index, first, stride, &mut out);
            prop_assert!(count <= values.len());
            for (row, span) in out[..count].iter().enumerate() {
                let [before, end] = [0, 1].map(|at| index[first + row * stride + at]);
                // SAFETY: all were made with a value.
                prop_assert_eq!(unsafe { span.assume_init() }, ValueSpan::new_plain(before.wrapping_add(1), end));
            }
            #[cfg(target_arch = "x86_64")]
            if level() == Level::Avx512 {
                prop_assert_eq!(count, values.len() / 8 * 8);
            }
        }
        if let Some(first) = index.first_mut() {
            *first = 8;
        }
        let count = scalar_spans(&text, &index, stride - 2, stride, &mut out);
        prop_assert!(count <= values.len());
        let is_number = |value: &str| value.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            && serde_json::from_str::<f64>(value).is_ok();
        for (value, span) in written.iter().zip(&out[..count]) {
            // SAFETY: all were made with a value.
            let found = unsafe { span.assume_init() };
            prop_assert!(found.is_plain());
            let found = std::str::from_utf8(found.raw_bytes(&text)).unwrap();
            match value.strip_prefix('"') {
                Some(inner) => prop_assert_eq!(inner.strip_suffix('"'), Some(found)),
                None => prop_assert!(found == value && is_number(value), "{}", value),
            }
        }
        #[cfg(target_arch = "x86_64")]
        if level() == Level::Avx512 && tail >= 8 {
            let is_usual = |value: &String| match quoted {
                0 => is_number(value) && value.len() <= 8,
                quoted => quoted == 1,
            };
            let usual = values.chunks_exact(8).take_while(|eight| eight.iter().all(is_usual));
            prop_assert_eq!(count, 8 * usual.count());
        }
    }

    #[test]
    fn eight_masks_agree_with_single_masks(one: [u64; 8], other: [u64; 8], inside: bool, carry in 0u64..2) {
        let inside = if inside { u64::MAX } else { 0 };
        let mut before = [0; 8];
        let mut carried = [0; 8];
        let (mut last, mut within) = (carry, inside);
        for at in 0..8 {
            before[at] = one[at] << 1 | last;
            last = one[at] >> 63;
            carried[at] = one[at] ^ within;
            within = if carried[at] >> 63 == 1 { u64::MAX } else { 0 };
        }
        let each = |of: fn(u64, u64) -> u64| std::array::from_fn(|at| of(one[at], other[at]));
        let expected: [[u64; 8]; 6] = [
            each(|a, b| a & b), each(|a, b| a | b), each(|a, b| a ^ b), each(|a, b| a & !b), before, carried,
        ];
        prop_assert_eq!(all_masks::<Portable>(&one, &other, carry, inside), (expected, within));
        #[cfg(target_arch = "x86_64")]
        if level() == Level::Avx512 {
            prop_assert_eq!(all_masks::<Avx512>(&one, &other, carry, inside), (expected, within));
        }
    }
}
