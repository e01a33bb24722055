//! Link counts, parents of directories, and their connection to the root.

use std::sync::atomic::Ordering;

use base::{AgNumber, Ino};
use format::inode::{Dinode, FileType};
use format::{Damage, Place};

use crate::ag::AgSummary;
use crate::directory::entries::ParentLink;
use crate::inode_map::{Hint, InodeMap, state};
use crate::parents;
use crate::volume::Volume;

const INODE: &str = "inode";
const DIRECTORY: &str = "directory";

/// Counts the inode numbers in the superblock as links: realtime and quota inodes have no directory entries.
pub(crate) fn count_superblock(volume: &Volume<'_>, map: &InodeMap<'_>) {
    let raw = &volume.raw;
    let metadir = volume.geometry.features.metadir();
    let is_type =
        |found: u8, file_type: FileType| found & (state::TYPE | state::DAMAGED) == file_type.ftype();
    let names_missing = volume.names_missing.load(Ordering::Relaxed);
    let unnamed = [
        ("rbmino", raw.rbmino.get(), true),
        ("rsumino", raw.rsumino.get(), true),
        ("uquotino", raw.uquotino.get(), false),
        ("gquotino", raw.gquotino.get(), false),
        ("pquotino", raw.pquotino.get(), false),
    ];
    for (field, ino, required) in unnamed {
        // With the feature metadir these inodes have directory entries, and the fields are not used.
        let null = ino == u64::MAX || ino == 0;
        if metadir || null && !required {
            continue;
        }
        let found = map.find(Ino(ino), &mut Hint::default());
        match found.filter(|slot| is_type(slot.state(), FileType::Regular)) {
            Some(slot) => slot.add_links(1),
            None if names_missing => (),
            None => report_superblock(volume, field, "a regular file", ino),
        }
    }
    for (field, ino) in
        [("rootino", Some(volume.geometry.root)), ("metadirino", volume.geometry.metadata_root)]
    {
        let Some(ino) = ino else { continue };
        let found = map.find(ino, &mut Hint::default());
        let directory = found.is_some_and(|slot| is_type(slot.state(), FileType::Directory));
        if !directory && !names_missing {
            report_superblock(volume, field, "a directory", ino.get());
        }
    }
}

fn report_superblock(volume: &Volume<'_>, field: &'static str, expected: &str, ino: u64) {
    volume.error(Place::ag(AgNumber(0)).of_inode(Ino(ino)), Damage::new("superblock", field, expected, ino));
}

/// Checks link counts, unlinked lists and parent pointers of the inodes of one AG, after all directories were read.
pub(crate) fn check_ag(volume: &Volume<'_>, ag: &AgSummary) {
    let names_missing = volume.names_missing.load(Ordering::Relaxed);
    let inodes = &ag.inodes;
    for chunk in 0..inodes.chunks.len() {
        for (ag_ino, slot) in inodes.slots(chunk) {
            let inode_state = inodes.state(slot);
            if inode_state == 0 || inode_state & state::DAMAGED != 0 {
                continue;
            }
            let ino = volume.geometry.ino(ag.number, ag_ino);
            check_unlinked(volume, ino, inode_state);
            if !names_missing {
                let difference = inodes.link_difference(slot);
                if difference != 0 {
                    report_links(volume, ino, difference);
                }
                parents::check_slot(volume, inodes, slot, ino);
            }
        }
    }
}

/// Compares `nlink` and `next_unlinked` of an inode with the unlinked lists.
fn check_unlinked(volume: &Volume<'_>, ino: Ino, inode_state: u8) {
    let has = |bit| inode_state & bit != 0;
    if has(state::ON_UNLINKED_LIST) && !has(state::NO_LINKS) {
        let damage = Damage::new("unlinked list", "members", "inodes without links", "an inode with links");
        volume.error(Place::ino(ino), damage);
    }
    if has(state::NEXT_UNLINKED) && !has(state::ON_UNLINKED_LIST) {
        let expected = "null (the inode is on no unlinked list)";
        volume.error(Place::ino(ino), Damage::new(INODE, "next_unlinked", expected, "another inode"));
    }
    if has(state::NO_LINKS) && !has(state::ON_UNLINKED_LIST) {
        let expected = "at least 1 (the inode is on no unlinked list)";
        volume.error(Place::ino(ino), Damage::new(INODE, "nlink", expected, 0));
    }
}

