//! Discarding free blocks (`fstrim`).

use base::AgBlock;
use error::Error as EngineError;

use crate::{Result, Volume};

/// Number of free extents that are discarded before the AGF is unlocked for other threads.
const EXTENTS_PER_LOCK: usize = 64;

/// Result of [`Volume::trim`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimReport {
    /// Bytes of free extents of at least the minimum length.
    pub free_bytes: u64,
    /// Number of these extents.
    pub free_extents: u64,
    /// Bytes that the device discarded: they read as zeros now.
    pub discarded_bytes: u64,
    /// Number of free extents below the minimum length.
    pub short_extents: u64,
}

impl Volume {
    /// Discards free extents of at least `min_bytes`; an image file gets holes there. The volume stays usable. Extents
    /// that are freed meanwhile may be left out.
    ///
    /// # Errors
    /// Damage, and errors of the device. A device without discard is not an error.
    pub fn trim(&self, min_bytes: u64) -> Result<TrimReport> {
        inode::inactive::drain(self.inode_cache.shared());
        // Blocks whose freeing is not stable belong to their file again after a power cut: they must keep their data.
        self.log.flush_busy()?;
        let geometry = &self.geometry;
        let mut report = TrimReport::default();
        let mut reader = self.reader()?;
        for ag in geometry.ags() {
            let mut next = Some(AgBlock(0));
            while let Some(from) = next {
                next = self.groups.visit_free(
                    &mut reader.tx,
                    ag,
                    from,
                    EXTENTS_PER_LOCK,
                    &mut |start, count| {
                        let bytes = u64::from(count) << geometry.block_log;
                        let Some(offset) = geometry.fs_block_offset(start) else { return Ok(()) };
                        if bytes < min_bytes {
                            report.short_extents += 1;
                            return Ok(());
                        }
                        let discarded = self.device().discard(offset, bytes).map_err(EngineError::from)?;
                        report.free_bytes += bytes;
                        report.free_extents += 1;
                        report.discarded_bytes += if discarded { bytes } else { 0 };
                        Ok(())
                    },
                )?;
            }
        }
        self.device().flush()?;
        Ok(report)
    }
}
