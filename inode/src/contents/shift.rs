//! Ranges taken out of a file, or put into it: what lies behind moves.
//!
//! Extents move one by one, each in a transaction of its own; blocks stay where they are on the disk. The border of an
//! insertion may lie within an extent, which is split first: that may take blocks. To move an extent takes none, as its
//! record stays where it is between the others: so what has begun to move does not stop half way for want of space.

use std::sync::Arc;

use ag::Groups;
use base::{FileBlock, errno};
use error::Error;
use format::extent::MAX_FILE_BLOCKS;

use super::punch;
use super::step::File;
use crate::inode::Inode;
use crate::shared::Shared;

const END: FileBlock = FileBlock(MAX_FILE_BLOCKS);
const PAST_END: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "the range reaches to the end of the file: truncate it instead",
};
const BEHIND_END: Error =
    Error::Refused { errno: errno::EINVAL, why: "the place is not within the file: extend it instead" };
const TOO_FAR: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "what lies behind would be moved further than a file can reach",
};

/// Takes `count` blocks out of a file: what lies behind moves there, and the file is so much shorter. The times move.
///
/// A power cut in between leaves a file of which the first extents behind the range have moved, and the others not.
///
/// # Errors
/// `EINVAL` where the range does not end before the file does, or it is no regular file; no space, where an extent is
/// to be cut in two, with nothing changed; damage, a volume that was shut down.
pub fn collapse(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    from: FileBlock,
    count: u64,
) -> Result<(), Error> {
    let file = File { shared, groups, inode };
    let size = inode.read().size();
    let end = from.get().checked_add(count).filter(|end| *end < MAX_FILE_BLOCKS).ok_or(PAST_END)?;
    if end << shared.geometry.block_log >= size {
        return Err(PAST_END);
    }
    punch(shared, groups, inode, from, FileBlock(end))?;
    let mut at = FileBlock(end);
    while let Some(extent) = file.look(|list| list.get(list.index_at(at)))? {
        file.shift(extent.offset, FileBlock(extent.offset.get() - count))?;
        at = extent.end();
    }
    let mut step = file.giving()?;
    let shorter = step.locked.size().saturating_sub(count << shared.geometry.block_log);
    step.locked.set_size(shorter);
    step.modified();
    step.commit().map(drop)
}

/// Puts a hole of `count` blocks into a file: what lies behind moves, and the file is so much longer. The times move.
///
/// A power cut in between leaves a file of the new size of which the last extents have moved, and the others not.
///
/// # Errors
/// `EINVAL` where the place does not lie within the file, or the last extent would lie further than a file can reach;
/// `EFBIG` where the size would; no space, where an extent is to be split, with nothing changed; damage, a volume that
/// was shut down.
pub fn insert(
    shared: &Shared,
    groups: &Arc<Groups>,
    inode: &Arc<Inode>,
    from: FileBlock,
    count: u64,
) -> Result<(), Error> {
    let file = File { shared, groups, inode };
    let old = inode.read().size();
    let block_log = shared.geometry.block_log;
    if from.get() >= MAX_FILE_BLOCKS || from.get() << block_log >= old {
        return Err(BEHIND_END);
    }
    let longer = count.checked_mul(1 << block_log).and_then(|bytes| old.checked_add(bytes));
    let longer = longer.filter(|size| i64::try_from(*size).is_ok()).ok_or(super::TOO_FAR)?;
    if file.look(|list| list.end().get())?.saturating_add(count) > MAX_FILE_BLOCKS {
        return Err(TOO_FAR);
    }
    // The size first: nothing that is moved may lie behind the end.
    let splits = file.look(|list| list.splice_split(from).is_some())?;
    let mut step = if splits { file.taking(shared.reservations.map_blocks)? } else { file.giving()? };
    step.has_room_for(1)?;
    // What is mapped there is cut in two by the last of the moves, which must not be refused.
    let piece = step.list()?.piece(from, END);
    step.expect_room_to_cut(&[(from, piece)], true)?;
    let _rooms = std::mem::take(&mut step.rooms);
    if splits {
        step.edit(|fork, tx, space| fork.split(tx, space, from))?;
    }
    step.locked.set_size(longer);
    step.modified();
    step.commit()?;
    let mut before = END;
    while let Some(extent) = file.look(|list| list.last_in(from, before))? {
        file.shift(extent.offset, FileBlock(extent.offset.get() + count))?;
        before = extent.offset;
    }
    Ok(())
}

impl File<'_> {
    /// Moves an extent, in a transaction of its own.
    fn shift(self, from: FileBlock, to: FileBlock) -> Result<(), Error> {
        let mut step = self.begin(self.groups.reserve_blocks(0)?)?;
        step.edit(|fork, tx, space| fork.shift(tx, space, (from, to)))?;
        step.commit().map(drop)
    }
}
