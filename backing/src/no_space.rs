//! What happens when space runs out: one policy for all layers.
//!
//! Free blocks can be held by something that does not need them. Each layer releases what it knows of, retries once,
//! and returns `ENOSPC` to the layer above, which can release more. Cheap stages come first:
//!
//! | stage | where | releases | locks held |
//! |---|---|---|---|
//! | 1 | `inode::contents::claim` | busy extents: forces the log, waits for writes in flight | any, but no AG |
//! | 2 | cache: reservations and claims | spare claims: the claim pool of the pass, preallocation beyond EOF of all files | locks of a file, no folio |
//! | 3 | cache: write calls | stage 2; reservations of dirty data, by writing it back | none |
//! | 4 | `volume`: every call that takes blocks | stage 3; removed files that wait to be freed; busy extents; spare rmap reservations | none |
//!
//! Stage 1 alone repeats, as the blocks are there (they are reserved): it ends when nothing is busy, or when no extent
//! became free between two searches. Stage 3 retries only if it wrote something. Stages 2 and 4 do not know whether
//! they released anything, and always retry once.
//!
//! A request that is stronger than it must be is weakened before it fails: an aligned claim to an unaligned one, a
//! directory block of several blocks to single blocks, allocation units to the blocks that are written. Changes that
//! mostly free blocks run without a reservation if there is none.

use error::Error;

/// An error that may mean that space ran out.
pub trait NoSpace {
    /// Returns whether the volume has no free blocks.
    fn is_no_space(&self) -> bool;
}

impl NoSpace for Error {
    fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. })
    }
}

/// Runs one stage: calls `work`; if that runs out of space, calls `release`, and `work` once more if `release` returns
/// true.
///
/// # Errors
/// Those of `work` and `release`.
#[inline]
pub fn retry<T, E: NoSpace>(
    mut work: impl FnMut() -> Result<T, E>,
    release: impl FnOnce() -> Result<bool, E>,
) -> Result<T, E> {
    match work() {
        Err(error) if error.is_no_space() => match release()? {
            true => work(),
            false => Err(error),
        },
        result => result,
    }
}
