//! Free blocks for data that is on its way.

use std::sync::Arc;
use std::time::Duration;

use ag::{Claim, ClaimRequest, Groups};
use log::engine::Error;

use crate::shared::Shared;

/// How often the log is forced for blocks that are not to be had before that, and the longest pause in between.
const ATTEMPTS: u32 = 60;
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Claims free blocks. Where only blocks are left whose freeing is not stable yet, the log is forced, and it is tried
/// again: several times, as what becomes free may be taken by others, and what they free is busy anew.
///
/// # Errors
/// No space; damage; a volume that was shut down.
pub fn claim(shared: &Shared, groups: &Arc<Groups>, request: &ClaimRequest) -> Result<Claim, Error> {
    for attempt in 0..ATTEMPTS {
        match groups.claim(&mut shared.reader(), request) {
            Err(Error::NoSpace { .. }) if groups.has_busy() => shared.target.force()?,
            claimed => return claimed,
        }
        if attempt > 2 {
            std::thread::sleep(LONGEST_PAUSE.min(Duration::from_millis(attempt.into())));
        }
    }
    groups.claim(&mut shared.reader(), request)
}
