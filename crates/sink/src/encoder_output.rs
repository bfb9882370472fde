//! Where the bytes of one file go while an encoder makes them.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use parking_lot::Mutex;

/// Where an encoder's bytes go. The output is its owner's, who has it back when the encoder has ended.
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

/// The same for what writes little at a time.
pub(crate) fn buffer_output(out: EncoderOutput) -> BufWriter<EncoderOutput> {
    BufWriter::with_capacity(1 << 16, out)
}

/// An output that remembers its first error: some encoders turn what they are told into text, and a
/// closed pipe or a full disk could not be told from a fault of ours.
pub(crate) struct ErrorTrackingWriter<W: ?Sized> {
    pub(crate) first_error: Option<io::Error>,
    pub(crate) out: W,
}

impl<W: ?Sized> ErrorTrackingWriter<W> {
    /// Keeps the error itself, which may hold one of ours, and hands on what can be told of it.
    fn remember_error<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            // Not a failure: the same is tried again.
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
