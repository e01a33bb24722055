//! Unwritten blocks: room for what will be written.

use std::sync::Arc;

use ag::{AllocTarget, Claim, ClaimRequest, ExtentOwner, Groups};
use base::FileBlock;
use error::Error;
use format::extent::{Extent, MAX_EXTENT_BLOCKS, MAX_FILE_BLOCKS};
use format::inode::{ag_of, flags, flags2};
use format::ondisk::U16;

use super::claim::claim;
use super::step::{File, pieces, shares};
use super::{PIECES_AT_ONCE, TOO_FAR, punch};
use crate::inode::Inode;
use crate::shared::Shared;
use crate::state::InodeState;

/// No hint is larger.
const MAX_HINT: u32 = MAX_EXTENT_BLOCKS as u32;

/// Fills the holes of a range with unwritten blocks, and makes the file at least `size` bytes long, if that is given.
/// A file with a hint for the size of its extents gets them in such units. The times move, and the file is marked as
/// preallocated: what lies behind its end then stays ([`trim`](super::trim)).
///
/// # Errors
/// No space: what could be allocated stays, as with Linux. `EFBIG`; `EINVAL` where it is no regular file; damage, a
/// volume that was shut down.
pub fn preallocate(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    (from, to): (FileBlock, FileBlock),
    size: Option<u64>,
) -> Result<(), Error> {
    if to.get() > MAX_FILE_BLOCKS || size.is_some_and(|size| size > i64::MAX as u64) {
        return Err(TOO_FAR);
    }
    let file = File { shared, groups, inode };
    let unit = hint(&inode.read());
    fill_holes(file, aligned(from, to, unit), unit, true)?;
    let mut step = file.giving()?;
    step.modified();
    mark_preallocated(&mut step.locked);
    if let Some(size) = size.filter(|size| *size > step.locked.size()) {
        step.locked.set_size(size);
    }
    step.commit().map(drop)
}

/// Fills the holes that are about to be written within a range with unwritten blocks, in whole units of the hint for
/// the file's extents, as far as each hole reaches. Nothing else of the file changes: what lies behind its end then,
/// nobody asked for.
///
/// # Errors
/// As [`preallocate`].
pub fn fill_units(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    (from, to): (FileBlock, FileBlock),
) -> Result<(), Error> {
    let file = File { shared, groups, inode };
    let unit = unit(&inode.read());
    let mut at = from;
    while let Some((hole, count)) = file.look(|list| hole_in(list, at, to))? {
        let (wide_from, wide_to) = aligned(hole, FileBlock(hole.get() + count), unit);
        let (first, end) = file.look(|list| {
            let before = list.index_at(hole).checked_sub(1).and_then(|before| list.get(before));
            let first = before.map_or(wide_from, |before| before.end().max(wide_from));
            (first, FileBlock(first.get() + list.piece(first, wide_to).count))
        })?;
        // Where the hole does not begin with a unit, it goes on where the blocks before it end.
        let align = if first == wide_from { unit } else { 1 };
        fill_holes(file, (first, end), align, false)?;
        at = end;
    }
    Ok(())
}

/// Fills the holes of a range, beginning at multiples of `align`, where that is possible.
fn fill_holes(
    file: File<'_>,
    (from, to): (FileBlock, FileBlock),
    align: u32,
    asked_for: bool,
) -> Result<(), Error> {
    while let Some((at, count)) = file.look(|list| hole_in(list, from, to))? {
        let most = count.min(MAX_EXTENT_BLOCKS - MAX_EXTENT_BLOCKS % u64::from(align)) as u32; // 21 bits
        fill(file, at, (most, align), asked_for)?;
    }
    Ok(())
}

/// The unit in blocks in which a file gets its blocks when it is written; 1 for any.
pub fn unit(state: &InodeState) -> u32 {
    let core = state.core();
    let unit = if core.flags.get() & flags::EXTSIZE != 0 { core.extsize.get() } else { 1 };
    if (1..=MAX_HINT).contains(&unit) { unit } else { 1 }
}

/// The unit in blocks in which a file's extents shall be that are asked for; 1 for any.
fn hint(state: &InodeState) -> u32 {
    let core = state.core();
    let is_set = core.flags.get() & flags::EXTSIZE != 0;
    let copied =
        core.flags2.get() & (flags2::REFLINK | flags2::COWEXTSIZE) == flags2::REFLINK | flags2::COWEXTSIZE;
    match (is_set, copied, core.cowextsize.get()) {
        (false, true, hint @ 1..=MAX_HINT) => hint,
        _ => unit(state),
    }
}

