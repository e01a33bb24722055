//! Requests and replies as bytes: the kernel's protocol, version 7 (`linux/fuse.h`, `fuse(4)`).
//!
//! | part | subject |
//! |---|---|
//! | `request` | a request, taken apart |
//! | `reply` | a reply, put together where it is sent from |
//! | `encode` | what is known of files, in the protocol's forms |
//! | `init` | what is agreed upon at first |
//! | `dispatch` | from a request, by way of [`Operations`](crate::Operations), to its reply |
//! | `stale` | what the kernel may not keep after a change |
//! | `names`, `files`, `rest` | the requests that concern names; open files; all else |

pub mod dispatch;
mod encode;
mod files;
pub mod init;
mod names;
pub mod reply;
pub mod request;
mod rest;
pub mod stale;
#[cfg(test)]
mod tests;
