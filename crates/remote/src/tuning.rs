//! Chooses block and window from the read history: `read_block=auto`, `read_window=auto`.
//!
//! ```text
//!  first object of a bucket ─ History ─ choose ─► its block and window, and the number of concurrent requests
//!  end of a run, close of a file ─ measurements of the endpoint since ─► another line of the History
//! ```
//!
//! Histories are in `$TIDEMILL_HOME/reads`, one file per bucket or web server. They are read and written only
//! if `auto` is set. If a history cannot be read or written, there is one warning per process, and the
//! defaults apply.
//!
//! The waits of a run are those of the process during the run. Each of several endpoints gets a share in
//! proportion to its bytes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidemill_base::state_folder::StateFolder;
use tidemill_prefetch::tuner::{
    AccessOrder, ReadHistoryRecord, TunedSettings, TuningRequest, choose_settings,
};
use tidemill_prefetch::{
    Endpoint, EndpointMeasurements, OpenedObject, Options, Origin, PrefetchPool, ReadHistory,
    ReadStats,
};

/// Minimum number of bytes of a recorded run; fewer tell nothing about the line.
const RECORDED_BYTES_MIN: u64 = 4 << 20;
/// Maximum number of tunings in memory, one for each endpoint and its options.
const TUNINGS_MAX: usize = 64;

/// The tunings of this process.
static TUNINGS: Mutex<Option<HashMap<TuningKey, Arc<EndpointTuning>>>> = Mutex::new(None);

/// The read options of a source with `auto`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AutoReadOptions {
    /// The block, unless it is chosen automatically.
    pub(crate) block_bytes: Option<u64>,
    /// The window, unless it is chosen automatically.
    pub(crate) window_bytes: Option<u64>,
    /// Name of the job, or an empty text.
    pub(crate) job_name: String,
}

impl AutoReadOptions {
    /// Returns the options without a history.
    pub(crate) fn default_read_options(&self) -> Options {
        let reading = TuningRequest {
            job_name: String::new(),
            access_order: AccessOrder::Declared,
            memory_bytes: Options::default().memory_bytes,
            block_bytes: self.block_bytes,
            window_bytes: self.window_bytes,
        };
        choose_settings(&[], &reading).to_options(reading.memory_bytes)
    }
}

/// Address of an endpoint, which may contain secrets, and the read options.
type TuningKey = (String, AutoReadOptions);

/// Read settings of one endpoint and its history.
#[derive(Debug)]
pub(crate) struct EndpointTuning {
    history: Option<ReadHistory>,
    display_name: String,
    endpoint: Endpoint,
    auto_options: AutoReadOptions,
    state: Mutex<TuningState>,
}

#[derive(Debug, Default)]
struct TuningState {
    /// The chosen settings for each access order.
    chosen_settings: HashMap<AccessOrder, TunedSettings>,
    /// The observation of the current run.
    current_run: Option<ObservedRun>,
}

/// Measurements at the start of a run, and the read conditions during it.
#[derive(Debug, Clone)]
struct ObservedRun {
    start_measurement: EndpointMeasurements,
    start_stats: ReadStats,
    conditions: ReadConditions,
}

/// Memory, block and window with which objects were read.
#[derive(Debug, Clone, Copy, Default)]
struct ReadConditions {
    memory_bytes: u64,
    block_bytes: u64,
    window_bytes: u64,
    /// Size of the largest object.
    object_bytes: u64,
}

impl ReadConditions {
    fn add(&mut self, pool: &PrefetchPool, opened: &OpenedObject) {
        self.memory_bytes = pool.memory_bytes();
        self.block_bytes = opened.block_bytes();
        self.window_bytes = opened.window_bytes_max(1);
        self.object_bytes = self.object_bytes.max(opened.size());
    }
}

impl EndpointTuning {
    fn new(
        folder: Option<PathBuf>,
        address: &str,
        place: String,
        endpoint: Endpoint,
        auto: AutoReadOptions,
    ) -> EndpointTuning {
        let history = folder.map(|folder| ReadHistory::for_endpoint(&folder, address));
        EndpointTuning {
            history,
            display_name: place,
            endpoint,
            auto_options: auto,
            state: Mutex::default(),
        }
    }

