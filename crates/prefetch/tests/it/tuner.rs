//! What is chosen from records, and how a server that behaves as a model does is read by it.

use proptest::prelude::*;
use tidemill_prefetch::tuner::{
    Access, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Reading, Record, Settings, choose,
};
use tidemill_prefetch::{History, Options};

use crate::{KIB, MIB};

fn reading(memory_bytes: u64) -> Reading {
    Reading {
        job: String::new(),
        access: Access::Declared,
        memory_bytes,
        block_bytes: None,
        window_bytes: None,
    }
}

/// A server and whoever reads from it, in bytes a second and seconds.
#[derive(Debug, Clone, Copy)]
struct Model {
    first: f64,
    rate: f64,
    total: f64,
    consumer: f64,
    bytes: f64,
    memory_bytes: u64,
    /// Whether a connection is seen as it is by itself, or with its share of a full line.
    is_shared: bool,
}

impl Model {
    /// What reading with such blocks in such a window saw.
    fn run(&self, block_bytes: u64, window_bytes: u64) -> Record {
        let most = (self.memory_bytes / 16).max(64 * KIB);
        let block_bytes = block_bytes.min(1 << most.ilog2());
        let window_bytes = window_bytes.min(self.memory_bytes - self.memory_bytes / 8);
        let block = block_bytes as f64;
        let flying = window_bytes.min(192 * MIB) as f64 / block;
        let connections = flying.clamp(1.0, 64.0);
        let delay = self.first + block / self.rate;
        let line = (connections * block / delay).min(self.total);
        let rate = match self.is_shared {
            true => self.rate.min(line / connections * (delay / (block / self.rate))),
            false => self.rate,
        };
        let busy = self.bytes / line.min(self.consumer) + self.first;
        Record {
            time: 0,
            place: String::new(),
            job: String::new(),
            access: Access::Declared,
            object_bytes: (self.bytes as u64).next_power_of_two(),
            memory_bytes: self.memory_bytes,
            block_bytes,
            window_bytes,
            requests: (self.bytes / block).ceil() as u64,
            bytes: self.bytes as u64,
            first_byte_us: (self.first * 1e6) as u64,
            connection_rate: rate as u64,
            total_rate: (self.bytes / busy) as u64,
            busy_ms: (busy * 1e3) as u64,
            stall_ms: ((busy - self.bytes / self.consumer) * 1e3) as u64,
            wasted_bytes: 0,
            throttled: 0,
            requests_max: 64,
        }
    }

    /// The least wait of a grid of settings, in milliseconds; of blocks that are no smaller than is chosen.
    fn best(&self) -> u64 {
        let least = BLOCK_BYTES_MIN.min(self.memory_bytes / 16);
        let blocks = (16..27).map(|exponent| 1u64 << exponent).filter(move |block| *block >= least);
        let all = blocks.flat_map(|block| {
            (0..10).map(move |doubled| (block, block << doubled)).filter(|(_, w)| *w <= 1 << 30)
        });
        let waits = all.map(|(block, window)| self.run(block, window).stall_ms);
        waits.min().unwrap_or(0)
    }

    /// The records of so many runs, each with the settings that those before it ask for.
    fn runs(&self, count: usize) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..count {
            let chosen = choose(&records, &reading(self.memory_bytes));
            records.push(self.run(chosen.block_bytes, chosen.window_bytes));
        }
        records
    }
}

