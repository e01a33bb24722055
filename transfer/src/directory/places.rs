//! Where shared blocks were seen first.
//!
//! # Invariants
//! Places are hints. A file may change when it was read, and another may get its blocks: who uses a place compares what
//! is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::item::Alike;

/// Most runs that are remembered: some MiB. What is shared beyond is copied.
const RUNS_MAX: usize = 64 << 10;

/// By device and first byte there.
#[derive(Debug, Default)]
pub struct Places(BTreeMap<(u64, u64), Run>);

#[derive(Debug)]
struct Run {
    length: u64,
    path: Arc<[u8]>,
    offset: u64,
}

impl Places {
    /// The file in which these bytes were seen before; without one they are remembered as those of `path`.
    pub fn look(&mut self, place: (u64, u64), path: &Arc<[u8]>, offset: u64, length: u64) -> Option<Alike> {
        let (device, physical) = place;
        if let Some((&(on, begin), run)) = self.0.range_mut(..=place).next_back()
            && on == device
        {
            let within = physical - begin;
            if run.length >= within.saturating_add(length) {
                return Some(Alike { path: Arc::clone(&run.path), offset: run.offset + within });
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
        let at = |offset| Some(Alike { path: Arc::clone(&a), offset });
        assert_eq!(places.look((1, 4096), &b, 0, 12288), at(0));
        assert_eq!(places.look((1, 8192), &b, 65536, 4096), at(4096));
        assert_eq!(places.look((2, 8192), &b, 0, 4096), None, "another device");
        assert_eq!(places.look((1, 12288), &b, 0, 8192), None, "more than was seen");
        assert_eq!(places.0.len(), 3);
    }
}
