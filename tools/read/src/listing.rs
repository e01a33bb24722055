//! The entries of one directory, and visits to their inodes.

use crate::{DirWalk, Error, InodeReader, Volume};
use base::Ino;
use format::inode::{Dinode, FileType};

/// The entries of a directory without `.` and `..`.
#[derive(Debug, Default)]
pub struct Listing {
    names: Vec<u8>,
    items: Vec<ListingItem>,
    /// Inode number of the parent directory (`..`).
    pub parent: Option<Ino>,
}

/// One entry. Its name is stored in the listing.
#[derive(Clone, Copy, Debug)]
pub struct ListingItem {
    start: usize,
    length: u8,
    /// File type, if the volume stores it in entries (ftype).
    pub file_type: Option<FileType>,
    /// Inode number.
    pub ino: Ino,
}

impl ListingItem {
    /// An inode of the command line, without a name.
    pub fn of_operand(ino: Ino) -> Self {
        Self { start: 0, length: 0, file_type: None, ino }
    }
}

/// Minimum size of an entry in a directory block, in bytes.
const ENTRY_BYTES_MIN: u64 = 16;

impl Listing {
    /// Reads a directory in disk order. Damage is passed to `complain`, and the rest is read.
    pub fn read(volume: &Volume, inode: &Dinode<'_>, mut complain: impl FnMut(Error)) -> Self {
        let mut listing = Self::default();
        let mut walk = match DirWalk::new(volume, inode) {
            Ok(walk) => walk,
            Err(error) => {
                complain(error);
                return listing;
            }
        };
        // More entries than the volume has space for: blocks are mapped repeatedly.
        let max = volume.geometry().bytes() / ENTRY_BYTES_MIN;
        loop {
            let batch = match walk.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => return listing,
                Err(error) => {
                    complain(error);
                    continue;
                }
            };
            for entry in batch.entries() {
                match entry {
                    Ok(entry) if entry.is_dot() => {}
                    Ok(entry) if entry.is_dot_dot() => listing.parent = Some(entry.ino),
                    Ok(entry) => listing.push(entry.name, entry.file_type(), entry.ino),
                    Err(error) => complain(error),
                }
            }
            if listing.items.len() as u64 > max {
                let reason =
                    format!("inode {}: the directory has more entries than fit into the volume", inode.ino());
                complain(Error::unfit(base::errno::EFSCORRUPTED, reason));
                return listing;
            }
        }
    }

    fn push(&mut self, name: &[u8], file_type: Option<FileType>, ino: Ino) {
        // A verified name has at most 255 bytes.
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let start = self.names.len();
        self.names.extend_from_slice(name.get(..length.into()).unwrap_or(name));
        self.items.push(ListingItem { start, length, file_type, ino });
    }

    /// Adds `.` and `..`.
    pub fn add_dots(&mut self, ino: Ino) {
        let parent = self.parent.unwrap_or(ino);
        self.push(b".", Some(FileType::Directory), ino);
        self.push(b"..", Some(FileType::Directory), parent);
    }

    /// Keeps the entries whose names `keep` accepts.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let names = std::mem::take(&mut self.names);
        self.items.retain(|item| keep(name_in(&names, item)));
        self.names = names;
    }

    /// Sorts entries by the bytes of their names.
    pub fn sort(&mut self) {
        let names = &self.names;
        // The stable sort is linear for sorted names, which are frequent.
        self.items.sort_by(|a, b| name_in(names, a).cmp(name_in(names, b)));
    }

    /// The entries.
    pub fn items(&self) -> &[ListingItem] {
        &self.items
    }

    /// The name of an entry of this listing.
    pub fn name(&self, item: &ListingItem) -> &[u8] {
        name_in(&self.names, item)
    }
}

fn name_in<'n>(names: &'n [u8], item: &ListingItem) -> &'n [u8] {
    names.get(item.start..item.start + usize::from(item.length)).unwrap_or(&[])
}

/// Visits the inodes of entries in disk order, so that each chunk of inodes is read once. Passes the index of the entry
/// in `items` to `visit`.
pub fn visit_inodes(
    reader: &mut InodeReader<'_>,
    items: &[ListingItem],
    mut visit: impl FnMut(usize, Result<Dinode<'_>, Error>),
) {
    let mut order: Vec<usize> = (0..items.len()).collect();
    let ino = |index: &usize| items.get(*index).map_or(Ino(0), |item| item.ino);
    order.sort_by_key(ino);
    for index in order {
        visit(index, reader.get(ino(&index)));
    }
}
