//! One directory entry against the inode that it names, and what links and parents follow from it.

use base::Ino;
use format::dir::DirEntry;
use format::inode::FileType;
use format::{Damage, Place};

use crate::inode_map::{Hint, InodeMap, Slot, state};
use crate::parents;
use crate::volume::Volume;

const NAME: &str = "directory entry";

/// The directory at hand.
pub(crate) struct Directory {
    pub ino: Ino,
    pub generation: u32,
    /// It is part of the metadata directory tree.
    pub metadata: bool,
    /// It was removed while somebody still had it open: nobody's entry names it, and its own `..` is no link.
    pub removed: bool,
}

/// A directory, and one of the places that say who its parent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ParentOf {
    pub child: Ino,
    pub parent: Ino,
}

/// What a worker learnt from names.
pub(crate) struct Names<'v> {
    volume: &'v Volume<'v>,
    map: &'v InodeMap<'v>,
    hint: Hint,
    /// Entries, without `.` and `..`.
    pub entries: u64,
    /// Each directory with its `..`.
    pub dot_dots: Vec<ParentOf>,
    /// Each entry that names a directory.
    pub links: Vec<ParentOf>,
}

impl<'v> Names<'v> {
    pub fn new(volume: &'v Volume<'v>, map: &'v InodeMap<'v>) -> Self {
        let (dot_dots, links) = (Vec::new(), Vec::new());
        Self { volume, map, hint: Hint::default(), entries: 0, dot_dots, links }
    }

    /// `.`: that it is the directory itself is for the block's own audit.
    pub fn dot(&mut self, directory: &Directory) {
        if directory.removed {
            return;
        }
        if let Some(slot) = self.map.find(directory.ino, &mut Hint::default()) {
            slot.add_links(1);
        }
    }

    /// `..`, which links to the parent.
    pub fn dot_dot(&mut self, directory: &Directory, parent: Ino) {
        if directory.removed {
            return;
        }
        self.dot_dots.push(ParentOf { child: directory.ino, parent });
        match self.map.find(parent, &mut Hint::default()) {
            Some(slot) => slot.add_links(1),
            None => {
                self.tell(directory, b"..", "inumber", "an inode that exists".to_owned(), parent.to_string())
            }
        }
    }

    /// `.` and `..` are directories, and say so.
    pub fn check_dot_type(&self, directory: &Directory, entry: &DirEntry<'_>) {
        let expected = FileType::Directory.ftype();
        if self.volume.geometry.features.ftype() && entry.ftype != expected {
            self.tell(directory, entry.name, "ftype", expected.to_string(), entry.ftype.to_string());
        }
    }

    /// Any other entry.
    pub fn entry(&mut self, directory: &Directory, entry: &DirEntry<'_>) {
        self.entries += 1;
        let Some(slot) = self.map.find(entry.ino, &mut self.hint) else {
            let (expected, found) = ("an inode that exists".to_owned(), entry.ino.to_string());
            return self.tell(directory, entry.name, "inumber", expected, found);
        };
        let target = slot.state();
        slot.add_links(1);
        if target & state::DAMAGED != 0 {
            return;
        }
        let Some(file_type) = slot.file_type() else {
            let (expected, found) = ("an inode in use".to_owned(), format!("{}, which is free", entry.ino));
            return self.tell(directory, entry.name, "inumber", expected, found);
        };
        if self.volume.geometry.features.ftype() && entry.ftype != file_type.ftype() {
            let (expected, found) = (file_type.ftype().to_string(), entry.ftype.to_string());
            self.tell(directory, entry.name, "ftype", expected, found);
        }
        if (target & state::METADATA != 0) != directory.metadata {
            let expected = "metadata files in the metadata directory tree alone".to_owned();
            self.tell(directory, entry.name, "inumber", expected, entry.ino.to_string());
        }
        if file_type == FileType::Directory {
            self.links.push(ParentOf { child: entry.ino, parent: directory.ino });
        }
        self.note_parent(directory, entry, &slot);
    }

    fn note_parent(&self, directory: &Directory, entry: &DirEntry<'_>, slot: &Slot<'_>) {
        if self.volume.geometry.features.parent() {
            let print = parents::fingerprint(directory.ino, directory.generation, entry.name);
            slot.inodes.add_parent(slot.slot, print);
        }
    }

    #[cold]
    fn tell(&self, directory: &Directory, name: &[u8], field: &'static str, expected: String, found: String) {
        let found = format!("{found} (\"{}\")", name.escape_ascii());
        self.volume.error(Place::ino(directory.ino), Damage::new(NAME, field, expected, found));
    }
}
