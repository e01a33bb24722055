//! Changes of the map of a file's contents, each a transaction or a row of them.
//!
//! | part | does |
//! |---|---|
//! | [`claim()`], [`room_to_write`] | what data that is on its way will take: blocks, and space in a btree |
//! | [`map()`] | tells what is mapped, and what of it is shared |
//! | [`finish()`] | data has been written: maps its blocks, or marks them as written, and moves the size |
//! | [`set_size`], [`truncate`], [`clear_behind`], [`trim`] | the size, and what is mapped behind it |
//! | [`punch`] | unmaps |
//! | [`preallocate()`], [`zero`], [`fill_units`] | maps unwritten blocks |
//! | [`collapse`], [`insert`] | moves what lies behind |
//! | [`share()`] | maps another file's blocks |
//! | `step` | one transaction on one file: what all of these consist of |
//!
//! # Invariants
//! - Whenever the machine stops, the file is whole, and shows no blocks that were not its own: a change of many extents
//!   may be there in part, up to a border, as with Linux.
//! - Before a step changes anything, it holds the blocks that its map's tree may take. So running out of space is an
//!   error of the call, with nothing changed by that step; an error in the middle of a step shuts the volume down.
//! - Times and the set-user-ID bits go with the first step of what a user asks for, and with no others.
//!
//! # Locking
//! Each step reserves log space, then locks the inode; of two, the lower number first. The caller holds no inode, and
//! the file's `layout` lock (docs/contents.md): alone, but for [`map()`] and [`finish()`]. So between two steps of a
//! call the map stays as it is, while all else of the inode may change.

mod claim;
mod finish;
mod map;
mod preallocate;
mod share;
mod shift;
mod size;
pub(crate) mod step;
#[cfg(test)]
mod tests;

use base::errno;
use error::Error;

pub use claim::{claim, room_to_write};
pub use finish::{Finish, Written, finish};
pub use map::{Mapped, map};
pub use preallocate::{fill_units, preallocate, unit, zero};
pub use share::{Share, share};
pub use shift::{collapse, insert};
pub use size::{clear_behind, drop_set_id, punch, set_size, trim, truncate};

/// Most records of a map that one step changes: two that go, one that comes, and one that is cut.
pub(crate) const CHANGES_AT_ONCE: u32 = 4;
/// Most mapped pieces that one step unmaps or marks.
const PIECES_AT_ONCE: usize = 2;
/// Most small files that one transaction finishes.
pub(crate) const FINISHED_AT_ONCE: usize = 8;
/// Most runs of claimed blocks that it takes for them.
pub(crate) const RUNS_AT_ONCE: usize = 2;

const NOT_A_MAP: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "the file keeps no blocks of its own: it is not a regular one",
};
const TOO_FAR: Error = Error::Refused { errno: errno::EFBIG, why: "no file can be so long" };