    /// Returns the tuning of an endpoint. `place` is its name for users, without secrets.
    pub(crate) fn for_endpoint(
        address: &str,
        place: String,
        endpoint: &Endpoint,
        auto: &AutoReadOptions,
    ) -> Arc<Self> {
        Self::for_endpoint_in_folder(history_folder, address, place, endpoint, auto)
    }

    fn for_endpoint_in_folder(
        folder: impl FnOnce() -> Option<PathBuf>,
        address: &str,
        place: String,
        endpoint: &Endpoint,
        auto: &AutoReadOptions,
    ) -> Arc<Self> {
        let key = (address.to_owned(), auto.clone());
        if let Some(known) = TUNINGS.lock().get_or_insert_default().get(&key) {
            return Arc::clone(known);
        }
        let made = EndpointTuning::new(folder(), address, place, endpoint.clone(), auto.clone());
        let mut known = TUNINGS.lock();
        let known = known.get_or_insert_default();
        if known.len() >= TUNINGS_MAX {
            known.clear();
        }
        Arc::clone(known.entry(key).or_insert_with(|| Arc::new(made)))
    }

    /// Returns the settings for objects that are read in an order, from the history on the first call.
    fn choose_settings(&self, access: AccessOrder, memory_bytes: u64) -> TunedSettings {
        if let Some(chosen) = self.state.lock().chosen_settings.get(&access) {
            return *chosen;
        }
        let records = self.history.as_ref().map(ReadHistory::records).transpose();
        let records = records.unwrap_or_else(|error| {
            let path = self.history.as_ref().map(ReadHistory::path);
            warn_once(&format!(
                "cannot read `{}`, what past runs saw: {error}; the defaults are used",
                path.unwrap_or_else(|| "".as_ref()).display()
            ));
            None
        });
        let AutoReadOptions { block_bytes, window_bytes, job_name: job } =
            self.auto_options.clone();
        let reading = TuningRequest {
            job_name: job,
            access_order: access,
            memory_bytes,
            block_bytes,
            window_bytes,
        };
        let chosen = choose_settings(&records.unwrap_or_default(), &reading);
        if let Some(requests) = chosen.initial_requests {
            self.endpoint.set_initial_concurrency(usize::try_from(requests).unwrap_or(usize::MAX));
        }
        tracing::debug!(
            place = self.display_name,
            access = access.as_str(),
            block_bytes = chosen.block_bytes,
            window_bytes = chosen.window_bytes,
            past_runs = chosen.tuned_from_runs,
            "chosen"
        );
        *self.state.lock().chosen_settings.entry(access).or_insert(chosen)
    }

    /// Opens an object that is read in an order. The first declared object starts the observation of a run.
    pub(crate) fn open_object(
        &self,
        pool: &PrefetchPool,
        origin: Arc<dyn Origin>,
        access: AccessOrder,
    ) -> Arc<OpenedObject> {
        let memory_bytes = pool.memory_bytes();
        let settings = self.choose_settings(access, memory_bytes);
        let opened = pool.open_tuned_object(
            origin,
            settings.to_options(memory_bytes),
            settings.tuned_from_runs,
        );
        if access == AccessOrder::Declared {
            let mut state = self.state.lock();
            let run = state.current_run.get_or_insert_with(|| ObservedRun {
                start_measurement: self.endpoint.measurements(),
                start_stats: super::read_stats(),
                conditions: ReadConditions::default(),
            });
            run.conditions.add(pool, &opened);
        }
        opened
    }

