//! Readers and stores over `object_store`'s client of S3, with a server of limited capacity. One thread
//! does all of it, so each run is the same.

mod hedge;
mod measurements;
mod request_concurrency;
mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use server::{Fault, Server};
use tidemill_prefetch::{Endpoint, Options, PrefetchStore, ReadStats};
use tokio::io::AsyncReadExt;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Ten times the time of a test on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(120);

fn on_one_thread(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(WATCHDOG, work).await });
    assert!(ended.is_ok(), "it hangs");
}

fn options() -> Options {
    Options {
        block_bytes: 64 * KIB,
        window_bytes: 32 * MIB,
        memory_bytes: 32 * MIB,
        ..Options::default()
    }
}

/// Returns a server, and a store that sends its requests through an endpoint.
fn open_store(server: Server) -> (Arc<Server>, Endpoint, PrefetchStore) {
    let (server, endpoint) = (Arc::new(server), Endpoint::new());
    let store = PrefetchStore::new(Arc::new(server.store(&endpoint)), options()).unwrap();
    (server, endpoint, store)
}

/// Reads the whole object, declared in advance, checks it, and returns the reader's statistics.
async fn read_whole_object(server: &Server, store: &PrefetchStore) -> ReadStats {
    let mut reader = store.open(&Path::from("a")).await.unwrap();
    reader.declare_range(0..server.size);
    let mut all = Vec::new();
    reader.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len() as u64, server.size);
    assert_eq!(server.version_of(&all, 0), Some(0));
    reader.stats()
}

/// Returns the number of refused requests since the last call.
fn take_refused_count(server: &Server) -> usize {
    server.refused.swap(0, Ordering::SeqCst)
}

#[test]
fn partial_reads_continue_without_extra_requests() {
    on_one_thread(async {
        for size in [100 * KIB, MIB, 3 * MIB] {
            let (server, _, store) = open_store(Server::new(8 * MIB, Vec::new()));
            let mut reader = store.open(&Path::from("a")).await.unwrap();
            let (mut all, mut part) = (Vec::new(), vec![0; size as usize]);
            loop {
                // Returns the bytes of a block that have arrived by now: pieces of 20 kB.
                match AsyncReadExt::read(&mut reader, &mut part).await.unwrap() {
                    0 => break,
                    count => all.extend_from_slice(&part[..count]),
                }
            }
            assert_eq!(all.len() as u64, server.size);
            assert_eq!(server.version_of(&all, 0), Some(0));
            let (stats, blocks) = (reader.stats(), server.size / (64 * KIB));
            assert_eq!((stats.fetched_bytes, stats.wasted_bytes), (server.size, 0), "{size}");
            assert!(stats.requests <= blocks + blocks / 8, "{stats:?} for {size}");
            assert!(was_fetched_ahead(&server), "{server:?}");
        }
    });
}

/// Returns whether several requests were in flight at once.
fn was_fetched_ahead(server: &Server) -> bool {
    server.flying_max.load(Ordering::SeqCst) > 8
}

#[test]
fn each_single_fault_is_recovered_from_or_an_error() {
    on_one_thread(async {
        for (fault, is_read, retries) in [
            (Fault::Status(500), true, 1),
            (Fault::Status(503), true, 1),
            (Fault::Status(404), false, 0),
            (Fault::Lost, true, 1),
            (Fault::Stall, true, 1),
            (Fault::Late(50), true, 0),
            (Fault::Short(0), false, 0),
            (Fault::Short(128), true, 1),
            (Fault::Reset(0), true, 1),
            (Fault::Reset(128), true, 1),
            (Fault::Hang(128), true, 1),
            (Fault::Longer, true, 0),
            (Fault::Elsewhere, false, 0),
            (Fault::Replaced, false, 0),
        ] {
            let (server, _, store) = open_store(Server::new(MIB, vec![None, Some(fault)]));
            let path = Path::from("a");
            store.get_range(&path, 0..1).await.unwrap();
            let read = store.get_range(&path, 100..50_100).await;
            assert_eq!(read.is_ok(), is_read, "{fault:?}");
            assert_eq!(store.stats().retries, retries, "{fault:?}");
            if let Ok(bytes) = read {
                assert_eq!(bytes.len(), 50_000, "{fault:?}");
                assert_eq!(server.version_of(&bytes, 100), Some(0), "{fault:?}");
            }
        }
    });
}

#[test]
fn whole_object_is_right_despite_a_bad_first_answer() {
    on_one_thread(async {
        for fault in [Fault::Longer, Fault::Short(100), Fault::Reset(100), Fault::Elsewhere] {
            let (server, _, store) = open_store(Server::new(MIB, vec![Some(fault)]));
            let found = store.get(&Path::from("a")).await.unwrap();
            let bytes = found.bytes().await.unwrap();
            assert_eq!(bytes.len() as u64, MIB, "{fault:?}");
            assert_eq!(server.version_of(&bytes, 0), Some(0), "{fault:?}");
        }
    });
}
