//! What the splits of a source will read of objects: told before the first of them is read, so that what
//! comes next is on its way while one is decoded, whichever worker takes it, and in whichever file.

use std::sync::Arc;

use tidemill_remote::{AccessPlan, ObjectRanges};

use super::assembly::Assembly;
use super::error::Result;
use super::options::ReadOptions;
use super::{FileLocation, Piece, Source, Split};

impl Source {
    /// The course of reading these splits, each once and in this order; none where nothing of it is
    /// elsewhere. Each is read with its place among them as [`ReadOptions::course`].
    ///
    /// # Errors
    /// Those of finding the columns, and where there can be no threads for the network.
    pub fn course(
        &self,
        splits: &[Split],
        options: &ReadOptions,
    ) -> Result<Option<Arc<AccessPlan>>> {
        let is_elsewhere = |piece: &Piece| matches!(piece.file.place, FileLocation::Object(_));
        if !splits.iter().flat_map(|split| &split.pieces).any(is_elsewhere) {
            return Ok(None);
        }
        let (mut assembly, _) = Assembly::new(self, options)?;
        let mut window_bytes = 0;
        let mut tasks = Vec::with_capacity(splits.len());
        for split in splits {
            let mut legs = Vec::new();
            for piece in &split.pieces {
                let leg = self.leg(piece, &mut assembly)?;
                let window = leg.as_ref().map_or(0, |leg| leg.object.options().window_bytes);
                window_bytes = window.max(window_bytes);
                legs.extend(leg);
            }
            tasks.push(legs);
        }
        Ok(Some(Arc::new(AccessPlan::new(tasks, window_bytes))))
    }

    fn leg(&self, piece: &Piece, assembly: &mut Assembly) -> Result<Option<ObjectRanges>> {
        let FileLocation::Object(object) = &piece.file.place else { return Ok(None) };
        if object.is_stream() {
            return Ok(None);
        }
        if let Some(format) = self.format.typed()
            && let Some(metadata) = piece.file.metadata()
        {
            assembly.turn_to(self, self.columns.layout_index(piece.file.index))?;
            let columns = assembly.wanted_columns(self);
            if let Some(ranges) = format.ranges(piece, metadata, &columns) {
                let object = Arc::clone(object.opened_object()?);
                return Ok(Some(ObjectRanges { object, ranges, is_block_aligned: false }));
            }
            if !format.is_cut_anywhere() {
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
