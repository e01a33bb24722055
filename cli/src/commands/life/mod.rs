//! The commands for a volume as a whole, when it exists already.
//!
//! | part | commands |
//! |---|---|
//! | `size` | `grow`, `shrink`, `minimize` |
//! | `mounted` | `grow` of a volume that is mounted |
//! | `trim` | `trim` |
//! | `identity` | `label`, `uuid`, `features` |
//! | `clone` | `clone` |
//! | `sync` | `sync` |

pub mod clone;
pub mod identity;
mod mounted;
pub mod size;
pub mod sync;
pub mod trim;