fn model() -> impl Strategy<Value = Model> {
    let memory = (4..11u32).prop_map(|exponent| MIB << exponent);
    (1..150u32, 5..200u32, 1..30u32, 20..3_000u32, memory, any::<bool>()).prop_map(
        |(first_ms, rate, connections, consumer, memory_bytes, is_shared)| Model {
            first: f64::from(first_ms) / 1e3,
            rate: f64::from(rate) * 1e6,
            total: f64::from(rate * connections) * 1e6,
            consumer: f64::from(consumer) * 1e6,
            bytes: 8e9,
            memory_bytes,
            is_shared,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn after_a_few_runs_readers_wait_about_as_little_as_with_any_settings(model in model()) {
        let records = model.runs(8);
        let best = model.best();
        for last in &records[6..] {
            let most = best as f64 * 1.05 + last.busy_ms as f64 * 0.06;
            prop_assert!(last.stall_ms as f64 <= most, "{} > {} ms: {:#?}", last.stall_ms, best, records);
        }
        if !model.is_shared {
            prop_assert_eq!(
                (records[6].block_bytes, records[6].window_bytes),
                (records[7].block_bytes, records[7].window_bytes),
                "it does not rest: {:#?}", records
            );
        }
    }

    #[test]
    fn whatever_the_records_say_the_settings_are_within_their_limits_and_the_same_again(
        numbers in proptest::collection::vec(
            (proptest::array::uniform14(any::<u64>().prop_map(|n| n >> (11 + n % 53))), 0..3usize),
            0..20,
        ),
        memory in (20..40u32, any::<u16>()).prop_map(|(exponent, more)| (1u64 << exponent) + u64::from(more)),
        fixed_block in proptest::option::of((16..30u32).prop_map(|exponent| 1u64 << exponent)),
        fixed_window in proptest::option::of((16..30u32).prop_map(|exponent| 1u64 << exponent)),
        access in 0..3usize,
    ) {
        let accesses = [Access::Declared, Access::Sequential, Access::Random];
        let records: Vec<Record> = numbers
            .iter()
            .map(|(n, access)| Record {
                time: n[0],
                place: String::new(),
                job: String::new(),
                access: accesses[*access],
                object_bytes: n[1],
                memory_bytes: n[2],
                block_bytes: n[3],
                window_bytes: n[4],
                requests: n[5],
                bytes: n[6],
                first_byte_us: n[7],
                connection_rate: n[8],
                total_rate: n[9],
                busy_ms: n[10],
                stall_ms: n[11],
                wasted_bytes: n[12],
                throttled: n[13] % 3,
                requests_max: n[13],
            })
            .collect();
        let asked = Reading {
            access: accesses[access],
            memory_bytes: memory,
            block_bytes: fixed_block,
            window_bytes: fixed_window.filter(|window| fixed_block.is_none_or(|block| block <= *window)),
            ..reading(memory)
        };
        let chosen = choose(&records, &asked);
        prop_assert_eq!(chosen, choose(&records, &asked));
        chosen.options(memory).check().unwrap();
        prop_assert!(chosen.block_bytes <= chosen.window_bytes);
        prop_assert_eq!(asked.block_bytes.unwrap_or(chosen.block_bytes), chosen.block_bytes);
        prop_assert_eq!(asked.window_bytes.unwrap_or(chosen.window_bytes), chosen.window_bytes);
        if chosen.runs > 0 {
            if asked.block_bytes.is_none() {
                prop_assert!(chosen.block_bytes.is_power_of_two());
                prop_assert!(chosen.block_bytes <= BLOCK_BYTES_MAX.min((memory / 16).max(64 * KIB)));
                let least = BLOCK_BYTES_MIN.min(1 << (memory / 16).ilog2());
                prop_assert!(chosen.block_bytes >= least.min(chosen.window_bytes));
            }
            if asked.window_bytes.is_none() && asked.block_bytes.is_none() {
                prop_assert!(chosen.window_bytes <= memory - memory / 8);
            }
            prop_assert!(chosen.requests.is_some_and(|requests| (1..=64).contains(&requests)));
            prop_assert!(chosen.first_bytes.is_none_or(|first| first <= chosen.window_bytes));
        } else {
            prop_assert_eq!((chosen.first_bytes, chosen.requests), (None, None));
        }
    }

    #[test]
    fn a_slower_first_byte_and_a_faster_connection_ask_for_larger_blocks(
        model in model(),
        more in 1.0..20f64,
    ) {
        // With memory for all of it, and little enough on its way.
        let (memory_bytes, rate) = (64 << 30, model.rate.min(1e7));
        let model = Model { memory_bytes, rate, total: rate, is_shared: false, ..model };
        let block = |model: Model| {
            choose(&[model.run(8 * MIB, 256 * MIB)], &reading(model.memory_bytes)).block_bytes
        };
        let one = block(model);
        let slower = block(Model { first: model.first * more, ..model });
        let faster = block(Model { rate: model.rate * more, total: model.total * more, ..model });
        prop_assert!(one <= slower && one <= faster, "{} {} {}", one, slower, faster);
    }

    #[test]
    fn damaged_lines_change_nothing(
        model in model(),
        noise in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (clean, damaged) = (folder.path().join("a"), folder.path().join("b"));
        let histories = [History::new(&clean, "e"), History::new(&damaged, "e")];
        let mut noise = noise.into_iter();
        // One second apart, as runs are.
        for (time, record) in (0..).zip(model.runs(4)) {
            let record = Record { time, ..record };
            histories.iter().for_each(|history| history.append(&record).unwrap());
            if let Some(noise) = noise.next() {
                let mut text = std::fs::read(histories[1].path()).unwrap();
                text.extend_from_slice(&noise);
                std::fs::write(histories[1].path(), text).unwrap();
            }
        }
        let [clean, damaged] =
            histories.map(|history| choose(&history.records().unwrap(), &reading(model.memory_bytes)));
        prop_assert_eq!(clean, damaged);
    }
}

/// A bucket of 30 ms, 25 MB/s a connection and 400 MB/s in all, read as fast as it comes.
fn bucket() -> Model {
    Model {
        first: 0.03,
        rate: 25e6,
        total: 400e6,
        consumer: 3e9,
        bytes: 2e9,
        memory_bytes: 512 * MIB,
        is_shared: false,
    }
}

#[test]
fn without_a_record_that_says_something_there_are_the_defaults() {
    let Options { block_bytes, window_bytes, .. } = Options::default();
    let defaults =
        Settings { block_bytes, window_bytes, first_bytes: None, requests: None, runs: 0 };
    assert_eq!(choose(&[], &reading(MIB)), defaults);
    let silent = Record { connection_rate: 0, ..bucket().run(8 * MIB, 256 * MIB) };
    assert_eq!(choose(&[silent], &reading(MIB)), defaults);
    let large = Reading { block_bytes: Some(1 << 30), ..reading(MIB) };
    assert_eq!(choose(&[], &large).window_bytes, 1 << 30);
    let small = Reading { window_bytes: Some(MIB), ..reading(MIB) };
    assert_eq!(choose(&[], &small).block_bytes, MIB);
}

#[test]
fn the_line_of_a_bucket_asks_for_what_a_sheet_of_paper_does() {
    let of = |model: Model| {
        let chosen = choose(&model.runs(8), &reading(model.memory_bytes));
        (chosen.block_bytes / MIB, chosen.window_bytes / MIB)
    };
    // 400 MB/s for the 30 and 335 ms of a block of 8 MiB: 146 MB, and two blocks more.
    assert_eq!(of(bucket()), (8, 160));
    // Read at 100 MB/s a quarter of that is enough.
    assert_eq!(of(Model { consumer: 100e6, ..bucket() }), (8, 56));
    // In 64 MiB blocks are smaller, so that there are as many: less of them is on its way.
    assert_eq!(of(Model { memory_bytes: 64 * MIB, ..bucket() }), (1, 30));
    // Of what comes in 11 connections of 90 MB/s, a third of a GB would be on its way by blocks of 32 MiB.
    assert_eq!(of(Model { rate: 90e6, total: 1e9, ..bucket() }), (8, 136));
}

#[test]
fn a_window_of_which_much_is_in_vain_is_halved_and_stays_so() {
    let mut records = bucket().runs(3);
    let before = choose(&records, &reading(512 * MIB)).window_bytes;
    for record in &mut records {
        record.wasted_bytes = record.bytes / 5;
    }
    let after = choose(&records, &reading(512 * MIB)).window_bytes;
    assert!(after <= before / 2 + 8 * MIB, "{after} of {before}");
    records.push(bucket().run(8 * MIB, after));
    assert!(choose(&records, &reading(512 * MIB)).window_bytes <= after);
}

#[test]
fn settings_that_did_better_are_taken_as_long_as_that_is_known() {
    let model = bucket();
    let reading = reading(512 << 20);
    let mut records = vec![model.run(8 << 20, 256 << 20)];
    let asked = choose(&records, &reading);
    assert_ne!((asked.block_bytes, asked.window_bytes), (8 << 20, 256 << 20));
    let mut slower = model.run(asked.block_bytes, asked.window_bytes);
    slower.total_rate = records[0].total_rate / 10 * 8;
    records.push(slower.clone());
    let chosen = choose(&records, &reading);
    assert_eq!((chosen.block_bytes, chosen.window_bytes), (8 << 20, 256 << 20));
    // Not what does not fit, nor beside what is fixed.
    let little = choose(&records, &Reading { memory_bytes: 64 << 20, ..reading.clone() });
    assert!(little.window_bytes <= 56 << 20, "{little:?}");
    let fixed = choose(&records, &Reading { window_bytes: Some(96 << 20), ..reading.clone() });
    assert_eq!(fixed.window_bytes, 96 << 20);
    // Nor what did so over other bytes.
    records[0].bytes *= 10;
    let chosen = choose(&records, &reading);
    assert_ne!(chosen.window_bytes, 256 << 20);
}

#[test]
fn a_job_goes_by_its_own_runs_then_by_those_of_its_kind_then_by_the_line() {
    let slow = Model { consumer: 60e6, ..bucket() };
    let named = |model: Model, job: &str, access| Record {
        job: job.into(),
        access,
        ..model.run(8 * MIB, 256 * MIB)
    };
    let records = [
        named(bucket(), "fast", Access::Declared),
        named(slow, "slow", Access::Declared),
        named(slow, "slow", Access::Random),
    ];
    let of = |job: &str, access| {
        let asked = Reading { job: job.into(), access, ..reading(512 * MIB) };
        let chosen = choose(&records, &asked);
        (chosen.window_bytes / MIB, chosen.runs)
    };
    assert_eq!(of("fast", Access::Declared), (160, 1));
    assert_eq!(of("slow", Access::Declared), (40, 1));
    assert_eq!(of("new", Access::Declared), (160, 2));
    assert_eq!(of("new", Access::Sequential), (160, 3));
}

#[test]
fn who_reads_on_to_the_end_has_all_of_the_window_at_once() {
    let record = Record { access: Access::Sequential, ..bucket().run(8 * MIB, 256 * MIB) };
    let asked = Reading { access: Access::Sequential, ..reading(512 * MIB) };
    let chosen = choose(std::slice::from_ref(&record), &asked);
    assert_eq!(chosen.first_bytes, Some(chosen.window_bytes));
    let short = Record { bytes: MIB, ..record.clone() };
    assert_eq!(choose(&[record.clone(), short], &asked).first_bytes, None);
    let in_vain = Record { wasted_bytes: record.bytes / 4, ..record.clone() };
    assert_eq!(choose(&[record, in_vain], &asked).first_bytes, None);
}

#[test]
fn a_server_that_refused_is_asked_by_as_many_as_it_took() {
    let record = bucket().run(8 * MIB, 256 * MIB);
    let at_once = |records: &[Record]| choose(records, &reading(512 * MIB)).requests;
    assert_eq!(at_once(std::slice::from_ref(&record)), Some(20));
    let refused = Record { throttled: 3, requests_max: 6, ..record.clone() };
    assert_eq!(at_once(&[record, refused]), Some(6));
}
