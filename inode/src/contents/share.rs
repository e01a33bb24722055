//! Blocks that two files share.

use std::sync::Arc;

use ag::refcount::deferred::RefcountIntentType;
use ag::{Groups, RmapChange};
use base::{FileBlock, FsBlock, errno};
use error::Error;
use format::extent::{Extent, MAX_FILE_BLOCKS};
use journal::engine::Loggable;

use super::step::{File, Step, expect_map, list, pieces, set_shares, shares};
use super::{PIECES_AT_ONCE, TOO_FAR};
use crate::extents::ExtentOrHole;
use crate::inode::{Inode, LockedInode};
use crate::shared::Shared;

const NO_REFLINK: Error = Error::Refused {
    errno: errno::EOPNOTSUPP,
    why: "the volume was made without the reflink feature: files cannot share blocks",
};
const OVERLAP: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "a file cannot share blocks with itself where the ranges overlap",
};

/// What is to be shared.
#[derive(Clone, Copy)]
pub struct Share<'a> {
    /// Whose blocks.
    pub source: &'a Arc<Inode>,
    /// From where on.
    pub from: FileBlock,
    /// Who gets them; it may be the same file.
    pub target: &'a Arc<Inode>,
    /// To where.
    pub to: FileBlock,
    /// Blocks.
    pub count: u64,
    /// The size that the target has at least, if it is to grow.
    pub size: Option<u64>,
}

/// Maps a range of one file in another: what was mapped there is given back, and written blocks have one owner more.
/// What is unwritten or a hole in the source is a hole in the target, as with Linux. The target's times move.
///
/// One extent moves at a time: after a power cut the range is shared up to a border.
///
/// # Errors
/// `EOPNOTSUPP` where the volume has no such feature; `EINVAL` where the ranges overlap, or a file is no regular one;
/// `EFBIG`; no space; damage, a volume that was shut down.
///
/// # Locking
/// Both files' `layout` alone; here both inodes, the lower number first.
pub fn share(shared: &Shared, groups: &Arc<Groups>, what: &Share<'_>) -> Result<(), Error> {
    if !shared.geometry.features.reflink() {
        return Err(NO_REFLINK);
    }
    let ends = [what.from, what.to].map(|at| at.get().saturating_add(what.count));
    if ends.iter().any(|end| *end > MAX_FILE_BLOCKS) || what.size.is_some_and(|size| size > i64::MAX as u64) {
        return Err(TOO_FAR);
    }
    let same = Arc::ptr_eq(what.source, what.target);
    if same && what.from.get().abs_diff(what.to.get()) < what.count {
        return Err(OVERLAP);
    }
    expect_map(&what.source.read())?;
    let file = File { shared, groups, inode: what.target };
    let mut done = 0;
    while done < what.count {
        done += share_step(file, what, done)?;
    }
    let mut step = file.giving()?;
    step.modified();
    if let Some(size) = what.size.filter(|size| *size > step.locked.size()) {
        step.locked.set_size(size);
    }
    step.commit().map(drop)
}

/// Shares what one transaction can; how many blocks that were.
fn share_step(file: File<'_>, what: &Share<'_>, done: u64) -> Result<u64, Error> {
    let shared = file.shared;
    let (from, end) = (FileBlock(what.from.get() + done), FileBlock(what.from.get() + what.count));
    let to = FileBlock(what.to.get() + done);
    let mut blocks = file.groups.reserve_blocks(2 * shared.reservations.map_blocks)?;
    blocks.rolled();
    let tx = shared.begin(shared.reservations.contents)?;
    let (mut source, locked) = lock_both(what);
    let mut step = Step::new(file, tx, blocks, locked);
    expect_map(&step.locked)?;
    let piece = match &mut source {
        Some(source) => list(shared, source)?.piece(from, end),
        None => step.list()?.piece(from, end),
    };
    let part = step.take_over(to, piece)?;
    if part.shares
        && let Some(source) = &mut source
    {
        set_shares(source, true);
    }
    let Step { tx, mut locked, rooms: _rooms, .. } = step;
    match &mut source {
        // Ascending or not: a commit takes them in any order.
        Some(source) => tx.commit(&mut [source as &mut dyn Loggable, &mut locked])?,
        None => tx.commit(&mut [&mut locked])?,
    }
    Ok(part.count)
}

/// Both files; the source only where it is another one.
fn lock_both(what: &Share<'_>) -> (Option<LockedInode>, LockedInode) {
    if Arc::ptr_eq(what.source, what.target) {
        return (None, what.target.lock());
    }
    if what.source.ino() < what.target.ino() {
        let source = what.source.lock();
        return (Some(source), what.target.lock());
    }
    let target = what.target.lock();
    (Some(what.source.lock()), target)
}

/// What a step shared.
struct Part {
    count: u64,
    /// Blocks have one owner more.
    shares: bool,
}

impl Step<'_> {
    /// Makes the target's range what the source's piece is, as far as one transaction may.
    fn take_over(&mut self, to: FileBlock, piece: ExtentOrHole) -> Result<Part, Error> {
        let whole = (to, FileBlock(to.get() + piece.count));
        let (old, end) = pieces(self.list()?, whole, PIECES_AT_ONCE);
        let count = end.get() - to.get();
        let start = piece.mapping.filter(|(_, unwritten)| !unwritten).map(|(start, _)| start);
        let is_there = |(at, old): &(FileBlock, ExtentOrHole)| {
            let same = start.map(|start| (FsBlock(start.get() + (at.get() - to.get())), false));
            same == old.mapping
        };
        if old.iter().all(is_there) {
            return Ok(Part { count, shares: false });
        }
        self.has_room_for(3)?;
        self.expect_room_to_cut(&old, false)?;
        if let Some(start) = start {
            self.rooms.extend(self.file.room_for_mapping(start, RmapChange::AddOwner)?);
            // Before anything is given up: what both have must never have no owner.
            let length = count as u32; // 21 bits
            self.file.groups.refcount_later(&mut self.tx, RefcountIntentType::Increase, start, length)?;
        }
        let shared = shares(&self.locked);
        for (at, piece) in old.iter().filter(|(_, piece)| piece.mapping.is_some()) {
            let range = (*at, FileBlock(at.get() + piece.count));
            self.edit(|fork, tx, space| fork.free(tx, space, range, shared))?;
        }
        if let Some(start) = start {
            set_shares(&mut self.locked, true);
            let extent = Extent { offset: to, start, count, unwritten: false };
            self.edit(|fork, tx, space| fork.map(tx, space, extent))?;
        }
        Ok(Part { count, shares: start.is_some() })
    }
}
