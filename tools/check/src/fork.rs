//! One fork of an inode: its extents in order, the blocks of its bmap btree, and the claims for all of them.

use base::{AgBlock, AgNumber, FileBlock, Ino};
use format::btree::{BmBt, rmap};
use format::extent::{Extent, RawExtent};
use format::inode::{Dinode, FileType, Fork, ForkKind};
use format::{Damage, Place};

use crate::ownership::claim::{Claim, NO_SHARING, merge_adjacent};
use crate::ownership::store::{ClaimBuffer, ClaimStore};
use crate::tree::TreeWalk;
use crate::volume::Volume;

/// End of an attribute fork: its logical block numbers have 32 bits.
const MAX_ATTR_BLOCKS: u64 = 1 << 32;

/// Size of a fork.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForkSize {
    pub extents: u64,
    /// Blocks including those of the btree.
    pub blocks: u64,
    /// End of the last extent.
    pub end: FileBlock,
    /// Whether the whole fork could be read.
    pub complete: bool,
}

/// Receives the claims of a fork.
pub(crate) struct ForkClaims<'c> {
    pub store: &'c ClaimStore,
    pub buffer: &'c mut ClaimBuffer,
    /// Flags of the claims of a data fork: [`NO_SHARING`] or none.
    pub flags: u32,
}

/// Walks forks, one after the other, with the same buffers.
pub(crate) struct ForkWalk<'v> {
    volume: &'v Volume<'v>,
    tree: TreeWalk<'v, BmBt>,
    tree_blocks: Vec<Claim>,
    quiet: bool,
}

/// The fork that is being walked.
struct CurrentFork<'c, 'b> {
    volume: &'c Volume<'c>,
    quiet: bool,
    ino: Ino,
    kind: ForkKind,
    may_be_unwritten: bool,
    size: ForkSize,
    claims: Option<&'c mut ForkClaims<'b>>,
    /// The last claim, which may be merged with the next one.
    pending: Option<Claim>,
}

impl<'v> ForkWalk<'v> {
    pub fn new(volume: &'v Volume<'v>) -> Self {
        Self { volume, tree: TreeWalk::new(volume), tree_blocks: Vec::new(), quiet: false }
    }

    /// A walk without findings, over forks that were walked before.
    pub fn quiet(volume: &'v Volume<'v>) -> Self {
        Self { tree: TreeWalk::new(volume).quiet(), quiet: true, ..Self::new(volume) }
    }

    /// Calls `visit` for each valid extent, in order.
    pub fn walk(
        &mut self,
        ino: Ino,
        inode: &Dinode<'_>,
        kind: ForkKind,
        claims: Option<&mut ForkClaims<'_>>,
        visit: &mut dyn FnMut(&Extent),
    ) -> ForkSize {
        let may_be_unwritten = kind == ForkKind::Data && inode.file_type() == Some(FileType::Regular);
        let (volume, quiet) = (self.volume, self.quiet);
        let size = ForkSize { complete: true, ..ForkSize::default() };
        let mut fork =
            CurrentFork { volume, quiet, ino, kind, may_be_unwritten, size, claims, pending: None };
        match inode.fork(kind, &self.volume.geometry) {
            Ok(Some(Fork::Extents(extents))) => fork.add_extents(extents, visit),
            Ok(Some(Fork::Btree(root))) => {
                self.tree.begin_in_inode(ino, &root);
                self.walk_tree(&mut fork, visit);
            }
            Ok(_) => (),
            Err(damage) => {
                fork.size.complete = false;
                fork.report(Place::ino(ino), damage);
            }
        }
        fork.store_pending();
        fork.size
    }

    fn walk_tree(&mut self, fork: &mut CurrentFork<'_, '_>, visit: &mut dyn FnMut(&Extent)) {
        let attr_flag = if fork.kind == ForkKind::Attr { rmap::ATTR_FORK } else { 0 };
        let blocks = &mut self.tree_blocks;
        let ino = fork.ino;
        blocks.clear();
        let mut add_block =
            |ag, block| blocks.push(Claim::of_inode(ag, block, 1, ino, rmap::BMBT_BLOCK | attr_flag));
        while self.tree.next_leaf(&mut add_block) {
            fork.add_extents(self.tree.records(), visit);
        }
        fork.size.complete &= !self.tree.is_incomplete();
        fork.size.blocks += blocks.len() as u64;
        blocks.sort_unstable();
        merge_adjacent(blocks);
        if let Some(claims) = &mut fork.claims {
            blocks.drain(..).for_each(|claim| claims.buffer.push(claims.store, claim));
        }
    }
}

impl CurrentFork<'_, '_> {
    fn add_extents(&mut self, extents: &[RawExtent], visit: &mut dyn FnMut(&Extent)) {
        for raw in extents {
            let extent = Extent::decode(raw);
            self.size.extents += 1;
            if let Err(damage) = self.check_extent(&extent) {
                self.size.complete = false;
                self.report(Place::ino(self.ino).at(extent.offset), damage);
                continue;
            }
            self.size.blocks += extent.count;
            self.size.end = extent.end();
            if let Some((ag, block)) = self.volume.geometry.split_fs_block(extent.start) {
                self.claim(ag, block, &extent);
            }
            visit(&extent);
        }
    }

    fn check_extent(&self, extent: &Extent) -> Result<(), Damage> {
        const NAME: &str = "extent";
        extent.verify(&self.volume.geometry)?;
        format::ensure!(
            extent.offset >= self.size.end,
            NAME,
            "startoff",
            format_args!("at least {}, the end of the previous extent", self.size.end),
            extent.offset
        );
        format::ensure!(
            !extent.unwritten || self.may_be_unwritten,
            NAME,
            "state",
            "written (only data of regular files may be unwritten)",
            "unwritten"
        );
        format::ensure!(
            self.kind == ForkKind::Data || extent.end().get() <= MAX_ATTR_BLOCKS,
            NAME,
            "startoff",
            "an extent that ends at most at block 2^32 in an attribute fork",
            extent.offset
        );
        Ok(())
    }

    #[cold]
    fn report(&self, place: Place, damage: Damage) {
        if !self.quiet {
            self.volume.error(place, damage);
        }
    }

    fn claim(&mut self, ag: AgNumber, block: AgBlock, extent: &Extent) {
        let Some(claims) = &mut self.claims else { return };
        let mut offset = extent.offset.get();
        if self.kind == ForkKind::Attr {
            offset |= rmap::ATTR_FORK;
        }
        if extent.unwritten {
            offset |= rmap::UNWRITTEN;
        }
        let count = extent.count as u32; // 21 bits
        let flags = if self.kind == ForkKind::Data { claims.flags & NO_SHARING } else { 0 };
        let next = Claim { flags, ..Claim::of_inode(ag, block, count, self.ino, offset) };
        match &mut self.pending {
            Some(pending) if pending.is_continued_by(&next) => pending.count += count,
            pending => {
                if let Some(merged) = pending.replace(next) {
                    claims.buffer.push(claims.store, merged);
                }
            }
        }
    }

    fn store_pending(&mut self) {
        if let (Some(claims), Some(merged)) = (&mut self.claims, self.pending.take()) {
            claims.buffer.push(claims.store, merged);
        }
    }
}
