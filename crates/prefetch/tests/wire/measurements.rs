//! Measurements of an endpoint from its answers.

use std::sync::atomic::Ordering;

use tidemill_prefetch::tuner::{AccessOrder, ReadHistoryRecord, TuningRequest, choose_settings};

use crate::server::{Fault, Server};
use crate::{KIB, MIB, on_one_thread, open_store, read_whole_object, take_refused_count};

#[test]
fn repeated_bytes_are_counted_once() {
    on_one_thread(async {
        let faults = vec![None, Some(Fault::Status(503)), Some(Fault::Short(128))];
        let (server, endpoint, store) = open_store(Server::new(8 * MIB, faults));
        let before = endpoint.measurements();
        assert_eq!((before.requests, before.bytes, before.median_first_byte()), (0, 0, None));
        let stats = read_whole_object(&server, &store).await;
        // The reader gets the last bytes before the requests that fetched them end.
        while endpoint.measurements().requests <= stats.requests {
            tokio::task::yield_now().await;
        }
        let seen = endpoint.measurements().delta_since(&before);
        assert_eq!((seen.bytes, stats.fetched_bytes), (8 * MIB, 8 * MIB));
        // Another request fetches the rest of the body that was cut off.
        assert_eq!(seen.requests, stats.requests + 1);
        assert_eq!(seen.throttled_responses, 1);
        assert!(seen.median_first_byte().is_some() && seen.total_rate().is_some());
        // Bodies of 64 KiB say nothing of a connection.
        assert_eq!(seen.connection_rate(), None);
        assert!(seen.busy_time > std::time::Duration::ZERO);
        let after = endpoint.measurements();
        assert_eq!(after.delta_since(&after.clone()), after.delta_since(&endpoint.measurements()));
    });
}

#[test]
fn initial_concurrency_is_the_known_one() {
    on_one_thread(async {
        let (server, endpoint, store) = open_store(Server::new(8 * MIB, Vec::new()));
        server.capacity.store(4, Ordering::SeqCst);
        endpoint.set_initial_concurrency(4);
        assert_eq!(endpoint.concurrent_requests_max(), 4);
        let first = read_whole_object(&server, &store).await;
        // Otherwise 16 concurrent requests and then 8 would have been refused.
        let count = take_refused_count(&server);
        assert!(count < 8, "{count}");
        assert_eq!(first.throttled_responses, count as u64);
        // Current knowledge is better than old records.
        let known = endpoint.concurrent_requests_max();
        endpoint.set_initial_concurrency(64);
        assert_eq!(endpoint.concurrent_requests_max(), known);
    });
}

#[test]
fn measurements_of_one_pass_tune_the_next() {
    on_one_thread(async {
        let (server, endpoint, store) = open_store(Server::new(8 * MIB, Vec::new()));
        let stats = read_whole_object(&server, &store).await;
        while endpoint.measurements().requests < stats.requests {
            tokio::task::yield_now().await;
        }
        let seen = endpoint.measurements();
        assert!(seen.median_first_byte().is_some() && seen.total_rate().is_some(), "{seen:?}");
        let record = ReadHistoryRecord {
            ended_at_seconds: 1,
            location: "s3://b".into(),
            job_name: String::new(),
            access_order: AccessOrder::Declared,
            object_bytes_max: 8 * MIB,
            memory_bytes: 32 * MIB,
            block_bytes: 64 * KIB,
            window_bytes: 28 * MIB,
            requests: seen.requests,
            bytes: seen.bytes,
            // Without a network they depend on the machine: these are those of a disk.
            first_byte_us: 1_000,
            connection_rate: 100_000_000,
            total_rate: 1_000_000_000,
            busy_ms: seen.busy_time.as_millis() as u64,
            stall_ms: stats.stall_time.as_millis() as u64,
            wasted_bytes: stats.wasted_bytes,
            throttled_responses: seen.throttled_responses,
            concurrent_requests_max: endpoint.concurrent_requests_max() as u64,
        };
        let asked = TuningRequest {
            job_name: String::new(),
            access_order: AccessOrder::Declared,
            memory_bytes: 32 * MIB,
            block_bytes: None,
            window_bytes: None,
        };
        let chosen = choose_settings(&[record], &asked);
        assert_eq!(chosen.tuned_from_runs, 1);
        let options = chosen.to_options(32 * MIB);
        options.validate().unwrap();
        let store = server.store(&endpoint);
        let store =
            tidemill_prefetch::PrefetchStore::new(std::sync::Arc::new(store), options).unwrap();
        let again = read_whole_object(&server, &store).await;
        assert_eq!(again.fetched_bytes, 8 * MIB);
        // Larger ones would be halved towards the end.
        assert!(chosen.block_bytes <= MIB, "{chosen:?}");
        assert_eq!(again.requests, 8 * MIB / chosen.block_bytes);
    });
}
