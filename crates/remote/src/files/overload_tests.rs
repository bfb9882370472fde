//! Tests with a bucket and a web server that accept few concurrent requests, or leave one without an answer.
//! All reads succeed, few requests are refused, and a hedged request replaces the stalled one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;

use super::test_s3_server::{ServerFault, TestS3Server};
use crate::http::WebClient;
use crate::object::{Object, probe_urls};
use crate::reader::{ObjectReader, ReadPattern};
use crate::s3::Bucket;
use crate::{PrefetchBudget, StorageOptions, block_on};

const KEY: &str = "a/b";
const SIZE: usize = 6 << 20;
/// Number of 64 KiB blocks in the file.
const REQUESTS: usize = SIZE >> 16;

fn bytes() -> Vec<u8> {
    (0..SIZE).map(|at| (at * 31 / 7) as u8).collect()
}

fn options(server: &TestS3Server) -> StorageOptions {
    let mut options = server.storage_options();
    for (name, value) in [("read_block", "64K"), ("max_retries", "12"), ("timeout", "600s")] {
        options.set(name, value).unwrap();
    }
    options
}

fn open_in_bucket(server: &TestS3Server) -> Arc<Object> {
    let cancel = CancelFlag::new();
    let bucket = Bucket::open("b", &options(server), &cancel).unwrap();
    let found = block_on(&cancel, Arc::clone(&bucket).head_object(KEY.into())).unwrap();
    Arc::new(Object::from_listing(&bucket, found.unwrap()))
}

fn open_on_web(server: &TestS3Server) -> Arc<Object> {
    let mut options = StorageOptions::default();
    for (name, value) in [("read_block", "64K"), ("max_retries", "12"), ("timeout", "600s")] {
        options.set(name, value).unwrap();
    }
    let web = WebClient::open(&options, true).unwrap();
    let url = format!("{}/b/{KEY}", server.url);
    probe_urls(&web, &[url], &CancelFlag::new()).unwrap().remove(0)
}

/// Reads a file to its end, with all of it declared in advance, and checks the content.
fn read_and_check(object: Arc<Object>) {
    let size = object.size();
    let budget = PrefetchBudget::new(64 << 20);
    let reader =
        ObjectReader::new(object, ReadPattern::UntilSplitEnd(size), CancelFlag::new(), budget);
    let mut all = vec![0; SIZE];
    assert_eq!(reader.read_at(&mut all, 0).unwrap(), SIZE);
    assert!(all == bytes());
}

#[test]
fn overloaded_server_refuses_few_requests_and_reads_succeed() {
    for open in [open_in_bucket, open_on_web] {
        let server = TestS3Server::with_objects(&[(KEY, &bytes())]);
        server.set_capacity(3);
        read_and_check(open(&server));
        // At first 16 requests run concurrently, then half as many, and so on.
        let first = server.take_refused_count();
        assert!(first <= 16 + 8 + 4 + 2 + 1, "{first}");
        for _ in 0..3 {
            read_and_check(open(&server));
        }
        let later = server.take_refused_count();
        assert!(later <= 3 * REQUESTS / 8, "{later} of {}", 3 * REQUESTS);
    }
}

#[test]
fn stalled_request_is_hedged_over_another_connection() {
    /// This number of passes takes far longer than a hedged request.
    const PASSES_MAX: usize = 3_000;
    for open in [open_in_bucket, open_on_web] {
        let server = TestS3Server::with_objects(&[(KEY, &bytes())]);
        // These passes let the endpoint learn its latency, and earn a budget for hedged requests.
        (0..5).for_each(|_| read_and_check(open(&server)));
        let (stalled, stalls) = mpsc::channel();
        let answered = Arc::new(AtomicUsize::new(0));
        let (place, count) = (Mutex::new(None), Arc::clone(&answered));
        server.set_fault_rule(move |request| {
            let is_pinned = request.headers.contains_key("if-match");
            let Some(from) = request.range_start().filter(|_| is_pinned) else {
                return ServerFault::None;
            };
            let mut place = place.lock();
            if place.is_none() {
                *place = Some(from);
                stalled.send(()).unwrap();
                return ServerFault::Stall;
            }
            count.fetch_add(usize::from(*place == Some(from)), Ordering::SeqCst);
            ServerFault::None
        });
        let object = open(&server);
        let reading = std::thread::spawn(move || read_and_check(object));
        stalls.recv().unwrap();
        let mut passes = 0;
        while !reading.is_finished() {
            // On a busy machine, other requests may use the hedge budget. Each request adds a fiftieth of a
            // hedge.
            read_and_check(open(&server));
            passes += 1;
            assert!(passes < PASSES_MAX, "nobody asks for it again");
        }
        reading.join().unwrap();
        // Each pass is answered once, and the stalled request once more by its hedge. An attempt lasts ten
        // minutes, so the stalled one cannot have ended.
        let answered = answered.load(Ordering::SeqCst);
        assert!(answered > passes, "{answered} of {passes} and one");
    }
}
