//! Reading extents of a btree: all of them, or those around a block.
//!
//! Both end in a damaged btree, too. Levels fall strictly, and siblings are not followed. A walk through the whole
//! btree visits no more blocks than the inode has. A window is read by descents from the root: one to the leaf of its
//! block, and one to each neighbour that it needs. The keys on the way bound what a leaf may contain, so that each
//! further descent moves on.
//!
//! # What is verified
//! | | whole map | window |
//! |---|---|---|
//! | blocks: magic, checksum, address, owner, level | all | those on the way |
//! | extents: a possible place, in order | all | those of the leaves that are read |
//! | order between leaves | yes | by the keys: the extents of a leaf are at or after its own key, and end at the next |
//! | number of extents | as the inode says | fewer than the inode says, or as many if the window is the whole map |

use base::lock::Rank;
use base::{FileBlock, FsBlock};
use error::{Error, Result};
use format::btree::{
    BmBt, BmapKey, Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreeHeader, BtreePointer,
    LongHeader,
};
use format::damage::{Damage, Place};
use format::extent::{Extent, MAX_FILE_BLOCKS, RawExtent};
use format::inode::{BmapRootView, Fork, ForkKind, verify_extents};
use format::ondisk::{OnDisk, U64};
use journal::engine::{DiskExtent, Transaction};

use crate::extents::{ExtentList, ExtentWindow};
use crate::shared::Shared;
use crate::state::InodeState;

type Checked<T> = std::result::Result<T, Damage>;

/// The btree of a fork that is read.
pub(super) struct MapTree<'a> {
    pub shared: &'a Shared,
    pub state: &'a InodeState,
    pub kind: ForkKind,
    /// The transaction that may have locked blocks of the btree.
    pub tx: Option<&'a mut Transaction>,
}

/// The file blocks that the extents of a subtree may map.
#[derive(Clone, Copy)]
struct SubtreeRange {
    from: FileBlock,
    to: FileBlock,
    /// It has the first extent of the map.
    is_first: bool,
    /// It has the last extent of the map.
    is_last: bool,
}

/// Extents of a leaf.
struct LeafPart {
    extents: Vec<Extent>,
    range: SubtreeRange,
    /// The leaf has no extents before these.
    is_start: bool,
    /// The leaf has no extents after these.
    is_end: bool,
}

impl<'a> MapTree<'a> {
    /// Reads all extents.
    pub fn all(&mut self) -> Result<ExtentList> {
        let expected = self.state.extent_count(self.kind);
        let mut blocks_left = self.state.nblocks();
        let mut extents: Vec<Extent> = Vec::new();
        let root = self.root()?;
        // Depth first: the number of pending blocks is at most the number of levels times the keys of a block.
        let mut pending: Vec<(U64, u16)> =
            root.pointers.iter().rev().map(|at| (*at, root.level - 1)).collect();
        let shared = self.shared;
        while let Some((pointer, level)) = pending.pop() {
            if blocks_left == 0 {
                return Err(self.bad_pointer(pointer));
            }
            blocks_left -= 1;
            self.read(pointer, level, |body| match body {
                BtreeBlockBody::Node(_, pointers) => {
                    let below = level.saturating_sub(1); // a node is above 0
                    pending.extend(pointers.iter().rev().map(|pointer| (*pointer, below)));
                    Ok(())
                }
                BtreeBlockBody::Leaf(records) => {
                    verify_extents(records, &shared.geometry)?;
                    let end = extents.last().map_or(FileBlock(0), Extent::end);
                    let first = records.first().map(Extent::decode);
                    if let Some(first) = first.filter(|first| first.offset < end) {
                        return Err(out_of_order(format!("at least {end}"), first.offset));
                    }
                    extents.extend(records.iter().map(Extent::decode));
                    Ok(())
                }
            })?;
            if extents.len() as u64 > expected {
                return Err(self.wrong_count(extents.len()));
            }
        }
        if extents.len() as u64 != expected {
            return Err(self.wrong_count(extents.len()));
        }
        Ok(ExtentList::from_sorted(extents))
    }

