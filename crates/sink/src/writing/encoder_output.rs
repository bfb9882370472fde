//! The receiver of an encoder's bytes, shared with the owner of the output.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use parking_lot::Mutex;

/// A handle through which an encoder writes to the output. The owner gets the output back when the encoder
/// has ended.
pub(crate) struct EncoderOutput(Arc<Mutex<ErrorTrackingWriter<dyn Write + Send>>>);

impl EncoderOutput {
    pub(crate) fn new<W: Write + Send + 'static>(out: &Arc<Mutex<ErrorTrackingWriter<W>>>) -> Self {
        let out: Arc<Mutex<ErrorTrackingWriter<W>>> = Arc::clone(out);
        EncoderOutput(out)
    }
}

impl Write for EncoderOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().flush()
    }
}

/// Buffers the output of an encoder that writes little at a time.
pub(crate) fn buffer_output(out: EncoderOutput) -> BufWriter<EncoderOutput> {
    BufWriter::with_capacity(1 << 16, out)
}

/// A writer that remembers the first error of its output. Some encoders turn that error into text, and a
/// closed pipe or a full disk would be indistinguishable from a fault of ours.
pub(crate) struct ErrorTrackingWriter<W: ?Sized> {
    pub(crate) first_error: Option<io::Error>,
    pub(crate) out: W,
}

impl<W: ?Sized> ErrorTrackingWriter<W> {
    /// Keeps the first error itself, which may contain one of ours, and returns a copy of its kind and text.
    fn remember_error<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            // Not a failure: the caller tries again.
            if error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            let copy = io::Error::new(error.kind(), error.to_string());
            self.first_error.get_or_insert(error);
            copy
        })
    }
}

impl<W: Write + ?Sized> Write for ErrorTrackingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.remember_error(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.remember_error(result)
    }
}
