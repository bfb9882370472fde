//! Benchmark: the speed of decoding a file on one core: `throughput FILE.jsonl [COLUMN,COLUMN…] [SECONDS]`.
//!
//! Without columns, the program reads all columns inferred from the file's beginning. It loads the file
//! into memory first. With `STRICT` in the environment, it checks skipped values in full.

use std::time::{Duration, Instant};

use tidemill_text::{BlockDecoder, DecodedBlocks, Options, infer, json::JsonDecoder};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: throughput FILE.jsonl [COLUMN,COLUMN…] [SECONDS]")?;
    let names = args.next().unwrap_or_default();
    let seconds: f64 = args.next().map_or(Ok(2.0), |text| text.parse())?;
    let text = std::fs::read(path)?;
    let end =
        memchr::memrchr(b'\n', &text[..text.len().min(1 << 20)]).map_or(text.len(), |e| e + 1);
    let mut inference = infer::json::JsonInference::new(&[]);
    inference.add_block(&text[..end]);
    let mut fields = inference.fields();
    if !names.is_empty() {
        fields.retain(|field| names.split(',').any(|name| name == field.name()));
    }
    let columns = fields.len();
    let strict = std::env::var_os("STRICT").is_some();
    let mut decoder = JsonDecoder::new(
        fields,
        &[],
        Options { checks_skipped_values: strict, ..Options::default() },
    )
    .map_err(|field| format!("{field} cannot be read"))?;
    let mut out = DecodedBlocks::default();
    let mut best = Duration::MAX;
    let (mut rows, mut bad) = (0, 0);
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        (rows, bad) = (0, 0);
        let mut at = 0;
        while at < text.len() {
            let target = (at + (1 << 20)).min(text.len());
            let end = memchr::memchr(b'\n', &text[target..]).map_or(text.len(), |e| target + e + 1);
            out.clear();
            decoder.decode(&text[at..end], &mut out);
            (rows, bad) = (rows + out.rows, bad + out.rejected.len());
            at = end;
        }
        best = best.min(start.elapsed());
    }
    println!(
        "{columns} columns, {rows} rows, {bad} refused: {:.2} GB/s with {}",
        text.len() as f64 / best.as_secs_f64() / 1e9,
        tidemill_text::instruction_set()
    );
    Ok(())
}
