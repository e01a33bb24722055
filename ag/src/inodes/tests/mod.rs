//! Tests of inode allocation on whole volumes in memory, which `mkfs` made and `check` judges.
//!
//! | file | subject |
//! |---|---|
//! | `bed` | a volume under test: operations, and what must hold after them |
//! | `random` | random allocations and frees on tiny volumes, against a list of the inodes in use |
//! | `places` | where inodes go: near the parent, lanes of CPUs, parts of chunks, limits |
//! | `costs` | what an allocation touches and logs, with and without the free inode tree |
//! | `threads` | several threads on one volume |

mod costs;
mod fixture;
mod places;
mod random;
mod threads;
