//! Lists of unlinked inodes: files that were still open when they lost their last name.
//!
//! Their members have no links and lie in the bucket of their number. On a volume that is not in use the lists are
//! empty, unless it was not unmounted: the next mount frees the members.

use base::{AgIno, AgNumber};
use format::agi::{NULL_AG_INO, UNLINKED_BUCKETS};
use format::inode::Dinode;
use format::{Damage, Place};

use crate::ag::AgTrees;
use crate::inode_map::state;
use crate::volume::Volume;

const NAME: &str = "unlinked list";

/// Follows all lists of one AG, and marks their members.
pub(crate) fn check_ag(volume: &Volume<'_>, ag: AgNumber, trees: &AgTrees) {
    let mut bytes = vec![0; volume.geometry.inode_size as usize];
    let mut members = 0u64;
    for (bucket, head) in trees.unlinked.iter().enumerate() {
        members += follow(volume, ag, trees, bucket, *head, &mut bytes);
    }
    if members > 0 {
        let found = format!("{members} inodes, which the next mount frees");
        volume.unfinished(Place::ag(ag), Damage::new(NAME, "members", "none", found));
    }
}

/// Follows one list; returns how many members it has. No member is visited twice, so that it ends.
fn follow(
    volume: &Volume<'_>,
    ag: AgNumber,
    trees: &AgTrees,
    bucket: usize,
    head: u32,
    bytes: &mut [u8],
) -> u64 {
    let geometry = &volume.geometry;
    let inodes = &trees.inodes;
    let (mut next, mut members) = (head, 0);
    while next != NULL_AG_INO {
        let number = geometry.ino(ag, AgIno(next));
        let tell = |damage| volume.error(Place::ag(ag).of_inode(number), damage);
        let Some(slot) = inodes.find(AgIno(next), &mut 0).filter(|slot| inodes.state(*slot) != 0) else {
            tell(Damage::new(NAME, "next", "an inode in use, or the end", next));
            return members;
        };
        if inodes.mark(slot, state::ON_LIST) & state::ON_LIST != 0 {
            tell(Damage::new(NAME, "next", "each inode once", next));
            return members;
        }
        if next as usize % UNLINKED_BUCKETS != bucket {
            tell(Damage::new(NAME, "bucket", next as usize % UNLINKED_BUCKETS, bucket));
        }
        members += 1;
        let offset = geometry.ag_block_offset(ag, geometry.ag_ino_block(AgIno(next)))
            + geometry.ino_offset_in_block(AgIno(next)) as u64;
        if !volume.read(Place::ino(number), "inode", offset, bytes) {
            return members;
        }
        let Ok(inode) = Dinode::identify(bytes, geometry, number) else { return members };
        next = inode.core.next_unlinked.get();
    }
    members
}
