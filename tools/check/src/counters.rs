//! The superblock's counters, compared with the allocation groups.

use base::AgNumber;
use format::{Damage, Place};

use crate::ag::AgSummary;
use crate::volume::Volume;

/// Compares inode and block counters. They are not logged (lazysbcount), so they may be old after a log was replayed.
pub(crate) fn check(volume: &Volume<'_>, ags: &[AgSummary]) {
    if ags.iter().any(|ag| ag.incomplete) {
        return;
    }
    let (mut inodes, mut free) = (0, 0);
    for chunk in ags.iter().flat_map(|ag| &ag.inodes.chunks) {
        inodes += u64::from(chunk.present.count_ones());
        free += u64::from((chunk.present & chunk.free).count_ones());
    }
    let blocks: u64 = ags.iter().map(|ag| ag.free_blocks).sum();
    for (field, counted, stored) in [
        ("icount", inodes, volume.raw.icount.get()),
        ("ifree", free, volume.raw.ifree.get()),
        ("fdblocks", blocks, volume.raw.fdblocks.get()),
    ] {
        if counted != stored {
            let damage = Damage::new("superblock", field, counted, stored);
            volume.report_unrecovered(Place::ag(AgNumber(0)), damage);
        }
    }
    let stored = volume.raw.frextents.get();
    if stored != 0 {
        volume.error(Place::ag(AgNumber(0)), Damage::new("superblock", "frextents", 0, stored));
    }
}
