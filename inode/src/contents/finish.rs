//! What a write ends with: its blocks are mapped, or marked as written, and the size moves.
//!
//! # Invariants
//! - The data has been written, and the log was told so (`written_past_log`): the checkpoint that holds these
//!   transactions flushes the device before it becomes stable.
//! - The size on disk moves with the last step of a file, so it never stands behind blocks that are not written.

use std::sync::Arc;

use ag::{Claim, ExtentOwner, Groups, RmapChange, RmapReservation, RmapReservations};
use base::FileBlock;
use error::Error;
use format::extent::Extent;
use format::inode::ForkKind;
use format::timestamp::Timestamp;
use journal::engine::Loggable;
use smallvec::SmallVec;

use super::step::{File, Step, cut, expect_map, list, pieces, shares};
use super::{FINISHED_AT_ONCE, PIECES_AT_ONCE, RUNS_AT_ONCE};
use crate::fork::{Fork, TOO_MANY};
use crate::group_space::GroupSpace;
use crate::inode::{Inode, LockedInode};
use crate::shared::Shared;
use crate::state::{ForkFormat, InodeState, InodeTime};

/// A range of a file that has been written.
#[derive(Debug)]
pub struct Written {
    /// The first block.
    pub at: FileBlock,
    /// Blocks.
    pub count: u32,
    /// Where they lie now: as many blocks. Whatever was mapped before is unmapped and given back. `None` where the
    /// file's own unwritten blocks were written in their place; what of them was written before stays as it is.
    pub claim: Option<Claim>,
}

/// A file of which something has been written.
#[derive(Debug)]
pub struct Finish {
    /// The file. The caller has a hold on it.
    pub inode: Arc<Inode>,
    /// What was written: ranges that do not overlap. Done ones are taken out.
    pub written: Vec<Written>,
    /// The size that the disk shall know of, if it is larger than what it knows: nothing before it is unwritten.
    pub size: Option<u64>,
    /// When the contents changed, if the inode is to be told.
    pub modified: Option<Timestamp>,
    /// Blocks that were reserved for this, by [`BlockReservation::give`](ag::BlockReservation::give): those that are
    /// claimed, and those that the tree of the map may take for them, by
    /// [`Reservations::map_blocks_for`](crate::reservation::Reservations::map_blocks_for). What is not used stays here
    /// for the caller.
    pub reserved: u32,
    /// Records that may come to the map by all that these blocks are reserved for.
    pub records: u64,
    /// Reservations for the reverse mappings that these writes split, by [`room_to_write`](super::room_to_write). What
    /// is not used stays here. If there is none for a group, [`finish()`] reserves it.
    pub rooms: RmapReservations,
    /// Told by [`finish()`]: there was no room for the reverse mappings of what is left in `written`, which is mapped
    /// as before. The size has not moved then.
    pub refused: Option<Box<Error>>,
}

/// Finishes writes. Several small files are finished in one transaction, where their claims lie in one allocation group
/// and touch: so they are best handed over in the order of their inodes, with claims in the same order. Sorts them by
/// inode. A file may be refused, and says so; the others are finished all the same.
///
/// # Errors
/// Damage, no space where less was reserved than was claimed, a volume that was shut down. The volume is shut down in
/// any case: what was written cannot be kept, and nobody may believe it is.
pub fn finish(shared: &Shared, groups: &Arc<Groups>, files: &mut [Finish]) -> Result<(), Error> {
    files.sort_by_key(|file| file.inode.ino());
    let done = finish_all(shared, groups, files);
    if let Err(error) = &done {
        shared.target.shut_down(&format!("a write could not be finished: {error}"));
    }
    done
}

fn finish_all(shared: &Shared, groups: &Arc<Groups>, mut rest: &mut [Finish]) -> Result<(), Error> {
    while !rest.is_empty() {
        let small = leading_small(rest);
        let mut done = 0;
        if small > 1 {
            done = finish_small(shared, groups, rest.get_mut(..small).unwrap_or_default())?;
        }
        if let (0, Some(first)) = (done, rest.first_mut()) {
            finish_alone(shared, groups, first)?;
            done = 1;
        }
        rest = rest.get_mut(done..).unwrap_or_default();
    }
    Ok(())
}

