//! The Linux kernel and xfsprogs as judges of Xebec.
//!
//! | part | subject |
//! |---|---|
//! | [`fill`] | fills a mounted volume with every structure that files can have |
//! | [`stress`] | keeps a mounted volume busy until it is shut down under it: dirty logs |
//! | [`built`] | the program and the corpus, built when a test asks for them |
//! | [`attributes`] | random changes of extended attributes |
//! | [`bulk`] | large plain trees, for benchmarks |
//! | [`scale`] | trees of which there is much of one thing |
//! | [`compare`] | what volumes must have in common when one was made of the other |
//! | [`runs`] | the data of files that are too large to be hashed |
//! | [`damage`] | damaged volumes, and what xfs_repair says of them |
//! | [`faulty`] | a device that fails by request |
//! | [`mounted`] | tests that run on a mounted volume |
//! | [`walk`] | the kernel's side of the manifest |
//!
//! `make-images` beside `src/` makes the images; the binary `interop` is what it calls.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod built;
pub mod bulk;
pub mod compare;
pub mod damage;
pub mod faulty;
pub mod fill;
pub mod mounted;
pub mod runs;
pub mod scale;
pub mod stress;
pub mod walk;
