//! Free blocks for data that is on its way.

use std::sync::Arc;

use ag::{Claim, ClaimRequest, Groups};
use log::engine::Error;

use crate::shared::Shared;

/// Claims free blocks. Where only blocks are left whose freeing is not stable yet, the log is forced, and it is tried
/// again.
///
/// # Errors
/// No space; damage; a volume that was shut down.
pub fn claim(shared: &Shared, groups: &Arc<Groups>, request: &ClaimRequest) -> Result<Claim, Error> {
    match groups.claim(&mut shared.reader(), request) {
        Err(Error::NoSpace { .. }) if groups.has_busy() => {
            shared.target.force()?;
            groups.claim(&mut shared.reader(), request)
        }
        claimed => claimed,
    }
}