/// How many from the first on may share a transaction, as far as can be seen without their locks.
fn leading_small(files: &[Finish]) -> usize {
    let ag = |file: &Finish| Some(file.written.first()?.claim.as_ref()?.ag());
    let group = files.iter().find_map(ag);
    let mut last = None;
    let fits = |file: &&Finish| {
        let in_group = ag(file).is_none_or(|ag| Some(ag) == group);
        let ascends = last.replace(file.inode.ino()) < Some(file.inode.ino());
        file.written.len() <= 1 && in_group && ascends
    };
    files.iter().take(FINISHED_AT_ONCE).take_while(fits).count()
}

/// Whether a file's map lies in its inode and will, and the write changes one place of it that needs no blocks freed.
fn is_small(shared: &Shared, state: &mut InodeState, written: Option<&Written>) -> Result<bool, Error> {
    expect_map(state)?;
    let fits = state.fork_format(ForkKind::Data) == Some(ForkFormat::Extents);
    let most = state.inline_extents_max(ForkKind::Data);
    let extents = list(shared, state)?;
    let Some(written) = written else { return Ok(true) };
    let to = FileBlock(written.at.get() + u64::from(written.count));
    let simple = match &written.claim {
        Some(claim) => claim.count() == written.count && extents.last_in(written.at, to).is_none(),
        None => extents.find(written.at).is_some_and(|extent| to <= extent.end()),
    };
    Ok(fits && simple && extents.len() + 2 <= most)
}

/// Room for the reverse mappings that a small file's write cuts, if it marks a part of an extent.
fn room_to_mark(
    file: File<'_>,
    state: &mut InodeState,
    written: Option<&Written>,
    spare: &mut RmapReservations,
) -> Result<Option<RmapReservation>, Error> {
    let Some(written) = written.filter(|written| written.claim.is_none()) else { return Ok(None) };
    let extents = list(file.shared, state)?;
    let piece = extents.piece(written.at, FileBlock(written.at.get() + u64::from(written.count)));
    let cut = cut(extents, &[(written.at, piece)], true);
    cut.first().map_or(Ok(None), |start| file.room_to_split(*start, RmapChange::Convert, spare))
}

/// Finishes as many files from the first on as can be in one transaction; how many.
fn finish_small(shared: &Shared, groups: &Arc<Groups>, files: &mut [Finish]) -> Result<usize, Error> {
    let mut tx = shared.begin(shared.reservations.small_files)?;
    let mut locked: SmallVec<[LockedInode; FINISHED_AT_ONCE]> = SmallVec::new();
    let (mut runs, mut end) = (0, None);
    let mut rooms: SmallVec<[RmapReservation; FINISHED_AT_ONCE]> = SmallVec::new();
    for file in files.iter_mut() {
        let mut inode = file.inode.lock();
        let written = file.written.first();
        if let Some(claim) = written.and_then(|written| written.claim.as_ref()) {
            runs += usize::from(end != Some(claim.start().get()));
            end = Some(claim.start().get() + u64::from(claim.count()));
        }
        // What is wrong with a file is told when it is finished alone.
        if runs > RUNS_AT_ONCE || !matches!(is_small(shared, &mut inode, written), Ok(true)) {
            break;
        }
        match room_to_mark(File { shared, groups, inode: &file.inode }, &mut inode, written, &mut file.rooms)
        {
            Ok(room) => rooms.extend(room),
            Err(_) => break,
        }
        locked.push(inode);
    }
    let files = files.get_mut(..locked.len()).unwrap_or_default();
    if files.is_empty() {
        return Ok(0);
    }
    // Nothing is taken for maps: what is reserved for these stays with the files, which may have more to write.
    let mut blocks = groups.given_blocks(files.iter_mut().map(Finish::give_claimed).sum());
    let mut extents: SmallVec<[Option<Extent>; FINISHED_AT_ONCE]> = SmallVec::new();
    let mut claims: SmallVec<[Claim; FINISHED_AT_ONCE]> = SmallVec::new();
    for file in files.iter_mut() {
        let claim = file.written.first_mut().and_then(|written| Some((written.at, written.claim.take()?)));
        extents.push(claim.as_ref().map(|(at, claim)| extent_of(*at, claim)));
        claims.extend(claim.map(|(_, claim)| claim));
    }
    groups.take_claimed(&mut tx, &mut blocks, claims, ExtentOwner::Mapped)?;
    for ((file, inode), extent) in files.iter_mut().zip(&mut locked).zip(extents) {
        let mut space = GroupSpace::for_data(groups, &mut blocks);
        let mut fork = Fork::open(shared, inode, ForkKind::Data)?;
        match (extent, file.written.first()) {
            (Some(extent), _) => fork.map(&mut tx, &mut space, extent)?,
            (None, Some(written)) => {
                let to = FileBlock(written.at.get() + u64::from(written.count));
                fork.mark(&mut tx, &mut space, (written.at, to), false)?;
            }
            (None, None) => {}
        }
        conclude(file, inode);
        file.written.clear();
    }
    let mut changed: SmallVec<[&mut dyn Loggable; FINISHED_AT_ONCE]> = SmallVec::new();
    changed.extend(locked.iter_mut().map(|inode| inode as &mut dyn Loggable));
    tx.commit(&mut changed)?;
    Ok(files.len())
}

