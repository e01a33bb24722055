//! Decompressed frames in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Where a frame is: origin, epoch, position of the segment, offset in units of 64 bytes.
pub type FrameId = (u16, u64, u64, u32);

/// Frames that were read lately. A frame that was used again is kept for another round.
#[derive(Debug)]
pub struct FrameCache {
    frames: HashMap<FrameId, (Arc<Vec<u8>>, bool)>,
    order: VecDeque<FrameId>,
    bytes: usize,
    limit: usize,
}

impl FrameCache {
    /// A cache of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { frames: HashMap::new(), order: VecDeque::new(), bytes: 0, limit }
    }

    /// A frame.
    pub fn get(&mut self, id: &FrameId) -> Option<Arc<Vec<u8>>> {
        let (frame, used) = self.frames.get_mut(id)?;
        *used = true;
        Some(Arc::clone(frame))
    }

    /// Adds a frame.
    pub fn insert(&mut self, id: FrameId, frame: Arc<Vec<u8>>) {
        self.bytes += frame.len();
        match self.frames.insert(id, (frame, false)) {
            Some((old, _)) => self.bytes -= old.len(),
            None => self.order.push_back(id),
        }
        while self.bytes > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            match self.frames.get_mut(&oldest) {
                Some((_, used)) if *used => {
                    *used = false;
                    self.order.push_back(oldest);
                }
                _ => self.bytes -= self.frames.remove(&oldest).map_or(0, |(frame, _)| frame.len()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_keeps_its_limit_and_what_is_used() {
        let mut cache = FrameCache::new(1000);
        let frame = || Arc::new(vec![0; 100]);
        for n in 0..100 {
            cache.insert((0, 0, 0, n), frame());
            assert!(n < 1 || cache.get(&(0, 0, 0, 0)).is_some(), "{n}");
            assert!(cache.bytes <= 1000 && cache.frames.len() == cache.order.len());
        }
        assert!(cache.get(&(0, 0, 0, 1)).is_none());
        cache.insert((0, 0, 0, 99), frame());
        assert_eq!(cache.bytes, 1000);
    }
}
