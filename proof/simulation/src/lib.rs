//! The engine under a simulation that explores schedules: one thread at a time, chosen by a seed, in virtual time, on a
//! device with delays, errors and power cuts.
//!
//! | part | subject |
//! |---|---|
//! | [`Scenario`] | all that a seed decides |
//! | [`aged`] | volumes that are fragmented, nearly full, or both |
//! | [`Disk`] | a device whose transfers take virtual time, land in pieces, fail, and are cut |
//! | [`actors`] | threads that work on a volume, each with an oracle of its own |
//! | [`run()`] | one seed: the simulated run, and the judgement of all that it left |
//!
//! # What is judged
//! - Every answer of a call, by the actor's model: a tree, contents of files, attributes.
//! - Every power cut: the volume recovers, the checker finds nothing, names are a prefix of what was done that holds
//!   all that a sync covered, each sector holds a value that it may hold since its last successful `fsync`.
//! - The volume after its unmount: exactly what the models have.
//! - No shutdown, no `EIO` and no damage unless the device failed; no `ENOSPC` from `fsync`, `sync` or unmounting.
//! - All reservations are returned when a volume was unmounted without an error: of blocks, of claims, of inodes, and
//!   of what each group sets aside for its trees.
//! - No more blocks are claimed than are reserved, at each claim.
//! - Writeback takes no more blocks for an extent map than were set aside when the data was written, unless extents
//!   were joined in between.
//! - No deadlock: some thread can always run, and all threads end.
//!
//! # Replaying
//! A run depends on its seed alone: `xebec-simulation --seed N`. `--shrink N` looks for a smaller scenario that still
//! fails, and prints the command that runs it.
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