/// The mapping that a claim becomes.
fn extent_of(at: FileBlock, claim: &Claim) -> Extent {
    Extent { offset: at, start: claim.start(), count: claim.count().into(), unwritten: false }
}

/// Size and times, when all is mapped.
fn conclude(file: &Finish, state: &mut InodeState) {
    if let Some(size) = file.size.filter(|size| *size > state.size()) {
        state.set_size(size);
    }
    if let Some(time) = file.modified {
        state.set_times(&[InodeTime::Modify, InodeTime::Change], time);
    }
}

/// Finishes one file in as many transactions as it takes.
fn finish_alone(shared: &Shared, groups: &Arc<Groups>, finish: &mut Finish) -> Result<(), Error> {
    let inode = Arc::clone(&finish.inode);
    let file = File { shared, groups, inode: &inode };
    let mut claimed = finish.written.iter().map(Written::claimed).sum();
    let share = finish.reserved.saturating_sub(claimed);
    let mut blocks = groups.given_blocks(std::mem::take(&mut finish.reserved));
    let records = finish.records;
    let (mut taken, mut took_record, mut refused) = (0, false, Vec::new());
    loop {
        let mut step = file.begin(blocks)?;
        step.spare = std::mem::take(&mut finish.rooms);
        if let Some(written) = finish.written.first_mut() {
            match step.expect_room_to_write(written) {
                Err(error @ Error::NoSpace { .. }) => {
                    // What lies behind it is finished all the same.
                    finish.refused.get_or_insert_with(|| Box::new(error));
                    refused.push(finish.written.remove(0));
                }
                ready => {
                    ready?;
                    let before = written.claimed();
                    taken += step.write(written, (claimed, records))?;
                    took_record |= step.took_record;
                    // What is taken beyond that was to be had by luck, unless the tree gave blocks back in between.
                    debug_assert!(
                        took_record || taken <= share,
                        "{taken} blocks were taken for an extent map, and {share} were set aside for it"
                    );
                    claimed -= before - written.claimed();
                    if written.count == 0 {
                        finish.written.remove(0);
                    }
                }
            }
        }
        let is_last = finish.written.is_empty();
        if is_last && refused.is_empty() {
            conclude(finish, &mut step.locked);
        }
        finish.rooms = std::mem::take(&mut step.spare);
        blocks = step.commit()?;
        if is_last {
            finish.written = refused;
            // The file may have more to write, and then nobody else has taken these meanwhile.
            finish.reserved = blocks.give(u32::MAX);
            return Ok(());
        }
    }
}

impl Finish {
    /// For a file of which these ranges were written, with `reserved` blocks for `records`. Neither the size nor the
    /// times change.
    pub fn new(inode: Arc<Inode>, written: Vec<Written>, (reserved, records): (u32, u64)) -> Self {
        let rooms = RmapReservations::default();
        Self { inode, written, size: None, modified: None, reserved, records, rooms, refused: None }
    }

    /// Takes out what is reserved for the blocks that are claimed.
    fn give_claimed(&mut self) -> u32 {
        let claimed: u32 = self.written.iter().map(Written::claimed).sum();
        let given = claimed.min(self.reserved);
        self.reserved -= given;
        given
    }
}

impl Written {
    /// Blocks that are claimed for it.
    fn claimed(&self) -> u32 {
        self.claim.as_ref().map_or(0, Claim::count)
    }
}

