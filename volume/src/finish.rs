//! Finishing the intents of a dirty log in memory, so that a reader sees the volume as Linux would after a mount.
//!
//! The log has been replayed into an overlay. Intents are finished in a second overlay, by the code that recovers a
//! volume in place; if that fails, the first overlay still holds the replayed volume.
//!
//! Unlinked inodes are left, because no name leads to them.

use std::sync::Arc;

use base::memory::Budget;
use block::{Device, OverlayDevice};
use format::features;
use journal::Journal;
use journal::engine::LogBounds;
use journal::recovery::Intent;

use crate::options::Options;
use crate::superblock::read_superblock;
use crate::{Error, Result, Volume};

/// A volume whose intents were finished in memory.
#[derive(Debug)]
pub struct Finished {
    /// The device to read.
    pub device: Arc<dyn Device>,
    /// The external log that belongs to it, if any.
    pub log_device: Option<Arc<dyn Device>>,
}

/// Memory of the caches in bytes.
const MEMORY: u64 = 64 << 20;

/// Finishes the intents that replay of the log onto `device` has found. Nothing is written to either device.
///
/// # Errors
/// `EROFS` for a volume with unknown features; damage if an intent cannot be finished.
pub fn finish_in_memory(
    device: Arc<dyn Device>,
    external: Option<Arc<dyn Device>>,
    unfinished: &[Intent],
) -> Result<Finished> {
    let superblock = read_superblock(&*device)?;
    let unknown = superblock.raw.features().ro_compat & !features::RO_COMPAT_KNOWN;
    if unknown != 0 {
        let names = features::names(unknown, features::ro_compat::ALL);
        return Err(Error::unwritable(format!(
            "the volume uses features that this version can only read: {names}"
        )));
    }
    let top = Arc::new(OverlayDevice::new(device));
    let external = external.map(|log| Arc::new(OverlayDevice::new(log)) as Arc<dyn Device>);
    // One thread and a fixed seed: the result is reproducible.
    let options = Options {
        seed: Some(0),
        cil_shards: Some(1),
        memory: Some(Budget::new(MEMORY)),
        background: false,
        ..Options::default()
    };
    let bounds = LogBounds::of(&Journal::open(&superblock, &*top, external.as_deref())?);
    let devices = (top.clone() as Arc<dyn Device>, external.clone());
    let (volume, _) = Volume::start(&superblock, devices, bounds, &[], &options)?;
    unfinished.iter().try_for_each(|intent| volume.finish(intent, None))?;
    volume.unmount()?;
    top.freeze();
    Ok(Finished { device: top, log_device: external })
}
