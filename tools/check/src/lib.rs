//! An independent checker for XFS volumes, on layers 0 to 2 alone: it shares no code with the engine that it judges,
//! nor with the reader of volumes.
//!
//! | part | subject |
//! |---|---|
//! | [`Options`], [`Summary`], [`Phase`], [`CheckError`] | what a caller chooses and gets |
//! | [`Finding`], [`Observer`] | what is wrong, and who listens |
//! | `superblock`, `log_head` | the volume as a whole |
//! | `ag`, `freespace`, `inode_trees`, `tree` | headers and trees of one allocation group |
//! | `inode_pass`, `inode`, `fork` | inodes and their extents |
//! | `inode_map` | a byte of state and a count of links per inode |
//! | `directory`, `attr`, `symlink`, `quota`, `hash_tree`, `block_map` | what lies in forks |
//! | `links`, `parents`, `unlinked`, `counters` | what can only be told at the end |
//! | `ownership` | every block free or owned, and once; reverse mappings; reference counts |
//! | `work` | threads |
//!
//! # How it works
//! Six phases, each spread over all threads in units finer than an AG. What owns blocks claims them while it is
//! verified; the claims are sorted and laid against free space, reverse mappings and reference counts in one sweep
//! per AG. What is damaged is reported and skipped, and what could only be concluded from it is left out.
//!
//! # Invariants
//! Nothing is written. Memory: five bytes per inode, a budget for claims, one buffer per thread and per level of a
//! tree. The same volume gives the same findings in the same order, whatever the number of threads.
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
mod superblock;
mod symlink;
mod tree;
mod unlinked;
mod volume;
mod work;

pub use finding::{Counts, Finding, Observer, Severity, Suppressed};
pub use options::{CheckError, Options, Phase, Progress, Summary};
pub use phases::check;
