//! Settings chosen from records, and their effect on a simulated server.

use proptest::prelude::*;
use tidemill_prefetch::tuner::{
    AccessOrder, ReadHistoryRecord, TUNED_BLOCK_BYTES_MAX, TUNED_BLOCK_BYTES_MIN, TunedSettings,
    TuningRequest, choose_settings,
};
use tidemill_prefetch::{Options, ReadHistory};

use crate::{KIB, MIB};

fn tuning_request(memory_bytes: u64) -> TuningRequest {
    TuningRequest {
        job_name: String::new(),
        access_order: AccessOrder::Declared,
        memory_bytes,
        block_bytes: None,
        window_bytes: None,
    }
}

/// A server and its reader, in bytes a second and seconds.
#[derive(Debug, Clone, Copy)]
struct ServerModel {
    first: f64,
    rate: f64,
    total: f64,
    consumer: f64,
    bytes: f64,
    memory_bytes: u64,
    /// True if a connection's rate is measured as its share of a full line, false if it is measured by
    /// itself.
    is_shared: bool,
}

impl ServerModel {
    /// Returns the record of a run with these blocks and this window.
    fn simulate_run(&self, block_bytes: u64, window_bytes: u64) -> ReadHistoryRecord {
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
        ReadHistoryRecord {
            ended_at_seconds: 0,
            location: String::new(),
            job_name: String::new(),
            access_order: AccessOrder::Declared,
            object_bytes_max: (self.bytes as u64).next_power_of_two(),
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
            throttled_responses: 0,
            concurrent_requests_max: 64,
        }
    }

    /// Returns the lowest wait of a grid of settings, in milliseconds, with blocks no smaller than the
    /// tuner's.
    fn best_stall_ms(&self) -> u64 {
        let least = TUNED_BLOCK_BYTES_MIN.min(self.memory_bytes / 16);
        let blocks = (16..27).map(|exponent| 1u64 << exponent).filter(move |block| *block >= least);
        let all = blocks.flat_map(|block| {
            (0..10).map(move |doubled| (block, block << doubled)).filter(|(_, w)| *w <= 1 << 30)
        });
        let waits = all.map(|(block, window)| self.simulate_run(block, window).stall_ms);
        waits.min().unwrap_or(0)
    }

    /// Returns the records of `count` runs, each with the settings chosen from those before it.
    fn simulate_runs(&self, count: usize) -> Vec<ReadHistoryRecord> {
        let mut records = Vec::new();
        for _ in 0..count {
            let chosen = choose_settings(&records, &tuning_request(self.memory_bytes));
            records.push(self.simulate_run(chosen.block_bytes, chosen.window_bytes));
        }
        records
    }
}

