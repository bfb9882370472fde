//! `ids`: combines sets of 64-bit ids in files.

use std::io::{BufWriter, IsTerminal, Write};

use tidemill_engine::coverage::format_grouped_digits;
use tidemill_engine::id_set_operations::{self, IdSetFormat, IdSetRequest, SetOperation};
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::{Error, run_handle};

use super::work_with_progress::run_with_progress_until_cancelled;
use super::{VerbOutcome, print_paged};
use crate::allocator_tuning;
use crate::args::IdsArgs;
use crate::terminal::{self, RunProgressBar};

/// `tidemill ids OPERATION FILE…`.
pub(super) fn combine_id_files(args: IdsArgs) -> anyhow::Result<VerbOutcome> {
    let limits = ResourceLimits {
        memory: args.memory,
        threads: args.threads,
        spill_dirs: args.spill_dir,
        ..ResourceLimits::default()
    };
    let request = IdSetRequest {
        operation: id_set_operations::parse_operation(&args.operation)?,
        input_format: args.input_format.as_deref().map(IdSetFormat::from_name).transpose()?,
        storage_options: args.storage.to_storage_options()?,
        inputs: args.files,
        id_column: args.column,
        signed_ids: args.signed,
        inputs_are_sorted: args.sorted,
        output: args.output.filter(|output| output != "-"),
        output_format: args.format,
        overwrite: args.overwrite,
    };
    let settings = run_handle::prepare_run(&limits, &ResourceLimits::default())?.settings;
    allocator_tuning::set_heap_step(&settings);
    terminal::watch_signals(&settings.cancel)?;
    let mut bar = RunProgressBar::for_ids(&settings.progress);
    let counts = run_with_progress_until_cancelled(&settings.cancel, &mut bar, || {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let counts = id_set_operations::combine_id_sets(&request, &settings, &mut out)?;
        out.flush().map_err(|error| Error::io("write", "standard output", error))?;
        Ok(counts)
    });
    bar.clear();
    let counts = counts?;
    if request.operation == SetOperation::Count {
        print_paged(format!("{}\n", counts.output_ids).as_bytes())?;
    }
    // The counts are for people, and for programs that write to a file.
    if request.output.is_some() || std::io::stderr().is_terminal() {
        let of_each = request.inputs.iter().zip(&counts.input_ids);
        let of_each: Vec<String> = of_each
            .map(|(name, count)| format!("{} in `{name}`", format_grouped_digits(*count)))
            .collect();
        let (ids, of_each) = (format_grouped_digits(counts.output_ids), of_each.join(", "));
        terminal::print_note(&match &request.output {
            Some(output) => format!("wrote `{output}`: {ids} ids; {of_each}"),
            None => format!("{ids} ids; {of_each}"),
        });
    }
    Ok(VerbOutcome::Complete)
}
