//! Unlinked lists: inodes of files that were still open when their last name was removed.
//!
//! The members have no links, and their inode number selects the bucket. On a volume that was unmounted the lists are
//! empty; otherwise the next mount frees the members.

use base::AgIno;
use format::agi::{NULL_AG_INO, UNLINKED_BUCKETS};
use format::inode::Dinode;
use format::{Damage, Place};

use crate::ag::AgSummary;
use crate::finding::Observer;
use crate::inode_map::state;
use crate::volume::Volume;

const NAME: &str = "unlinked list";

/// Walks all unlinked lists of one AG and marks their members in the inode map.
pub(crate) fn check_ag(volume: &Volume<'_>, ag: &AgSummary, observer: &dyn Observer) {
    // If the file of the inode map fails, the marks of members may be lost, and a cycle would have no end.
    let must_end = || volume.slots.has_failed() || observer.is_cancelled();
    let mut members = 0u64;
    for (bucket, head) in ag.unlinked.iter().enumerate() {
        members += walk_list(volume, ag, (bucket, *head), &must_end);
    }
    if members > 0 {
        let found = format!("{members} inodes, which the next mount frees");
        volume.report_unrecovered(Place::ag(ag.number), Damage::new(NAME, "members", "none", found));
    }
}

/// Walks the list of a bucket and returns the number of its members. It ends at a member that was already visited.
fn walk_list(
    volume: &Volume<'_>,
    ag: &AgSummary,
    (bucket, head): (usize, u32),
    must_end: &dyn Fn() -> bool,
) -> u64 {
    let geometry = &volume.geometry;
    let mut bytes = vec![0; geometry.inode_size as usize];
    let inodes = &ag.inodes;
    let (mut next, mut members) = (head, 0);
    while next != NULL_AG_INO && !must_end() {
        let ino = geometry.ino(ag.number, AgIno(next));
        let report = |damage| volume.error(Place::ag(ag.number).of_inode(ino), damage);
        let Some(slot) = inodes.find(AgIno(next), &mut 0).filter(|slot| inodes.state(*slot) != 0) else {
            report(Damage::new(NAME, "next", "an inode in use, or the end", next));
            return members;
        };
        if inodes.set_bits(slot, state::ON_UNLINKED_LIST) & state::ON_UNLINKED_LIST != 0 {
            report(Damage::new(NAME, "next", "each inode once", next));
            return members;
        }
        if next as usize % UNLINKED_BUCKETS != bucket {
            report(Damage::new(NAME, "bucket", next as usize % UNLINKED_BUCKETS, bucket));
        }
        members += 1;
        let offset = geometry.ag_block_offset(ag.number, geometry.ag_ino_block(AgIno(next)))
            + geometry.ino_offset_in_block(AgIno(next)) as u64;
        if !volume.read(Place::ino(ino), "inode", offset, &mut bytes) {
            return members;
        }
        let Ok(inode) = Dinode::identify(&bytes, geometry, ino) else { return members };
        next = inode.core.next_unlinked.get();
    }
    members
}
