//! Log replay in memory, for readers.

use std::sync::Arc;

use block::{Device, OverlayDevice};
use format::superblock::Superblock;

use crate::error::LogError;
use crate::journal::Journal;
use crate::recovery::{OnDamage, Options, RecoveryReport, ReplayRegistry, recover};

/// Replays a dirty log of the volume on `data` into a copy-on-write overlay, which is returned. Writes to no device.
/// Items that cannot be replayed are recorded in the report, and the rest is replayed nevertheless. The caller must
/// read the superblock again from the result.
///
/// After a dirty log, the superblock's counters of free blocks and inodes are wrong, replayed or not, as they are
/// updated lazily. Linux recomputes them from the AG headers at mount; so must a reader that shows them.
///
/// # Errors
/// [`LogError::Transaction`]; [`LogError::Device`].
pub fn replay_in_memory(
    journal: &Journal<'_>,
    superblock: &Superblock,
    data: Arc<dyn Device>,
) -> Result<(Arc<dyn Device>, RecoveryReport), LogError> {
    let overlay = OverlayDevice::new(data);
    let options = Options { on_damage: OnDamage::Note, ..Options::default() };
    let report = recover(journal, superblock, &overlay, &ReplayRegistry::default(), &options)?;
    overlay.freeze();
    Ok((Arc::new(overlay), report))
}
