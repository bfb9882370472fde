//! Files that a writer of the program's makes.
//!
//! The writer pulls batches and makes a file at a path; rows are pushed here, and files go where
//! the sink wants them: staged, to a bucket, through a program. So the writer has a thread, a few
//! batches wait for it, and what it has made beside is copied to its place when it has ended.

use std::any::Any;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::panics;
use tidemill_source::formats::{BoxedHostError, RegisteredFormat, RegisteredFormatWriter};

use super::{EncodeError, Encoder, Encoding, FileFormat};
use crate::compression::{Choice, plain};
use crate::error::{Error, Result};
use crate::out::Out;

/// Batches that wait for the writer.
const WAITING: usize = 2;
/// How often who waits looks whether it is to stop.
const TICK: Duration = Duration::from_millis(10);

impl FileFormat for RegisteredFormat {
    fn name(&self) -> &str {
        RegisteredFormat::name(self)
    }

    fn suffix(&self) -> &str {
        RegisteredFormat::suffix(self)
    }

    /// The list of them knows.
    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    fn codecs(&self) -> &'static [Choice] {
        const { &[plain("none")] }
    }

    fn waits_for_others(&self) -> bool {
        true
    }

    fn check(&self, _: &SchemaRef) -> Result<()> {
        writer(self).map(drop)
    }

    fn encoder(
        &'static self,
        out: Out,
        schema: &SchemaRef,
        encoding: &Encoding,
    ) -> Result<Box<dyn Encoder>, EncodeError> {
        let schema = Arc::clone(schema);
        let writer = RegisteredWriter::start(out, self, schema, &encoding.name, &encoding.cancel)?;
        Ok(Box::new(writer))
    }
}

/// The writer of a format.
///
/// # Errors
/// [`Error::Usage`] if there is none.
fn writer(format: &RegisteredFormat) -> Result<&dyn RegisteredFormatWriter> {
    let missing = || format!("format `{}` was registered without a writer", format.name());
    format.writer().ok_or_else(|| Error::usage(missing()))
}

/// What a writer could not do.
fn failed(format: &RegisteredFormat, output: &str, source: BoxedHostError) -> Error {
    Error::Format { format: format.name().to_owned(), path: output.to_owned(), source }
}

/// A file in the making.
struct RegisteredWriter {
    format: &'static RegisteredFormat,
    /// None once the writer wants no more.
    batches: Option<SyncSender<RecordBatch>>,
    writer: Option<JoinHandle<Result<()>>>,
    /// How many batches were sent, and how many the writer has taken.
    sent: u64,
    taken: Arc<AtomicU64>,
    /// Holds the file until it is copied.
    folder: tempfile::TempDir,
    name: String,
    /// Raised where the batches end before all were written.
    cancel: CancelFlag,
    out: Out,
}

impl RegisteredWriter {
    fn start(
        out: Out,
        format: &'static RegisteredFormat,
        schema: SchemaRef,
        name: &str,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        let writer = writer(format)?;
        let folder = tempfile::Builder::new().prefix("tidemill-").tempdir();
        let folder = folder.map_err(|e| Error::io("create", std::env::temp_dir(), e))?;
        let path = folder.path().join(format!("file.{}", format.suffix()));
        let (sender, receiver) = sync_channel(WAITING);
        let cancel = cancel.child_flag();
        let taken = Arc::new(AtomicU64::new(0));
        let batches =
            Coming { schema, receiver, taken: Arc::clone(&taken), cancel: cancel.clone() };
        let shown = name.to_owned();
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || {
            let written = panics::catch_silently(|| writer.write(&path, Box::new(batches)));
            let written = written.map_err(|panic| panicked(panic.as_ref()))?;
            written.map_err(|failure| failed(format, &shown, failure))?;
            match path.is_file() {
                true => Ok(()),
                false => Err(failed(format, &shown, "its writer has made no file".into())),
            }
        });
        let thread = thread.map_err(|e| Error::io("start", "a thread", e))?;
        Ok(Self {
            format,
            batches: Some(sender),
            writer: Some(thread),
            sent: 0,
            taken,
            folder,
            name: name.to_owned(),
            cancel,
            out,
        })
    }

    fn incomplete(&self) -> Error {
        let ended = "its writer ended before it had taken all batches";
        failed(self.format, &self.name, ended.into())
    }

    /// Waits for the writer's end.
    fn ended(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        while !writer.is_finished() {
            // It is told by its next batch, and is waited for: the file is in use until then.
            std::thread::park_timeout(TICK);
        }
        writer.join().unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::Internal(panics::panic_message(panic))
}

impl Encoder for RegisteredWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        let mut batch = batch.clone();
        loop {
            self.cancel.check().map_err(Error::from)?;
            let Some(batches) = &self.batches else { return Err(self.incomplete().into()) };
            match batches.try_send(batch) {
                Ok(()) => {
                    self.sent += 1;
                    return Ok(());
                }
                Err(TrySendError::Full(back)) => {
                    batch = back;
                    std::thread::park_timeout(TICK);
                }
                Err(TrySendError::Disconnected(_)) => {
                    self.batches = None;
                    self.ended()?;
                    return Err(self.incomplete().into());
                }
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), EncodeError> {
        self.batches = None;
        self.ended()?;
        if self.taken.load(Ordering::Relaxed) < self.sent {
            return Err(self.incomplete().into());
        }
        let path = self.folder.path().join(format!("file.{}", self.format.suffix()));
        let mut file = File::open(&path).map_err(|e| Error::io("read", &path, e))?;
        io::copy(&mut file, &mut self.out)?;
        Ok(())
    }
}

impl Drop for RegisteredWriter {
    fn drop(&mut self) {
        // A writer whose batches end too early must not take them for all.
        self.cancel.cancel();
    }
}

/// What the writer pulls.
struct Coming {
    schema: SchemaRef,
    receiver: Receiver<RecordBatch>,
    taken: Arc<AtomicU64>,
    cancel: CancelFlag,
}

impl Iterator for Coming {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Err(stopped) = self.cancel.check() {
                // What a writer is told is what a user is told.
                let stopped = tidemill_base::Error::from(stopped);
                return Some(Err(ArrowError::ExternalError(Box::new(stopped))));
            }
            match self.receiver.recv_timeout(5 * TICK) {
                Ok(batch) => {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    return Some(Ok(batch));
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

impl RecordBatchReader for Coming {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
