//! Finishing a write: blocks are mapped, or marked as written, and the size on disk grows.
//!
//! # Invariants
//! - The data has been written, and the log was told ([`Backing::note_unlogged_write`](backing::Backing)): the
//!   checkpoint with these transactions flushes the device before it becomes stable.
//! - The size on disk grows with the last transaction of a file, so it never covers blocks that are not written.

use std::ops::Range;
use std::sync::Arc;

use ag::{Claim, ExtentOwner, Groups, RmapChange, RmapReservation, RmapReservations};
use base::FileBlock;
use error::{Error, Result};
use format::extent::Extent;
use format::inode::ForkKind;
use journal::engine::{Loggable, Transaction};
use smallvec::SmallVec;

use super::backing::VolumeBacking;
use super::file_transaction::{File, FileTransaction, cut, expect_map, shares};
use super::tuning::{FINISHED_AT_ONCE, PIECES_AT_ONCE, RUNS_AT_ONCE};
use crate::extents::ExtentOrHole;
use crate::fork::Fork;
use crate::group_space::GroupSpace;
use crate::inode::{Inode, LockedInode};
use crate::shared::Shared;
use crate::state::{ForkFormat, InodeState, InodeTime};

type WrittenRange = backing::WrittenRange<Claim>;
type WriteCompletion<'f> = backing::WriteCompletion<'f, VolumeBacking>;