impl Step<'_> {
    /// Asked before [`write`](Self::write): room for the reverse mappings that it cuts.
    fn expect_room_to_write(&mut self, written: &Written) -> Result<(), Error> {
        let to = FileBlock(written.at.get() + u64::from(written.count));
        let (found, _) = pieces(self.list()?, (written.at, to), PIECES_AT_ONCE);
        self.expect_room_to_cut(&found, written.claim.is_none())
    }

    /// Does as much of a range as one transaction may, from its beginning; the range is what is left then. For it and
    /// what is written after it, `claimed` blocks are claimed, and `records` may come to the map. Returns how many
    /// blocks the tree of the map took.
    fn write(&mut self, written: &mut Written, (claimed, records): (u32, u64)) -> Result<u32, Error> {
        let to = FileBlock(written.at.get() + u64::from(written.count));
        let joins = self.may_join(claimed, records)?;
        let (mut found, mut end) = pieces(self.list()?, (written.at, to), PIECES_AT_ONCE);
        if let (false, Some((at, piece))) = (joins, found.first()) {
            end = FileBlock(at.get() + piece.count);
            found.truncate(1);
        }
        let count = (end.get() - written.at.get()) as u32; // a part of so many
        let mapped = found.iter().filter_map(|(at, piece)| Some((*at, piece.count, piece.mapping?)));
        // All of a range is claimed; if less is, what is left over is not mapped.
        let part = written.claim.as_mut().map(|claim| claim.take_front(count));
        // What is reserved for other claims, and for the tree when they are mapped, is not this transaction's.
        let (own, left) = (part.as_ref().map_or(0, Claim::count), self.blocks.left());
        let tree = left.saturating_sub(claimed).min(2 * self.file.shared.reservations.map_blocks);
        let others = self.blocks.split(left.saturating_sub(own + tree));
        match part {
            Some(part) => {
                let old = mapped.map(|(at, count, _)| (at, FileBlock(at.get() + count)));
                self.replace(written.at, part, old, joins)?;
            }
            None => {
                self.has_room_for(2 * PIECES_AT_ONCE)?;
                for (at, count, (_, unwritten)) in mapped {
                    let range = (at, FileBlock(at.get() + count));
                    if unwritten {
                        self.edit(|fork, tx, space| fork.joining(joins).mark(tx, space, range, false))?;
                    }
                }
            }
        }
        self.blocks.join(others);
        (written.at, written.count) = (end, written.count - count);
        Ok(left.saturating_sub(own + self.blocks.left()))
    }

    /// Whether the next transaction may take records away: by joining neighbours, or one extent in place of several. A
    /// block of the tree that becomes free by that is anybody's, and what is to come may need it again. So the tree
    /// keeps its records, unless what is still reserved afterwards covers all that is to come, whatever the tree looks
    /// like then. On a volume with room it does, as more is reserved here.
    fn may_join(&mut self, claimed: u32, records: u64) -> Result<bool, Error> {
        const AT_ONCE: u64 = 2;
        let extents = self.list()?.len() as u64;
        let reservations = &self.file.shared.reservations;
        let now = reservations.map_blocks_for(extents, AT_ONCE);
        let later = reservations.map_blocks_for(extents + AT_ONCE, records);
        let need = u64::from(claimed).saturating_add(now).saturating_add(later);
        Ok(u32::try_from(need).is_ok_and(|need| self.blocks.top_up(need)))
    }

    /// Maps claimed blocks where `old` ranges are mapped, each by one extent, or nothing is.
    fn replace(
        &mut self,
        at: FileBlock,
        claim: Claim,
        old: impl Iterator<Item = (FileBlock, FileBlock)>,
        joins: bool,
    ) -> Result<(), Error> {
        if claim.count() == 0 {
            return Ok(());
        }
        self.has_room_for(3)?;
        let extent = extent_of(at, &claim);
        let groups = self.file.groups;
        groups.take_claimed(&mut self.tx, &mut self.blocks, [claim], ExtentOwner::Mapped)?;
        let shared = shares(&self.locked);
        for range in old {
            if !joins {
                // The only one.
                let range = (range.0, range.1.min(extent.end()));
                return self.edit(|fork, tx, space| fork.replace(tx, space, range, (extent.start, shared)));
            }
            self.edit(|fork, tx, space| fork.free(tx, space, range, shared))?;
        }
        self.edit(|fork, tx, space| fork.joining(joins).map(tx, space, extent))
    }

    /// Refuses a change that the counter of extents could not tell.
    pub(super) fn has_room_for(&mut self, extents: usize) -> Result<(), Error> {
        let count = (self.list()?.len() + extents) as u64;
        if self.locked.can_count_extents(ForkKind::Data, count) { Ok(()) } else { Err(TOO_MANY) }
    }
}
