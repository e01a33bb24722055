//! Bounds of one transaction on file contents, and of one lock hold. Log reservations follow from the first four.

/// Records of a map that one transaction changes: two removed, one added, one cut.
pub(crate) const CHANGES_AT_ONCE: u32 = 4;
/// Mapped pieces that one transaction unmaps or marks: few, as each may free extents and split records of the rmapbt.
pub(super) const PIECES_AT_ONCE: usize = 2;
/// Small files finished in one transaction. More save little of the fixed cost, and hold more inode locks.
pub(crate) const FINISHED_AT_ONCE: usize = 16;
/// Runs of contiguous claims of these files: each changes the free-space btrees once.
pub(crate) const RUNS_AT_ONCE: usize = 2;
/// Extents copied out of a map before the inode is unlocked and they are visited.
pub(super) const EXTENTS_AT_ONCE: usize = 16;
/// Searches for free blocks while others take what becomes free: each follows progress of others, so that a bound is
/// only needed against a very unfair schedule.
pub(super) const CLAIM_ATTEMPTS: u32 = 100;
