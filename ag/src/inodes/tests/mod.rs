//! Tests of inode allocation on whole volumes in memory, formatted by `mkfs` and checked by `check`.
//!
//! | file | subject |
//! |---|---|
//! | `fixture` | a test volume: operations and checks |
//! | `random` | random allocations and frees on tiny volumes, compared with a list of the inodes in use |
//! | `places` | placement of inodes: near the parent, lanes of CPUs, sparse chunks, limits |
//! | `costs` | buffers that an allocation touches, with and without the finobt |
//! | `threads` | several threads on one volume |

mod costs;
mod fixture;
mod places;
mod random;
mod threads;
