//! What is put into the sketches and sets: the same in every language.

use crate::Result;

/// A bijection of 64 bits (SplitMix64's last step): ids that look random, of numbers that count up.
pub fn scrambled(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// The text of a number: ten bytes.
pub fn text(n: u64) -> [u8; 10] {
    let mut digits = *b"k000000000";
    let mut left = n;
    for digit in digits[1..].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    digits
}

/// What ids look like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 64 random bits each, in no order.
    Random,
    /// Two of three numbers from 0 on, ascending.
    Dense,
}

impl Kind {
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "random" => Ok(Kind::Random),
            "dense" => Ok(Kind::Dense),
            _ => Err(format!("ids are `random` or `dense`, not `{name}`").into()),
        }
    }
}

/// Two sets of ids, and what is right about them.
pub struct Two {
    pub sets: [Vec<u64>; 2],
    pub both: Summary,
    pub either: Summary,
}

/// How many ids, and all of them by exclusive or.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub count: u64,
    pub parity: u64,
}

impl Summary {
    pub fn of(ids: impl Iterator<Item = u64>) -> Self {
        let mut summary = Summary::default();
        ids.for_each(|id| summary.add(id));
        summary
    }

    fn add(&mut self, id: u64) {
        self.count += 1;
        self.parity ^= id;
    }
}

/// Two sets of about `count` ids that have half of them in common.
///
/// Of one and a half times as many numbers a third each is in the first, in the second and in both, by the
/// number's own hash.
pub fn two(kind: Kind, count: u64) -> Two {
    let room = count as usize + count as usize / 100 + 1000;
    let mut sets = [0, 1].map(|_| Vec::with_capacity(room));
    let (mut both, mut either) = (Summary::default(), Summary::default());
    for n in 0..count + count / 2 {
        let of = scrambled(n + (1 << 40)) % 3;
        let id = if kind == Kind::Random { scrambled(n) } else { n };
        if of != 1 {
            sets[0].push(id);
        }
        if of != 0 {
            sets[1].push(id);
        }
        if of == 2 {
            both.add(id);
        }
        either.add(id);
    }
    Two { sets, both, either }
}
