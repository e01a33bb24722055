//! Preallocation: mapping unwritten blocks.

use ag::{AllocTarget, ClaimRequest, ExtentOwner};
use base::FileBlock;
use error::Result;
use format::extent::{Extent, MAX_EXTENT_BLOCKS, MAX_FILE_BLOCKS};
use format::inode::{ForkKind, ag_of, flags, flags2};
use format::ondisk::U16;

use super::claim::claim_aligned;
use super::file_transaction::{File, FileTransaction, shares};
use super::tuning::PIECES_AT_ONCE;
use super::{TOO_FAR, punch};
use crate::fork::Fork;
use crate::state::InodeState;

/// Largest valid extent size hint.
const MAX_HINT: u32 = MAX_EXTENT_BLOCKS as u32;

/// Fills the holes of a range with unwritten blocks, and makes the file at least `size` bytes long. A file with an
/// extent size hint gets whole units. Updates the times, and marks the file as preallocated: blocks beyond its end then
/// stay ([`trim`](super::trim)).
///
/// # Errors
/// No space: what was allocated stays, as on Linux. `EFBIG`; `EINVAL` if the file is not regular; damage; a volume that
/// was shut down.
pub fn preallocate(file: File<'_>, from: FileBlock, to: FileBlock, size: Option<u64>) -> Result<()> {
    if to.get() > MAX_FILE_BLOCKS || size.is_some_and(|size| size > i64::MAX as u64) {
        return Err(TOO_FAR);
    }
    let unit = hint(&file.inode.read());
    let (first, end) = aligned(from, to, unit);
    fill_holes(file, first, end, unit, true)?;
    let mut change = file.begin_free()?;
    change.modified();
    mark_preallocated(&mut change.locked);
    if let Some(size) = size.filter(|size| *size > change.locked.size()) {
        change.locked.set_size(size);
    }
    change.commit().map(drop)
}

/// Fills the holes of a range that is about to be written with unwritten blocks, widened to whole units of the extent
/// size hint as far as each hole reaches. Nothing else changes: blocks beyond the end do not count as preallocated.
///
/// # Errors
/// Those of [`preallocate`].
pub fn fill_units(file: File<'_>, from: FileBlock, to: FileBlock) -> Result<()> {
    let unit = unit(&file.inode.read());
    let mut at = from;
    while let Some((hole, count)) = file.with_map(|map| hole_in(map, at, to))? {
        let (wide_from, wide_to) = aligned(hole, FileBlock(hole.get() + count), unit);
        let (first, end) = file.with_map(|map| {
            let before = map.last_in(None, FileBlock(0), hole)?;
            let first = before.map_or(wide_from, |before| before.end().max(wide_from));
            Ok((first, FileBlock(first.get() + map.piece(None, first, wide_to)?.count)))
        })?;
        // A hole that begins within a unit is filled from the end of the blocks before it, unaligned.
        let align = if first == wide_from { unit } else { 1 };
        fill_holes(file, first, end, align, false)?;
        at = end;
    }
    Ok(())
}

/// Fills the holes of a range with extents aligned to `align` blocks where possible.
fn fill_holes(file: File<'_>, from: FileBlock, to: FileBlock, align: u32, by_user: bool) -> Result<()> {
    let mut from = from;
    while let Some((at, count)) = file.with_map(|map| hole_in(map, from, to))? {
        let max = count.min(MAX_EXTENT_BLOCKS - MAX_EXTENT_BLOCKS % u64::from(align)) as u32; // 21 bits
        fill(file, at, max, align, by_user)?;
        from = at;
    }
    Ok(())
}

/// Returns the allocation unit of writes in blocks (the extent size hint); 1 for none.
pub fn unit(state: &InodeState) -> u32 {
    let core = state.core();
    let unit = if core.flags.get() & flags::EXTSIZE != 0 { core.extsize.get() } else { 1 };
    if (1..=MAX_HINT).contains(&unit) { unit } else { 1 }
}

