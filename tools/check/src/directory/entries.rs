//! Directory entries: each is compared with the inode that it names, and counts as a link and as a parent.

use base::Ino;
use format::dir::DirEntry;
use format::inode::FileType;
use format::{Damage, Place};

use crate::inode_map::{Hint, InodeMap, state};
use crate::parents;
use crate::volume::Volume;

const NAME: &str = "directory entry";

/// The directory that contains the entries.
pub(crate) struct Directory {
    pub ino: Ino,
    pub generation: u32,
    /// Part of the metadata directory tree.
    pub metadata: bool,
    /// Removed while still open: on an unlinked list, without an entry that names it, and its `..` is not a link.
    pub removed: bool,
}

/// A directory and its parent, according to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ParentLink {
    pub child: Ino,
    pub parent: Ino,
}

/// Checks entries and collects links to directories.
pub(crate) struct EntryCheck<'v> {
    volume: &'v Volume<'v>,
    map: &'v InodeMap<'v>,
    hint: Hint,
    /// Number of entries without `.` and `..`.
    pub count: u64,
    /// The `..` of each directory.
    pub dot_dots: Vec<ParentLink>,
    /// Each entry that names a directory.
    pub links: Vec<ParentLink>,
}

impl<'v> EntryCheck<'v> {
    pub fn new(volume: &'v Volume<'v>, map: &'v InodeMap<'v>) -> Self {
        let (dot_dots, links) = (Vec::new(), Vec::new());
        Self { volume, map, hint: Hint::default(), count: 0, dot_dots, links }
    }

    /// Counts `.` as a link. The audit of the block checks that it names the directory itself.
    pub fn dot(&mut self, directory: &Directory) {
        if directory.removed {
            return;
        }
        if let Some(slot) = self.map.find(directory.ino, &mut Hint::default()) {
            slot.add_links(1);
        }
    }

    /// Counts `..` as a link to the parent.
    pub fn dot_dot(&mut self, directory: &Directory, parent: Ino) {
        if directory.removed {
            return;
        }
        self.dot_dots.push(ParentLink { child: directory.ino, parent });
        match self.map.find(parent, &mut Hint::default()) {
            Some(slot) => slot.add_links(1),
            None => {
                self.report(directory, b"..", "inumber", "an existing inode".to_owned(), parent.to_string())
            }
        }
    }

    /// Checks the file type of `.` or `..`.
    pub fn check_dot_type(&self, directory: &Directory, entry: &DirEntry<'_>) {
        let expected = FileType::Directory.ftype();
        if self.volume.geometry.features.ftype() && entry.ftype != expected {
            self.report(directory, entry.name, "ftype", expected.to_string(), entry.ftype.to_string());
        }
    }

    /// Checks any other entry.
    pub fn entry(&mut self, directory: &Directory, entry: &DirEntry<'_>) {
        self.count += 1;
        let Some(slot) = self.map.find(entry.ino, &mut self.hint) else {
            let (expected, found) = ("an existing inode".to_owned(), entry.ino.to_string());
            return self.report(directory, entry.name, "inumber", expected, found);
        };
        let target = slot.state();
        slot.add_links(1);
        if target & state::DAMAGED != 0 {
            return;
        }
        let Some(file_type) = slot.file_type() else {
            let (expected, found) = ("an inode in use".to_owned(), format!("{}, which is free", entry.ino));
            return self.report(directory, entry.name, "inumber", expected, found);
        };
        if self.volume.geometry.features.ftype() && entry.ftype != file_type.ftype() {
            let (expected, found) = (file_type.ftype().to_string(), entry.ftype.to_string());
            self.report(directory, entry.name, "ftype", expected, found);
        }
        if (target & state::METADATA != 0) != directory.metadata {
            let expected = "metadata files only in the metadata directory tree".to_owned();
            self.report(directory, entry.name, "inumber", expected, entry.ino.to_string());
        }
        if file_type == FileType::Directory {
            self.links.push(ParentLink { child: entry.ino, parent: directory.ino });
        }
        if self.volume.geometry.features.parent() {
            let fingerprint = parents::fingerprint(directory.ino, directory.generation, entry.name);
            slot.inodes.add_parent(slot.index, fingerprint);
        }
    }

    #[cold]
    fn report(
        &self,
        directory: &Directory,
        name: &[u8],
        field: &'static str,
        expected: String,
        found: String,
    ) {
        let found = format!("{found} (\"{}\")", name.escape_ascii());
        self.volume.error(Place::ino(directory.ino), Damage::new(NAME, field, expected, found));
    }
}
