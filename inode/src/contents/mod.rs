//! Changes of a file's extent map, each in one or more transactions.
//!
//! | part | does |
//! |---|---|
//! | [`VolumeBacking`] | what the cache of file contents uses: [`Backing`](::backing::Backing) for the files of a volume |
//! | [`claim()`] | claims free blocks for data in flight |
//! | [`map()`], [`map_first`] | visits mappings, and whether they are shared |
//! | [`finish()`] | finishes a write: maps its blocks or marks them as written, and raises the size |
//! | [`set_size`], [`truncate`], [`free_written_beyond`], [`trim`] | the size, and blocks beyond it |
//! | [`punch`] | unmaps |
//! | [`preallocate()`], [`zero`], [`fill_units`] | maps unwritten blocks |
//! | [`collapse`], [`insert`] | shifts extents |
//! | [`share()`] | maps blocks of another file |
//! | [`File`], `file_transaction` | the file; one transaction on one file, on which all of these are built |
//! | `tuning` | bounds of one transaction |
//!
//! # Invariants
//! - After a power cut the file is whole, and shows no blocks that were not its own. A change of many extents may be
//!   there in part, up to some offset, as on Linux.
//! - Before a transaction changes anything, it has reserved the blocks that the extent btree may take. So a call that
//!   runs out of space has changed nothing in that transaction. An error in the middle of a transaction shuts the
//!   volume down.
//! - The first transaction of a user's change updates the times and clears the set-user-ID bits; no other does.
//!
//! # Locking
//! Each transaction reserves log space and then locks the inode; of two inodes the lower number first. The caller holds
//! no inode lock, but the file's `layout` lock (docs/contents.md): exclusive, except for [`map()`] and [`finish()`]. A
//! caller of [`peek_map`] tries it in the section, in which the inode does not change: if nobody holds it then, no call
//! is half done. Between two transactions of a call the map does not change; everything else of the inode may.

mod backing;
mod claim;
pub(crate) mod file_transaction;
mod finish;
mod map;
mod preallocate;
mod share;
mod shift;
mod size;
#[cfg(test)]
mod tests;
pub(crate) mod tuning;

use base::errno;
use error::Error;

pub use self::backing::{VolumeBacking, WeakInode};
pub use claim::claim;
pub use file_transaction::File;
pub use finish::finish;
pub use map::{map, map_first, peek_map};
pub use preallocate::{fill_units, preallocate, unit, zero};
pub use share::{Share, share};
pub use shift::{collapse, insert};
pub use size::{drop_set_id, free_written_beyond, punch, set_size, trim, truncate};

const NOT_A_MAP: Error =
    Error::Refused { errno: errno::EINVAL, why: "the file has no blocks: it is not a regular file" };
const TOO_FAR: Error = Error::Refused { errno: errno::EFBIG, why: "no file can be this long" };
