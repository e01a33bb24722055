//! Space management inside an allocation group (AG).
//!
//! | part | subject |
//! |---|---|
//! | [`btree`] | the generic B+tree, with cursors over a transaction's buffers |
//! | [`group`] | [`Groups`] and [`Group`]: in-core state of the AGs |
//! | [`space`] | free space: allocation, freeing, the AGFL, reservations, busy extents |
//! | [`inodes`] | allocating and freeing inodes and inode chunks |
//! | [`rmap`] | reverse mappings: the owner of each extent |
//! | [`refcount`] | reference counts of shared extents, and CoW staging extents |
//! | [`resize`] | growing and shrinking a mounted volume |
//! | [`upgrade`] | structures that a new feature adds to each AG |
//! | [`owner`] | [`ExtentOwner`]: extent owners in the rmapbt |
//! | [`log_costs`] | upper bounds of the log space of a change |
//!
//! # Invariants
//! - A transaction that holds an AGF's buffer may change everything below the AGF: both free-space trees, the AGFL,
//!   reverse mappings and reference counts. Everything below an AGI goes with the AGI's buffer.
//! - The in-core counters of an AG change in the same transaction as its AGF.
//!
//! # Locking
//! An AGI is locked before an AGF. AGFs are locked in ascending order, or with a trylock. Blocks below a header are
//! locked under it, in any order. The in-core state of an AG is a leaf lock below all buffers.
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
pub use inodes::{FreedInodes, InodeAllocRequest, InodeOptions, NextInode};
pub use log_costs::AgLogCosts;
pub use owner::ExtentOwner;
pub use space::alloc::{AllocRequest, AllocTarget};
pub use space::block_reservation::BlockReservation;
pub use space::claim::{Claim, ClaimRequest};
pub use space::rmap_reservation::{RmapChange, RmapReservation, RmapReservations};
