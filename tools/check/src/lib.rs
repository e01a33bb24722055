//! An independent checker for XFS volumes. It uses layers 0 to 2 only and shares no code with the engine that it
//! checks, nor with the reader of volumes.
//!
//! | part | subject |
//! |---|---|
//! | [`check()`], [`Options`], [`Summary`], [`Phase`], [`CheckError`] | the interface |
//! | [`Finding`], [`Observer`] | what is wrong, and the receiver of findings and progress |
//! | `superblock`, `log_head` | the volume as a whole |
//! | `ag`, `freespace`, `inode_trees`, `tree` | headers and btrees of one allocation group |
//! | `inode_pass`, `inode`, `fork` | inodes and their extents |
//! | `inode_map` | a byte of state and one of a link count per inode |
//! | `slot_file` | these bytes in a temporary file, if they exceed the budget |
//! | `directory`, `attr`, `symlink`, `quota`, `hash_tree`, `block_map` | contents of forks |
//! | `links`, `parents`, `unlinked`, `counters` | checks that need all inodes and all directories |
//! | `ownership` | each block is free or has an owner; reverse mappings; reference counts |
//! | `workers` | threads |
//!
//! # How it works
//! There are six phases. Each distributes units smaller than an AG over all threads. A structure claims its blocks
//! while it is verified. The claims are sorted and compared with free space, reverse mappings and reference counts in
//! one sweep per AG. A damaged structure is reported and skipped; checks that depend on it are left out.
//!
//! # Invariants
//! Nothing is written but temporary files. Memory: a budget, of which half is for two bytes of each inode, or an eighth
//! for those of a file, and the rest for claims; beside it 24 bytes for each 64 inodes, some for each directory, and
//! one buffer per thread and per btree level. The same volume gives the same findings in the same order, whatever the
//! number of threads.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod ag;
mod attr;
mod block_map;
mod counters;
mod directory;
mod finding;
mod fork;
mod freespace;
mod hash_tree;
mod inode;
mod inode_map;
mod inode_pass;
mod inode_trees;
mod links;
mod log_head;
mod options;
mod ownership;
mod parents;
mod phases;
mod quota;
mod slot_file;
mod superblock;
mod symlink;
mod tree;
mod unlinked;
mod volume;
mod workers;

pub use finding::{Counts, Finding, Observer, Severity, Suppressed};
pub use options::{CheckError, Options, Phase, Progress, Summary};
pub use phases::check;
