//! Tests of free space on volumes made by `mkfs.xfs`, by module:
//!
//! | module | subject |
//! |---|---|
//! | `random` | random allocations and frees; checks both trees, the counters, the checker and `xfs_repair` |
//! | `hostile` | damaged headers, AGFLs and trees |
//! | `full` | full volumes, busy blocks, reservations |
//! | `claims` | claimed extents, with a model of the owner of each block |
//! | `contributions` | what the counter of free blocks contains can be allocated |
//! | `threads` | many threads on one volume |

mod claims;
mod contributions;
mod full;
mod hostile;
mod random;
mod threads;