    /// Reads a window that has what [`ExtentWindow::has`] describes, and up to `side` extents on each side.
    pub fn around(
        &mut self,
        at: FileBlock,
        before: usize,
        after: usize,
        side: usize,
    ) -> Result<ExtentWindow> {
        let side = side.max(before + 1).max(after + 1);
        let leaf = self.leaf(at, side)?;
        let (mut left, mut right) = (leaf.range, leaf.range);
        let mut window = ExtentWindow {
            list: ExtentList::from_sorted(leaf.extents),
            has_first: leaf.is_start && left.is_first,
            has_last: leaf.is_end && right.is_last,
        };
        // A leaf has at least one extent. If a part of the first leaf was left out, the other is long enough.
        for _ in 0..=before + 1 {
            if window.has_left(at, before) {
                break;
            }
            let LeafPart { extents, range, is_start, .. } =
                self.leaf(FileBlock(left.from.get() - 1), side)?;
            if !window.list.prepend(extents) {
                return Err(self.overlap(left.from));
            }
            window.has_first = is_start && range.is_first;
            left = range;
        }
        for _ in 0..=after + 1 {
            if window.has_right(at, after) {
                break;
            }
            let LeafPart { extents, range, is_end, .. } = self.leaf(right.to, side)?;
            if !window.list.append(extents) {
                return Err(self.overlap(right.to));
            }
            window.has_last = is_end && range.is_last;
            right = range;
        }
        let (found, expected) = (window.list.len() as u64, self.state.extent_count(self.kind));
        let is_whole = window.has_first && window.has_last;
        if found > expected || is_whole != (found == expected) {
            return Err(self.wrong_count(window.list.len()));
        }
        Ok(window)
    }

    /// Descends to the leaf whose range contains a block, and returns the extents around that block, up to `side` on
    /// each side.
    fn leaf(&mut self, at: FileBlock, side: usize) -> Result<LeafPart> {
        let root = self.root()?;
        let whole = SubtreeRange {
            from: FileBlock(0),
            to: FileBlock(MAX_FILE_BLOCKS),
            is_first: true,
            is_last: true,
        };
        let at = at.min(FileBlock(MAX_FILE_BLOCKS - 1));
        let (mut pointer, mut range) = child(root.keys, root.pointers, whole, at)
            .map_err(|damage| Error::damaged(Place::ino(self.state.ino()), damage))?;
        let shared = self.shared;
        let mut level = root.level - 1;
        while level > 0 {
            (pointer, range) = self.read(pointer, level, |body| match body {
                BtreeBlockBody::Node(keys, pointers) => child(keys, pointers, range, at),
                BtreeBlockBody::Leaf(_) => Err(Damage::new(BmBt::NAME, "level", "a node", "a leaf")),
            })?;
            level -= 1;
        }
        self.read(pointer, 0, |body| {
            let BtreeBlockBody::Leaf(records) = body else {
                return Err(Damage::new(BmBt::NAME, "level", "a leaf", "a node"));
            };
            verify_extents(records, &shared.geometry)?;
            let (Some(first), Some(last)) = (records.first(), records.last()) else {
                return Err(Damage::new(BmBt::NAME, "numrecs", "at least 1", 0));
            };
            let (first, last) = (Extent::decode(first), Extent::decode(last));
            if first.offset < range.from || last.end() > range.to {
                let expected = format!("extents within {} to {}", range.from, range.to);
                return Err(out_of_order(expected, format_args!("{} to {}", first.offset, last.end())));
            }
            let next = records.partition_point(|record| Extent::decode(record).end() <= at);
            let (from, to) = (next.saturating_sub(side), (next + side).min(records.len()));
            let part: &[RawExtent] = records.get(from..to).unwrap_or_default();
            let extents = part.iter().map(Extent::decode).collect();
            Ok(LeafPart { extents, range, is_start: from == 0, is_end: to == records.len() })
        })
    }

