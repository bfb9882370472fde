//! Writers: rows to encoders and files, partitioned by path template, compressed.
//!
//! - `codec_resolution`: chooses the codec of an output from the user's request, the file name and the
//!   format's abilities.
//! - `compression`: compression of outputs.
//! - `encoder_output`: the receiver of an encoder's bytes, shared with the owner of the output.
//! - `partitioned_files`: writes many files at once within a memory budget, with one of them open at a
//!   time.
//! - `path_template`: path templates, such as `out/{state}/{day}.parquet`, and the encoding of values in
//!   paths.
//! - `row_router`: groups rows by the columns that a path names, so that each group goes to one file.
//! - `row_writer`: the writer of one file in any of the formats.
//! - `value_text`: the text of one value, the same in CSV, in a path, in a table and (quoted if JSON
//!   requires it) in JSON.

pub(crate) mod codec_resolution;
pub(crate) mod compression;
pub(crate) mod encoder_output;
pub(crate) mod partitioned_files;
pub(crate) mod path_template;
pub(crate) mod row_router;
pub(crate) mod row_writer;
pub(crate) mod value_text;
