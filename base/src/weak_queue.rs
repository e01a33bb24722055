//! A queue of objects that others own, such as the objects of a cache in the order in which they are examined.
//!
//! # Invariants
//! - The queue keeps no object alive. Entries of dropped objects are removed by and by: [`WeakQueue::push`] visits two
//!   entries, so that at most about as many stay as there are objects.
//! - Entries stay in order.

use std::collections::VecDeque;
use std::sync::Weak;

/// See the module. Each entry has a value beside the object.
#[derive(Debug)]
pub struct WeakQueue<T, D = ()> {
    entries: VecDeque<(Weak<T>, D)>,
    /// Entries at the front that [`sweep`](Self::sweep) has kept. Those after them, up to `swept`, are of dropped
    /// objects.
    kept: usize,
    /// Entries that it has visited.
    swept: usize,
}

impl<T, D> Default for WeakQueue<T, D> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), kept: 0, swept: 0 }
    }
}

impl<T, D> WeakQueue<T, D> {
    /// Adds an object at the end.
    pub fn push(&mut self, object: Weak<T>, value: D) {
        self.entries.push_back((object, value));
        self.sweep();
    }

    /// Takes the first entry. Its object may have been dropped.
    pub fn pop(&mut self) -> Option<(Weak<T>, D)> {
        let first = self.entries.pop_front()?;
        self.kept = self.kept.saturating_sub(1);
        self.swept = self.swept.saturating_sub(1);
        Some(first)
    }

    /// The value of the first entry.
    pub fn first(&self) -> Option<&D> {
        self.entries.front().map(|(_, value)| value)
    }

    /// Number of entries, those of dropped objects included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Visits the next two entries, to move those of dropped objects to the end, where they are removed.
    pub fn sweep(&mut self) {
        for _ in 0..2 {
            let Some((object, _)) = self.entries.get(self.swept) else {
                self.entries.truncate(self.kept);
                (self.kept, self.swept) = (0, 0);
                continue;
            };
            if object.strong_count() > 0 {
                self.entries.swap(self.kept, self.swept);
                self.kept += 1;
            }
            self.swept += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::random::Random;

    /// Random calls: objects come out in the order in which they went in, and dropped ones do not collect.
    #[test]
    fn objects_stay_in_order_and_dropped_ones_leave() {
        for seed in 0..20 {
            let random = Random::seeded(seed);
            let (mut queue, mut objects) = (WeakQueue::default(), BTreeMap::new());
            let mut longest = 0;
            for n in 0..5000u32 {
                let object = Arc::new(n);
                queue.push(Arc::downgrade(&object), n);
                objects.insert(n, object);
                longest = longest.max(objects.len());
                // Some are dropped, so that their number stays about the same after a while.
                while objects.len() > 100 || random.next_u32().is_multiple_of(3) && !objects.is_empty() {
                    let at = random.next_u32() % (n + 1);
                    let key = objects.range(at..).next().or(objects.iter().next()).map(|(key, _)| *key);
                    objects.remove(&key.unwrap());
                }
                if random.next_u32().is_multiple_of(4) {
                    let first = std::iter::from_fn(|| queue.pop()).find_map(|(object, _)| object.upgrade());
                    assert_eq!(first, objects.pop_first().map(|(_, object)| object));
                }
                assert!(queue.len() <= 3 * longest + 3, "{} entries of {longest} objects", queue.len());
            }
            let rest =
                std::iter::from_fn(|| queue.pop()).filter_map(|(object, n)| Some((n, object.upgrade()?)));
            assert!(rest.eq(objects.iter().map(|(n, object)| (*n, Arc::clone(object)))));
        }
    }
}
