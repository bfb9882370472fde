//! Hedged requests.

use object_store::ObjectStoreExt;
use object_store::path::Path;
use proptest::prelude::*;

use crate::server::{Fault, Server};
use crate::{MIB, on_one_thread, open_store, read_whole_object};
use tidemill_prefetch::{LastFailure, PrefetchStore};

/// Reads the whole object until `hedges` hedges are saved up.
async fn save_up_hedges(server: &Server, store: &PrefetchStore, hedges: u64) {
    loop {
        read_whole_object(server, store).await;
        let stats = store.stats();
        // The speed of this machine decides what is hedged, never how often.
        assert!(stats.hedges * 50 <= stats.requests, "{stats:?}");
        if stats.requests >= 50 * (hedges + stats.hedges) {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn unanswered_request_is_answered_by_its_hedge(
        places in proptest::sample::subsequence((0..60usize).collect::<Vec<_>>(), 1..=3),
        bad in prop_oneof![Just(None), Just(Some(Fault::Status(500))), Just(Some(Fault::Lost))],
    ) {
        on_one_thread(async {
            let (server, _, store) = open_store(Server::new(4 * MIB, Vec::new()));
            save_up_hedges(&server, &store, 9).await;
            let before = store.stats();
            *server.faults.lock() = (0..60)
                .map(|place| if places.contains(&place) { Some(Fault::Never) } else { bad.filter(|_| place == 59) })
                .collect();
            server.asked.lock().clear();
            read_whole_object(&server, &store).await;
            let stats = store.stats();
            let won = (stats.hedges_won - before.hedges_won) as usize;
            assert!(won >= places.len(), "{won} of {places:?}");
            assert!(stats.hedges * 50 <= stats.requests, "{stats:?}");
            // Only those were requested twice: a block is a request.
            let mut asked = server.asked.lock().clone();
            let count = asked.len();
            asked.sort_by_key(|range| range.start);
            asked.dedup();
            assert_eq!(asked.len(), 64);
            let again = stats.hedges - before.hedges + stats.retries - before.retries;
            // A hedge is not sent if the first answer arrives at the last moment.
            assert!((64 + places.len() as u64..=64 + again).contains(&(count as u64)));
        });
    }
}

#[test]
fn bad_answer_of_a_hedge_is_not_taken() {
    on_one_thread(async {
        let (server, _, store) = open_store(Server::new(4 * MIB, Vec::new()));
        let path = Path::from("a");
        store.get_range(&path, 0..10).await.unwrap();
        for fault in [Fault::Status(500), Fault::Lost] {
            save_up_hedges(&server, &store, 6).await;
            let before = store.stats();
            *server.faults.lock() = vec![Some(Fault::Never), Some(fault)].into();
            let bytes = store.get_range(&path, MIB..MIB + 100).await.unwrap();
            assert_eq!(server.version_of(&bytes, MIB), Some(0));
            let stats = store.stats();
            let (hedges, won) =
                (stats.hedges - before.hedges, stats.hedges_won - before.hedges_won);
            assert!((2..=4).contains(&hedges) && won == 1, "{hedges} {won}");
        }
    });
}

#[test]
fn object_replaced_before_the_hedge_is_an_error() {
    on_one_thread(async {
        let server = Server::new(4 * MIB, vec![Some(Fault::Replaced)]);
        let faults = std::mem::take(&mut *server.faults.lock());
        let (server, _, store) = open_store(server);
        let path = Path::from("a");
        save_up_hedges(&server, &store, 6).await;
        store.get_range(&path, 0..10).await.unwrap();
        *server.faults.lock() = [Some(Fault::Never)].into_iter().chain(faults).collect();
        let error = store.get_range(&path, MIB..MIB + 100).await.unwrap_err();
        assert!(matches!(error, object_store::Error::Precondition { .. }), "{error}");
        // The object is read anew, in one version or the other.
        let bytes = store.get_range(&path, MIB..MIB + 100).await.unwrap();
        assert_eq!(server.version_of(&bytes, MIB), Some(1));
    });
}

#[test]
fn early_hedging_answers_an_unanswered_read_from_the_start() {
    on_one_thread(async {
        let (server, endpoint, store) = open_store(Server::new(4 * MIB, Vec::new()));
        endpoint.hedge_early();
        let path = Path::from("a");
        store.get_range(&path, 0..10).await.unwrap();
        *server.faults.lock() = vec![Some(Fault::Never)].into();
        let bytes = store.get_range(&path, MIB..MIB + 100).await.unwrap();
        assert_eq!(server.version_of(&bytes, MIB), Some(0));
        assert!(store.stats().hedges_won >= 1, "{:?}", store.stats());
    });
}

#[test]
fn early_hedging_repeats_unanswered_hedges() {
    on_one_thread(async {
        let (server, endpoint, store) = open_store(Server::new(4 * MIB, Vec::new()));
        endpoint.hedge_early();
        let path = Path::from("a");
        store.get_range(&path, 0..10).await.unwrap();
        let before = store.stats();
        *server.faults.lock() = vec![Some(Fault::Never); 3].into();
        let bytes = store.get_range(&path, MIB..MIB + 100).await.unwrap();
        assert_eq!(server.version_of(&bytes, MIB), Some(0));
        let stats = store.stats();
        assert!(stats.hedges - before.hedges >= 3 && stats.hedges_won == before.hedges_won + 1);
    });
}

#[test]
fn last_failure_is_known_while_requests_are_still_repeated() {
    on_one_thread(async {
        let (server, endpoint, store) = open_store(Server::new(4 * MIB, Vec::new()));
        let (met, path) = (LastFailure::default(), Path::from("a"));
        *server.faults.lock() = vec![Some(Fault::Status(500))].into();
        let read = met.record_during(store.get_range(&path, 0..10)).await;
        assert!(read.is_ok() && met.message().unwrap().contains("500"), "{met:?}");
        assert!(endpoint.last_failure().unwrap().contains("500"));
        endpoint.hedge_early();
        assert_eq!(endpoint.last_failure(), None);
    });
}