    /// Appends measurements to the history. Objects that are opened later take them into account.
    fn append_record(
        &self,
        access: AccessOrder,
        seen: &EndpointMeasurements,
        used: &ReadConditions,
        waited: (u64, u64),
    ) {
        let Some(history) = &self.history else { return };
        let (Some(first), Some(total_rate)) = (seen.median_first_byte(), seen.total_rate()) else {
            return;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let (stall_ms, wasted_bytes) = waited;
        let record = ReadHistoryRecord {
            ended_at_seconds: now.as_secs(),
            location: self.display_name.clone(),
            job_name: self.auto_options.job_name.clone(),
            access_order: access,
            object_bytes_max: used.object_bytes.checked_next_power_of_two().unwrap_or(u64::MAX),
            memory_bytes: used.memory_bytes,
            block_bytes: used.block_bytes,
            window_bytes: used.window_bytes,
            requests: seen.requests,
            bytes: seen.bytes,
            first_byte_us: number(first.as_micros()).max(1),
            connection_rate: seen.connection_rate().unwrap_or(0),
            total_rate,
            busy_ms: number(seen.busy_time.as_millis()),
            stall_ms,
            wasted_bytes,
            throttled_responses: seen.throttled_responses,
            concurrent_requests_max: self.endpoint.concurrent_requests_max() as u64,
        };
        if let Err(error) = history.append(&record) {
            warn_once(&format!(
                "cannot write to `{}`, what past runs saw: {error}; this run is not remembered",
                history.path().display()
            ));
        }
        self.state.lock().chosen_settings.clear();
    }
}

/// The observation of a file that is read on its own, from when it was opened.
#[derive(Debug)]
pub(crate) struct FileObservation {
    tuning: Arc<EndpointTuning>,
    start_measurement: EndpointMeasurements,
    conditions: ReadConditions,
}

impl FileObservation {
    pub(crate) fn new(
        tuning: &Arc<EndpointTuning>,
        pool: &PrefetchPool,
        opened: &OpenedObject,
    ) -> FileObservation {
        let mut used = ReadConditions::default();
        used.add(pool, opened);
        FileObservation {
            tuning: Arc::clone(tuning),
            start_measurement: tuning.endpoint.measurements(),
            conditions: used,
        }
    }

