//! Where the bytes of one file go while an encoder makes them.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use parking_lot::Mutex;

/// Where an encoder's bytes go. The output is its owner's, who has it back when the encoder has ended.
pub(crate) struct Out(Arc<Mutex<Tracked<dyn Write + Send>>>);

impl Out {
    pub(crate) fn new<W: Write + Send + 'static>(out: &Arc<Mutex<Tracked<W>>>) -> Self {
        let out: Arc<Mutex<Tracked<W>>> = Arc::clone(out);
        Out(out)
    }
}

impl Write for Out {
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
pub(crate) fn buffered(out: Out) -> BufWriter<Out> {
    BufWriter::with_capacity(1 << 16, out)
}

/// An output that remembers its first error: some encoders turn what they are told into text, and a
/// closed pipe or a full disk could not be told from a fault of ours.
pub(crate) struct Tracked<W: ?Sized> {
    pub(crate) failure: Option<io::Error>,
    pub(crate) out: W,
}

impl<W: ?Sized> Tracked<W> {
    /// Keeps the error itself, which may hold one of ours, and hands on what can be told of it.
    fn noted<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            // Not a failure: the same is tried again.
            if error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            let copy = io::Error::new(error.kind(), error.to_string());
            self.failure.get_or_insert(error);
            copy
        })
    }
}

impl<W: Write + ?Sized> Write for Tracked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.noted(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.noted(result)
    }
}
