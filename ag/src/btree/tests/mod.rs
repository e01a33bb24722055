//! Tests of the btree, by module:
//!
//! | module | subject |
//! |---|---|
//! | `blocks` | byte edits within a block and between two |
//! | `model` | random insertions, updates and deletions, compared with a sorted map; every invariant is checked |
//! | `speed` | duration of single operations, run by hand |
//! | `hostile` | damaged blocks: an error, never a panic or an endless walk |

mod blocks;
mod hostile;
mod model;
mod speed;
mod support;