    /// Appends the measurements to the history when the file is closed.
    pub(crate) fn record_closed_file(&self, access: AccessOrder, stats: &ReadStats) {
        let seen = self.tuning.endpoint.measurements().delta_since(&self.start_measurement);
        if stats.fetched_bytes >= RECORDED_BYTES_MIN && seen.bytes > 0 {
            let stall_ms = u64::try_from(stats.stall_time.as_millis()).unwrap_or(u64::MAX);
            self.tuning.append_record(
                access,
                &seen,
                &self.conditions,
                (stall_ms, stats.wasted_bytes),
            );
        }
    }
}

/// Appends the measurements of all endpoints to their histories at the end of a run. Costs nothing if `auto`
/// is not set, or if nothing was read since.
pub fn record_finished_run() {
    let known: Vec<Arc<EndpointTuning>> =
        TUNINGS.lock().iter().flat_map(HashMap::values).cloned().collect();
    let ended: Vec<(Arc<EndpointTuning>, ObservedRun, EndpointMeasurements)> = known
        .into_iter()
        .filter_map(|tuning| {
            let mut state = tuning.state.lock();
            let seen = tuning
                .endpoint
                .measurements()
                .delta_since(&state.current_run.as_ref()?.start_measurement);
            let run = state.current_run.take_if(|_| seen.bytes >= RECORDED_BYTES_MIN)?;
            drop(state);
            Some((tuning, run, seen))
        })
        .collect();
    let total: u64 = ended.iter().map(|(_, _, seen)| seen.bytes).sum();
    for (tuning, run, seen) in ended {
        let stats = super::read_stats().delta_since(&run.start_stats);
        let share = |amount: u128| {
            let part = amount * u128::from(seen.bytes) / u128::from(total.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let waited = (share(stats.stall_time.as_millis()), share(stats.wasted_bytes.into()));
        tuning.append_record(AccessOrder::Declared, &seen, &run.conditions, waited);
    }
}

/// Returns the folder of the histories.
fn history_folder() -> Option<PathBuf> {
    let (home, warning) = StateFolder::open();
    if let Some(warning) = warning {
        warn_once(&warning);
    }
    home.map(|home| home.path().join("reads"))
}

/// Adds a warning, only once per process.
fn warn_once(warning: &str) {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    if !HAS_WARNED.swap(true, Ordering::Relaxed) {
        super::disk_cache::push_warning(warning.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket_requests::bucket_address;
    use crate::files::test_s3_server::TestS3Server;
    use crate::files::{self, FileAccessSettings as Files};
    use crate::object::Object;
    use crate::reader::{self, ObjectReader, prefetch_pool};
    use crate::s3::Bucket;
    use crate::{PrefetchBudget, block_on, http_client};
    use tidemill_base::cancellation::CancelFlag;

    const SIZE: usize = 24 << 20;

    fn bytes() -> Vec<u8> {
        (0..SIZE).map(|at| (at * 31 / 7) as u8).collect()
    }

    #[test]
    fn runs_and_files_are_recorded_and_tune_later_reads() {
        let bytes = bytes();
        let server = TestS3Server::with_objects(&[("a/b", &bytes)]);
        let mut options = server.storage_options();
        options.set_job_name("daily");
        for (name, value) in [("read_block", "auto"), ("read_window", "AUTO")] {
            options.set(name, value).unwrap();
        }
        let home = tempfile::tempdir().unwrap();
        let address = bucket_address("b", &options.s3_settings().unwrap());
        let auto = options.read_options().unwrap().1.unwrap();
        assert_eq!(
            (auto.block_bytes, auto.window_bytes, auto.job_name.as_str()),
            (None, None, "daily")
        );
        let endpoint = http_client::shared_endpoint(&address);
        let folder = || Some(home.path().join("reads"));
        // The bucket finds this tuning instead of one for the state folder.
        let tuning = EndpointTuning::for_endpoint_in_folder(
            folder,
            &address,
            "s3://b".into(),
            &endpoint,
            &auto,
        );
        let records = || tuning.history.as_ref().unwrap().records().unwrap();

        let cancel = CancelFlag::new();
        let object = || {
            let bucket = Bucket::open("b", &options, &cancel).unwrap();
            let found = block_on(&cancel, Arc::clone(&bucket).head_object("a/b".into())).unwrap();
            Arc::new(Object::from_listing(&bucket, found.unwrap()))
        };
        let run = |object: Arc<Object>| {
            let access = reader::ReadPattern::UntilSplitEnd(SIZE as u64);
            let reader =
                ObjectReader::new(object, access, CancelFlag::new(), PrefetchBudget::new(64 << 20));
            let mut all = vec![0; SIZE];
            assert_eq!(reader.read_at(&mut all, 0).unwrap(), SIZE);
            assert!(all == bytes);
        };
        run(object());
        record_finished_run();
        let first = records();
        // Runs of other tests may end meanwhile, and split this one into two records.
        assert!(!first.is_empty());
        for record in &first {
            assert_eq!((record.location.as_str(), record.job_name.as_str()), ("s3://b", "daily"));
            assert_eq!(record.access_order, AccessOrder::Declared);
            assert_eq!(record.object_bytes_max, 32 << 20);
            assert!(record.connection_rate > 0 && record.first_byte_us > 0, "{record:?}");
        }
        assert!(first.iter().map(|record| record.bytes).sum::<u64>() <= SIZE as u64);
        // Nothing was read since the last call.
        record_finished_run();
        assert_eq!(records(), first);

        let again = object();
        let opened = again.opened_object().unwrap();
        assert_ne!(opened.options().window_bytes, Options::default().window_bytes);
        let chosen =
            tuning.choose_settings(AccessOrder::Declared, prefetch_pool().unwrap().memory_bytes());
        assert_eq!(chosen.tuned_from_runs, first.len() as u64);
        run(again);

        let files = Files { storage_options: options.clone(), ..Files::default() };
        let file = files::open_file("s3://b/a/b", &files).unwrap();
        let mut piece = vec![0; 300_000];
        let mut at = 0;
        while at < SIZE {
            let count = file.read_at(&mut piece, at as u64, &mut || Ok(())).unwrap();
            assert!(piece[..count] == bytes[at..at + count]);
            at += count;
        }
        assert!(file.stats().tuned_from_runs > 0);
        drop(file);
        let last = records().pop().unwrap();
        assert_eq!(last.access_order, AccessOrder::Sequential);
        assert!(last.bytes >= SIZE as u64 && last.wasted_bytes < last.bytes / 10, "{last:?}");
    }
}
