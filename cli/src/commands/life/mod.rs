//! Commands that administer an existing volume as a whole.
//!
//! | part | commands |
//! |---|---|
//! | `size` | `grow`, `shrink`, `minimize` |
//! | `online` | `grow` of a mounted volume |
//! | `trim` | `trim` |
//! | `identity` | `label`, `uuid`, `features` |
//! | `clone` | `clone` |
//! | `sync` | `sync` |

pub mod clone;
pub mod identity;
mod online;
pub mod size;
pub mod sync;
pub mod trim;
