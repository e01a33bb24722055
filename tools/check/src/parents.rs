//! Parent pointers, compared with directory entries by a sum that does not depend on their order.
//!
//! Each entry adds its fingerprint to the inode that it names, and each parent pointer of that inode subtracts one. The
//! sum is zero if they are the same.

use base::Ino;
use format::attr::Attr;
use format::attr::parent::ParentPointer;
use format::{Damage, Geometry, Place};

use crate::inode_map::AgInodes;
use crate::volume::Volume;

const NAME: &str = "parent pointer";

/// The fingerprint of a link: of the directory, its generation and the name of the entry.
pub(crate) fn fingerprint(parent: Ino, generation: u32, name: &[u8]) -> u64 {
    let mut sum = parent.get() ^ u64::from(generation).rotate_left(40) ^ (name.len() as u64) << 56;
    for chunk in name.chunks(8) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        sum = mix(sum ^ u64::from_le_bytes(word));
    }
    mix(sum)
}

fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}

/// The fingerprint of an attribute that is a parent pointer; 0 if it is damaged.
pub(crate) fn of_attr(attr: &Attr<'_>, geometry: &Geometry) -> u64 {
    ParentPointer::verify(attr, geometry)
        .map_or(0, |parent| fingerprint(parent.ino, parent.generation, parent.name))
}

/// Reports an inode whose parent pointers differ from its directory entries.
pub(crate) fn check_slot(volume: &Volume<'_>, inodes: &AgInodes, slot: usize, ino: Ino) {
    if inodes.parent_difference(slot) != 0 {
        let expected = "one for each directory entry of the inode, with its directory and name";
        volume.error(Place::ino(ino), Damage::new(NAME, "record", expected, "a different set"));
    }
}
