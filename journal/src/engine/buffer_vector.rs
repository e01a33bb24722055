//! The log vector of a buffer: its changed chunks, copied when they were committed.

use format::log::buffer::{CHUNK_BYTES, flags};
use format::log::item::ItemType;
use format::metadata_header::HeaderLayout;

use super::buffer::{BufferExtents, DiskExtent};
use super::chunk_bitmap::ChunkBitmap;

/// A copy of the chunks of a buffer that will be logged; the other bytes are undefined.
///
/// It has memory for the whole buffer, so that a later commit to the same checkpoint copies only its own changes.
#[derive(Debug)]
pub struct BufferVector {
    segments: BufferExtents,
    bytes: Box<[u8]>,
    chunks: ChunkBitmap,
    /// Type of the block, by its magic number.
    stamp: Option<&'static HeaderLayout>,
    /// Flags of the log format, with the type of buffer.
    flags: u16,
    /// Number of regions. Cached like `total`, as each commit needs both.
    count: usize,
    total: usize,
}

/// Bytes of the first region before its bitmap.
const HEAD: usize = 20;

impl BufferVector {
    /// A vector without chunks.
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

    /// The vector of a freed buffer: only the cancellation is logged.
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

    /// Copies `chunks` from the buffer. Of a buffer of `inodes` only their unlinked-list pointers are logged.
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

    /// Whether it is a cancellation.
    pub fn is_cancel(&self) -> bool {
        self.flags & flags::CANCEL != 0
    }

    /// Number of regions.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> usize {
        self.total
    }

    /// Bytes of allocated memory.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
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

    /// Calls `give` with the regions: for each extent the format, then the runs of chunks.
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

/// Copies chunks one by one: most changes touch one or two of a block.
#[inline]
fn copy(to: &mut [u8], from: &[u8], chunks: &ChunkBitmap) {
    let ((to, _), (from, _)) = (to.as_chunks_mut::<CHUNK_BYTES>(), from.as_chunks::<CHUNK_BYTES>());
    chunks.for_each(|chunk| {
        if let (Some(to), Some(from)) = (to.get_mut(chunk), from.get(chunk)) {
            *to = *from;
        }
    });
}

/// Each extent with its chunks.
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

/// The first region of a buffer log item.
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
