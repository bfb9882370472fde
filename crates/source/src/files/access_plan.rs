//! Access plans for remote splits: announces the byte ranges that the splits of a source will read before the
//! first of them is read. Later ranges are then fetched while one is decoded, whichever worker takes it and
//! whichever file it is in.

use std::sync::Arc;

use tidemill_remote::{AccessPlan, ObjectRanges};

use crate::error::Result;
use crate::read_options::ReadOptions;
use crate::splits::batch_assembly::BatchAssembler;
use crate::{FileLocation, Source, Split, SplitPart};

impl Source {
    /// Returns the access plan for reading these splits, each once and in this order; none if no split is
    /// remote. Each split is read with its index in the plan as [`ReadOptions::access_plan`].
    ///
    /// # Errors
    /// Those of resolving the columns, and of starting the network threads.
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
        // The bytes that were read for the schema are already here.
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
