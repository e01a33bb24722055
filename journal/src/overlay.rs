//! What a reader does with a dirty log: replay it in memory, and read on from there.

use std::sync::Arc;

use block::{Device, OverlayDevice};
use format::superblock::Superblock;

use crate::error::LogError;
use crate::journal::{Journal, State};
use crate::recovery::{OnDamage, Options, RecoveryReport, ReplayRegistry, recover};

/// A volume as it will be after its log was replayed.
pub struct Replayed {
    /// Reads show the replayed volume. The device itself where there was nothing to replay.
    pub device: Arc<dyn Device>,
    /// What the log was.
    pub state: State,
    /// What recovery did; `None` where there was nothing to replay.
    pub report: Option<RecoveryReport>,
}

impl std::fmt::Debug for Replayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayed")
            .field("state", &self.state)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// Opens the journal of the volume on `data` and replays it into a copy-on-write overlay where it is dirty. Nothing is
/// written to either device. Items that cannot be replayed are noted in the report, and the rest is replayed all the
/// same. The superblock must be read again from the result.
///
/// After a dirty log the superblock's counters of free blocks and inodes are not those of the volume, replayed or not:
/// writers keep them lazily. Linux sums them up from the AG headers when it mounts; so must who shows them.
///
/// # Errors
/// Those of [`Journal::open`]; [`LogError::Transaction`]; [`LogError::Device`].
pub fn replay_in_memory(
    superblock: &Superblock,
    data: Arc<dyn Device>,
    external: Option<&dyn Device>,
) -> Result<Replayed, LogError> {
    let journal = Journal::open(superblock, &data, external)?;
    let state = journal.state().clone();
    if journal.dirty().is_none() {
        drop(journal);
        return Ok(Replayed { device: data, state, report: None });
    }
    let overlay = OverlayDevice::new(data.clone());
    let options = Options { on_damage: OnDamage::Note, ..Options::default() };
    let report = recover(&journal, superblock, &overlay, &ReplayRegistry::default(), &options)?;
    overlay.freeze();
    Ok(Replayed { device: Arc::new(overlay), state, report: Some(report) })
}
