//! The extents of a fork in logical order, from the inode or from the bmap B+tree.

use base::{AgBlock, AgNumber, FileBlock, FsBlock, Ino};
use format::btree::{BmBt, BmapKey, Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreePointer};
use format::extent::{Extent, RawExtent};
use format::inode::{Dinode, Fork, ForkKind};
use format::{Damage, Place};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// Iterator over the extents of a fork from a logical block on. Stops after the first error.
///
/// # Invariants
/// Each extent begins at or after the end of the previous one, and each leaf must move the walk forward, so that it
/// ends also in a damaged tree. One block per level is kept.
pub struct ExtentWalk<'v> {
    volume: &'v Volume,
    ino: Ino,
    /// The extents in the inode or in the current leaf, and the index of the next one.
    leaf: Vec<RawExtent>,
    next: usize,
    /// The path from the root to the current leaf: the pointers of each node and the index of the next one.
    path: Vec<Node>,
    /// The lowest logical block where the next extent may begin.
    floor: FileBlock,
    failed: bool,
    /// Blocks of the B+tree that were read since they were taken, if they are wanted.
    map_blocks: Option<Vec<FsBlock>>,
}

/// A node on the path.
struct Node {
    level: u16,
    keys: Vec<u64>,
    pointers: Vec<u64>,
    next: usize,
}

impl<'v> ExtentWalk<'v> {
    /// The extents of a fork from `from` on, including the one that contains it. A local, device or absent fork has
    /// none.
    pub fn new(volume: &'v Volume, inode: &Dinode<'_>, kind: ForkKind, from: FileBlock) -> Result<Self> {
        Self::begin(volume, inode, kind, from, None)
    }

    /// All extents of a fork; [`take_map_blocks`](Self::take_map_blocks) returns the blocks of its B+tree.
    pub fn with_map_blocks(volume: &'v Volume, inode: &Dinode<'_>, kind: ForkKind) -> Result<Self> {
        Self::begin(volume, inode, kind, FileBlock(0), Some(Vec::new()))
    }

    /// The blocks of the B+tree that were read since the last call. The caller takes them after each extent, so that
    /// they are few.
    pub fn take_map_blocks(&mut self) -> Vec<FsBlock> {
        self.map_blocks.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn begin(
        volume: &'v Volume,
        inode: &Dinode<'_>,
        kind: ForkKind,
        from: FileBlock,
        map_blocks: Option<Vec<FsBlock>>,
    ) -> Result<Self> {
        let ino = inode.ino();
        let mut walk = Self {
            volume,
            ino,
            leaf: Vec::new(),
            next: 0,
            path: Vec::new(),
            floor: FileBlock(0),
            failed: false,
            map_blocks,
        };
        let fork =
            inode.fork(kind, volume.geometry()).map_err(|damage| Error::damaged(Place::ino(ino), damage))?;
        match fork {
            Some(Fork::Extents(extents)) => walk.leaf.extend_from_slice(extents),
            Some(Fork::Btree(root)) => walk.path.push(Node::new(root.level, root.keys, root.pointers)),
            Some(Fork::Local(_) | Fork::Device(_)) | None => {}
        }
        walk.seek(from)?;
        Ok(walk)
    }

    /// Seeks to the extent that contains `from`, or to the first one after it.
    fn seek(&mut self, from: FileBlock) -> Result<()> {
        while let Some(node) = self.path.last_mut() {
            // The last child whose first key is at most `from`, or the first child.
            node.next = node.keys.partition_point(|key| *key <= from.get()).saturating_sub(1);
            let at_leaf = node.level == 1;
            self.descend()?;
            if at_leaf {
                break;
            }
        }
        self.next = self.leaf.partition_point(|raw| Extent::decode(raw).end() <= from);
        Ok(())
    }

    /// Reads the next child of the lowest node: pushes a node or replaces the leaf. `false` if there is none.
    fn descend(&mut self) -> Result<bool> {
        let Some(node) = self.path.last_mut() else { return Ok(false) };
        let (Some(pointer), Some(key)) = (node.pointers.get(node.next), node.keys.get(node.next)) else {
            return Ok(false);
        };
        let (pointer, key, level) = (FsBlock(*pointer), *key, node.level - 1);
        node.next += 1;
        let geometry = self.volume.geometry();
        let Some((ag, block)) = format::ondisk::U64::new(pointer.get()).locate(geometry, None) else {
            let found = format!("{pointer:#x}");
            let damage = Damage::new(BmBt::NAME, "ptrs", "a block of the volume", found);
            return Err(Error::damaged(Place::ino(self.ino), damage));
        };
        let mut bytes = vec![0; geometry.block_size as usize];
        self.volume.read_ag_block(ag, block, &mut bytes)?;
        if let Some(blocks) = &mut self.map_blocks {
            blocks.push(pointer);
        }
        self.enter(&bytes, (ag, block), level, key)
            .map_err(|damage| Error::damaged(Place::block(ag, block).of_inode(self.ino), damage))?;
        Ok(true)
    }

    fn enter(
        &mut self,
        bytes: &[u8],
        (ag, block): (AgNumber, AgBlock),
        level: u16,
        key: u64,
    ) -> std::result::Result<(), Damage> {
        let identity = BtreeBlockIdentity { ag, block, ino: Some(self.ino) };
        let verified = BtreeBlock::<BmBt>::verify(bytes, self.volume.geometry(), identity, level)?;
        let first = match verified.body {
            BtreeBlockBody::Leaf(records) => {
                self.leaf.clear();
                self.leaf.extend_from_slice(records);
                self.next = 0;
                records.first().map(|raw| Extent::decode(raw).offset.get())
            }
            BtreeBlockBody::Node(keys, pointers) => {
                self.path.push(Node::new(level, keys, pointers));
                keys.first().map(|key| key.startoff.get())
            }
        };
        // An empty block, or one that belongs elsewhere, would let the walk stand still.
        if first != Some(key) {
            let found = first.map_or_else(|| "nothing".into(), |first| first.to_string());
            return Err(Damage::new(BmBt::NAME, "first record", key, found));
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<Extent>> {
        loop {
            if let Some(raw) = self.leaf.get(self.next) {
                self.next += 1;
                return self.accept(raw.to_owned()).map(Some);
            }
            if self.path.is_empty() {
                return Ok(None);
            }
            if !self.descend()? {
                self.path.pop();
            }
        }
    }

    fn accept(&mut self, raw: RawExtent) -> Result<Extent> {
        let extent = Extent::decode(&raw);
        let damaged = |damage| Error::damaged(Place::ino(self.ino).at(extent.offset), damage);
        extent.verify(self.volume.geometry()).map_err(damaged)?;
        if extent.offset < self.floor {
            let expected = format!("at least {}", self.floor);
            return Err(damaged(Damage::new("extent", "startoff", expected, extent.offset)));
        }
        self.floor = extent.end();
        Ok(extent)
    }
}

impl Iterator for ExtentWalk<'_> {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = self.advance().transpose();
        self.failed = matches!(step, Some(Err(_)));
        step
    }
}

impl Node {
    fn new(level: u16, keys: &[BmapKey], pointers: &[format::ondisk::U64]) -> Self {
        Self {
            level,
            keys: keys.iter().map(|key| key.startoff.get()).collect(),
            pointers: pointers.iter().map(|pointer| pointer.get()).collect(),
            next: 0,
        }
    }
}
