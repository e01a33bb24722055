//! Reading attributes, in all formats: within a transaction, or in a read section without locks.

use base::{Daddr, FileBlock, FsBlock};
use error::Error;
use format::ForkBlock;
use format::attr::edit::shortform;
use format::attr::leaf::AttrLeaf;
use format::attr::remote::{block_count, verify};
use format::attr::{Attr, AttrValue, MAX_VALUE};
use format::dabtree::{BlkInfo, NODE_MAGIC};
use format::damage::{Damage, Place};
use format::extent::Extent;
use format::inode::ForkKind;
use format::ondisk::OnDisk;
use journal::engine::DiskExtent;

use super::blocks::AttrBlock;
use super::{AttrInfo, AttrKey, AttrStorage, Result};
use crate::dabtree::{Checked, TreePath, TreeReader};
use crate::state::{ForkFormat, InodeState};

/// An attribute and its place in the tree.
#[derive(Clone, Debug)]
pub(super) struct FoundAttr<Id = AttrBlock> {
    pub path: TreePath<Id>,
    /// Index of its entry in the leaf.
    pub slot: usize,
    pub incomplete: bool,
    /// First block and length of a remote value.
    pub remote: Option<(FileBlock, u32)>,
}

/// The attributes of an inode that are read.
pub(super) trait AttrReader: TreeReader {
    fn state(&self) -> &InodeState;
    /// The extent of the attribute fork that contains a file block.
    fn extent_at(&mut self, at: FileBlock) -> Result<Option<Extent>>;
    /// Ends the use of a leaf.
    fn release(&mut self, leaf: Self::Id);
    /// Calls `work` with a block of a remote value.
    fn with_value_block(&self, at: ForkBlock, work: &mut dyn FnMut(&[u8]) -> Checked<()>) -> Result<()>;

    fn storage(&self) -> AttrStorage {
        let state = self.state();
        match state.fork_format(ForkKind::Attr) {
            Some(ForkFormat::Local) => AttrStorage::Shortform,
            Some(ForkFormat::Extents | ForkFormat::Btree) if state.extent_count(ForkKind::Attr) > 0 => {
                AttrStorage::Blocks
            }
            _ => AttrStorage::None,
        }
    }

    #[cold]
    fn damaged(&self, damage: Damage) -> Error {
        Error::damaged(Place::ino(self.state().ino()), damage)
    }

    /// The value of an attribute; `None` if it does not exist.
    fn value(&mut self, key: &AttrKey<'_>) -> Result<Option<Vec<u8>>> {
        match self.storage() {
            AttrStorage::None => Ok(None),
            AttrStorage::Shortform => Ok(self.shortform_find(key)?.and_then(|attr| match attr.value {
                AttrValue::Inline(value) => Some(value.to_vec()),
                AttrValue::Remote { .. } => None,
            })),
            AttrStorage::Blocks => {
                let Some(hit) = self.node_find(key, false)? else { return Ok(None) };
                match hit.remote {
                    None => self.value_at(&hit).map(Some),
                    Some((block, length)) => self.read_remote(block, length).map(Some),
                }
            }
        }
    }

    /// All attributes, including parent pointers, without incomplete ones.
    fn all(&mut self) -> Result<Vec<AttrInfo>> {
        match self.storage() {
            AttrStorage::None => Ok(Vec::new()),
            AttrStorage::Shortform => {
                let all = shortform::attributes(self.shortform_bytes(), self.geometry());
                Ok(all.map_err(|damage| self.damaged(damage))?.iter().map(AttrInfo::of).collect())
            }
            AttrStorage::Blocks => self.node_list(),
        }
    }

    /// The attributes in the inode; empty in other formats.
    fn shortform_bytes(&self) -> &[u8] {
        match (self.storage(), self.state().attr_local()) {
            (AttrStorage::Shortform, Some(bytes)) => bytes,
            _ => &shortform::EMPTY,
        }
    }

