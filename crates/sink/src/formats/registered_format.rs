//! Formats whose writer the host program has registered.
//!
//! The writer pulls batches and makes a file at a path. Rows are pushed here, and files go where
//! the sink wants them: staged, to a bucket, through a program. So the writer has a thread and a queue of a
//! few batches, and its temporary file is copied to the output when it has ended.

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

use super::{BatchEncoder, EncodeError, FileEncoding, FileFormat};
use crate::error::{Error, Result};
use crate::writing::compression::{CodecChoice, codec_without_levels};
use crate::writing::encoder_output::EncoderOutput;

/// Maximum number of batches that wait for the writer.
const WAITING_BATCHES_MAX: usize = 2;
/// Interval at which waiting threads check for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl FileFormat for RegisteredFormat {
    fn name(&self) -> &str {
        RegisteredFormat::name(self)
    }

    fn suffix(&self) -> &str {
        RegisteredFormat::suffix(self)
    }

    /// Returns nothing: the registry of formats finds them by suffix.
    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    fn codec_choices(&self) -> &'static [CodecChoice] {
        const { &[codec_without_levels("none")] }
    }

    fn may_block_on_user_code(&self) -> bool {
        true
    }

    fn check_schema(&self, _: &SchemaRef) -> Result<()> {
        require_writer(self).map(drop)
    }

    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError> {
        let schema = Arc::clone(schema);
        let writer =
            RegisteredEncoder::start(out, self, schema, &encoding.output_name, &encoding.cancel)?;
        Ok(Box::new(writer))
    }
}

/// Returns the writer of a format.
///
/// # Errors
/// [`Error::Usage`] if there is none.
fn require_writer(format: &RegisteredFormat) -> Result<&dyn RegisteredFormatWriter> {
    let missing = || format!("format `{}` was registered without a writer", format.name());
    format.writer().ok_or_else(|| Error::usage(missing()))
}

/// Returns the error for a failed writer.
fn format_error(format: &RegisteredFormat, output: &str, source: BoxedHostError) -> Error {
    Error::RegisteredFormat { format: format.name().to_owned(), path: output.to_owned(), source }
}

/// An encoder that passes batches to a registered writer.
struct RegisteredEncoder {
    format: &'static RegisteredFormat,
    /// `None` once the writer takes no more batches.
    batch_sender: Option<SyncSender<RecordBatch>>,
    writer_thread: Option<JoinHandle<Result<()>>>,
    /// Numbers of batches sent, and taken by the writer.
    batches_sent: u64,
    batches_taken: Arc<AtomicU64>,
    /// Holds the temporary file until it is copied.
    folder: tempfile::TempDir,
    output_name: String,
    /// Raised if the batches end before all were written.
    cancel: CancelFlag,
    out: EncoderOutput,
}

impl RegisteredEncoder {
    fn start(
        out: EncoderOutput,
        format: &'static RegisteredFormat,
        schema: SchemaRef,
        name: &str,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        let writer = require_writer(format)?;
        let folder = tempfile::Builder::new().prefix("tidemill-").tempdir();
        let folder = folder.map_err(|e| Error::io("create", std::env::temp_dir(), e))?;
        let path = folder.path().join(format!("file.{}", format.suffix()));
        let (sender, receiver) = sync_channel(WAITING_BATCHES_MAX);
        let cancel = cancel.child_flag();
        let taken = Arc::new(AtomicU64::new(0));
        let batches = QueuedBatchReader {
            schema,
            receiver,
            batches_taken: Arc::clone(&taken),
            cancel: cancel.clone(),
        };
        let shown = name.to_owned();
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || {
            let written = panics::catch_silently(|| writer.write(&path, Box::new(batches)));
            let written = written.map_err(|panic| panic_error(panic.as_ref()))?;
            written.map_err(|failure| format_error(format, &shown, failure))?;
            match path.is_file() {
                true => Ok(()),
                false => Err(format_error(format, &shown, "its writer has made no file".into())),
            }
        });
        let thread = thread.map_err(|e| Error::io("start", "a thread", e))?;
        Ok(Self {
            format,
            batch_sender: Some(sender),
            writer_thread: Some(thread),
            batches_sent: 0,
            batches_taken: taken,
            folder,
            output_name: name.to_owned(),
            cancel,
            out,
        })
    }

    fn incomplete_error(&self) -> Error {
        let ended = "its writer ended before it had taken all batches";
        format_error(self.format, &self.output_name, ended.into())
    }

    /// Waits for the writer's end.
    fn wait_for_writer(&mut self) -> Result<()> {
        let Some(writer) = self.writer_thread.take() else { return Ok(()) };
        while !writer.is_finished() {
            // Its next batch tells it to stop. The wait is necessary: it uses the file until then.
            std::thread::park_timeout(POLL_INTERVAL);
        }
        writer.join().unwrap_or_else(|panic| Err(panic_error(panic.as_ref())))
    }
}

fn panic_error(panic: &(dyn Any + Send)) -> Error {
    Error::Internal(panics::panic_message(panic))
}

impl BatchEncoder for RegisteredEncoder {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        let mut batch = batch.clone();
        loop {
            self.cancel.check().map_err(Error::from)?;
            let Some(batches) = &self.batch_sender else {
                return Err(self.incomplete_error().into());
            };
            match batches.try_send(batch) {
                Ok(()) => {
                    self.batches_sent += 1;
                    return Ok(());
                }
                Err(TrySendError::Full(back)) => {
                    batch = back;
                    std::thread::park_timeout(POLL_INTERVAL);
                }
                Err(TrySendError::Disconnected(_)) => {
                    self.batch_sender = None;
                    self.wait_for_writer()?;
                    return Err(self.incomplete_error().into());
                }
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), EncodeError> {
        self.batch_sender = None;
        self.wait_for_writer()?;
        if self.batches_taken.load(Ordering::Relaxed) < self.batches_sent {
            return Err(self.incomplete_error().into());
        }
        let path = self.folder.path().join(format!("file.{}", self.format.suffix()));
        let mut file = File::open(&path).map_err(|e| Error::io("read", &path, e))?;
        io::copy(&mut file, &mut self.out)?;
        Ok(())
    }
}

impl Drop for RegisteredEncoder {
    fn drop(&mut self) {
        // If the batches end too early, the writer must not take them for all.
        self.cancel.cancel();
    }
}

/// The queued batches, as the reader from which the writer pulls.
struct QueuedBatchReader {
    schema: SchemaRef,
    receiver: Receiver<RecordBatch>,
    batches_taken: Arc<AtomicU64>,
    cancel: CancelFlag,
}

impl Iterator for QueuedBatchReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Err(stopped) = self.cancel.check() {
                // The writer gets the same error as the user.
                let stopped = tidemill_base::Error::from(stopped);
                return Some(Err(ArrowError::ExternalError(Box::new(stopped))));
            }
            match self.receiver.recv_timeout(5 * POLL_INTERVAL) {
                Ok(batch) => {
                    self.batches_taken.fetch_add(1, Ordering::Relaxed);
                    return Some(Ok(batch));
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

impl RecordBatchReader for QueuedBatchReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
