//! Directory entries: lookup, create, link, unlink, rename, read.
//!
//! | part | subject |
//! |---|---|
//! | [`lookup`] | directory and name to inode; targets of symbolic links |
//! | [`listing`] | reading a directory |
//! | [`create`] | new files of all types |
//! | `create_many` | many new files in one directory |
//! | [`link`] | hard links |
//! | [`remove`] | `unlink` and `rmdir` |
//! | [`rename`] | `rename`, with all flags |
//! | [`handle`] | references to files, also to unlinked ones |
//! | `tmpfile` | files without names |
//! | `initial_attributes` | attributes of new files: requested ones and inherited access control lists |
//! | `parent_pointers` | a file's record of its own names |
//! | `lock_order` | locking several inodes |

pub mod create;
mod create_many;
pub mod handle;
mod initial_attributes;
pub mod link;
pub mod listing;
mod lock_order;
pub mod lookup;
mod parent_pointers;
pub mod remove;
pub mod rename;
mod tmpfile;
