//! File sizes, and unmapping.

use base::FileBlock;
use error::Result;
use format::extent::MAX_FILE_BLOCKS;
use format::inode::flags;

use super::TOO_FAR;
use super::file_transaction::File;
use crate::extents::ExtentOrHole;
use crate::fork::Fork;
use crate::state::InodeState;

/// The block after the last one that a file can have.
const END: FileBlock = FileBlock(MAX_FILE_BLOCKS);
const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

/// Clears the set-user-ID bit, and the set-group-ID bit if the group may execute the file (otherwise it means mandatory
/// locking), as Linux does when contents change. Not called for users who may set these bits.
pub fn drop_set_id(state: &mut InodeState) {
    let mode = state.mode();
    let group = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
    if mode & (S_ISUID | group) != 0 {
        state.set_mode(mode & !(S_ISUID | group));
    }
}

/// Sets the size. Blocks beyond a smaller size are unmapped and freed, from the end. Updates the times.
///
/// A power cut in between leaves blocks beyond the end, which are harmless. The caller zeroes the bytes from the new
/// end to the end of its block, and clears set-user-ID bits ([`drop_set_id`]) where it must.
///
/// # Errors
/// `EFBIG`; `EINVAL` if the file is not regular; damage; a volume that was shut down.
pub fn set_size(file: File<'_>, new: u64) -> Result<()> {
    resize(file, new, false)
}

/// Like [`set_size`] for a size smaller than that in memory: blocks beyond it are freed even if the size on disk, which
/// lags behind writes, is smaller still.
///
/// # Errors
/// Those of [`set_size`].
pub fn truncate(file: File<'_>, new: u64) -> Result<()> {
    resize(file, new, true)
}

fn resize(file: File<'_>, new: u64, shrinks: bool) -> Result<()> {
    if new > i64::MAX as u64 {
        return Err(TOO_FAR);
    }
    let from = FileBlock(new.div_ceil(file.shared.geometry.block_size.into()));
    let mut change = file.begin_free()?;
    let shrinks = shrinks || new < change.locked.size();
    if shrinks {
        let (mut map, tx) = change.map()?;
        map.load(Some(tx), END)?;
    }
    change.locked.set_size(new);
    change.touch();
    let more = shrinks && change.unmap(from, END)?;
    change.commit()?;
    if more { unmap_rest(file, from, END) } else { Ok(()) }
}

/// Unmaps a range, in transactions that split nothing.
fn unmap_rest(file: File<'_>, from: FileBlock, to: FileBlock) -> Result<()> {
    loop {
        let mut change = file.begin_free()?;
        let more = change.unmap(from, to)?;
        change.commit()?;
        if !more {
            return Ok(());
        }
    }
}

/// Unmaps and frees whole blocks. Updates the times.
///
/// # Errors
/// No space if an extent must be split; `EINVAL` if the file is not regular; damage; a volume that was shut down.
pub fn punch(file: File<'_>, from: FileBlock, to: FileBlock) -> Result<()> {
    let first = file.with_map(|map| map.find(None, from))?;
    let splits = first.is_some_and(|extent| extent.offset < from && to < extent.end());
    let mut change =
        if splits { file.begin_alloc(file.shared.reservations.map_blocks)? } else { file.begin_free()? };
    // The first piece to be unmapped. Later ones are only cut at the start of the range.
    if let Some(last) = change.last_in(from, to)? {
        let mapping = Some((last.start, last.unwritten));
        let piece = ExtentOrHole { offset: last.offset, count: last.count, mapping };
        change.reserve_rmap_to_cut(&[piece], false)?;
    }
    change.modified();
    let more = change.unmap(from, to)?;
    change.commit()?;
    if more { unmap_rest(file, from, to) } else { Ok(()) }
}

/// Frees written blocks from `end` on: a power cut came after a write was finished and before the size was, and the
/// data would become contents when the file grows. Unwritten (preallocated) blocks stay.
///
/// # Errors
/// Those of [`set_size`].
pub fn free_written_beyond(file: File<'_>, end: FileBlock) -> Result<()> {
    let mut before = END;
    let mut last_written = |map: &mut Fork<'_>| {
        while let Some(last) = map.last_in(None, end, before)? {
            before = last.offset;
            if !last.unwritten {
                return Ok(Some(last));
            }
        }
        Ok(None)
    };
    while let Some(last) = file.with_map(&mut last_written)? {
        let mut change = file.begin_free()?;
        change.unmap(last.offset, last.end())?;
        change.commit()?;
    }
    Ok(())
}

/// Frees blocks from `end` on, unless the file is marked as preallocated or append-only. Returns whether it freed any.
///
/// # Errors
/// Those of [`set_size`].
pub fn trim(file: File<'_>, end: FileBlock) -> Result<bool> {
    let keeps = file.inode.read().core().flags.get() & (flags::PREALLOC | flags::APPEND) != 0;
    if keeps || file.with_map(|map| map.end(None))? <= end {
        return Ok(false);
    }
    unmap_rest(file, end, END)?;
    Ok(true)
}
