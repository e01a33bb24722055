//! Deterministic simulation of the engine: a seed chooses which thread runs, in virtual time, on a device with delays,
//! errors and power cuts.
//!
//! | item | subject |
//! |---|---|
//! | [`Scenario`] | what a seed determines |
//! | [`aged`] | volumes that are fragmented, nearly full, or both |
//! | [`Disk`] | a device whose transfers take virtual time, complete in pieces, fail, and are cut |
//! | [`actors`] | threads that use a volume, each with an oracle |
//! | [`run()`] | the simulated run of a seed, and the checks of its results |
//!
//! # Checks
//! - The result of every call agrees with the actor's model: a tree, file contents, attributes.
//! - After every power cut the volume recovers, and the checker finds nothing. Names are a prefix of the operations
//!   that includes everything a sync covered. Each sector has a value that it may have since its last successful
//!   `fsync`.
//! - After unmounting, the volume is exactly what the models expect.
//! - No shutdown, no `EIO` and no damage unless the device failed; no `ENOSPC` from `fsync`, `sync` or unmounting.
//! - All reservations are returned by a successful unmount: of blocks, claims, inodes, and the reservations of each AG.
//! - At each claim, no more blocks are claimed than reserved.
//! - Writeback uses no more blocks for an extent btree than were reserved when the data was written, unless extents
//!   were joined in between.
//! - There is no deadlock, and all threads end.
//!
//! # Replay
//! A run depends only on its seed: `xebec-simulation --seed N`. `--shrink N` searches for a smaller scenario that still
//! fails, and prints its command.
#![forbid(unsafe_code)]

pub mod actors;
pub mod aged;
mod clock;
mod disk;
mod run;
mod scenario;

pub use disk::Disk;
pub use run::{Summary, run};
pub use scenario::{Age, Delay, DiskPlan, Limit, Scenario};