/// The range in whole units, as far as a file can reach.
fn aligned(from: FileBlock, to: FileBlock, unit: u32) -> (FileBlock, FileBlock) {
    let unit = u64::from(unit);
    let end = to.get().checked_next_multiple_of(unit).unwrap_or(to.get()).min(MAX_FILE_BLOCKS);
    (FileBlock(from.get() - from.get() % unit), FileBlock(end.max(to.get())))
}

/// The first hole of a range: where it begins, and its blocks within the range.
fn hole_in(list: &crate::ExtentList, from: FileBlock, to: FileBlock) -> Option<(FileBlock, u64)> {
    let at = list.first_hole(from, 1);
    (at < to).then(|| (at, list.piece(at, to).count))
}

/// Maps the beginning of a hole to new unwritten blocks. They are claimed first, so that there is nothing to undo where
/// none are found.
fn fill(file: File<'_>, at: FileBlock, (most, align): (u32, u32), asked_for: bool) -> Result<(), Error> {
    let mut blocks = file.groups.reserve_blocks(most.saturating_add(file.shared.reservations.map_blocks))?;
    let claim = claim_near(file, at, most, align)?;
    drop(blocks.split(most - claim.count()));
    let (start, count) = (claim.start(), claim.count().into());
    let mut step = file.begin(blocks)?;
    if let Err(refused) = step.has_room_for(1) {
        // Before the step gives back what was reserved for it.
        drop(claim);
        return Err(refused);
    }
    file.groups.take_claimed(&mut step.tx, &mut step.blocks, [claim], ExtentOwner::Mapped)?;
    let extent = Extent { offset: at, start, count, unwritten: true };
    step.edit(|fork, tx, space| fork.map(tx, space, extent))?;
    if asked_for {
        mark_preallocated(&mut step.locked);
    }
    step.commit().map(drop)
}

/// Claims blocks for the beginning of a hole: where the space is in pieces, the hole is filled in pieces.
fn claim_near(file: File<'_>, at: FileBlock, most: u32, align: u32) -> Result<Claim, Error> {
    let home = || AllocTarget::Ag(ag_of(file.inode.ino(), &file.shared.geometry).unwrap_or_default());
    let near = file.look(|list| list.near(at))?.map_or_else(home, AllocTarget::Block);
    let request = ClaimRequest { target: near, min: 1, max: most, align };
    if align > 1 {
        match file.groups.claim(&mut file.shared.reader(), &request) {
            Err(Error::NoSpace { .. }) => {}
            claim => return claim,
        }
    }
    claim(file.shared, file.groups, &ClaimRequest { align: 1, ..request })
}

fn mark_preallocated(state: &mut InodeState) {
    let old = state.core().flags.get();
    if old & flags::PREALLOC == 0 {
        state.edit().flags = U16::new(old | flags::PREALLOC);
    }
}

/// Makes whole blocks of a range read as zeros without writing them: all of it is mapped and unwritten afterwards.
/// Shared blocks are given up. The rest is as with [`preallocate`].
///
/// # Errors
/// As [`preallocate`], and [`punch`].
pub fn zero(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    (from, to): (FileBlock, FileBlock),
    size: Option<u64>,
) -> Result<(), Error> {
    let file = File { shared, groups, inode };
    if shares(&inode.read()) {
        punch(shared, groups, inode, from, to)?;
        return preallocate(shared, groups, inode, (from, to), size);
    }
    let mut at = from;
    while at < to {
        let mut step = file.taking(PIECES_AT_ONCE as u32 * shared.reservations.map_blocks)?;
        step.has_room_for(2 * PIECES_AT_ONCE)?;
        let (found, end) = pieces(step.list()?, (at, to), PIECES_AT_ONCE);
        step.expect_room_to_cut(&found, true)?;
        for (at, piece) in found {
            if let Some((_, false)) = piece.mapping {
                let range = (at, FileBlock(at.get() + piece.count));
                step.edit(|fork, tx, space| fork.mark(tx, space, range, true))?;
            }
        }
        step.commit()?;
        at = end;
    }
    preallocate(shared, groups, inode, (from, to), size)
}