/// Blocks that are mapped by one call, each with a claim, fit 32 bits.
fn clamp(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// The blocks of the file.
fn range_of(written: &WrittenRange) -> Range<FileBlock> {
    written.offset..FileBlock(written.offset.get() + written.count)
}

/// Finishes writes: see [`Backing::finish`](backing::Backing::finish). Small files share a transaction while their
/// inode numbers ascend and their claims lie in one AG and are contiguous.
///
/// # Errors
/// Damage; no space, if less was reserved than was claimed; a volume that was shut down. Any error of a transaction
/// shuts the volume down: the written data is lost, and no caller may take it for stable.
pub fn finish(shared: &Shared, groups: &Arc<Groups>, files: &mut [WriteCompletion<'_>]) -> Result<()> {
    // First: an error here leaves all reservations to the caller, and the volume as it is.
    let inodes = files.iter().map(|file| file.file.upgrade()).collect::<Result<InodeList, _>>()?;
    let result = finish_all(shared, groups, files, &inodes);
    if let Err(error) = &result {
        shared.target.shut_down(&format!("a write could not be finished: {error}"));
    }
    result
}

/// The inodes of a call, which rarely has more files than a batch of writeback.
type InodeList = SmallVec<[Arc<Inode>; 2 * FINISHED_AT_ONCE]>;

fn finish_all(
    shared: &Shared,
    groups: &Arc<Groups>,
    mut files: &mut [WriteCompletion<'_>],
    mut inodes: &[Arc<Inode>],
) -> Result<()> {
    while let [first, ..] = inodes {
        let small = leading_small(files);
        let mut finished = 0;
        if small > 1 {
            let files = files.get_mut(..small).unwrap_or_default();
            finished = finish_small(shared, groups, files, inodes)?;
        }
        if let (0, Some(file)) = (finished, files.first_mut()) {
            finish_alone(File { shared, groups, inode: first }, file)?;
            finished = 1;
        }
        files = files.get_mut(finished..).unwrap_or_default();
        inodes = inodes.get(finished..).unwrap_or_default();
    }
    Ok(())
}

/// Returns how many of the first files may share a transaction, as far as this is known without their locks.
fn leading_small(files: &[WriteCompletion<'_>]) -> usize {
    let ag = |file: &WriteCompletion<'_>| Some(file.written.first()?.claim.as_ref()?.ag());
    let group = files.iter().find_map(ag);
    let mut last = None;
    let fits = |file: &&WriteCompletion<'_>| {
        let in_group = ag(file).is_none_or(|ag| Some(ag) == group);
        let ascends = last.replace(file.file.ino()) < Some(file.file.ino());
        file.written.len() <= 1 && in_group && ascends
    };
    files.iter().take(FINISHED_AT_ONCE).take_while(fits).count()
}

/// Returns whether a file's extents are in its inode and stay there, and the write changes one range without freeing
/// blocks.
fn is_small(shared: &Shared, state: &mut InodeState, written: Option<&WrittenRange>) -> Result<bool> {
    expect_map(state)?;
    let is_inline = state.fork_format(ForkKind::Data) == Some(ForkFormat::Extents);
    let max = state.inline_extents_max(ForkKind::Data);
    Fork::open(shared, state, ForkKind::Data)?;
    let Some(written) = written else { return Ok(true) };
    let Some(extents) = state.list(ForkKind::Data) else { return Ok(false) };
    let end = range_of(written).end;
    let is_simple = match &written.claim {
        Some(claim) => {
            u64::from(claim.count()) == written.count && extents.last_in(written.offset, end).is_none()
        }
        None => extents.find(written.offset).is_some_and(|extent| end <= extent.end()),
    };
    Ok(is_inline && is_simple && extents.len() + 2 <= max)
}

/// Takes the rmap reservation of a small file's write, if it marks a part of an extent.
fn rmap_to_mark(
    file: File<'_>,
    tx: &mut Transaction,
    state: &mut InodeState,
    written: Option<&WrittenRange>,
    spare: &mut RmapReservations,
) -> Result<Option<RmapReservation>> {
    let Some(written) = written.filter(|written| written.claim.is_none()) else { return Ok(None) };
    let mut fork = Fork::open(file.shared, state, ForkKind::Data)?;
    let piece = fork.piece(Some(tx), written.offset, range_of(written).end)?;
    let cut = cut(&mut fork, tx, &[piece], true)?;
    cut.first().map_or(Ok(None), |start| file.rmap_to_split(*start, RmapChange::Convert, spare))
}

/// Finishes as many of the first files as fit one transaction. Returns their number.
fn finish_small(
    shared: &Shared,
    groups: &Arc<Groups>,
    files: &mut [WriteCompletion<'_>],
    inodes: &[Arc<Inode>],
) -> Result<usize> {
    let mut tx = shared.begin(shared.reservations.small_files)?;
    let mut locked: SmallVec<[LockedInode; FINISHED_AT_ONCE]> = SmallVec::new();
    let (mut runs, mut end) = (0, None);
    let mut rmap: SmallVec<[RmapReservation; FINISHED_AT_ONCE]> = SmallVec::new();
    for (file, inode) in files.iter_mut().zip(inodes) {
        let mut state = inode.lock();
        let written = file.written.first();
        if let Some(claim) = written.and_then(|written| written.claim.as_ref()) {
            runs += usize::from(end != Some(claim.start().get()));
            end = Some(claim.start().get() + u64::from(claim.count()));
        }
        // An error of a file is returned when the file is finished alone.
        if runs > RUNS_AT_ONCE || !matches!(is_small(shared, &mut state, written), Ok(true)) {
            break;
        }
        match rmap_to_mark(File { shared, groups, inode }, &mut tx, &mut state, written, &mut file.rmap) {
            Ok(reservation) => rmap.extend(reservation),
            Err(_) => break,
        }
        locked.push(state);
    }
    let files = files.get_mut(..locked.len()).unwrap_or_default();
    if files.is_empty() {
        return Ok(0);
    }
    // Only for claimed blocks. Reservations for extent btrees stay with the files, which may have more to write.
    let mut blocks = groups.attach_blocks(files.iter_mut().map(take_claimed).sum());
    let mut extents: SmallVec<[Option<Extent>; FINISHED_AT_ONCE]> = SmallVec::new();
    let mut claims: SmallVec<[Claim; FINISHED_AT_ONCE]> = SmallVec::new();
    for file in files.iter_mut() {
        let claim =
            file.written.first_mut().and_then(|written| Some((written.offset, written.claim.take()?)));
        extents.push(claim.as_ref().map(|(offset, claim)| extent_of(*offset, claim)));
        claims.extend(claim.map(|(_, claim)| claim));
    }
    groups.take_claimed(&mut tx, &mut blocks, claims, ExtentOwner::Mapped)?;
    let mut space = GroupSpace::for_files(groups, &mut blocks);
    for ((file, inode), extent) in files.iter_mut().zip(&mut locked).zip(extents) {
        let mut fork = Fork::open(shared, inode, ForkKind::Data)?;
        match (extent, file.written.first()) {
            (Some(extent), _) => fork.map(&mut tx, &mut space, extent)?,
            (None, Some(written)) => {
                fork.mark(&mut tx, &mut space, range_of(written), false)?;
            }
            (None, None) => {}
        }
        conclude(shared, file, inode);
        file.written.clear();
    }
    space.map_owners(&mut tx)?;
    let mut changed: SmallVec<[&mut dyn Loggable; FINISHED_AT_ONCE]> = SmallVec::new();
    changed.extend(locked.iter_mut().map(|inode| inode as &mut dyn Loggable));
    tx.commit(&mut changed)?;
    Ok(files.len())
}

/// Takes the reservation of a file's claimed blocks out of it.
fn take_claimed(file: &mut WriteCompletion<'_>) -> u32 {
    let blocks = clamp(file.claimed().min(file.reserved));
    file.reserved -= u64::from(blocks);
    blocks
}

/// Returns the extent that maps a claim.
fn extent_of(offset: FileBlock, claim: &Claim) -> Extent {
    Extent { offset, start: claim.start(), count: claim.count().into(), unwritten: false }
}

/// Updates size and times after all ranges are mapped.
fn conclude(shared: &Shared, file: &WriteCompletion<'_>, state: &mut InodeState) {
    if let Some(size) = file.size.filter(|size| *size > state.size()) {
        state.set_size(size);
    }
    if file.touch {
        state.set_times(&[InodeTime::Modify, InodeTime::Change], shared.now());
    }
}

/// Finishes one file in as many transactions as it takes.
fn finish_alone(file: File<'_>, finish: &mut WriteCompletion<'_>) -> Result<()> {
    let mut claimed = clamp(finish.claimed());
    let reserved = clamp(finish.reserved);
    finish.reserved -= u64::from(reserved);
    let tree = reserved.saturating_sub(claimed);
    let mut blocks = file.groups.attach_blocks(reserved);
    let (mut taken, mut removed_record, mut refused) = (0, false, Vec::new());
    loop {
        let mut change = file.begin(blocks)?;
        change.spare = std::mem::take(&mut finish.rmap);
        if let Some(written) = finish.written.first_mut() {
            match change.reserve_rmap_to_write(written) {
                Err(error @ Error::NoSpace { .. }) => {
                    // The ranges after it are finished nevertheless.
                    finish.refused.get_or_insert_with(|| Box::new(error));
                    refused.push(finish.written.remove(0));
                }
                reserved => {
                    reserved?;
                    let before = clamp(written.claimed());
                    taken += change.write(written, claimed, finish.records)?;
                    removed_record |= change.removed_record;
                    // More may be available by chance, if the btree freed blocks in between.
                    debug_assert!(
                        removed_record || taken <= tree,
                        "an extent btree took {taken} blocks, and {tree} were reserved for it"
                    );
                    claimed -= before - clamp(written.claimed());
                    if written.count == 0 {
                        finish.written.remove(0);
                    }
                }
            }
        }
        let is_last = finish.written.is_empty();
        if is_last && refused.is_empty() {
            conclude(file.shared, finish, &mut change.locked);
        }
        finish.rmap = std::mem::take(&mut change.spare);
        blocks = change.commit()?;
        if is_last {
            finish.written = refused;
            // For what the file writes next: others must not take these blocks meanwhile.
            finish.reserved += u64::from(blocks.detach(u32::MAX));
            return Ok(());
        }
    }
}

impl FileTransaction<'_> {
    /// Reserves the rmap records that [`write`](Self::write) splits. Called before it.
    fn reserve_rmap_to_write(&mut self, written: &WrittenRange) -> Result<()> {
        let (found, _) = self.pieces(range_of(written))?;
        self.reserve_rmap_to_cut(&found, written.claim.is_none())
    }

    /// Maps or marks as much of the start of a range as one transaction may, and removes that part from `written`. For
    /// this and everything written after it, `claimed` blocks are claimed, and the map may get `records` records.
    /// Returns how many blocks the extent btree took.
    fn write(&mut self, written: &mut WrittenRange, claimed: u32, records: u64) -> Result<u32> {
        let joins = self.may_join(claimed, records);
        let (mut found, mut end) = self.pieces(range_of(written))?;
        if let (false, Some(piece)) = (joins, found.first()) {
            end = piece.range().end;
            found.truncate(1);
        }
        let count = end.get() - written.offset.get();
        let mapped = found.iter().filter(|piece| piece.mapping.is_some());
        // The whole range is claimed. If less is, the rest is not mapped.
        let claim = written.claim.as_mut().map(|claim| claim.take_front(clamp(count)));
        // This transaction must not take what is reserved for other claims, and for the btree when these are mapped.
        let (own, left) = (claim.as_ref().map_or(0, Claim::count), self.blocks.left());
        let tree = left.saturating_sub(claimed).min(2 * self.file.shared.reservations.map_blocks);
        let others = self.blocks.split(left.saturating_sub(own + tree));
        match claim {
            Some(claim) => {
                self.replace(written.offset, claim, mapped.map(ExtentOrHole::range), joins)?;
            }
            None => {
                self.locked.check_extent_count(ForkKind::Data, 2 * PIECES_AT_ONCE)?;
                for piece in mapped {
                    let range = piece.range();
                    if piece.mapping.is_some_and(|(_, unwritten)| unwritten) {
                        self.edit(|fork, tx, space| fork.joining(joins).mark(tx, space, range, false))?;
                    }
                }
            }
        }
        self.blocks.join(others);
        (written.offset, written.count) = (end, written.count - count);
        Ok(left.saturating_sub(own + self.blocks.left()))
    }

    /// Returns whether the next transaction may remove records: by joining neighbours, or by one extent in place of
    /// several. Everybody may take a block that the btree frees by that, though later records may need it again. So the
    /// btree keeps its records, unless the volume gives as many blocks as the rest may need whatever the btree looks
    /// like then. On a volume with free space it does: they are reserved here.
    fn may_join(&mut self, claimed: u32, records: u64) -> bool {
        const AT_ONCE: u64 = 2;
        let extents = self.locked.extent_count(ForkKind::Data);
        let reservations = &self.file.shared.reservations;
        let now = reservations.map_blocks_for(extents, AT_ONCE);
        let later = reservations.map_blocks_for(extents + AT_ONCE, records);
        let need = u64::from(claimed).saturating_add(now).saturating_add(later);
        u32::try_from(need).is_ok_and(|need| self.blocks.top_up(need))
    }

    /// Maps claimed blocks in place of the ranges `old`, each mapped by one extent.
    fn replace(
        &mut self,
        offset: FileBlock,
        claim: Claim,
        old: impl Iterator<Item = Range<FileBlock>>,
        joins: bool,
    ) -> Result<()> {
        if claim.count() == 0 {
            return Ok(());
        }
        self.locked.check_extent_count(ForkKind::Data, 3)?;
        let extent = extent_of(offset, &claim);
        let groups = self.file.groups;
        groups.take_claimed(&mut self.tx, &mut self.blocks, [claim], ExtentOwner::Mapped)?;
        let shared = shares(&self.locked);
        for range in old {
            if !joins {
                // There is only one.
                let range = range.start..range.end.min(extent.end());
                return self.edit(|fork, tx, space| fork.replace(tx, space, range, extent.start, shared));
            }
            self.edit(|fork, tx, space| fork.free(tx, space, range, shared))?;
        }
        self.edit(|fork, tx, space| fork.joining(joins).map(tx, space, extent))
    }
}
