//! Claims and rmap reservations, as the cache of file contents uses them.

use backing::{ClaimedBlocks, ReservedRmap};
use base::FsBlock;

use super::claim::Claim;
use super::rmap_reservation::RmapReservations;

/// No claim has more blocks than an AG.
fn clamp(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

impl ClaimedBlocks for Claim {
    fn start(&self) -> FsBlock {
        Claim::start(self)
    }

    fn count(&self) -> u64 {
        Claim::count(self).into()
    }

    fn take_front(&mut self, count: u64) -> Self {
        Claim::take_front(self, clamp(count))
    }
}

impl ReservedRmap for RmapReservations {
    fn join(&mut self, other: Self) {
        RmapReservations::join(self, other);
    }

    fn limit(&mut self, changes: u64) {
        RmapReservations::limit(self, clamp(changes));
    }
}
