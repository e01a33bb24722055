//! Tests of free space on volumes that `mkfs.xfs` made. A new one belongs to
//!
//! | module | subject |
//! |---|---|
//! | `random` | random allocations and frees, with both trees, the counters, the checker and `xfs_repair` as judges |
//! | `hostile` | damaged headers, lists and trees |
//! | `full` | volumes without space, busy blocks, reservations |
//! | `claims` | blocks that are kept for data on its way, with a model of who owns which block |
//! | `promises` | what the counter of free blocks promises can be allocated |
//! | `threads` | many threads on one volume |

mod claims;
mod contributions;
mod full;
mod hostile;
mod random;
mod threads;
