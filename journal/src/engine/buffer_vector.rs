//! What a checkpoint holds of a buffer: the chunks that changed, copied when they were committed.

use format::log::buffer::{CHUNK_BYTES, flags};
use format::log::item::ItemType;
use format::metadata_header::HeaderLayout;

use super::buffer::{BufferExtents, DiskExtent};
use super::chunk_bitmap::ChunkBitmap;

/// A copy of those chunks of a buffer that the log will hold; the other bytes mean nothing.
///
/// One piece of memory is kept for the whole buffer, so that a later commit of the same checkpoint copies only what it
/// changed itself.
#[derive(Debug)]
pub struct BufferVector {
    segments: BufferExtents,
    bytes: Box<[u8]>,
    chunks: ChunkBitmap,
    /// What the buffer's magic says that it is.
    stamp: Option<&'static HeaderLayout>,
    /// As the log has them: with the kind of buffer above.
    flags: u16,
    /// Kept beside the chunks as both are asked for at each commit.
    count: usize,
    total: usize,
}

/// Bytes of the first region of an item before its map.
const HEAD: usize = 20;

impl BufferVector {
    /// An buffer_vector of nothing yet.
    pub fn new(segments: &BufferExtents) -> Self {
        Self {
            segments: segments.clone(),
            bytes: vec![0; segments.bytes()].into_boxed_slice(),
            chunks: ChunkBitmap::NONE,
            stamp: None,
            flags: 0,
            count: 0,
            total: 0,
        }
    }

    /// The buffer_vector of a buffer that was freed: the log says so, and nothing of what it held.
    pub fn cancelled(segments: &BufferExtents) -> Self {
        let mut buffer_vector = Self {
            segments: segments.clone(),
            bytes: Box::default(),
            chunks: ChunkBitmap::NONE,
            stamp: None,
            flags: flags::CANCEL,
            count: 0,
            total: 0,
        };
        buffer_vector.measure();
        buffer_vector
    }

    /// Copies `chunks` from the buffer. Of a buffer of `inodes` the log holds only the links of unlinked ones.
    pub fn add(&mut self, from: &[u8], chunks: &ChunkBitmap, inodes: bool) {
        copy(&mut self.bytes, from, chunks);
        if self.stamp.is_none_or(|stamp| !stamp.is_of(from)) {
            self.stamp = HeaderLayout::of(from);
        }
        let kind = self.stamp.map_or(0, |stamp| stamp.kind.code());
        self.flags = u16::from(kind) << flags::KIND_SHIFT | if inodes { flags::INODE_BUFFER } else { 0 };
        if !self.chunks.contains(chunks) {
            self.chunks |= chunks;
            self.measure();
        }
    }

    /// Whether the buffer was freed.
    pub fn is_cancel(&self) -> bool {
        self.flags & flags::CANCEL != 0
    }

    /// Regions of the item.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all regions together.
    pub fn bytes(&self) -> usize {
        self.total
    }

    fn measure(&mut self) {
        if let ([segment], false) = (&*self.segments, self.chunks.is_empty()) {
            self.count = 1 + self.chunks.run_count();
            self.total = HEAD + map_words(segment) * 4 + self.chunks.count() * CHUNK_BYTES;
            return;
        }
        (self.count, self.total) = (0, 0);
        for (segment, chunks) in parts(&self.segments, &self.chunks) {
            if self.is_cancel() || !chunks.is_empty() {
                self.count += 1 + chunks.run_count();
                self.total += HEAD + map_words(segment) * 4 + chunks.count() * CHUNK_BYTES;
            }
        }
    }

    /// Gives the regions: for each segment the format and then the runs of chunks.
    pub fn for_each(&self, give: &mut dyn FnMut(&[u8])) {
        let mut start = 0;
        for (segment, chunks) in parts(&self.segments, &self.chunks) {
            let bytes = self.bytes.get(start..start + segment.bytes as usize).unwrap_or(&[]);
            start += segment.bytes as usize;
            if self.is_cancel() || !chunks.is_empty() {
                give(&head(segment, &chunks, self.flags));
                chunks.byte_runs(bytes.len()).for_each(|run| give(bytes.get(run).unwrap_or(&[])));
            }
        }
    }
}

/// Copies chunks, each by itself: most changes have one or two in a block.
#[inline]
fn copy(to: &mut [u8], from: &[u8], chunks: &ChunkBitmap) {
    let ((to, _), (from, _)) = (to.as_chunks_mut::<CHUNK_BYTES>(), from.as_chunks::<CHUNK_BYTES>());
    chunks.for_each(|chunk| {
        if let (Some(to), Some(from)) = (to.get_mut(chunk), from.get(chunk)) {
            *to = *from;
        }
    });
}

/// Each segment with its own chunks.
fn parts<'a>(
    segments: &'a BufferExtents,
    chunks: &'a ChunkBitmap,
) -> impl Iterator<Item = (&'a DiskExtent, ChunkBitmap)> {
    let mut start = 0;
    segments.iter().map(move |segment| {
        let end = start + segment.bytes as usize / CHUNK_BYTES;
        let part = if segments.len() == 1 { chunks.clone() } else { chunks.part(start..end) };
        start = end;
        (segment, part)
    })
}

fn map_words(segment: &DiskExtent) -> usize {
    (segment.bytes as usize / CHUNK_BYTES).div_ceil(32)
}

/// A buffer item's first region.
fn head(segment: &DiskExtent, chunks: &ChunkBitmap, flags: u16) -> Vec<u8> {
    let words = map_words(segment);
    let mut region = Vec::with_capacity(HEAD + words * 4);
    let regions = 1 + chunks.run_count() as u16; // at most 257
    for half in [ItemType::Buffer.code(), regions, flags, (segment.bytes / 512) as u16] {
        region.extend_from_slice(&half.to_le_bytes());
    }
    region.extend_from_slice(&segment.daddr.get().to_le_bytes());
    region.extend_from_slice(&(words as u32).to_le_bytes());
    chunks.words(words).for_each(|word| region.extend_from_slice(&word.to_le_bytes()));
    region
}
