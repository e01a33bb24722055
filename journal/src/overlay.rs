//! Reading a volume with a dirty log: replay in memory.

use std::sync::Arc;

use block::{Device, OverlayDevice};
use format::superblock::Superblock;

use crate::error::LogError;
use crate::journal::{Journal, State};
use crate::recovery::{OnDamage, Options, RecoveryReport, ReplayRegistry, recover};

/// A volume as it is after log replay.
pub struct Replayed {
    /// The replayed volume; the device itself if there was nothing to replay.
    pub device: Arc<dyn Device>,
    /// State of the log.
    pub state: State,
    /// The recovery report; `None` if there was nothing to replay.
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

/// Opens the journal of the volume on `data` and, if it is dirty, replays it into a copy-on-write overlay. Writes to
/// neither device. Items that cannot be replayed are recorded in the report, and the rest is replayed nevertheless. The
/// caller must read the superblock again from the result.
///
/// After a dirty log, the superblock's counters of free blocks and inodes are wrong, replayed or not, as they are
/// updated lazily. Linux recomputes them from the AG headers at mount; so must a reader that shows them.
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
