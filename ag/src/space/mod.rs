//! Free space of an allocation group.
//!
//! | part | subject |
//! |---|---|
//! | [`trees`] | the trees that hang from an AGF, as the cursor sees them |
//! | [`freelist`] | the AGFL: taking, giving, and keeping it as full as the trees may need |
//! | [`change`] | free extents in both trees, and what follows in the AGF |
//! | [`alloc`] | which group and which blocks: near, exact, by size, aligned |
//! | [`free`] | freeing, deferred behind an intent |
//! | [`promise`] | how many of a group's free blocks users may reserve |
//! | [`mappings`] | room for records of reverse mappings, before owners of shared blocks change |
//! | [`reservation`] | blocks promised to users, and set aside for the growth of trees |
//! | [`busy`] | blocks that were freed, and must not be used before that is stable |
//! | [`visit`] | free extents, shown while nobody can take them |
//! | [`claim`] | free blocks that are kept for data on its way |
//! | [`audit`] | whether reservations, claims and promises agree |
//!
//! # Invariants
//! - A transaction locks the groups that it takes blocks of before it takes the first, and they have room for all that
//!   it may take: so it never needs a lower group than one that it holds.
//! - Before free space changes, the AGFL holds what the worst case of that change takes from it.
//! - A search that finds nothing changes nothing. After [`Error::NoSpace`](journal::engine::Error::NoSpace) the group
//!   is whole, though its AGFL may have been refilled: the transaction can be committed.

pub mod alloc;
pub mod audit;
pub mod block_reservation;
pub mod busy;
pub mod change;
pub mod claim;
pub mod contribution;
pub mod free;
pub mod freelist;
pub mod rmap_reservation;
#[cfg(test)]
mod tests;
pub mod trees;
pub mod visit;
