//! Commands that show who uses the space of a volume.
//!
//! | part | subject |
//! |---|---|
//! | [`df`] | usage of a volume and of its AGs |
//! | [`du`] | usage of files and directories |
//! | [`walk`] | the walk of a tree that adds up sizes |
//! | [`shared`] | extents that several files share |

pub mod df;
pub mod du;
pub mod shared;
pub mod walk;

/// `used` in percent of `used + available`, rounded up as by df(1).
pub fn percent(used: u64, available: u64) -> Option<u64> {
    let total = u128::from(used) + u128::from(available);
    (u128::from(used) * 100).checked_add(total.saturating_sub(1))?.checked_div(total)?.try_into().ok()
}