#[cold]
fn report_links(volume: &Volume<'_>, ino: Ino, difference: u32) {
    let geometry = &volume.geometry;
    let mut bytes = vec![0; geometry.inode_size as usize];
    let Some((ag, ag_ino)) = geometry.split_ino(ino) else { return };
    let offset = geometry.ag_block_offset(ag, geometry.ag_ino_block(ag_ino))
        + geometry.ino_offset_in_block(ag_ino) as u64;
    if volume.device.read_at(offset, &mut bytes).is_err() {
        return;
    }
    let Some(inode) = Dinode::view(&bytes, geometry) else { return };
    let stored = inode.core.nlink.get();
    volume.error(Place::ino(ino), Damage::new(INODE, "nlink", stored.wrapping_add(difference), stored));
}

/// Whether a directory is connected to the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Unknown,
    /// On the current path.
    Visiting,
    Connected,
    Disconnected,
}

/// Checks that each directory has one name, that its `..` is the directory with that name, and that it is connected to
/// the root. `dot_dots` has each directory that was read, `links` each entry that names a directory.
pub(crate) fn check_parents(volume: &Volume<'_>, mut dot_dots: Vec<ParentLink>, mut links: Vec<ParentLink>) {
    dot_dots.sort_unstable();
    links.sort_unstable();
    for names in links.chunk_by(|left, right| left.child == right.child) {
        if let [first, second, ..] = names {
            let found = format!("entries in {} and {}", first.parent, second.parent);
            report(volume, first.child, "entries", "one name", found);
        }
    }
    for same_child in dot_dots.chunk_by(|left, right| left.child == right.child) {
        let Some(dot_dot) = same_child.first() else { continue };
        let is_root = is_root(volume, dot_dot.child);
        let link = find(&links, dot_dot.child).and_then(|n| links.get(n));
        let expected = if is_root { Some(dot_dot.child) } else { link.map(|link| link.parent) };
        if let Some(expected) = expected.filter(|expected| *expected != dot_dot.parent) {
            report(volume, dot_dot.child, "..", &expected.to_string(), dot_dot.parent.to_string());
        }
        if is_root && link.is_some() {
            report(volume, dot_dot.child, "entries", "no name of a root directory", "an entry".to_owned());
        }
    }
    if !volume.names_missing.load(Ordering::Relaxed) {
        check_connected(volume, &dot_dots, &links);
    }
}

/// The index of a directory in a sorted list.
fn find(list: &[ParentLink], child: Ino) -> Option<usize> {
    list.binary_search_by_key(&child, |link| link.child).ok()
}

fn is_root(volume: &Volume<'_>, ino: Ino) -> bool {
    ino == volume.geometry.root || Some(ino) == volume.geometry.metadata_root
}

/// Walks from each directory through its parents, up to a root or to a directory whose connection is known.
fn check_connected(volume: &Volume<'_>, directories: &[ParentLink], links: &[ParentLink]) {
    let mut connections = vec![Connection::Unknown; directories.len()];
    let mut path = Vec::new();
    for start in 0..directories.len() {
        let mut next = Some(start);
        let result = loop {
            let Some((n, directory)) = next.and_then(|n| Some((n, directories.get(n)?))) else {
                break Connection::Disconnected;
            };
            let Some(connection) = connections.get_mut(n) else { break Connection::Disconnected };
            match *connection {
                Connection::Unknown if is_root(volume, directory.child) => {
                    *connection = Connection::Connected;
                    break Connection::Connected;
                }
                Connection::Unknown => *connection = Connection::Visiting,
                // A cycle.
                Connection::Visiting => break Connection::Disconnected,
                known => break known,
            }
            path.push(n);
            let link = find(links, directory.child).and_then(|n| links.get(n));
            next = link.and_then(|link| find(directories, link.parent));
        };
        for n in path.drain(..) {
            if let (Some(connection), Some(directory)) = (connections.get_mut(n), directories.get(n)) {
                *connection = result;
                if result == Connection::Disconnected {
                    report(
                        volume,
                        directory.child,
                        "entries",
                        "a path to the root directory",
                        "none".to_owned(),
                    );
                }
            }
        }
    }
}

#[cold]
fn report(volume: &Volume<'_>, ino: Ino, field: &'static str, expected: &str, found: String) {
    volume.error(Place::ino(ino), Damage::new(DIRECTORY, field, expected, found));
}
