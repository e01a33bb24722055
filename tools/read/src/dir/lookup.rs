//! Lookup of a name in a directory.

use base::{FileBlock, errno};
use format::dabtree::DaTree;
use format::dir::data::DataBlock;
use format::dir::leaf::{self, DirLeaf};
use format::dir::shortform::Shortform;
use format::dir::{DataPtr, DirEntry};
use format::inode::{Dinode, Fork, ForkKind};
use format::{Damage, ForkBlock, Place, hash};

use super::{OwnedEntry, ensure_directory};
use crate::error::{Error, Result};
use crate::fork::{self, ForkReader};
use crate::hashtree::HashTree;
use crate::volume::Volume;

/// Looks up a name in a directory: `None` if there is no such entry. `.` is the directory itself.
///
/// # Errors
/// `ENOTDIR`, `ENAMETOOLONG`, damage, and what the device reports.
pub fn lookup(volume: &Volume, inode: &Dinode<'_>, name: &[u8]) -> Result<Option<OwnedEntry>> {
    ensure_directory(inode)?;
    if name.len() > 255 {
        return Err(Error::unfit(errno::ENAMETOOLONG, format!("a name of {} bytes", name.len())));
    }
    if name == b"." {
        return Ok(Some(dot_entry(b".", inode.ino(), DataPtr(8))));
    }
    let damaged = |damage| Error::damaged(Place::ino(inode.ino()), damage);
    match inode.fork(ForkKind::Data, volume.geometry()).map_err(damaged)? {
        Some(Fork::Local(bytes)) => {
            let shortform = Shortform::verify(bytes, volume.geometry()).map_err(damaged)?;
            in_shortform(volume, &shortform, name).map_err(damaged)
        }
        _ => Search::new(volume, inode, name).run(),
    }
}

/// An entry without a record on disk (`.` and `..` in shortform).
fn dot_entry(name: &[u8], ino: base::Ino, pointer: DataPtr) -> OwnedEntry {
    DirEntry { name, ino, ftype: 2, pointer }.into()
}

fn in_shortform(
    volume: &Volume,
    shortform: &Shortform<'_>,
    name: &[u8],
) -> std::result::Result<Option<OwnedEntry>, Damage> {
    if name == b".." {
        return Ok(Some(dot_entry(b"..", shortform.parent, DataPtr(10))));
    }
    let mut first_damage = None;
    for entry in shortform.entries() {
        match entry {
            Ok(entry) if hash::names_match(entry.name, name, volume.geometry()) => {
                return Ok(Some(entry.into()));
            }
            Ok(_) => {}
            Err(damage) => first_damage = first_damage.or(Some(damage)),
        }
    }
    // The name might be in the damaged entry.
    first_damage.map_or(Ok(None), Err)
}

/// A lookup by hash.
struct Search<'s> {
    volume: &'s Volume,
    inode: Dinode<'s>,
    fork: ForkReader<'s>,
    name: &'s [u8],
    hash: u32,
    /// The last data block that was read.
    data: Vec<u8>,
    data_block: Option<ForkBlock>,
}

impl<'s> Search<'s> {
    fn new(volume: &'s Volume, inode: &Dinode<'s>, name: &'s [u8]) -> Self {
        Self {
            volume,
            inode: *inode,
            fork: ForkReader::new(volume, inode, ForkKind::Data),
            name,
            hash: hash::entry(name, volume.geometry()),
            data: vec![0; volume.geometry().dir_block_size as usize],
            data_block: None,
        }
    }

    fn run(mut self) -> Result<Option<OwnedEntry>> {
        let geometry = self.volume.geometry();
        if self.inode.core.size.get() == u64::from(geometry.dir_block_size) {
            let block = self.read_data(FileBlock(0))?;
            let data = DataBlock::verify(&self.data, geometry, block).map_err(fork::at(block))?;
            if let Some(block_leaf) = data.block_leaf {
                let pointers: Vec<_> = leaf::find(block_leaf.entries, self.hash).collect();
                return self.find(&pointers);
            }
        }
        let mut tree = HashTree::new(self.volume, &self.inode, DaTree::Dir);
        let mut next = tree.descend(self.hash)?;
        while let Some(block) = next {
            let leaf = DirLeaf::verify(tree.bytes(), geometry, block).map_err(fork::at(block))?;
            let pointers: Vec<_> = leaf.find(self.hash).collect();
            let may_continue = leaf.last_hash() == self.hash;
            if let Some(entry) = self.find(&pointers)? {
                return Ok(Some(entry));
            }
            next = if may_continue { tree.right(block)? } else { None };
        }
        Ok(None)
    }

    /// The entry with this name at one of the addresses of its hash.
    fn find(&mut self, pointers: &[DataPtr]) -> Result<Option<OwnedEntry>> {
        let geometry = self.volume.geometry();
        for pointer in pointers {
            let (start, offset) = pointer.split(geometry);
            let block = self.read_data(start)?;
            let found = DataBlock::verify(&self.data, geometry, block)
                .and_then(|data| data.entry_at(offset))
                .map_err(fork::at(block))?;
            if hash::names_match(found.name, self.name, geometry) {
                return Ok(Some(found.into()));
            }
        }
        Ok(None)
    }

    fn read_data(&mut self, at: FileBlock) -> Result<ForkBlock> {
        if let Some(block) = self.data_block.filter(|block| block.file_block == at) {
            return Ok(block);
        }
        self.data_block = None;
        let block = self.fork.read(at, &mut self.data)?;
        self.data_block = Some(block);
        Ok(block)
    }
}
