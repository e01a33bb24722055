//! A log item as the regions that are written to the log.

use smallvec::SmallVec;

/// The regions of one log item, stored contiguously.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRegions {
    bytes: Vec<u8>,
    /// End offset of each region.
    ends: SmallVec<[u32; 4]>,
}

impl LogRegions {
    /// Starts again with regions that end at `ends`, each a multiple of four bytes long. Returns their bytes for
    /// writing: zeros, or what earlier regions of the item contained. About `more` bytes of further regions will
    /// follow.
    #[inline]
    pub fn begin(&mut self, ends: &[usize], more: usize) -> &mut [u8] {
        debug_assert!(ends.iter().all(|end| end.is_multiple_of(4)));
        let length = ends.last().copied().unwrap_or(0);
        self.bytes.reserve((length + more).saturating_sub(self.bytes.len()));
        self.bytes.resize(length, 0);
        self.ends.clear();
        self.ends.extend(ends.iter().map(|end| *end as u32)); // items are far smaller than 4 GiB
        &mut self.bytes
    }

    /// Adds a region.
    #[inline]
    pub fn push(&mut self, region: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(region));
    }

    /// Adds a region that `write` appends. It is padded with zeros to a multiple of four bytes, as the log requires.
    #[inline]
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.ends.push(self.bytes.len() as u32); // items are far smaller than 4 GiB
    }

    /// Number of regions.
    #[inline]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all regions.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of allocated memory.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes of all regions, contiguous.
    #[inline]
    pub fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// Iterates over the regions.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let region = self.bytes.get(start..*end as usize).unwrap_or(&[]);
            start = *end as usize;
            region
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_returned_padded_and_in_order() {
        let mut regions = LogRegions::default();
        regions.begin(&[4, 8], 0).copy_from_slice(b"headcore");
        regions.push(b"format ");
        regions.push(b"");
        regions.push(b"data");
        let all: Vec<_> = regions.iter().collect();
        assert_eq!(all, [&b"head"[..], b"core", b"format \0", b"", b"data"]);
        assert_eq!((regions.count(), regions.bytes()), (5, 20));
        regions.begin(&[4, 12], 0)[..4].copy_from_slice(b"HEAD");
        assert_eq!(regions.iter().collect::<Vec<_>>(), [&b"HEAD"[..], b"coreform"]);
        assert_eq!(regions.begin(&[24], 0)[12..], [0; 12], "what is new is zeros");
    }
}
