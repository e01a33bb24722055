//! Tests of changes of contents on whole volumes. A new one belongs to
//!
//! | module | subject |
//! |---|---|
//! | `bed` | files with a model of their maps |
//! | `random` | random changes of every kind, with the model and the checker as judges |
//! | `rules` | what is refused, and what flags and times become |
//! | `linux` | what `xfs_repair` and the kernel find |
//! | `shares` | what is set aside for the tree |
//! | `faults` | no space, failing reads, and the machine stopping between steps |

mod bed;
mod faults;
mod linux;
mod random;
mod rules;
mod shares;
