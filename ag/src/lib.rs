//! Space inside one allocation group.
//!
//! | part | subject |
//! |---|---|
//! | [`btree`] | one B+tree for all, with cursors over a transaction's buffers |
//! | [`group`] | [`Groups`] and [`Group`]: what is kept in memory of each allocation group |
//! | [`space`] | free space: allocation, freeing, the AGFL, reservations, busy extents |
//! | [`inodes`] | inodes: which exist, which are free, how they come and go |
//! | [`rmap`] | reverse mappings: who owns each block |
//! | [`refcount`] | how often blocks are shared, and copy-on-write staging |
//! | [`resize`] | a volume that becomes larger or smaller while it is used |
//! | [`upgrade`] | what a new feature needs in each group |
//! | [`owner`] | [`ExtentOwner`] |
//! | [`reservation`] | how much log space a change may take |
//!
//! # Invariants
//! - Whoever holds an AGF's buffer in a transaction may change all that hangs from it: both trees of free space, the
//!   AGFL, reverse mappings, reference counts. What hangs from an AGI goes with that buffer.
//! - What memory holds of a group follows its AGF within the same transaction.
//!
//! # Locking
//! AGI before AGF; AGFs in ascending order, or only tried. Everything below a header is locked under it, in any order.
//! A group's in-core state is a leaf lock below all buffers.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod btree;
pub mod faults;
pub mod group;
pub mod inodes;
pub mod log_costs;
pub mod owner;
pub mod refcount;
pub mod resize;
pub mod rmap;
pub mod space;
#[cfg(test)]
mod testing;
pub mod upgrade;

pub use group::{Group, Groups, LockedAg};
pub use inodes::{FreedInodes, InodeAllocRequest, InodeOptions};
pub use log_costs::AgLogCosts;
pub use owner::ExtentOwner;
pub use space::alloc::{AllocRequest, AllocTarget};
pub use space::block_reservation::BlockReservation;
pub use space::claim::{Claim, ClaimRequest};
pub use space::rmap_reservation::{RmapChange, RmapReservation, RmapReservations};
