//! FUSE mounts of Xebec: used by programs, and ended in all ways. Linux judges the volumes afterwards.
//!
//! | part | subject |
//! |---|---|
//! | [`programs`] | common programs, as root and as an ordinary user |
//! | [`databases`] | databases that are killed with the mount |
//! | [`suites`] | test suites of file systems, and random operations |
//! | [`devices`] | a device that fails during a mount |
//! | [`endings`] | unmounts, signals and kills, also with open files |
//! | [`serving`] | growing while mounted, metrics, caches of the kernel, file handles |
//! | [`node_ids`] | memory for files that the kernel knows, and removed files in use |
//! | [`unusual`] | damaged files, unusual callers, and error numbers of the kernel's XFS |
//! | [`watching`] | `status --watch` |
//! | `scripts` | runs test scripts, with common shell functions |
// Clippy permits panics in test functions only.
#![allow(clippy::unwrap_used, clippy::panic)]

mod databases;
mod devices;
mod endings;
mod node_ids;
mod programs;
mod scripts;
mod serving;
mod suites;
mod unusual;
mod watching;
