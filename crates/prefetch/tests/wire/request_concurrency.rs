//! The number of concurrent requests.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidemill_prefetch::{Endpoint, ObjectCursor, PrefetchPool, StoreObject};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::server::{Fault, Server};
use crate::{KIB, MIB, on_one_thread, open_store, options, read_whole_object, take_refused_count};

#[test]
fn throttling_server_gets_fewer_requests_until_it_has_room_again() {
    on_one_thread(async {
        for capacity in [1, 4, 11] {
            let (server, endpoint, store) = open_store(Server::new(8 * MIB, Vec::new()));
            server.capacity.store(capacity, Ordering::SeqCst);
            // 16 concurrent requests to an unknown server; then half of that, and half of that.
            let first = read_whole_object(&server, &store).await;
            let count = take_refused_count(&server);
            assert_eq!((first.throttled_responses, first.retries), (count as u64, count as u64));
            assert!((1..=16 + 8 + 4 + 2 + 1).contains(&count), "{count} at {capacity}");
            // The learned limit lasts.
            for _ in 0..4 {
                read_whole_object(&server, &store).await;
            }
            let count = take_refused_count(&server);
            assert!(count <= 4 * 128 / 10, "{count} of 512 at {capacity}");
            assert!(endpoint.concurrent_requests_max() <= capacity + 1);
            // The server has room again.
            server.capacity.store(usize::MAX, Ordering::SeqCst);
            let mut passes = 0;
            while endpoint.concurrent_requests_max() <= 20 {
                read_whole_object(&server, &store).await;
                passes += 1;
                assert!(passes <= 10, "{endpoint:?}");
            }
            assert_eq!(take_refused_count(&server), 0);
            assert!(server.flying_max.load(Ordering::SeqCst) > capacity + 1);
        }
    });
}

#[test]
fn server_that_does_not_throttle_gets_all_requests_at_once() {
    on_one_thread(async {
        let (server, _, store) = open_store(Server::new(8 * MIB, Vec::new()));
        let stats = read_whole_object(&server, &store).await;
        assert_eq!((stats.requests, stats.throttled_responses, stats.retries), (128, 0, 0));
        assert!(server.flying_max.load(Ordering::SeqCst) > 48, "{server:?}");
    });
}

#[test]
fn only_429_and_503_cut_concurrency() {
    on_one_thread(async {
        for (status, limit) in [(503, 1), (429, 1), (500, 16), (502, 16)] {
            let faults = vec![Some(Fault::Status(status))];
            let (server, endpoint, store) = open_store(Server::new(MIB, faults));
            let bytes = store.get_range(&Path::from("a"), 0..10).await.unwrap();
            assert_eq!(server.version_of(&bytes, 0), Some(0));
            assert_eq!(endpoint.concurrent_requests_max(), limit, "{status}");
        }
    });
}

#[test]
fn awaited_read_precedes_prefetches_and_waits_for_a_slot() {
    on_one_thread(async {
        let mut server = Server::new(8 * MIB, Vec::new());
        server.permits = Some(Semaphore::new(0));
        let server = Arc::new(server);
        let store: Arc<dyn ObjectStore> = Arc::new(server.store(&Endpoint::new()));
        let meta = store.head(&Path::from("a")).await.unwrap();
        let pool = PrefetchPool::new(32 * MIB, Handle::current());
        let object = pool.open_object(Arc::new(StoreObject::new(store, meta)), options());
        let range = 0..4 * MIB;
        let _claims = object.prefetch_ranges(std::slice::from_ref(&range));
        let asked = |count: usize| {
            let server = &server;
            async move {
                while server.asked.lock().len() < count {
                    tokio::task::yield_now().await;
                }
                // No other request is sent.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(server.asked.lock().len(), count);
            }
        };
        // The prefetches that the 16 slots allow.
        asked(14).await;
        let read = |range: Range<u64>| {
            let cursor = ObjectCursor::new(Arc::clone(&object));
            tokio::spawn(async move { cursor.read_range(range).await.unwrap() })
        };
        // One read elsewhere, and one of a block that waits for its turn.
        let ranges = [3 * MIB + 100..3 * MIB + 110, 6 * MIB..6 * MIB + 10];
        let reads = ranges.clone().map(read);
        asked(16).await;
        let mut last = server.asked.lock().split_off(14);
        last.sort_by_key(|range| range.start);
        assert_eq!(last, [3 * MIB..3 * MIB + 64 * KIB, ranges[1].clone()]);
        server.permits.as_ref().unwrap().add_permits(1_000);
        for (read, range) in reads.into_iter().zip(ranges) {
            assert_eq!(server.version_of(&read.await.unwrap(), range.start), Some(0));
        }
    });
}
