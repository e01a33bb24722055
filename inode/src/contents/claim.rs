//! Free blocks for data that is on its way, and space for the reverse mappings that it splits.

use std::sync::Arc;

use ag::{Claim, ClaimRequest, Groups, RmapChange, RmapReservations};
use base::FsBlock;
use error::Error;

use crate::shared::Shared;

/// How often it is looked, at most, where others take what becomes free: each time they have come further.
const ATTEMPTS: u32 = 100;

/// Claims free blocks. Where a look finds none, those are waited for whose freeing is not stable, or over which a write
/// is in flight: the log is forced and the write waited for, and it is looked again. There is no space where nothing is
/// busy, or nothing has come to be usable between two looks: so nobody waits for what does not come.
///
/// Whoever has reserved the blocks finds them, unless others are so much faster, again and again: what they free as
/// they take is busy anew.
///
/// # Errors
/// No space; damage; a volume that was shut down.
pub fn claim(shared: &Shared, groups: &Arc<Groups>, request: &ClaimRequest) -> Result<Claim, Error> {
    let (mut attempts, mut in_vain) = (0, 0);
    loop {
        let released = groups.released();
        let none = match groups.claim(&mut shared.reader(), request) {
            Err(error @ Error::NoSpace { .. }) => error,
            done => return done,
        };
        attempts += 1;
        let has_busy = groups.has_busy();
        if has_busy {
            shared.target.flush_busy()?;
        }
        let any_released = groups.released() != released;
        // Once, what is busy may have been freed behind the look, by a transaction that has not committed yet: the next
        // look waits for it, as each group is locked.
        in_vain = if any_released { 0 } else { in_vain + 1 };
        if attempts == ATTEMPTS || in_vain > usize::from(has_busy) {
            return Err(none);
        }
    }
}

/// Reserves space in the reverse-mapping btree for so many writes to parts of a mapped extent: of shared blocks, which
/// are copied on write, or of unwritten ones. Each splits a record. The caller holds no AGF.
///
/// # Errors
/// No space; damage; what reading meets.
pub fn room_to_write(
    (shared, groups): (&Shared, &Arc<Groups>),
    start: FsBlock,
    writes: u32,
    is_shared: bool,
) -> Result<RmapReservations, Error> {
    let change = if is_shared { RmapChange::Unmap } else { RmapChange::Convert };
    let mut rooms = RmapReservations::default();
    if let Some(room) = groups.reserve_rmap(&mut shared.reader(), start, change, writes)? {
        rooms.add(room);
    }
    Ok(rooms)
}
