//! Names: looking up, creating, linking, removing, renaming.
//!
//! | part | subject |
//! |---|---|
//! | [`lookup`] | from a directory and a name to an inode; targets of symbolic links |
//! | [`listing`] | the entries of a directory |
//! | [`create`] | new files of every kind |
//! | [`link`] | further names |
//! | [`remove`] | taking names away |
//! | [`rename`] | moving names, with all flags |
//! | [`handle`] | holding a file that may lose its last name; files without one |
//! | `parents` | what a file knows of its names, where the volume has parent pointers |
//! | `inherit` | access control lists that a new file takes over |
//! | `order` | in which order inodes are locked |

pub mod create;
pub mod handle;
mod inherit;
pub mod link;
pub mod listing;
pub mod lookup;
mod order;
mod parents;
pub mod remove;
pub mod rename;
