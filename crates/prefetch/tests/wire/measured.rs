//! What an endpoint's answers say of the line to it.

use std::sync::atomic::Ordering;

use tidemill_prefetch::tuner::{Access, Reading, Record, choose};

use crate::server::{Fault, Server};
use crate::{KIB, MIB, on_one_thread, read, refused, store_of};

#[test]
fn what_came_is_counted_once_whatever_was_repeated() {
    on_one_thread(async {
        let faults = vec![None, Some(Fault::Status(503)), Some(Fault::Short(128))];
        let (server, endpoint, store) = store_of(Server::new(8 * MIB, faults));
        let before = endpoint.measured();
        assert_eq!((before.requests, before.bytes, before.first_byte()), (0, 0, None));
        let stats = read(&server, &store).await;
        // Its last bytes are read before the requests that brought them end.
        while endpoint.measured().requests <= stats.requests {
            tokio::task::yield_now().await;
        }
        let seen = endpoint.measured().since(&before);
        assert_eq!((seen.bytes, stats.fetched_bytes), (8 * MIB, 8 * MIB));
        // The body that was cut off is gone on with by another request.
        assert_eq!(seen.requests, stats.requests + 1);
        assert_eq!(seen.throttled, 1);
        assert!(seen.first_byte().is_some() && seen.total_rate().is_some());
        // Bodies of 64 KiB say nothing of a connection.
        assert_eq!(seen.connection_rate(), None);
        assert!(seen.busy > std::time::Duration::ZERO);
        let after = endpoint.measured();
        assert_eq!(after.since(&after.clone()), after.since(&endpoint.measured()));
    });
}

#[test]
fn as_many_go_at_once_to_begin_with_as_are_known_to_work() {
    on_one_thread(async {
        let (server, endpoint, store) = store_of(Server::new(8 * MIB, Vec::new()));
        server.capacity.store(4, Ordering::SeqCst);
        endpoint.start_with(4);
        assert_eq!(endpoint.requests_max(), 4);
        let first = read(&server, &store).await;
        // Without, 16 at once and then 8 would have been refused.
        let count = refused(&server);
        assert!(count < 8, "{count}");
        assert_eq!(first.throttled, count as u64);
        // What is known by now is better than what was once.
        let known = endpoint.requests_max();
        endpoint.start_with(64);
        assert_eq!(endpoint.requests_max(), known);
    });
}

#[test]
fn what_a_pass_saw_is_what_the_next_one_is_read_by() {
    on_one_thread(async {
        let (server, endpoint, store) = store_of(Server::new(8 * MIB, Vec::new()));
        let stats = read(&server, &store).await;
        while endpoint.measured().requests < stats.requests {
            tokio::task::yield_now().await;
        }
        let seen = endpoint.measured();
        assert!(seen.first_byte().is_some() && seen.total_rate().is_some(), "{seen:?}");
        let record = Record {
            time: 1,
            place: "s3://b".into(),
            job: String::new(),
            access: Access::Declared,
            object_bytes: 8 * MIB,
            memory_bytes: 32 * MIB,
            block_bytes: 64 * KIB,
            window_bytes: 28 * MIB,
            requests: seen.requests,
            bytes: seen.bytes,
            // Without a network they are whatever the machine makes of them: those that a disk would have.
            first_byte_us: 1_000,
            connection_rate: 100_000_000,
            total_rate: 1_000_000_000,
            busy_ms: seen.busy.as_millis() as u64,
            stall_ms: stats.stall_time.as_millis() as u64,
            wasted_bytes: stats.wasted_bytes,
            throttled: seen.throttled,
            requests_max: endpoint.requests_max() as u64,
        };
        let asked = Reading {
            job: String::new(),
            access: Access::Declared,
            memory_bytes: 32 * MIB,
            block_bytes: None,
            window_bytes: None,
        };
        let chosen = choose(&[record], &asked);
        assert_eq!(chosen.runs, 1);
        let options = chosen.options(32 * MIB);
        options.check().unwrap();
        let store = server.store(&endpoint);
        let store =
            tidemill_prefetch::PrefetchStore::new(std::sync::Arc::new(store), options).unwrap();
        let again = read(&server, &store).await;
        assert_eq!(again.fetched_bytes, 8 * MIB);
        // Larger ones would be halved towards the end.
        assert!(chosen.block_bytes <= MIB, "{chosen:?}");
        assert_eq!(again.requests, 8 * MIB / chosen.block_bytes);
    });
}