    fn shortform_find(&self, key: &AttrKey<'_>) -> Result<Option<Attr<'_>>> {
        shortform::find(self.shortform_bytes(), self.geometry(), |attr| key.is(attr))
            .map_err(|damage| self.damaged(damage))
    }

    fn descend_to(&mut self, hash: u32) -> Result<TreePath<Self::Id>> {
        let root = self.read_tree_block(self.root())?;
        self.descend(root, hash)
    }

    /// Moves the path to the next leaf, and unlocks the one that it leaves; `false` at the last one.
    fn next_leaf(&mut self, path: &mut TreePath<Self::Id>) -> Result<bool> {
        if !path.nodes.is_empty() {
            self.release(path.leaf.id);
        }
        self.advance(path)
    }

    /// The most leaves that the fork can have. The bound ends walks in a tree with a loop.
    fn max_leaves(&self) -> u64 {
        match self.state().list(ForkKind::Attr) {
            Some(list) => list.as_slice().iter().map(|extent| extent.count).sum(),
            None => self.state().nblocks().min(self.geometry().blocks()),
        }
    }

    #[cold]
    fn tree_loop(&self) -> Error {
        self.damaged(Damage::new("hash tree node", "before", "each leaf once", "some again"))
    }

    /// Looks up an attribute; with `any`, incomplete ones too.
    fn node_find(&mut self, key: &AttrKey<'_>, any: bool) -> Result<Option<FoundAttr<Self::Id>>> {
        let geometry = self.geometry();
        let hash = key.hash(geometry);
        let mut path = self.descend_to(hash)?;
        for _ in 0..self.max_leaves() {
            let (found, beyond) = self.view(path.leaf.id, |bytes| {
                let leaf = AttrLeaf::of(bytes, geometry)?;
                let first = leaf.entries.partition_point(|entry| entry.hashval.get() < hash);
                for (slot, entry) in leaf.entries.iter().enumerate().skip(first) {
                    if entry.hashval.get() != hash {
                        return Ok((None, false));
                    }
                    let attr = leaf.attr(entry)?;
                    if key.is(&attr) && (any || !attr.incomplete) {
                        return Ok((Some((slot, attr.incomplete, remote(&attr))), false));
                    }
                }
                Ok((None, true))
            })?;
            if let Some((slot, incomplete, remote)) = found {
                return Ok(Some(FoundAttr { path, slot, incomplete, remote }));
            }
            if !beyond || !self.next_leaf(&mut path)? {
                return Ok(None);
            }
        }
        Err(self.tree_loop())
    }

    /// A value in the leaf.
    fn value_at(&self, hit: &FoundAttr<Self::Id>) -> Result<Vec<u8>> {
        let geometry = self.geometry();
        self.view(hit.path.leaf.id, |bytes| {
            let leaf = AttrLeaf::of(bytes, geometry)?;
            let attr = leaf.entries.get(hit.slot).map(|entry| leaf.attr(entry)).transpose()?;
            Ok(match attr.map(|attr| attr.value) {
                Some(AttrValue::Inline(value)) => value.to_vec(),
                _ => Vec::new(),
            })
        })
    }

    fn node_list(&mut self) -> Result<Vec<AttrInfo>> {
        let (mut all, geometry) = (Vec::new(), self.geometry());
        let mut path = self.descend_to(0)?;
        for _ in 0..self.max_leaves() {
            self.view(path.leaf.id, |bytes| {
                for attr in AttrLeaf::of(bytes, geometry)?.attrs() {
                    let attr = attr?;
                    if !attr.incomplete {
                        all.push(AttrInfo::of(&attr));
                    }
                }
                Ok(())
            })?;
            if !self.next_leaf(&mut path)? {
                return Ok(all);
            }
        }
        Err(self.tree_loop())
    }

    /// The location of a block. A block that is not mapped is reported as damage, because another block pointed to it.
    fn locate(&mut self, at: FileBlock) -> Result<ForkBlock> {
        let extent = self.extent_at(at)?;
        let start = extent.map(|extent| FsBlock(extent.start.get() + (at.get() - extent.offset.get())));
        let offset = start.and_then(|start| self.geometry().fs_block_offset(start));
        let ino = self.state().ino();
        match offset {
            Some(offset) => Ok(ForkBlock { ino, file_block: at, daddr: Daddr(offset >> 9) }),
            None => Err(self.damaged(Damage::new("attribute fork", "extents", "a mapped block", at))),
        }
    }

    /// The place of a block on the device.
    fn disk(&self, at: ForkBlock) -> DiskExtent {
        DiskExtent { daddr: at.daddr, bytes: self.geometry().block_size }
    }

    /// Reads the value that begins at a block of the fork.
    fn read_remote(&mut self, first: FileBlock, length: u32) -> Result<Vec<u8>> {
        let geometry = self.geometry();
        if length > MAX_VALUE {
            let most = format_args!("at most {MAX_VALUE}").to_string();
            return Err(self.damaged(Damage::new("attribute leaf", "valuelen", most, length)));
        }
        let mut value = Vec::with_capacity(length as usize);
        for n in 0..u64::from(block_count(length, geometry)) {
            let at = self.locate(FileBlock(first.get() + n))?;
            let offset = value.len() as u32; // at most 64 KiB
            // The block never changes in memory, so its checksum is valid.
            self.with_value_block(at, &mut |bytes| {
                value.extend_from_slice(verify(bytes, geometry, at, offset, length)?);
                Ok(())
            })?;
        }
        Ok(value)
    }
}

/// Checks that a block of the tree belongs to the inode. One that is in memory may belong to another file, if both map
/// it, or be of another type.
pub(super) fn expect_own(bytes: &[u8], at: ForkBlock) -> Result<()> {
    let info = BlkInfo::view(bytes);
    let fits = info.is_some_and(|info| {
        info.owner.get() == at.ino.get() && matches!(info.magic.get(), NODE_MAGIC | format::attr::leaf::MAGIC)
    });
    if fits {
        return Ok(());
    }
    let damage = Damage::new("attribute block", "owner", at.ino, "another, or no such block");
    Err(Error::damaged(at.place(), damage))
}

fn remote(attr: &Attr<'_>) -> Option<(FileBlock, u32)> {
    match attr.value {
        AttrValue::Inline(_) => None,
        AttrValue::Remote { block, length } => Some((block, length)),
    }
}
