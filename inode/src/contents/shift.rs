//! Removing a range from a file, or inserting one: extents after it shift.
//!
//! Extents shift one by one, each in its own transaction; their blocks stay. An insertion may be within an extent,
//! which is split first: that may take blocks. Shifting an extent takes none, as its record keeps its position in the
//! btree: so a shift never stops half way for lack of space.

use base::{FileBlock, errno};
use error::{Error, Result};
use format::extent::MAX_FILE_BLOCKS;
use format::inode::ForkKind;

use super::file_transaction::File;
use super::punch;

const END: FileBlock = FileBlock(MAX_FILE_BLOCKS);
const PAST_END: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "the range reaches to the end of the file: truncate it instead",
};
const BEYOND_END: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "the offset is not within the file: extend the file instead",
};
const TOO_FAR: Error =
    Error::Refused { errno: errno::EINVAL, why: "extents would move beyond the largest file offset" };

/// Removes a range of `count` blocks: what follows moves down, and the file gets shorter. Updates the times.
///
/// A power cut in between leaves a file in which only the first extents after the range have moved.
///
/// # Errors
/// `EINVAL` if the range reaches the end of the file, or the file is not regular; no space if an extent must be split,
/// with nothing changed; damage; a volume that was shut down.
pub fn collapse(file: File<'_>, from: FileBlock, count: u64) -> Result<()> {
    let size = file.inode.read().size();
    let end = from.get().checked_add(count).filter(|end| *end < MAX_FILE_BLOCKS).ok_or(PAST_END)?;
    if end << file.shared.geometry.block_log >= size {
        return Err(PAST_END);
    }
    punch(file, from, FileBlock(end))?;
    let mut at = FileBlock(end);
    while let Some(extent) = file.with_map(|map| map.next(None, at))? {
        file.shift(extent.offset, FileBlock(extent.offset.get() - count))?;
        at = extent.end();
    }
    let mut change = file.begin_free()?;
    let shorter = change.locked.size().saturating_sub(count << file.shared.geometry.block_log);
    change.locked.set_size(shorter);
    change.modified();
    change.commit().map(drop)
}

/// Inserts a hole of `count` blocks: what follows moves up, and the file gets longer. Updates the times.
///
/// A power cut in between leaves a file of the new size in which only the last extents have moved.
///
/// # Errors
/// `EINVAL` if the offset is not within the file, or the last extent would exceed the largest file; `EFBIG` if the size
/// would; no space if an extent must be split, with nothing changed; damage; a volume that was shut down.
pub fn insert(file: File<'_>, from: FileBlock, count: u64) -> Result<()> {
    let old = file.inode.read().size();
    let block_log = file.shared.geometry.block_log;
    if from.get() >= MAX_FILE_BLOCKS || from.get() << block_log >= old {
        return Err(BEYOND_END);
    }
    let longer = count.checked_mul(1 << block_log).and_then(|bytes| old.checked_add(bytes));
    let longer = longer.filter(|size| i64::try_from(*size).is_ok()).ok_or(super::TOO_FAR)?;
    if file.with_map(|map| map.end(None))?.get().saturating_add(count) > MAX_FILE_BLOCKS {
        return Err(TOO_FAR);
    }
    // The size first: no moved extent may lie beyond it.
    let splits = file.with_map(|map| map.find(None, from))?.is_some_and(|extent| extent.offset < from);
    let mut change =
        if splits { file.begin_alloc(file.shared.reservations.map_blocks)? } else { file.begin_free()? };
    change.locked.check_extent_count(ForkKind::Data, 1)?;
    // The last move splits the rmap record at the offset, and must not be refused.
    let (mut map, tx) = change.map()?;
    let piece = map.piece(Some(tx), from, END)?;
    change.reserve_rmap_to_cut(&[piece], true)?;
    let _rmap = std::mem::take(&mut change.rmap);
    if splits {
        change.edit(|fork, tx, space| fork.split(tx, space, from))?;
    }
    change.locked.set_size(longer);
    change.modified();
    change.commit()?;
    let mut before = END;
    while let Some(extent) = file.with_map(|map| map.last_in(None, from, before))? {
        file.shift(extent.offset, FileBlock(extent.offset.get() + count))?;
        before = extent.offset;
    }
    Ok(())
}

impl File<'_> {
    /// Moves an extent, in its own transaction.
    fn shift(self, from: FileBlock, to: FileBlock) -> Result<()> {
        let mut change = self.begin(self.groups.reserve_blocks(0)?)?;
        change.edit(|fork, tx, space| fork.shift(tx, space, from, to))?;
        change.commit().map(drop)
    }
}
