//! A log item as the regions that go into the log.

use smallvec::SmallVec;

/// The regions of one item, one after the other in one piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    bytes: Vec<u8>,
    /// Where each region ends.
    ends: SmallVec<[u32; 4]>,
}

impl Regions {
    /// Forgets all regions and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a region.
    #[inline]
    pub fn push(&mut self, region: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(region));
    }

    /// Adds a region that `write` appends. The region is padded with zeros to a multiple of four bytes, which the log
    /// wants of all of them.
    #[inline]
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.ends.push(self.bytes.len() as u32); // items are far smaller than 4 GiB
    }

    /// Makes room for so many bytes.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Adds regions that lie one behind the other in `bytes`, each a multiple of four bytes long; `ends` is where.
    #[inline]
    pub fn push_several(&mut self, bytes: &[u8], ends: &[usize]) {
        debug_assert!(ends.iter().all(|end| end.is_multiple_of(4)) && ends.last() == Some(&bytes.len()));
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        for end in ends {
            self.ends.push((start + end) as u32); // items are far smaller than 4 GiB
        }
    }

    /// How many regions there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all regions together.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of all regions, one behind the other.
    #[inline]
    pub fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Gives each region in turn.
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
    fn regions_come_back_padded_and_in_order() {
        let mut regions = Regions::default();
        regions.push(b"format ");
        regions.push(b"");
        regions.push(b"core");
        regions.push_several(b"datatail", &[4, 8]);
        let all: Vec<_> = regions.iter().collect();
        assert_eq!(all, [&b"format \0"[..], b"", b"core", b"data", b"tail"]);
        assert_eq!((regions.count(), regions.len()), (5, 20));
    }
}
