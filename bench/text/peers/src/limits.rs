//! What no parser can beat: copying the text, and counting its newlines.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;

use crate::{Parser, Result};

/// `copy` is a `memcpy` into 64 MiB of other memory, round and round: more than the caches
/// hold. `newlines` counts with the widest instructions that the machine has, and is what the
/// parsers' shares refer to; `newlines-memchr` is the crate's own count.
pub const PARSERS: &[&str] = &["copy", "newlines", "newlines-memchr"];

pub fn parser(name: &str) -> Box<dyn Parser> {
    match name {
        "copy" => Box::new(Copy { target: vec![1; 64 << 20], at: 0 }),
        "newlines" => Box::new(Count(count_newlines)),
        _ => Box::new(Count(|text| memchr::memchr_iter(b'\n', text).count())),
    }
}

struct Copy {
    target: Vec<u8>,
    at: usize,
}

impl Parser for Copy {
    fn parse(&mut self, block: &[u8], _: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        if self.at + block.len() > self.target.len() {
            self.at = 0;
        }
        let target = self.target.get_mut(self.at..self.at + block.len());
        target.ok_or("a block is larger than 64 MiB")?.copy_from_slice(block);
        std::hint::black_box(&mut self.target);
        self.at += block.len();
        Ok(())
    }
}

struct Count(fn(&[u8]) -> usize);

impl Parser for Count {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let rows = (self.0)(block);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        out(&RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?);
        Ok(())
    }
}

fn count_newlines(text: &[u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512bw") && std::is_x86_feature_detected!("popcnt") {
            // SAFETY: the machine has these instructions.
            return unsafe { x86::count_avx512(text) };
        }
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("popcnt") {
            // SAFETY: the machine has these instructions.
            return unsafe { x86::count_avx2(text) };
        }
    }
    memchr::memchr_iter(b'\n', text).count()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    const NEWLINE: i8 = b'\n'.cast_signed();

    #[target_feature(enable = "avx512f,avx512bw,popcnt")]
    pub fn count_avx512(text: &[u8]) -> usize {
        let newline = _mm512_set1_epi8(NEWLINE);
        let (rows, rest) = text.as_chunks::<256>();
        let mut count = 0;
        for row in rows {
            for lane in row.as_chunks::<64>().0 {
                // SAFETY: 64 bytes are there.
                let bytes = unsafe { _mm512_loadu_si512(lane.as_ptr().cast()) };
                count += _mm512_cmpeq_epi8_mask(bytes, newline).count_ones() as usize;
            }
        }
        count + rest.iter().filter(|&&byte| byte == b'\n').count()
    }

    #[target_feature(enable = "avx2,popcnt")]
    pub fn count_avx2(text: &[u8]) -> usize {
        let newline = _mm256_set1_epi8(NEWLINE);
        let (rows, rest) = text.as_chunks::<128>();
        let mut count = 0;
        for row in rows {
            for lane in row.as_chunks::<32>().0 {
                // SAFETY: 32 bytes are there.
                let bytes = unsafe { _mm256_loadu_si256(lane.as_ptr().cast()) };
                let mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, newline));
                count += mask.count_ones() as usize;
            }
        }
        count + rest.iter().filter(|&&byte| byte == b'\n').count()
    }
}
