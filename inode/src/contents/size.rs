//! The size of a file, and unmapping.

use std::sync::Arc;

use ag::Groups;
use base::FileBlock;
use error::Error;
use format::extent::MAX_FILE_BLOCKS;
use format::inode::flags;

use super::TOO_FAR;
use super::step::File;
use crate::extents::{ExtentList, ExtentOrHole};
use crate::inode::Inode;
use crate::shared::Shared;
use crate::state::InodeState;

/// Behind the last block that a file can have.
const END: FileBlock = FileBlock(MAX_FILE_BLOCKS);
const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

/// The contents change: whoever runs the file no longer does so as its owner; nor as its group, where that may run it
/// at all (without that, the bit means something else). Linux spares those who may set these bits at will: then this is
/// not called.
pub fn drop_set_id(state: &mut InodeState) {
    let mode = state.mode();
    let group = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
    if mode & (S_ISUID | group) != 0 {
        state.set_mode(mode & !(S_ISUID | group));
    }
}

/// Sets the size. What is mapped behind a smaller one is unmapped and given back, from the end; the times move.
///
/// A power cut in between leaves blocks behind the end, which are harmless. The bytes between the new end and the end
/// of its block are the caller's: whoever made the file longer later must find zeros there. So are the rights of a
/// program, which some callers keep.
///
/// # Errors
/// `EFBIG`; `EINVAL` where it is no regular file; damage, a volume that was shut down.
pub fn set_size(shared: &Shared, groups: &Arc<Groups>, inode: &Arc<Inode>, new: u64) -> Result<(), Error> {
    resize(File { shared, groups, inode }, new, false)
}

/// Sets a size that is smaller than the one that users saw: what is mapped behind it is unmapped, though the size that
/// the inode tells may be smaller still, as it lags behind writes. The rest is as with [`set_size`].
///
/// # Errors
/// As [`set_size`].
pub fn truncate(shared: &Shared, groups: &Arc<Groups>, inode: &Arc<Inode>, new: u64) -> Result<(), Error> {
    resize(File { shared, groups, inode }, new, true)
}

fn resize(file: File<'_>, new: u64, shrinks: bool) -> Result<(), Error> {
    if new > i64::MAX as u64 {
        return Err(TOO_FAR);
    }
    let from = FileBlock(new.div_ceil(file.shared.geometry.block_size.into()));
    let mut step = file.giving()?;
    let shrinks = shrinks || new < step.locked.size();
    step.locked.set_size(new);
    step.touch();
    let more = shrinks && step.unmap(from, END)?;
    step.commit()?;
    if more { unmap_rest(file, (from, END)) } else { Ok(()) }
}

/// Unmaps what there is of a range, in steps that split nothing.
fn unmap_rest(file: File<'_>, (from, to): (FileBlock, FileBlock)) -> Result<(), Error> {
    loop {
        let mut step = file.giving()?;
        let more = step.unmap(from, to)?;
        step.commit()?;
        if !more {
            return Ok(());
        }
    }
}

/// Unmaps whole blocks and gives them back. The times move.
///
/// # Errors
/// No space, where an extent is to be cut in two; `EINVAL` where it is no regular file; damage, a volume that was shut
/// down.
pub fn punch(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    from: FileBlock,
    to: FileBlock,
) -> Result<(), Error> {
    let file = File { shared, groups, inode };
    let splits =
        file.look(|list| list.find(from).is_some_and(|extent| extent.offset < from && to < extent.end()))?;
    let mut step = if splits { file.taking(shared.reservations.map_blocks)? } else { file.giving()? };
    // The first to go: what lies before it in the range is cut where the range begins.
    if let Some(last) = step.list()?.last_in(from, to) {
        let piece = ExtentOrHole { count: last.count, mapping: Some((last.start, last.unwritten)) };
        step.expect_room_to_cut(&[(last.offset, piece)], false)?;
    }
    step.modified();
    let more = step.unmap(from, to)?;
    step.commit()?;
    if more { unmap_rest(file, (from, to)) } else { Ok(()) }
}

/// Unmaps what is mapped as written from `end` on: a power cut came between a write and that of the size, and what was
/// written would be contents when the file grows. What was asked for ahead of being written stays.
///
/// # Errors
/// As [`set_size`].
pub fn clear_behind(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    end: FileBlock,
) -> Result<(), Error> {
    let file = File { shared, groups, inode };
    let written = |list: &ExtentList| {
        let behind = list.as_slice().iter().skip(list.index_at(end));
        let last = behind.rev().find(|extent| !extent.unwritten);
        last.map(|last| (last.offset.max(end), last.end()))
    };
    while let Some((from, to)) = file.look(written)? {
        let mut step = file.giving()?;
        step.unmap(from, to)?;
        step.commit()?;
    }
    Ok(())
}

/// Gives back what is mapped from `end` on, unless the file's flags say that it was asked for: preallocated, or of a
/// file that only grows. Nothing else changes. Whether something was given back.
///
/// # Errors
/// As [`set_size`].
pub fn trim(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    end: FileBlock,
) -> Result<bool, Error> {
    let file = File { shared, groups, inode };
    let keeps = inode.read().core().flags.get() & (flags::PREALLOC | flags::APPEND) != 0;
    if keeps || file.look(|list| list.end() <= end)? {
        return Ok(false);
    }
    unmap_rest(file, (end, END))?;
    Ok(true)
}
