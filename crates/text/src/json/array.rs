//! One array of objects, read as if it were lines.

/// Makes lines of the items of one JSON array, whatever lines it is written in.
///
/// Bytes are changed where they stand and none is added or removed, so that a place in the lines
/// is the same place in the document:
///
/// ```text
///   [⏎  {⏎    "a": [1,⏎ 2]⏎  },⏎  {"a": []}⏎]⏎
///   ␠␠  {␠    "a": [1,␠ 2]␠  }⏎␠  {"a": []}␠⏎␠
/// ```
///
/// The array's own brackets and commas go, line ends within items become spaces. An item that is
/// missing (`[1,,2]`) leaves its comma, and whatever stands behind the array becomes one line
/// that begins with `]`, so that both are refused as records. A raw line end within a string
/// becomes another character that must not be there.
///
/// ```
/// use tidemill_text::json::ArrayRecords;
///
/// let mut text = *b"[{\"a\":\n 1},\n{\"a\": 2}]\n";
/// let mut records = ArrayRecords::new();
/// let (first, second) = text.split_at_mut(6);
/// records.rewrite(first);
/// records.rewrite(second);
/// assert!(records.is_closed());
/// assert_eq!(&text, b" {\"a\":  1}\n {\"a\": 2}\n ");
/// ```
#[derive(Debug, Clone, Default)]
pub struct ArrayRecords {
    /// Brackets that are open.
    depth: u64,
    place: Place,
    /// Whether the item at hand has begun, and whether there was one before it.
    has_item: bool,
    has_items: bool,
    is_closed: bool,
}

/// Where the last piece ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    Outside,
    Inside,
    /// Behind a backslash in a string.
    Escaped,
    /// Behind the array.
    Closed,
    /// In what should not be there.
    Behind,
}

impl ArrayRecords {
    /// At the beginning of a document, without a byte-order mark.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the end of the array was seen. An array that is never closed was cut short.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Makes lines of the next piece of the document. Its last item may go on in the piece
    /// after it.
    pub fn rewrite(&mut self, piece: &mut [u8]) {
        let mut at = 0;
        while let Some(byte) = piece.get_mut(at) {
            at += 1;
            match self.place {
                Place::Before => match *byte {
                    b'[' => {
                        *byte = b' ';
                        (self.depth, self.place) = (1, Place::Outside);
                    }
                    b'\n' => *byte = b' ',
                    b' ' | b'\t' | b'\r' => {}
                    // No array.
                    _ => {
                        *byte = b']';
                        self.place = Place::Behind;
                    }
                },
                Place::Closed => match *byte {
                    b'\n' => *byte = b' ',
                    b' ' | b'\t' | b'\r' => {}
                    _ => {
                        // No record begins so.
                        *byte = b']';
                        self.place = Place::Behind;
                    }
                },
                Place::Behind => {
                    if *byte == b'\n' {
                        *byte = b' ';
                    }
                }
                Place::Escaped => {
                    if *byte == b'\n' {
                        *byte = b'\t';
                    }
                    self.place = Place::Inside;
                }
                Place::Inside => match *byte {
                    b'"' => self.place = Place::Outside,
                    b'\\' => self.place = Place::Escaped,
                    b'\n' => *byte = b'\t',
                    _ => {
                        let rest = &piece[at..];
                        at += memchr::memchr3(b'"', b'\\', b'\n', rest).unwrap_or(rest.len());
                    }
                },
                Place::Outside => self.outside(byte),
            }
        }
    }

    fn outside(&mut self, byte: &mut u8) {
        match *byte {
            b'\n' => *byte = b' ',
            b' ' | b'\t' | b'\r' => {}
            b',' if self.depth == 1 => {
                if self.has_item {
                    *byte = b'\n';
                }
                (self.has_item, self.has_items) = (false, true);
            }
            b']' if self.depth == 1 => {
                if self.has_item || !self.has_items {
                    *byte = b'\n';
                }
                (self.depth, self.place) = (0, Place::Closed);
                self.is_closed = true;
            }
            other => {
                self.has_item = true;
                match other {
                    b'"' => self.place = Place::Inside,
                    b'{' | b'[' => self.depth += 1,
                    // A bracket too many is for the decoder to refuse, in this item.
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1).max(1),
                    _ => {}
                }
            }
        }
    }
}
