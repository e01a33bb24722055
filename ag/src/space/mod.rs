//! Free-space management of an allocation group.
//!
//! | part | subject |
//! |---|---|
//! | [`trees`] | the trees below an AGF: bnobt, cntbt, rmapbt, refcountbt |
//! | [`freelist`] | the AGFL: getting and putting blocks, and keeping its length |
//! | [`free_extents`] | free extents in both trees, and the AGF's counters |
//! | [`alloc`] | allocation: which AG and which extent (near, exact, by size, aligned) |
//! | [`free`] | deferred freeing of extents (EFI, EFD) |
//! | [`contribution`] | how many of an AG's free blocks users may reserve |
//! | [`rmap_reservation`] | space in the rmapbt, reserved before owners of shared blocks change |
//! | [`block_reservation`] | reservations of blocks by users, and per AG for the growth of trees |
//! | [`busy`] | busy extents: freed blocks that must not be reused yet |
//! | [`visit`] | listing free extents while nobody can allocate them |
//! | [`claim`] | free extents claimed for data that is being written |
//! | [`audit`] | checks that reservations, claims and contributions agree |
//!
//! # Invariants
//! - A transaction locks the AGs that it allocates from before its first allocation, and they have space for everything
//!   that it may allocate. So it never needs a lower AG than one that it holds.
//! - Before free space changes, the AGFL holds the worst case that the change takes from it.
//! - A search that finds nothing changes nothing. After [`Error::NoSpace`](error::Error::NoSpace) the AG is
//!   consistent, though its AGFL may have been refilled: the transaction can be committed.

pub mod alloc;
pub mod audit;
mod backing;
pub mod block_reservation;
pub mod busy;
pub mod claim;
pub mod contribution;
pub mod free;
pub mod free_extents;
pub mod freelist;
pub mod rmap_reservation;
#[cfg(test)]
mod tests;
pub mod trees;
pub mod visit;
