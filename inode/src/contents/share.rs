//! Sharing blocks between files (reflink).

use std::sync::Arc;

use ag::RmapChange;
use ag::refcount::deferred::RefcountIntentType;
use base::{FileBlock, FsBlock, errno};
use error::{Error, Result};
use format::extent::{Extent, MAX_FILE_BLOCKS};
use format::inode::ForkKind;
use journal::engine::Loggable;

use super::TOO_FAR;
use super::file_transaction::{File, FileTransaction, expect_map, set_shares, shares};
use crate::extents::ExtentOrHole;
use crate::fork::Fork;
use crate::inode::{Inode, LockedInode};

const NO_REFLINK: Error = Error::Refused {
    errno: errno::EOPNOTSUPP,
    why: "the volume was made without the reflink feature: files cannot share blocks",
};
const OVERLAP: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "a file cannot share blocks with itself where the ranges overlap",
};

/// Parameters of [`share`].
#[derive(Clone, Copy)]
pub struct Share<'a> {
    /// File whose blocks are shared.
    pub source: &'a Arc<Inode>,
    /// First block in the source.
    pub from: FileBlock,
    /// First block in the target.
    pub to: FileBlock,
    /// Length in blocks.
    pub count: u64,
    /// New size of the target, if it is larger.
    pub size: Option<u64>,
}

/// Maps a range of one file in another, or of the same file. What was mapped there is freed; written blocks get one
/// more owner. Holes and unwritten blocks of the source become holes in the target, as on Linux. Updates the target's
/// times.
///
/// One extent is shared at a time: after a power cut the range may be shared up to some offset.
///
/// # Errors
/// `EOPNOTSUPP` without the reflink feature; `EINVAL` if the ranges overlap or a file is not regular;
/// `EFBIG`; no space; damage, a volume that was shut down.
///
/// # Locking
/// The caller holds `layout` of both files exclusively. Locks both inodes, the lower number first.
pub fn share(file: File<'_>, what: &Share<'_>) -> Result<()> {
    if !file.shared.geometry.features.reflink() {
        return Err(NO_REFLINK);
    }
    let ends = [what.from, what.to].map(|at| at.get().saturating_add(what.count));
    if ends.iter().any(|end| *end > MAX_FILE_BLOCKS) || what.size.is_some_and(|size| size > i64::MAX as u64) {
        return Err(TOO_FAR);
    }
    let same = Arc::ptr_eq(what.source, file.inode);
    if same && what.from.get().abs_diff(what.to.get()) < what.count {
        return Err(OVERLAP);
    }
    expect_map(&what.source.read())?;
    let mut done = 0;
    while done < what.count {
        done += share_part(file, what, done)?;
    }
    let mut change = file.begin_free()?;
    change.modified();
    if let Some(size) = what.size.filter(|size| *size > change.locked.size()) {
        change.locked.set_size(size);
    }
    change.commit().map(drop)
}

/// Shares as much as one transaction may. Returns the number of blocks.
fn share_part(file: File<'_>, what: &Share<'_>, done: u64) -> Result<u64> {
    let shared = file.shared;
    let (from, end) = (FileBlock(what.from.get() + done), FileBlock(what.from.get() + what.count));
    let to = FileBlock(what.to.get() + done);
    let blocks = file.groups.reserve_blocks(2 * shared.reservations.map_blocks)?;
    let tx = shared.begin(shared.reservations.contents)?;
    let (mut source, locked) = lock_both(what.source, file.inode);
    let mut change = FileTransaction::new(file, tx, blocks, locked);
    expect_map(&change.locked)?;
    let piece = match &mut source {
        Some(source) => Fork::open(shared, source, ForkKind::Data)?.piece(Some(&mut change.tx), from, end)?,
        None => {
            let (mut fork, tx) = change.map()?;
            fork.piece(Some(tx), from, end)?
        }
    };
    let part = change.take_over(to, piece)?;
    if part.shares
        && let Some(source) = &mut source
    {
        set_shares(source, true);
    }
    let FileTransaction { tx, mut locked, rmap: _rmap, .. } = change;
    match &mut source {
        // A commit accepts them in any order.
        Some(source) => tx.commit(&mut [source as &mut dyn Loggable, &mut locked])?,
        None => tx.commit(&mut [&mut locked])?,
    }
    Ok(part.count)
}

/// Locks both files; returns the source if it is another file.
fn lock_both(source: &Arc<Inode>, target: &Arc<Inode>) -> (Option<LockedInode>, LockedInode) {
    if Arc::ptr_eq(source, target) {
        return (None, target.lock());
    }
    if source.ino() < target.ino() {
        return (Some(source.lock()), target.lock());
    }
    let target = target.lock();
    (Some(source.lock()), target)
}

/// The range that one transaction shared.
struct SharedRange {
    count: u64,
    /// Whether blocks got one more owner.
    shares: bool,
}

impl FileTransaction<'_> {
    /// Makes the start of the target's range equal to the source's piece, as far as one transaction may.
    fn take_over(&mut self, to: FileBlock, piece: ExtentOrHole) -> Result<SharedRange> {
        let whole = to..FileBlock(to.get() + piece.count);
        let (old, end) = self.pieces(whole)?;
        let count = end.get() - to.get();
        let start = piece.mapping.filter(|(_, unwritten)| !unwritten).map(|(start, _)| start);
        let is_same = |old: &ExtentOrHole| {
            let skip = old.offset.get() - to.get();
            old.mapping == start.map(|start| (FsBlock(start.get() + skip), false))
        };
        if old.iter().all(is_same) {
            return Ok(SharedRange { count, shares: false });
        }
        self.locked.check_extent_count(ForkKind::Data, 3)?;
        self.reserve_rmap_to_cut(&old, false)?;
        if let Some(start) = start {
            self.rmap.extend(self.file.reserve_rmap(start, RmapChange::AddOwner)?);
            // Before anything is freed: blocks that both map must never be without an owner.
            let length = count as u32; // 21 bits
            self.file.groups.refcount_later(&mut self.tx, RefcountIntentType::Increase, start, length)?;
        }
        let shared = shares(&self.locked);
        for piece in old.iter().filter(|piece| piece.mapping.is_some()) {
            self.edit(|fork, tx, space| fork.free(tx, space, piece.range(), shared))?;
        }
        if let Some(start) = start {
            set_shares(&mut self.locked, true);
            let extent = Extent { offset: to, start, count, unwritten: false };
            self.edit(|fork, tx, space| fork.map(tx, space, extent))?;
        }
        Ok(SharedRange { count, shares: start.is_some() })
    }
}