fn model() -> impl Strategy<Value = ServerModel> {
    let memory = (4..11u32).prop_map(|exponent| MIB << exponent);
    (1..150u32, 5..200u32, 1..30u32, 20..3_000u32, memory, any::<bool>()).prop_map(
        |(first_ms, rate, connections, consumer, memory_bytes, is_shared)| ServerModel {
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
    fn stalls_are_near_the_optimum_after_a_few_runs(model in model()) {
        let records = model.simulate_runs(8);
        let best = model.best_stall_ms();
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
    fn settings_stay_within_limits_and_are_deterministic(
        numbers in proptest::collection::vec(
            (proptest::array::uniform14(any::<u64>().prop_map(|n| n >> (11 + n % 53))), 0..3usize),
            0..20,
        ),
        memory in (20..40u32, any::<u16>()).prop_map(|(exponent, more)| (1u64 << exponent) + u64::from(more)),
        fixed_block in proptest::option::of((16..30u32).prop_map(|exponent| 1u64 << exponent)),
        fixed_window in proptest::option::of((16..30u32).prop_map(|exponent| 1u64 << exponent)),
        access in 0..3usize,
    ) {
        let accesses = [AccessOrder::Declared, AccessOrder::Sequential, AccessOrder::Random];
        let records: Vec<ReadHistoryRecord> = numbers
            .iter()
            .map(|(n, access)| ReadHistoryRecord {
                ended_at_seconds: n[0],
                location: String::new(),
                job_name: String::new(),
                access_order: accesses[*access],
                object_bytes_max: n[1],
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
                throttled_responses: n[13] % 3,
                concurrent_requests_max: n[13],
            })
            .collect();
        let asked = TuningRequest {
            access_order: accesses[access],
            memory_bytes: memory,
            block_bytes: fixed_block,
            window_bytes: fixed_window.filter(|window| fixed_block.is_none_or(|block| block <= *window)),
            ..tuning_request(memory)
        };
        let chosen = choose_settings(&records, &asked);
        prop_assert_eq!(chosen, choose_settings(&records, &asked));
        chosen.to_options(memory).validate().unwrap();
        prop_assert!(chosen.block_bytes <= chosen.window_bytes);
        prop_assert_eq!(asked.block_bytes.unwrap_or(chosen.block_bytes), chosen.block_bytes);
        prop_assert_eq!(asked.window_bytes.unwrap_or(chosen.window_bytes), chosen.window_bytes);
        if chosen.tuned_from_runs > 0 {
            if asked.block_bytes.is_none() {
                prop_assert!(chosen.block_bytes.is_power_of_two());
                prop_assert!(chosen.block_bytes <= TUNED_BLOCK_BYTES_MAX.min((memory / 16).max(64 * KIB)));
                let least = TUNED_BLOCK_BYTES_MIN.min(1 << (memory / 16).ilog2());
                prop_assert!(chosen.block_bytes >= least.min(chosen.window_bytes));
            }
            if asked.window_bytes.is_none() && asked.block_bytes.is_none() {
                prop_assert!(chosen.window_bytes <= memory - memory / 8);
            }
            prop_assert!(chosen.initial_requests.is_some_and(|requests| (1..=64).contains(&requests)));
            prop_assert!(chosen.first_window_bytes.is_none_or(|first| first <= chosen.window_bytes));
        } else {
            prop_assert_eq!((chosen.first_window_bytes, chosen.initial_requests), (None, None));
        }
    }

    #[test]
    fn a_slower_first_byte_and_a_faster_connection_ask_for_larger_blocks(
        model in model(),
        more in 1.0..20f64,
    ) {
        // With memory for all of it, and few bytes in flight.
        let (memory_bytes, rate) = (64 << 30, model.rate.min(1e7));
        let model = ServerModel { memory_bytes, rate, total: rate, is_shared: false, ..model };
        let block = |model: ServerModel| {
            choose_settings(&[model.simulate_run(8 * MIB, 256 * MIB)], &tuning_request(model.memory_bytes)).block_bytes
        };
        let one = block(model);
        let slower = block(ServerModel { first: model.first * more, ..model });
        let faster = block(ServerModel { rate: model.rate * more, total: model.total * more, ..model });
        prop_assert!(one <= slower && one <= faster, "{} {} {}", one, slower, faster);
    }

    #[test]
    fn damaged_lines_change_nothing(
        model in model(),
        noise in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (clean, damaged) = (folder.path().join("a"), folder.path().join("b"));
        let histories = [ReadHistory::for_endpoint(&clean, "e"), ReadHistory::for_endpoint(&damaged, "e")];
        let mut noise = noise.into_iter();
        // One second apart, as runs are.
        for (time, record) in (0..).zip(model.simulate_runs(4)) {
            let record = ReadHistoryRecord { ended_at_seconds: time, ..record };
            histories.iter().for_each(|history| history.append(&record).unwrap());
            if let Some(noise) = noise.next() {
                let mut text = std::fs::read(histories[1].path()).unwrap();
                text.extend_from_slice(&noise);
                std::fs::write(histories[1].path(), text).unwrap();
            }
        }
        let [clean, damaged] =
            histories.map(|history| choose_settings(&history.records().unwrap(), &tuning_request(model.memory_bytes)));
        prop_assert_eq!(clean, damaged);
    }
}

/// Returns a bucket of 30 ms, 25 MB/s a connection and 400 MB/s in all, with a reader as fast as the line.
fn bucket_model() -> ServerModel {
    ServerModel {
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
fn defaults_apply_without_a_usable_record() {
    let Options { block_bytes, window_bytes, .. } = Options::default();
    let defaults = TunedSettings {
        block_bytes,
        window_bytes,
        first_window_bytes: None,
        initial_requests: None,
        tuned_from_runs: 0,
    };
    assert_eq!(choose_settings(&[], &tuning_request(MIB)), defaults);
    let silent =
        ReadHistoryRecord { connection_rate: 0, ..bucket_model().simulate_run(8 * MIB, 256 * MIB) };
    assert_eq!(choose_settings(&[silent], &tuning_request(MIB)), defaults);
    let large = TuningRequest { block_bytes: Some(1 << 30), ..tuning_request(MIB) };
    assert_eq!(choose_settings(&[], &large).window_bytes, 1 << 30);
    let small = TuningRequest { window_bytes: Some(MIB), ..tuning_request(MIB) };
    assert_eq!(choose_settings(&[], &small).block_bytes, MIB);
}

#[test]
fn settings_for_a_bucket_match_the_calculation_on_paper() {
    let of = |model: ServerModel| {
        let chosen = choose_settings(&model.simulate_runs(8), &tuning_request(model.memory_bytes));
        (chosen.block_bytes / MIB, chosen.window_bytes / MIB)
    };
    // 400 MB/s for the 30 and 335 ms of a block of 8 MiB: 146 MB, and two blocks more.
    assert_eq!(of(bucket_model()), (8, 160));
    // A reader of 100 MB/s needs a quarter of that.
    assert_eq!(of(ServerModel { consumer: 100e6, ..bucket_model() }), (8, 56));
    // With 64 MiB blocks are smaller, so that there are as many: fewer bytes are in flight.
    assert_eq!(of(ServerModel { memory_bytes: 64 * MIB, ..bucket_model() }), (1, 30));
    // With 11 connections of 90 MB/s and blocks of 32 MiB, a third of a GB would be in flight.
    assert_eq!(of(ServerModel { rate: 90e6, total: 1e9, ..bucket_model() }), (8, 136));
}

#[test]
fn window_with_much_waste_is_halved_and_stays_halved() {
    let mut records = bucket_model().simulate_runs(3);
    let before = choose_settings(&records, &tuning_request(512 * MIB)).window_bytes;
    for record in &mut records {
        record.wasted_bytes = record.bytes / 5;
    }
    let after = choose_settings(&records, &tuning_request(512 * MIB)).window_bytes;
    assert!(after <= before / 2 + 8 * MIB, "{after} of {before}");
    records.push(bucket_model().simulate_run(8 * MIB, after));
    assert!(choose_settings(&records, &tuning_request(512 * MIB)).window_bytes <= after);
}

#[test]
fn tried_settings_with_a_better_rate_are_reused() {
    let model = bucket_model();
    let reading = tuning_request(512 << 20);
    let mut records = vec![model.simulate_run(8 << 20, 256 << 20)];
    let asked = choose_settings(&records, &reading);
    assert_ne!((asked.block_bytes, asked.window_bytes), (8 << 20, 256 << 20));
    let mut slower = model.simulate_run(asked.block_bytes, asked.window_bytes);
    slower.total_rate = records[0].total_rate / 10 * 8;
    records.push(slower.clone());
    let chosen = choose_settings(&records, &reading);
    assert_eq!((chosen.block_bytes, chosen.window_bytes), (8 << 20, 256 << 20));
    // Settings that do not fit, or contradict fixed ones, are not reused.
    let little =
        choose_settings(&records, &TuningRequest { memory_bytes: 64 << 20, ..reading.clone() });
    assert!(little.window_bytes <= 56 << 20, "{little:?}");
    let fixed = choose_settings(
        &records,
        &TuningRequest { window_bytes: Some(96 << 20), ..reading.clone() },
    );
    assert_eq!(fixed.window_bytes, 96 << 20);
    // Neither are those of a run over other bytes.
    records[0].bytes *= 10;
    let chosen = choose_settings(&records, &reading);
    assert_ne!(chosen.window_bytes, 256 << 20);
}

#[test]
fn job_is_tuned_by_its_own_runs_then_similar_runs_then_the_line() {
    let slow = ServerModel { consumer: 60e6, ..bucket_model() };
    let named = |model: ServerModel, job: &str, access| ReadHistoryRecord {
        job_name: job.into(),
        access_order: access,
        ..model.simulate_run(8 * MIB, 256 * MIB)
    };
    let records = [
        named(bucket_model(), "fast", AccessOrder::Declared),
        named(slow, "slow", AccessOrder::Declared),
        named(slow, "slow", AccessOrder::Random),
    ];
    let of = |job: &str, access| {
        let asked = TuningRequest {
            job_name: job.into(),
            access_order: access,
            ..tuning_request(512 * MIB)
        };
        let chosen = choose_settings(&records, &asked);
        (chosen.window_bytes / MIB, chosen.tuned_from_runs)
    };
    assert_eq!(of("fast", AccessOrder::Declared), (160, 1));
    assert_eq!(of("slow", AccessOrder::Declared), (40, 1));
    assert_eq!(of("new", AccessOrder::Declared), (160, 2));
    assert_eq!(of("new", AccessOrder::Sequential), (160, 3));
}

#[test]
fn sequential_reader_that_reads_to_the_end_gets_the_full_window_at_once() {
    let record = ReadHistoryRecord {
        access_order: AccessOrder::Sequential,
        ..bucket_model().simulate_run(8 * MIB, 256 * MIB)
    };
    let asked =
        TuningRequest { access_order: AccessOrder::Sequential, ..tuning_request(512 * MIB) };
    let chosen = choose_settings(std::slice::from_ref(&record), &asked);
    assert_eq!(chosen.first_window_bytes, Some(chosen.window_bytes));
    let short = ReadHistoryRecord { bytes: MIB, ..record.clone() };
    assert_eq!(choose_settings(&[record.clone(), short], &asked).first_window_bytes, None);
    let in_vain = ReadHistoryRecord { wasted_bytes: record.bytes / 4, ..record.clone() };
    assert_eq!(choose_settings(&[record, in_vain], &asked).first_window_bytes, None);
}

#[test]
fn throttling_server_gets_as_many_requests_as_it_accepted() {
    let record = bucket_model().simulate_run(8 * MIB, 256 * MIB);
    let at_once = |records: &[ReadHistoryRecord]| {
        choose_settings(records, &tuning_request(512 * MIB)).initial_requests
    };
    assert_eq!(at_once(std::slice::from_ref(&record)), Some(20));
    let refused =
        ReadHistoryRecord { throttled_responses: 3, concurrent_requests_max: 6, ..record.clone() };
    assert_eq!(at_once(&[record, refused]), Some(6));
}
