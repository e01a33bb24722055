//! Where shared blocks were first seen.
//!
//! # Invariants
//! Places are hints: a file may change after it was read, and its blocks may be reused. Users compare the contents.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::item::SharedRange;

/// Maximum number of runs (some MiB). Further shared blocks are copied.
const RUNS_MAX: usize = 64 << 10;

/// By device and offset on it.
#[derive(Debug, Default)]
pub struct Places(BTreeMap<(u64, u64), Run>);

#[derive(Debug)]
struct Run {
    length: u64,
    path: Arc<[u8]>,
    offset: u64,
}

impl Places {
    /// The file in which these bytes were seen before; if there is none, they are recorded for `path`.
    pub fn look(
        &mut self,
        place: (u64, u64),
        path: &Arc<[u8]>,
        offset: u64,
        length: u64,
    ) -> Option<SharedRange> {
        let (device, physical) = place;
        if let Some((&(on, begin), run)) = self.0.range_mut(..=place).next_back()
            && on == device
        {
            let within = physical - begin;
            if run.length >= within.saturating_add(length) {
                return Some(SharedRange { path: Arc::clone(&run.path), offset: run.offset + within });
            }
            // The next piece of the same run of the same file.
            if run.length == within && run.path == *path && run.offset.checked_add(within) == Some(offset) {
                run.length += length;
                return None;
            }
        }
        if self.0.len() < RUNS_MAX {
            self.0.insert(place, Run { length, path: Arc::clone(path), offset });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_found_as_far_as_it_reaches() {
        let (a, b): (Arc<[u8]>, Arc<[u8]>) = (b"a"[..].into(), b"b"[..].into());
        let mut places = Places::default();
        assert_eq!(places.look((1, 4096), &a, 0, 4096), None);
        assert_eq!(places.look((1, 8192), &a, 4096, 8192), None);
        let at = |offset| Some(SharedRange { path: Arc::clone(&a), offset });
        assert_eq!(places.look((1, 4096), &b, 0, 12288), at(0));
        assert_eq!(places.look((1, 8192), &b, 65536, 4096), at(4096));
        assert_eq!(places.look((2, 8192), &b, 0, 4096), None, "another device");
        assert_eq!(places.look((1, 12288), &b, 0, 8192), None, "more than was seen");
        assert_eq!(places.0.len(), 3);
    }
}