/// Returns the allocation unit of preallocation in blocks; 1 for none.
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

/// Widens a range to whole units, as far as a file can reach.
fn aligned(from: FileBlock, to: FileBlock, unit: u32) -> (FileBlock, FileBlock) {
    let unit = u64::from(unit);
    let end = to.get().checked_next_multiple_of(unit).unwrap_or(to.get()).min(MAX_FILE_BLOCKS);
    (FileBlock(from.get() - from.get() % unit), FileBlock(end.max(to.get())))
}

/// Returns the first hole of a range: its first block, and its length within the range.
fn hole_in(map: &mut Fork<'_>, from: FileBlock, to: FileBlock) -> Result<Option<(FileBlock, u64)>> {
    let at = map.first_hole(None, from, 1)?;
    if at < to { Ok(Some((at, map.piece(None, at, to)?.count))) } else { Ok(None) }
}

/// Maps the start of a hole to up to `max` new unwritten blocks. They are claimed first, so that nothing must be undone
/// if there are none. On a fragmented volume a hole is filled in pieces.
fn fill(file: File<'_>, at: FileBlock, max: u32, align: u32, by_user: bool) -> Result<()> {
    let mut blocks = file.groups.reserve_blocks(max.saturating_add(file.shared.reservations.map_blocks))?;
    let own_ag = || AllocTarget::Ag(ag_of(file.inode.ino(), &file.shared.geometry).unwrap_or_default());
    let target = file.with_map(|map| map.near(None, at))?.map_or_else(own_ag, AllocTarget::Block);
    let claim = claim_aligned(file.shared, file.groups, &ClaimRequest { target, min: 1, max, align })?;
    drop(blocks.split(max - claim.count()));
    let (start, count) = (claim.start(), claim.count().into());
    // An error must drop the claim before the reservation: others could reserve the blocks, and not find them.
    let (mut tx, mut locked) = file.lock_for_change()?;
    Fork::open(file.shared, &mut locked, ForkKind::Data)?.load(Some(&mut tx), at)?;
    locked.check_extent_count(ForkKind::Data, 1)?;
    let mut change = FileTransaction::new(file, tx, blocks, locked);
    file.groups.take_claimed(&mut change.tx, &mut change.blocks, [claim], ExtentOwner::Mapped)?;
    let extent = Extent { offset: at, start, count, unwritten: true };
    change.edit(|fork, tx, space| fork.map(tx, space, extent))?;
    if by_user {
        mark_preallocated(&mut change.locked);
    }
    change.commit().map(drop)
}

fn mark_preallocated(state: &mut InodeState) {
    let old = state.core().flags.get();
    if old & flags::PREALLOC == 0 {
        state.edit().flags = U16::new(old | flags::PREALLOC);
    }
}

/// Makes whole blocks of a range read as zeros without writing them: the range is mapped and unwritten afterwards.
/// Shared blocks are unmapped first. Otherwise like [`preallocate`].
///
/// # Errors
/// Those of [`preallocate`] and [`punch`].
pub fn zero(file: File<'_>, from: FileBlock, to: FileBlock, size: Option<u64>) -> Result<()> {
    if shares(&file.inode.read()) {
        punch(file, from, to)?;
        return preallocate(file, from, to, size);
    }
    let mut at = from;
    while at < to {
        let mut change = file.begin_alloc(PIECES_AT_ONCE as u32 * file.shared.reservations.map_blocks)?;
        change.locked.check_extent_count(ForkKind::Data, 2 * PIECES_AT_ONCE)?;
        let (found, end) = change.pieces(at..to)?;
        change.reserve_rmap_to_cut(&found, true)?;
        for piece in found {
            if let Some((_, false)) = piece.mapping {
                change.edit(|fork, tx, space| fork.mark(tx, space, piece.range(), true))?;
            }
        }
        change.commit()?;
        at = end;
    }
    preallocate(file, from, to, size)
}
