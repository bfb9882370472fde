//! How many requests go at once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tidemill_prefetch::{Cursor, Endpoint, Pool, StoreObject};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::server::{Fault, Server};
use crate::{KIB, MIB, on_one_thread, options, read, refused, store_of};

#[test]
fn a_server_that_refuses_is_asked_less_and_more_again_when_it_has_room() {
    on_one_thread(async {
        for capacity in [1, 4, 11] {
            let (server, endpoint, store) = store_of(Server::new(8 * MIB, Vec::new()));
            server.capacity.store(capacity, Ordering::SeqCst);
            // 16 go at once to a server of which nothing is known; then half of that, and half of that.
            let first = read(&server, &store).await;
            let count = refused(&server);
            assert_eq!((first.throttled, first.retries), (count as u64, count as u64));
            assert!((1..=16 + 8 + 4 + 2 + 1).contains(&count), "{count} at {capacity}");
            // What is known of it by now lasts.
            for _ in 0..4 {
                read(&server, &store).await;
            }
            let count = refused(&server);
            assert!(count <= 4 * 128 / 10, "{count} of 512 at {capacity}");
            assert!(endpoint.requests_max() <= capacity + 1);
            // It has room again.
            server.capacity.store(usize::MAX, Ordering::SeqCst);
            let mut passes = 0;
            while endpoint.requests_max() <= 20 {
                read(&server, &store).await;
                passes += 1;
                assert!(passes <= 10, "{endpoint:?}");
            }
            assert_eq!(refused(&server), 0);
            assert!(server.flying_max.load(Ordering::SeqCst) > capacity + 1);
        }
    });
}

#[test]
fn a_server_that_does_not_refuse_is_asked_by_as_many_as_there_are() {
    on_one_thread(async {
        let (server, _, store) = store_of(Server::new(8 * MIB, Vec::new()));
        let stats = read(&server, &store).await;
        assert_eq!((stats.requests, stats.throttled, stats.retries), (128, 0, 0));
        assert!(server.flying_max.load(Ordering::SeqCst) > 48, "{server:?}");
    });
}

#[test]
fn either_refusal_cuts_and_other_errors_do_not() {
    on_one_thread(async {
        for (status, limit) in [(503, 1), (429, 1), (500, 16), (502, 16)] {
            let faults = vec![Some(Fault::Status(status))];
            let (server, endpoint, store) = store_of(Server::new(MIB, faults));
            let bytes = store.get_range(&Path::from("a"), 0..10).await.unwrap();
            assert_eq!(server.version_of(&bytes, 0), Some(0));
            assert_eq!(endpoint.requests_max(), limit, "{status}");
        }
    });
}

#[test]
fn a_read_goes_before_what_is_fetched_ahead_and_waits_for_its_turn() {
    on_one_thread(async {
        let mut server = Server::new(8 * MIB, Vec::new());
        server.permits = Some(Semaphore::new(0));
        let server = Arc::new(server);
        let store: Arc<dyn ObjectStore> = Arc::new(server.store(&Endpoint::new()));
        let meta = store.head(&Path::from("a")).await.unwrap();
        let pool = Pool::new(32 * MIB, Handle::current());
        let object = pool.open(Arc::new(StoreObject::new(store, meta)), options());
        let range = 0..4 * MIB;
        let _claims = object.claim(std::slice::from_ref(&range));
        let asked = |count: usize| {
            let server = &server;
            async move {
                while server.asked.lock().len() < count {
                    tokio::task::yield_now().await;
                }
                // Nobody else is sent.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(server.asked.lock().len(), count);
            }
        };
        // What may go ahead of the 16.
        asked(14).await;
        let read = |range: Range<u64>| {
            let cursor = Cursor::new(Arc::clone(&object));
            tokio::spawn(async move { cursor.range(range).await.unwrap() })
        };
        // Elsewhere, and of what waits for its turn.
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
