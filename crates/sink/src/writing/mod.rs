//! Writers: rows to encoders and files, partitioned by path template, compressed.
//!
//! - `codec_resolution`: chooses a codec from the user's request, the file name and the format.
//! - `compression`: codecs of outputs, and the writer that compresses text as a whole.
//! - `encoder_output`: the receiver of an encoder's bytes, shared with the owner of the output.
//! - `partitioned_files`: writes many files within a memory budget, with one of them open.
//! - `path_template`: paths such as `out/{state}/{day}.parquet`, and the encoding of values in paths.
//! - `row_router`: groups the rows of a batch by the path of their file.
//! - `row_writer`: writes one file in any format.
//! - `value_text`: the text of a value in CSV, JSON, paths and tables.

pub(crate) mod codec_resolution;
pub(crate) mod compression;
pub(crate) mod encoder_output;
pub(crate) mod partitioned_files;
pub(crate) mod path_template;
pub(crate) mod row_router;
pub(crate) mod row_writer;
pub(crate) mod value_text;
