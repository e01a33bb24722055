//! Link counts, parents, and whether everything hangs on the root.

use std::sync::atomic::Ordering;

use base::{AgNumber, Ino};
use format::inode::Dinode;
use format::{Damage, Place};

use crate::directory::entries::ParentOf;
use crate::inode_map::{AgInodes, Hint, InodeMap, state};
use crate::parents;
use crate::volume::Volume;

const INODE: &str = "inode";
const DIRECTORY: &str = "directory";

/// Counts the links that the superblock itself has to inodes: realtime and quota inodes have no names.
pub(crate) fn count_superblock(volume: &Volume<'_>, map: &InodeMap<'_>) {
    let raw = &volume.raw;
    let metadir = volume.geometry.features.metadir();
    let unnamed = [
        ("rbmino", raw.rbmino.get(), true),
        ("rsumino", raw.rsumino.get(), true),
        ("uquotino", raw.uquotino.get(), false),
        ("gquotino", raw.gquotino.get(), false),
        ("pquotino", raw.pquotino.get(), false),
    ];
    for (field, ino, required) in unnamed {
        // With metadata directories these inodes have names, and the fields mean nothing.
        let none = ino == u64::MAX || ino == 0;
        if metadir || none && !required {
            continue;
        }
        match map.find(Ino(ino), &mut Hint::default()).filter(|slot| slot.state() & 0x0f == 1) {
            Some(slot) => slot.add_links(1),
            None if volume.names_missing.load(Ordering::Relaxed) => (),
            None => tell_superblock(volume, field, "a regular file", ino),
        }
    }
    for (field, ino) in
        [("rootino", Some(volume.geometry.root)), ("metadirino", volume.geometry.metadata_root)]
    {
        let Some(ino) = ino else { continue };
        let found = map.find(ino, &mut Hint::default());
        let directory = found.is_some_and(|slot| slot.state() & (state::TYPE | state::DAMAGED) == 2);
        if !directory && !volume.names_missing.load(Ordering::Relaxed) {
            tell_superblock(volume, field, "a directory", ino.get());
        }
    }
}

fn tell_superblock(volume: &Volume<'_>, field: &'static str, expected: &str, ino: u64) {
    volume.error(Place::ag(AgNumber(0)).of_inode(Ino(ino)), Damage::new("superblock", field, expected, ino));
}

/// Checks link counts and lists of one AG's inodes; all names have been read.
pub(crate) fn check_ag(volume: &Volume<'_>, ag: AgNumber, inodes: &AgInodes) {
    let names_missing = volume.names_missing.load(Ordering::Relaxed);
    for chunk in 0..inodes.chunks.len() {
        for (within, slot) in inodes.slots(chunk) {
            let now = inodes.state(slot);
            if now == 0 || now & state::DAMAGED != 0 {
                continue;
            }
            let ino = volume.geometry.ino(ag, within);
            check_listed(volume, ino, now);
            if !names_missing {
                if inodes.link_difference(slot) != 0 {
                    tell_links(volume, ino, inodes.link_difference(slot));
                }
                parents::check_slot(volume, inodes, slot, ino);
            }
        }
    }
}

fn check_listed(volume: &Volume<'_>, ino: Ino, now: u8) {
    let has = |bit| now & bit != 0;
    if has(state::ON_LIST) && !has(state::NO_LINKS) {
        let damage = Damage::new("unlinked list", "members", "inodes without links", "an inode with links");
        volume.error(Place::ino(ino), damage);
    }
    if has(state::NEXT_UNLINKED) && !has(state::ON_LIST) {
        let damage = Damage::new(INODE, "next_unlinked", "null, as it is on no list", "another inode");
        volume.error(Place::ino(ino), damage);
    }
    if has(state::NO_LINKS) && !has(state::ON_LIST) {
        let damage = Damage::new(INODE, "nlink", "a link, or a place on an unlinked list", "neither");
        volume.error(Place::ino(ino), damage);
    }
}