    fn root(&self) -> Result<BmapRootView<'a>> {
        let (state, shared) = (self.state, self.shared);
        let damaged = |damage| Error::damaged(Place::ino(state.ino()), damage);
        match state.dinode().fork(self.kind, &shared.geometry).map_err(damaged)? {
            Some(Fork::Btree(root)) => Ok(root),
            _ => Err(damaged(Damage::new("inode", "format", "an extent btree", "another format"))),
        }
    }

    /// Reads a block, and calls `work` with its contents.
    fn read<R>(
        &mut self,
        pointer: U64,
        level: u16,
        work: impl FnOnce(BtreeBlockBody<'_, BmBt>) -> Checked<R>,
    ) -> Result<R> {
        let shared = self.shared;
        let geometry = &shared.geometry;
        let ino = self.state.ino();
        let Some((ag, block)) = pointer.locate(geometry, None) else { return Err(self.bad_pointer(pointer)) };
        let identity = BtreeBlockIdentity { ag, block, ino: Some(ino) };
        let at = DiskExtent { daddr: geometry.ag_block_daddr(ag, block), bytes: geometry.block_size };
        let verify = |bytes: &[u8]| BtreeBlock::<BmBt>::verify(bytes, geometry, identity, level).map(|_| ());
        let view = |bytes: &[u8]| {
            // A cached block was verified when it was read, perhaps at another place of a btree.
            let header = LongHeader::view(bytes)
                .ok_or_else(|| Damage::short(BmBt::NAME, LongHeader::SIZE, bytes.len()))?;
            if (header.magic(), header.level()) != (BmBt::MAGIC, level) {
                return Err(Damage::new(BmBt::NAME, "level", level, header.level()));
            }
            if header.owner() != ino.get() {
                return Err(Damage::new(BmBt::NAME, "owner", ino, header.owner()));
            }
            work(BtreeBlock::<BmBt>::body(bytes, geometry, header)?)
        };
        let found = match &mut self.tx {
            Some(tx) => {
                let id = tx.read(at, Rank::Fork, verify)?;
                let found = view(tx.bytes(id));
                // Unless the transaction changed it. Nobody else in the transaction uses a block of this btree.
                if found.is_ok() {
                    tx.release(id);
                }
                found
            }
            None => {
                let guard = shared.buffers.lock_read(&at.into(), Rank::Fork, verify)?;
                // The changes of a transaction that failed are not damage.
                shared.target.check()?;
                view(guard.bytes())
            }
        };
        found.map_err(|damage| Error::damaged(Place::block(ag, block).of_inode(ino), damage))
    }

    #[cold]
    fn bad_pointer(&self, pointer: U64) -> Error {
        let wanted = "a block of the volume, and no more than the inode has";
        let damage = Damage::new(BmBt::NAME, "ptr", wanted, FsBlock(pointer.get()));
        Error::damaged(Place::ino(self.state.ino()), damage)
    }

    /// Leaves on both sides of a key overlap.
    #[cold]
    fn overlap(&self, key: FileBlock) -> Error {
        let damage = out_of_order(format!("extents before or after {key}"), "both in one leaf");
        Error::damaged(Place::ino(self.state.ino()), damage)
    }

    #[cold]
    fn wrong_count(&self, found: usize) -> Error {
        let damage = Damage::new("inode", "nextents", found, self.state.extent_count(self.kind));
        Error::damaged(Place::ino(self.state.ino()), damage)
    }
}

#[cold]
fn out_of_order(expected: String, found: impl std::fmt::Display) -> Damage {
    Damage::new(BmBt::NAME, "startoff", expected, found)
}

/// The child of a node that has a block, and its range. A block before the first key of the btree belongs to the first
/// child.
fn child(
    keys: &[BmapKey],
    pointers: &[U64],
    range: SubtreeRange,
    at: FileBlock,
) -> Checked<(U64, SubtreeRange)> {
    let key = |index: usize| keys.get(index).map(|key| FileBlock(key.startoff.get()));
    let index = keys.partition_point(|key| key.startoff.get() <= at.get()).saturating_sub(1);
    let (Some(own), Some(pointer)) = (key(index), pointers.get(index)) else {
        return Err(Damage::new(BmBt::NAME, "numrecs", "at least 1", 0));
    };
    let next = key(index + 1);
    let is_first = range.is_first && index == 0;
    let from = if index == 0 { range.from } else { own };
    let to = next.unwrap_or(range.to);
    // The search relies on the order of the keys. Verified are those that it has found.
    let is_in_order = match index {
        0 => own >= range.from,
        _ => own > range.from && own <= at,
    };
    if !is_in_order || to <= own || to <= at || next.is_some_and(|next| next >= range.to) {
        let expected = format!("keys in order within {} to {}", range.from, range.to);
        return Err(out_of_order(expected, format_args!("{own} before {to}")));
    }
    Ok((*pointer, SubtreeRange { from, to, is_first, is_last: range.is_last && next.is_none() }))
}
