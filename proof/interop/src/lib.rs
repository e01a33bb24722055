//! Tests of Xebec with the Linux kernel and xfsprogs as judges.
//!
//! | part | subject |
//! |---|---|
//! | [`fill`] | fills a mounted volume with all structures of files and directories |
//! | [`stress`] | keeps a mounted volume busy until it is shut down, for dirty logs |
//! | [`built`] | builds the program `xebec` and the corpus when a test needs them |
//! | [`attributes`] | random changes of extended attributes |
//! | [`bulk`] | large plain trees, for benchmarks |
//! | [`scale`] | trees with extreme numbers of one thing |
//! | [`compare`] | compares the manifests of a volume and of its copy |
//! | [`runs`] | data ranges of files that are too large to be hashed |
//! | [`damage`] | damaged volumes, and the verdicts of xfs_repair |
//! | [`faulty`] | a device that fails on request |
//! | [`memory`] | the budget of tests, and the memory that programs take |
//! | [`mounted`] | tests that run on a mounted volume |
//! | [`scripts`] | shell scripts for volumes that are not files |
//! | [`walk`] | the manifest of a mounted tree |
//!
//! The script `make-images` of this package creates the corpus with the binary `interop`.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod built;
pub mod bulk;
pub mod compare;
pub mod damage;
pub mod faulty;
pub mod fill;
pub mod memory;
pub mod mounted;
pub mod runs;
pub mod scale;
pub mod scripts;
pub mod stress;
pub mod walk;
