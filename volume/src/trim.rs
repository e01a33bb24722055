//! Giving the medium back what no file uses: `fstrim`.

use base::AgBlock;
use error::Error as EngineError;

use crate::{Result, Volume};

/// Free extents that are told to the device while their AG's header is held: then others have their turn.
const AT_ONCE: usize = 64;

/// What was told to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimReport {
    /// Bytes that are free, in extents that are long enough.
    pub free_bytes: u64,
    /// So many extents.
    pub free_extents: u64,
    /// Bytes of them of which the device said that it took the hint: they read as zeros now.
    pub discarded_bytes: u64,
    /// Free extents that are shorter than asked for.
    pub short_extents: u64,
}

impl Volume {
    /// Tells the device which blocks nobody uses, but for free extents of less than `least` bytes: an image file gets
    /// holes there. Others may go on; what they free meanwhile may be left out.
    ///
    /// # Errors
    /// What reading meets, and errors of the device. That it cannot use the hint is none.
    pub fn trim(&self, least: u64) -> Result<TrimReport> {
        inode::inactive::drain(self.inode_cache.shared());
        // What is freed only in the log would come back after a power cut, and must be whole then.
        self.log.flush_busy()?;
        let geometry = &self.geometry;
        let mut done = TrimReport::default();
        let mut reader = self.reader()?;
        for ag in geometry.ags() {
            let mut from = Some(AgBlock(0));
            while let Some(at) = from {
                from = self.groups.visit_free(&mut reader.tx, ag, at, AT_ONCE, &mut |start, count| {
                    let bytes = u64::from(count) << geometry.block_log;
                    let Some(offset) = geometry.fs_block_offset(start) else { return Ok(()) };
                    if bytes < least {
                        done.short_extents += 1;
                        return Ok(());
                    }
                    let taken = self.device().discard(offset, bytes).map_err(EngineError::from)?;
                    done.free_bytes += bytes;
                    done.free_extents += 1;
                    done.discarded_bytes += if taken { bytes } else { 0 };
                    Ok(())
                })?;
            }
        }
        self.device().flush()?;
        Ok(done)
    }
}
