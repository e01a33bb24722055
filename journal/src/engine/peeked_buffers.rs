//! Buffers that are read in a read section, without references to them, and without their locks if they are read often:
//! CPUs that read the same block then write to no memory that the others use.

use std::cell::OnceCell;
use std::ops::Deref;

use base::rcu::Section;
use scc::Guard;

use super::buffer::{BufferExtents, PeekedContent};
use super::cache::BufferCache;

/// The buffers of a cache, in a read section.
pub struct PeekedBuffers<'s> {
    cache: &'s BufferCache,
    section: &'s Section,
    /// What the index of the cache has is not dropped before this; made for the first lookup.
    index: OnceCell<Guard>,
}

impl<'s> PeekedBuffers<'s> {
    /// The buffers of `cache`.
    pub fn new(cache: &'s BufferCache, section: &'s Section) -> Self {
        Self { cache, section, index: OnceCell::new() }
    }

    /// The bytes of these extents; `None` if they are not in memory, or a thread has them locked. Does not wait. The
    /// caller verifies that the block belongs to the file, as with any buffer that was in memory already.
    pub fn bytes(&self, extents: &BufferExtents) -> Option<PeekedBytes<'_>> {
        let buffer = self.cache.find(extents.daddr(), self.index.get_or_init(Guard::new))?;
        buffer.touch();
        buffer.peek(self.section).filter(|_| buffer.segments() == extents).map(PeekedBytes)
    }
}

/// The bytes of a block that is read in a section.
pub struct PeekedBytes<'s>(PeekedContent<'s>);

impl Deref for PeekedBytes<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl std::fmt::Debug for PeekedBytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeekedBytes({})", self.len())
    }
}

impl std::fmt::Debug for PeekedBuffers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeekedBuffers({:?})", self.cache)
    }
}
