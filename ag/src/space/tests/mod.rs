//! Tests of free space on volumes that `mkfs.xfs` made. A new one belongs to
//!
//! | module | subject |
//! |---|---|
//! | `random` | random allocations and frees, with both trees, the counters, the checker and `xfs_repair` as judges |
//! | `full` | volumes without space, busy blocks, reservations |
//! | `threads` | many threads on one volume |

mod full;
mod random;
mod threads;
