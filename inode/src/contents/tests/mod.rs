//! Tests of changes of contents on whole volumes. Add a test where its subject is:
//!
//! | module | subject |
//! |---|---|
//! | `fixture` | files with a model of their maps |
//! | `random` | random changes of every kind, compared with the model and checked by `check` |
//! | `rules` | refusals, flags and times |
//! | `linux` | `xfs_repair` and the kernel |
//! | `shares` | reservations for the extent btree |
//! | `faults` | no space, failing reads, and power cuts between transactions |

mod faults;
mod fixture;
mod linux;
mod random;
mod rules;
mod shares;
