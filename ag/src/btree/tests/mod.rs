//! Tests of the tree. A new one belongs to
//!
//! | module | subject |
//! |---|---|
//! | `pages` | changes of bytes within a block and between two |
//! | `model` | random insertions, updates and deletions against a sorted map, with every invariant checked |
//! | `speed` | how long single operations take, by hand |
//! | `hostile` | damaged blocks: an error, never a panic or a walk without end |

mod blocks;
mod hostile;
mod model;
mod speed;
mod support;
