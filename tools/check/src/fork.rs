//! One fork of an inode: its extents in order, the blocks of its tree, and the claims for all of them.

use base::{AgBlock, AgNumber, FileBlock, Ino};
use format::btree::{BmBt, rmap};
use format::extent::{Extent, RawExtent};
use format::inode::{Dinode, FileType, Fork, ForkKind};
use format::{Damage, Place};

use crate::ownership::claim::{Claim, NO_SHARING, coalesce};
use crate::ownership::store::{ClaimBuffer, ClaimStore};
use crate::tree::TreeWalk;
use crate::volume::Volume;

/// Logical blocks of an attribute fork are 32 bits wide.
const MOST_ATTR_BLOCKS: u64 = 1 << 32;

/// What a fork amounts to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForkTotal {
    pub extents: u64,
    /// Blocks, those of the tree included.
    pub blocks: u64,
    /// The logical block behind the last extent.
    pub end: FileBlock,
    /// All of it could be followed.
    pub complete: bool,
}

/// Where claims go.
pub(crate) struct Claimer<'c> {
    pub store: &'c ClaimStore,
    pub buffer: &'c mut ClaimBuffer,
    /// [`NO_SHARING`] or nothing, for each claim of the fork's contents.
    pub notes: u32,
}

/// Walks forks, one after the other, with the same buffers.
pub(crate) struct ForkWalk<'v> {
    volume: &'v Volume<'v>,
    tree: TreeWalk<'v, BmBt>,
    tree_blocks: Vec<Claim>,
    quiet: bool,
}

/// One fork while it is walked.
struct Course<'c, 'b> {
    volume: &'c Volume<'c>,
    quiet: bool,
    ino: Ino,
    kind: ForkKind,
    may_be_unwritten: bool,
    total: ForkTotal,
    claimer: Option<&'c mut Claimer<'b>>,
    /// Grows as long as extents continue each other.
    pending: Option<Claim>,
}

impl<'v> ForkWalk<'v> {
    pub fn new(volume: &'v Volume<'v>) -> Self {
        Self { volume, tree: TreeWalk::new(volume), tree_blocks: Vec::new(), quiet: false }
    }

    /// A second walk, which says nothing of what the first has said.
    pub fn quiet(volume: &'v Volume<'v>) -> Self {
        Self { tree: TreeWalk::new(volume).quiet(), quiet: true, ..Self::new(volume) }
    }

    /// Calls `each` with every extent that is possible, in order.
    pub fn run(
        &mut self,
        ino: Ino,
        inode: &Dinode<'_>,
        kind: ForkKind,
        claimer: Option<&mut Claimer<'_>>,
        each: &mut dyn FnMut(&Extent),
    ) -> ForkTotal {
        let may_be_unwritten = kind == ForkKind::Data && inode.file_type() == Some(FileType::Regular);
        let volume = self.volume;
        let total = ForkTotal { complete: true, ..ForkTotal::default() };
        let mut course =
            Course { volume, quiet: self.quiet, ino, kind, may_be_unwritten, total, claimer, pending: None };
        match inode.fork(kind, &self.volume.geometry) {
            Ok(Some(Fork::Extents(extents))) => course.pass(extents, each),
            Ok(Some(Fork::Btree(root))) => {
                self.tree.begin_in_inode(ino, &root);
                self.run_tree(&mut course, each);
            }
            Ok(_) => (),
            Err(damage) => {
                course.total.complete = false;
                course.tell(Place::ino(ino), damage);
            }
        }
        course.flush();
        course.total
    }

    fn run_tree(&mut self, course: &mut Course<'_, '_>, each: &mut dyn FnMut(&Extent)) {
        let fork = if course.kind == ForkKind::Attr { rmap::ATTR_FORK } else { 0 };
        let blocks = &mut self.tree_blocks;
        let ino = course.ino;
        blocks.clear();
        let mut visit = |ag, block| blocks.push(Claim::of_inode(ag, block, 1, ino, rmap::BMBT_BLOCK | fork));
        while self.tree.next_leaf(&mut visit) {
            course.pass(self.tree.records(), each);
        }
        course.total.complete &= !self.tree.is_incomplete();
        course.total.blocks += blocks.len() as u64;
        blocks.sort_unstable();
        coalesce(blocks);
        if let Some(claimer) = &mut course.claimer {
            blocks.drain(..).for_each(|claim| claimer.buffer.push(claimer.store, claim));
        }
    }
}

impl Course<'_, '_> {
    fn pass(&mut self, extents: &[RawExtent], each: &mut dyn FnMut(&Extent)) {
        for raw in extents {
            let extent = Extent::decode(raw);
            self.total.extents += 1;
            if let Err(damage) = self.accept(&extent) {
                self.total.complete = false;
                self.tell(Place::ino(self.ino).at(extent.offset), damage);
                continue;
            }
            self.total.blocks += extent.count;
            self.total.end = extent.end();
            if let Some((ag, block)) = self.volume.geometry.split_fs_block(extent.start) {
                self.claim(ag, block, &extent);
            }
            each(&extent);
        }
    }

    fn accept(&self, extent: &Extent) -> Result<(), Damage> {
        const NAME: &str = "extent";
        extent.verify(&self.volume.geometry)?;
        format::ensure!(
            extent.offset >= self.total.end,
            NAME,
            "startoff",
            format_args!("at least {}, behind the extent before", self.total.end),
            extent.offset
        );
        format::ensure!(
            !extent.unwritten || self.may_be_unwritten,
            NAME,
            "state",
            "written, but in contents of regular files",
            "unwritten"
        );
        format::ensure!(
            self.kind == ForkKind::Data || extent.end().get() <= MOST_ATTR_BLOCKS,
            NAME,
            "startoff",
            "an end of at most 2^32 in an attribute fork",
            extent.offset
        );
        Ok(())
    }

    #[cold]
    fn tell(&self, place: Place, damage: Damage) {
        if !self.quiet {
            self.volume.error(place, damage);
        }
    }

    fn claim(&mut self, ag: AgNumber, block: AgBlock, extent: &Extent) {
        let Some(claimer) = &mut self.claimer else { return };
        let mut offset = extent.offset.get();
        if self.kind == ForkKind::Attr {
            offset |= rmap::ATTR_FORK;
        }
        if extent.unwritten {
            offset |= rmap::UNWRITTEN;
        }
        let count = extent.count as u32; // 21 bits
        let notes = if self.kind == ForkKind::Data { claimer.notes & NO_SHARING } else { 0 };
        let next = Claim { notes, ..Claim::of_inode(ag, block, count, self.ino, offset) };
        match &mut self.pending {
            Some(pending) if pending.is_continued_by(&next) => pending.count += count,
            pending => {
                if let Some(whole) = pending.replace(next) {
                    claimer.buffer.push(claimer.store, whole);
                }
            }
        }
    }

    fn flush(&mut self) {
        if let (Some(claimer), Some(whole)) = (&mut self.claimer, self.pending.take()) {
            claimer.buffer.push(claimer.store, whole);
        }
    }
}
