//! XFS in user space.
#![forbid(unsafe_code)]

pub use volume::*;
