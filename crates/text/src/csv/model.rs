//! Reference model: the records of a text as `csv_core` reads them. The fuzz targets include this file, too.

use super::CsvDialect;

pub(crate) fn records(dialect: &CsvDialect, text: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut builder = csv_core::ReaderBuilder::new();
    builder.delimiter(dialect.delimiter).escape(dialect.escape).comment(dialect.comment);
    match dialect.quote {
        Some(quote) => builder.quote(quote),
        None => builder.quoting(false),
    };
    let mut parser = builder.build();
    let (mut out, mut ends) = (vec![0; text.len() + 8], vec![0; text.len() + 8]);
    // The caller handles a byte-order mark: after a line end `csv_core` does not take it for one.
    parser.read_record(b"\n", &mut out, &mut ends);
    let (mut records, mut rest, mut written, mut count) = (Vec::new(), text, 0, 0);
    loop {
        let (result, used, bytes, more) =
            parser.read_record(rest, &mut out[written..], &mut ends[count..]);
        rest = &rest[used..];
        written += bytes;
        count += more;
        match result {
            csv_core::ReadRecordResult::Record => {
                let mut start = 0;
                let fields = ends[..count].iter().map(|&end| {
                    let field = out[start..end].to_vec();
                    start = end;
                    field
                });
                records.push(fields.collect());
                (written, count) = (0, 0);
            }
            csv_core::ReadRecordResult::End => return records,
            _ => {}
        }
    }
}
