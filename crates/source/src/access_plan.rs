//! What the splits of a source will read of objects: told before the first of them is read, so that what
//! comes next is on its way while one is decoded, whichever worker takes it, and in whichever file.

use std::sync::Arc;

use tidemill_remote::{AccessPlan, ObjectRanges};

use super::batch_assembly::BatchAssembler;
use super::error::Result;
use super::read_options::ReadOptions;
use super::{FileLocation, Source, Split, SplitPart};

impl Source {
    /// The course of reading these splits, each once and in this order; none where nothing of it is
    /// elsewhere. Each is read with its place among them as [`ReadOptions::course`].
    ///
    /// # Errors
    /// Those of finding the columns, and where there can be no threads for the network.
    pub fn access_plan(
        &self,
        splits: &[Split],
        options: &ReadOptions,
    ) -> Result<Option<Arc<AccessPlan>>> {
        let is_elsewhere =
            |piece: &SplitPart| matches!(piece.file.location, FileLocation::Object(_));
        if !splits.iter().flat_map(|split| &split.parts).any(is_elsewhere) {
            return Ok(None);
        }
        let (mut assembly, _) = BatchAssembler::new(self, options)?;
        let mut window_bytes = 0;
        let mut tasks = Vec::with_capacity(splits.len());
        for split in splits {
            let mut legs = Vec::new();
            for piece in &split.parts {
                let leg = self.plan_part_access(piece, &mut assembly)?;
                let window = leg.as_ref().map_or(0, |leg| leg.object.options().window_bytes);
                window_bytes = window.max(window_bytes);
                legs.extend(leg);
            }
            tasks.push(legs);
        }
        Ok(Some(Arc::new(AccessPlan::new(tasks, window_bytes))))
    }

    fn plan_part_access(
        &self,
        piece: &SplitPart,
        assembly: &mut BatchAssembler,
    ) -> Result<Option<ObjectRanges>> {
        let FileLocation::Object(object) = &piece.file.location else { return Ok(None) };
        if object.is_stream() {
            return Ok(None);
        }
        if let Some(format) = self.format.as_typed_format()
            && let Some(metadata) = piece.file.metadata()
        {
            assembly.switch_layout(self, self.columns.layout_index(piece.file.index))?;
            let columns = assembly.wanted_columns(self);
            if let Some(ranges) = format.needed_byte_ranges(piece, metadata, &columns) {
                let object = Arc::clone(object.opened_object()?);
                return Ok(Some(ObjectRanges { object, ranges, is_block_aligned: false }));
            }
            if !format.is_splittable_anywhere() {
                return Ok(None);
            }
        }
        // What was read for the schema is here.
        let start = piece.range.start.max(object.kept_head_bytes());
        if start >= piece.range.end {
            return Ok(None);
        }
        let in_blocks = !piece.is_whole_file();
        let object = Arc::clone(object.opened_object()?);
        let ranges = std::iter::once(start..piece.range.end).collect();
        Ok(Some(ObjectRanges { object, ranges, is_block_aligned: in_blocks }))
    }
}