#[cold]
fn tell_links(volume: &Volume<'_>, ino: Ino, difference: u32) {
    let geometry = &volume.geometry;
    let mut bytes = vec![0; geometry.inode_size as usize];
    let Some((ag, within)) = geometry.split_ino(ino) else { return };
    let offset = geometry.ag_block_offset(ag, geometry.ag_ino_block(within))
        + geometry.ino_offset_in_block(within) as u64;
    if volume.device.read_at(offset, &mut bytes).is_err() {
        return;
    }
    let Some(inode) = Dinode::view(&bytes, geometry) else { return };
    let told = inode.core.nlink.get();
    volume.error(Place::ino(ino), Damage::new(INODE, "nlink", told.wrapping_add(difference), told));
}

/// What is known of a directory's place in the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Unknown,
    /// On the way that is being followed.
    Open,
    Connected,
    Lost,
}

/// Checks that each directory has one name, that its `..` is where that name stands, and that it hangs on the root.
///
/// `dot_dots` has each directory that was read; `links` each entry that names a directory.
pub(crate) fn check_parents(volume: &Volume<'_>, mut dot_dots: Vec<ParentOf>, mut links: Vec<ParentOf>) {
    dot_dots.sort_unstable();
    links.sort_unstable();
    let missing = volume.names_missing.load(Ordering::Relaxed);
    for list in links.chunk_by(|left, right| left.child == right.child) {
        if let [first, second, ..] = list {
            let found = format!("entries in {} and {}", first.parent, second.parent);
            tell(volume, first.child, "entries", "one name", found);
        }
    }
    for pair in dot_dots.chunk_by(|left, right| left.child == right.child) {
        let Some(dot_dot) = pair.first() else { continue };
        let entry = links.binary_search_by_key(&dot_dot.child, |link| link.child).ok();
        let expected = match entry.and_then(|n| links.get(n)) {
            _ if is_root(volume, dot_dot.child) => Some(dot_dot.child),
            Some(link) => Some(link.parent),
            None => None,
        };
        if let Some(expected) = expected
            && expected != dot_dot.parent
        {
            tell(volume, dot_dot.child, "..", &expected.to_string(), dot_dot.parent.to_string());
        }
        if is_root(volume, dot_dot.child) && entry.is_some() {
            tell(volume, dot_dot.child, "entries", "no name of a root", "an entry".to_owned());
        }
    }
    if !missing {
        check_connected(volume, &dot_dots, &links);
    }
}

fn is_root(volume: &Volume<'_>, ino: Ino) -> bool {
    ino == volume.geometry.root || Some(ino) == volume.geometry.metadata_root
}

/// Climbs from each directory by the entries that name it, until a root or a directory that is known is met.
fn check_connected(volume: &Volume<'_>, directories: &[ParentOf], links: &[ParentOf]) {
    let mut reach = vec![Reach::Unknown; directories.len()];
    let mut way = Vec::new();
    for start in 0..directories.len() {
        let mut at = Some(start);
        let end = loop {
            let Some((n, directory)) = at.and_then(|n| Some((n, directories.get(n)?))) else {
                break Reach::Lost;
            };
            let Some(state) = reach.get_mut(n) else { break Reach::Lost };
            match *state {
                Reach::Unknown if is_root(volume, directory.child) => {
                    *state = Reach::Connected;
                    break Reach::Connected;
                }
                Reach::Unknown => *state = Reach::Open,
                // Round in a circle.
                Reach::Open => break Reach::Lost,
                known => break known,
            }
            way.push(n);
            let link = links.binary_search_by_key(&directory.child, |link| link.child).ok();
            at = link.and_then(|n| links.get(n)).and_then(|link| {
                directories.binary_search_by_key(&link.parent, |directory| directory.child).ok()
            });
        };
        for n in way.drain(..) {
            if let (Some(state), Some(directory)) = (reach.get_mut(n), directories.get(n)) {
                *state = end;
                if end == Reach::Lost {
                    tell(volume, directory.child, "entries", "a way to the root", "none".to_owned());
                }
            }
        }
    }
}

#[cold]
fn tell(volume: &Volume<'_>, ino: Ino, field: &'static str, expected: &str, found: String) {
    volume.error(Place::ino(ino), Damage::new(DIRECTORY, field, expected, found));
}
