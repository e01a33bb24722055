//! The FUSE protocol, version 7 (`linux/fuse.h`, `fuse(4)`): encoding of requests and replies.
//!
//! | part | subject |
//! |---|---|
//! | `request` | parses requests |
//! | `reply` | builds replies |
//! | `encode` | encodes attributes, entries and statistics |
//! | `init` | `FUSE_INIT` |
//! | `dispatch` | dispatches requests to [`Operations`](crate::Operations) |
//! | `invalidate` | `FUSE_NOTIFY_INVAL_INODE` |
//! | `directories`, `files`, `metadata` | requests on names; on open files; on attributes and the file system |

mod directories;
pub mod dispatch;
mod encode;
mod files;
pub mod init;
pub mod invalidate;
mod metadata;
pub mod reply;
pub mod request;
#[cfg(test)]
mod tests;
