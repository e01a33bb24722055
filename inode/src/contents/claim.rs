//! Claiming free blocks for data in flight.

use std::sync::Arc;

use ag::{Claim, ClaimRequest, Groups};
use error::{Error, Result};

use super::tuning::CLAIM_ATTEMPTS;
use crate::shared::Shared;

/// Claims free blocks. This is stage 1 of what happens when space runs out ([`backing::no_space`]): while a search
/// finds nothing, it forces the log and waits for writes in flight over freed blocks, and searches again. It fails when
/// nothing became free since the search before.
///
/// A caller that has reserved the blocks finds them, unless other threads take all that becomes free, again and again:
/// what they free in turn is busy anew.
///
/// # Errors
/// No space; damage; a volume that was shut down.
pub fn claim(shared: &Shared, groups: &Arc<Groups>, request: &ClaimRequest) -> Result<Claim> {
    let (mut attempts, mut without_progress) = (0, 0);
    // The releases before the search. Not counted before the first one, which mostly finds space: the counters are
    // written by all threads that release claims, in any AG.
    let mut before = None;
    loop {
        let no_space = match groups.claim(&mut shared.reader(), request) {
            Err(error @ Error::NoSpace { .. }) => error,
            result => return result,
        };
        attempts += 1;
        let has_busy = groups.has_busy();
        if has_busy {
            shared.target.flush_busy()?;
        }
        let released = groups.released();
        let has_progress = before.replace(released) != Some(released);
        // One more search: a transaction that had not committed yet may have freed blocks in an AG that was searched
        // already. The next search locks each AG, and so waits for it.
        without_progress = if has_progress { 0 } else { without_progress + 1 };
        if attempts == CLAIM_ATTEMPTS || without_progress > usize::from(has_busy) {
            return Err(no_space);
        }
    }
}

/// Claims blocks at a multiple of the requested alignment, or unaligned ones if there are none.
///
/// # Errors
/// Those of [`claim`].
pub(super) fn claim_aligned(shared: &Shared, groups: &Arc<Groups>, request: &ClaimRequest) -> Result<Claim> {
    if request.align > 1 {
        match groups.claim(&mut shared.reader(), request) {
            Err(Error::NoSpace { .. }) => {}
            result => return result,
        }
    }
    claim(shared, groups, &ClaimRequest { align: 1, ..*request })
}
