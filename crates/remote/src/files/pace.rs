//! A bucket and a web server that have room for a few requests, or that leave one without an answer: all that
//! is read is right, few are refused, and the second request is the one that is answered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;

use super::server::{Fault, Server};
use crate::http::Web;
use crate::object::{Object, probe_all};
use crate::reader::{Access, Reader};
use crate::s3::Bucket;
use crate::{Budget, StorageOptions, wait};

const KEY: &str = "a/b";
const SIZE: usize = 6 << 20;
/// Of blocks of 64 KiB so many are a file.
const REQUESTS: usize = SIZE >> 16;

fn bytes() -> Vec<u8> {
    (0..SIZE).map(|at| (at * 31 / 7) as u8).collect()
}

fn options(server: &Server) -> StorageOptions {
    let mut options = server.options();
    for (name, value) in [("read_block", "64K"), ("max_retries", "12"), ("timeout", "600s")] {
        options.set(name, value).unwrap();
    }
    options
}

fn in_bucket(server: &Server) -> Arc<Object> {
    let cancel = CancelFlag::new();
    let bucket = Bucket::open("b", &options(server), &cancel).unwrap();
    let found = wait(&cancel, Arc::clone(&bucket).head(KEY.into())).unwrap();
    Arc::new(Object::listed(&bucket, found.unwrap()))
}

fn on_the_web(server: &Server) -> Arc<Object> {
    let mut options = StorageOptions::default();
    for (name, value) in [("read_block", "64K"), ("max_retries", "12"), ("timeout", "600s")] {
        options.set(name, value).unwrap();
    }
    let web = Web::open(&options, true).unwrap();
    let url = format!("{}/b/{KEY}", server.url);
    probe_all(&web, &[url], &CancelFlag::new()).unwrap().remove(0)
}

/// Reads a file to its end, all of it told before.
fn read(object: Arc<Object>) {
    let size = object.size();
    let budget = Budget::new(64 << 20);
    let reader = Reader::new(object, Access::Until(size), CancelFlag::new(), budget);
    let mut all = vec![0; SIZE];
    assert_eq!(reader.read_at(&mut all, 0).unwrap(), SIZE);
    assert!(all == bytes());
}

#[test]
fn servers_with_little_room_refuse_few_requests_and_all_is_read() {
    for open in [in_bucket, on_the_web] {
        let server = Server::with(&[(KEY, &bytes())]);
        server.set_capacity(3);
        read(open(&server));
        // 16 go at once at first, then half as many, and half of those.
        let first = server.refused();
        assert!(first <= 16 + 8 + 4 + 2 + 1, "{first}");
        for _ in 0..3 {
            read(open(&server));
        }
        let later = server.refused();
        assert!(later <= 3 * REQUESTS / 8, "{later} of {}", 3 * REQUESTS);
    }
}

#[test]
fn what_is_never_answered_is_asked_for_once_more_over_another_connection() {
    /// So many passes over the file take far longer than a second request.
    const PASSES_MAX: usize = 3_000;
    for open in [in_bucket, on_the_web] {
        let server = Server::with(&[(KEY, &bytes())]);
        // What is slow is known by then, and that a few may be asked for twice.
        (0..5).for_each(|_| read(open(&server)));
        let (stalled, stalls) = mpsc::channel();
        let answered = Arc::new(AtomicUsize::new(0));
        let (place, count) = (Mutex::new(None), Arc::clone(&answered));
        server.rule(move |request| {
            let is_pinned = request.headers.contains_key("if-match");
            let Some(from) = request.from().filter(|_| is_pinned) else { return Fault::None };
            let mut place = place.lock();
            if place.is_none() {
                *place = Some(from);
                stalled.send(()).unwrap();
                return Fault::Stall;
            }
            count.fetch_add(usize::from(*place == Some(from)), Ordering::SeqCst);
            Fault::None
        });
        let object = open(&server);
        let reading = std::thread::spawn(move || read(object));
        stalls.recv().unwrap();
        let mut passes = 0;
        while !reading.is_finished() {
            // On a busy machine others may have been asked for twice; each request is a fiftieth of one more.
            read(open(&server));
            passes += 1;
            assert!(passes < PASSES_MAX, "nobody asks for it again");
        }
        reading.join().unwrap();
        // Once for each pass, and once more for the one that had no answer: an attempt lasts ten minutes.
        let answered = answered.load(Ordering::SeqCst);
        assert!(answered > passes, "{answered} of {passes} and one");
    }
}
