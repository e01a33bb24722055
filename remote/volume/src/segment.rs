//! Segments of the log: `docs/remote-format.md`.
//!
//! # Invariants
//! - A segment is one object, written once. Its holes count before its data, and its blocks are distinct.
//! - The checksum of a frame depends on where it is, so that a frame in another place is damage.

use std::collections::BTreeMap;

use crate::codec::{Decoder, Encoder, compress, crc, decompress};
use crate::error::Damage;
use crate::head::SIZE_MAX;
use crate::map::Location;

/// Bytes of a block, the unit of the map.
pub const BLOCK: usize = 4096;
/// Blocks of a segment at most.
pub const SEGMENT_BLOCKS: usize = 2048;
/// Runs of holes of a segment at most.
pub const SEGMENT_HOLES: usize = 256;
/// Blocks of a frame at most.
pub const FRAME_BLOCKS: usize = 16;
/// Frames begin at multiples of this.
pub const UNIT: usize = 64;
/// Header and index of the largest segment fit in this.
pub const INDEX_BYTES: u64 = 64 << 10;
/// Bytes of a frame at most, with its header.
pub const FRAME_BYTES: usize = FRAME_BLOCKS * BLOCK + UNIT;

/// A hole in the index has fewer than 2^32 blocks. That of a whole volume takes several entries.
const HOLE_ENTRIES: usize = SEGMENT_HOLES + ((SIZE_MAX / BLOCK as u64) >> 32) as usize;
const _: () = assert!((HEADER + (SEGMENT_BLOCKS + HOLE_ENTRIES) * ENTRY) as u64 <= INDEX_BYTES);

const MAGIC: u32 = 0x4753_4258;
const HEADER: usize = 96;
const ENTRY: usize = 24;
const FRAME_HEADER: usize = 16;
const HOLE: u32 = u32::MAX;

/// A block's contents.
pub type Block = Box<[u8; BLOCK]>;

/// Who wrote an object of the log, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Identifies the volume.
    pub uuid: [u8; 16],
    /// Epoch of the log.
    pub epoch: u64,
    /// Position in the log of this epoch.
    pub seq: u64,
    /// Identifies the writer.
    pub nonce: u128,
    /// The epoch of the writer: higher than `epoch` for a fence.
    pub by: u64,
}

impl Stamp {
    /// Whether it ends its epoch's log.
    pub fn is_fence(&self) -> bool {
        self.by != self.epoch
    }
}

/// Blocks and holes that one segment makes durable together.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Blocks by their numbers.
    pub blocks: BTreeMap<u64, Block>,
    /// Ends of discarded runs of blocks by their starts; they do not overlap. `blocks` count over them.
    pub holes: BTreeMap<u64, u64>,
}

/// One run of a segment's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Blocks that read as zeros.
    Hole {
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u32,
    },
    /// Blocks in one frame.
    Data {
        /// First block.
        block: u64,
        /// Number of blocks.
        count: u32,
        /// Where the first one is; its segment is to be filled in.
        at: Location,
    },
}

impl Contents {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.holes.is_empty()
    }

    /// Whether no more may be added.
    pub fn is_full(&self) -> bool {
        self.blocks.len() >= SEGMENT_BLOCKS || self.holes.len() >= SEGMENT_HOLES
    }

    /// Adds a run of holes, which replaces blocks.
    pub fn discard(&mut self, block: u64, end: u64) {
        let inside: Vec<u64> = self.blocks.range(block..end).map(|(block, _)| *block).collect();
        inside.iter().for_each(|block| drop(self.blocks.remove(block)));
        let (mut start, mut stop) = (block, end);
        let touching: Vec<(u64, u64)> = self
            .holes
            .range(..=end)
            .rev()
            .take_while(|(_, end)| **end >= block)
            .map(|(s, e)| (*s, *e))
            .collect();
        for (from, to) in touching {
            self.holes.remove(&from);
            (start, stop) = (start.min(from), stop.max(to));
        }
        self.holes.insert(start, stop);
    }

    /// The block, `Some(None)` for a hole.
    pub fn find(&self, block: u64) -> Option<Option<&[u8; BLOCK]>> {
        if let Some(found) = self.blocks.get(&block) {
            return Some(Some(found));
        }
        let hole = self.holes.range(..=block).next_back();
        hole.filter(|(_, end)| block < **end).map(|_| None)
    }

    /// The object, and its index.
    pub fn encode(&self, stamp: &Stamp) -> (Vec<u8>, Vec<Entry>) {
        let mut entries = Vec::new();
        for (start, end) in &self.holes {
            let mut at = *start;
            while at < *end {
                let count = (*end - at).min(u64::from(u32::MAX)) as u32;
                entries.push(Entry::Hole { block: at, count });
                at += u64::from(count);
            }
        }
        let blocks: Vec<(u64, &Block)> = self.blocks.iter().map(|(block, bytes)| (*block, bytes)).collect();
        let runs =
            blocks.chunks(FRAME_BLOCKS).map(|chunk| chunk.chunk_by(|one, next| one.0 + 1 == next.0).count());
        let length = HEADER + (entries.len() + runs.sum::<usize>()) * ENTRY;
        let data = length.next_multiple_of(UNIT);
        let mut body = Encoder { bytes: vec![0; data] };
        for chunk in blocks.chunks(FRAME_BLOCKS) {
            let offset = body.bytes.len();
            encode_frame(&mut body, stamp, chunk.iter().map(|(_, bytes)| &bytes[..]));
            let length = body.bytes.len() - offset;
            let mut first = 0;
            for run in chunk.chunk_by(|one, next| one.0 + 1 == next.0) {
                let at = Location::new(0, (offset / UNIT) as u32, (length / UNIT) as u32, first);
                let block = run.first().map_or(0, |(block, _)| *block);
                entries.push(Entry::Data { block, count: run.len() as u32, at });
                first += run.len() as u32;
            }
        }
        let mut object = body.bytes;
        let header = encode_header(stamp, &entries, object.len() as u64, data as u32);
        if let Some(place) = object.get_mut(..header.len()) {
            place.copy_from_slice(&header);
        }
        (object, entries)
    }
}

/// An object that ends the log of an epoch.
pub fn encode_fence(stamp: &Stamp) -> Vec<u8> {
    encode_header(stamp, &[], HEADER as u64, HEADER as u32)
}

fn encode_header(stamp: &Stamp, entries: &[Entry], length: u64, data: u32) -> Vec<u8> {
    let mut header = Encoder::default();
    header.u32(MAGIC);
    header.u32(0);
    header.u16(1);
    header.u16(0);
    header.u32(entries.len() as u32);
    header.raw(&stamp.uuid);
    header.u64(stamp.epoch);
    header.u64(stamp.seq);
    header.u64(stamp.by);
    header.raw(&stamp.nonce.to_le_bytes());
    header.u64(length);
    header.u32(data);
    header.bytes.resize(HEADER, 0);
    for entry in entries {
        match *entry {
            Entry::Hole { block, count } => {
                header.u64(block);
                header.u32(count);
                header.u32(HOLE);
                header.u64(0);
            }
            Entry::Data { block, count, at } => {
                header.u64(block);
                header.u32(count);
                header.u32(at.offset());
                header.u16(at.length() as u16);
                header.u16(at.first() as u16);
                header.u32(0);
            }
        }
    }
    let sum = crc(&[&header.bytes]);
    header.set_u32(4, sum);
    header.bytes
}

/// Reads the start of an object of the log: at least [`INDEX_BYTES`], or all of it.
pub fn decode(bytes: &[u8]) -> Result<(Stamp, Vec<Entry>, u64), Damage> {
    let what = "segment header";
    let mut decoder = Decoder::new(bytes, what);
    let damage = |reason| Damage { what, reason };
    if decoder.u32()? != MAGIC {
        return Err(damage("wrong magic number"));
    }
    let sum = decoder.u32()?;
    if decoder.u16()? != 1 {
        return Err(damage("unknown version"));
    }
    decoder.u16()?;
    let count = decoder.u32()? as usize;
    let covered = count.checked_mul(ENTRY).and_then(|length| bytes.get(..HEADER + length));
    let covered = covered.ok_or_else(|| damage("it is too short"))?;
    if crc(&[covered.get(..4).unwrap_or_default(), &[0; 4], covered.get(8..).unwrap_or_default()]) != sum {
        return Err(damage("wrong checksum"));
    }
    let uuid = decoder.array()?;
    let (epoch, seq, by) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
    let nonce = u128::from_le_bytes(decoder.array()?);
    let length = decoder.u64()?;
    let data = decoder.u32()?;
    decoder.raw(HEADER - 84)?;
    let stamp = Stamp { uuid, epoch, seq, nonce, by };
    let units = u32::try_from(length / UNIT as u64).map_err(|_| damage("it is too large"))?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(decode_entry(&mut decoder, data / UNIT as u32, units)?);
    }
    Ok((stamp, entries, length))
}

fn decode_entry(decoder: &mut Decoder<'_>, data: u32, units: u32) -> Result<Entry, Damage> {
    let (block, count, offset) = (decoder.u64()?, decoder.u32()?, decoder.u32()?);
    let (length, first) = (u32::from(decoder.u16()?), u32::from(decoder.u16()?));
    decoder.u32()?;
    if count == 0 || block.checked_add(u64::from(count)).is_none() {
        return Err(decoder.damage("a run is empty, or a block number is too large"));
    }
    if offset == HOLE {
        return Ok(Entry::Hole { block, count });
    }
    let fits = offset >= data && offset.checked_add(length).is_some_and(|end| end <= units);
    let in_frame = first.checked_add(count).is_some_and(|end| end as usize <= FRAME_BLOCKS);
    if !fits || !in_frame || length as usize * UNIT > FRAME_BYTES || length == 0 {
        return Err(decoder.damage("a frame is not within it"));
    }
    Ok(Entry::Data { block, count, at: Location::new(0, offset, length, first) })
}

/// What the checksum of a frame covers besides its bytes.
fn place(uuid: &[u8; 16], epoch: u64, seq: u64, offset: u32) -> [u8; 36] {
    let mut place = [0; 36];
    place[..16].copy_from_slice(uuid);
    place[16..24].copy_from_slice(&epoch.to_le_bytes());
    place[24..32].copy_from_slice(&seq.to_le_bytes());
    place[32..].copy_from_slice(&offset.to_le_bytes());
    place
}

fn encode_frame<'a>(body: &mut Encoder, stamp: &Stamp, blocks: impl Iterator<Item = &'a [u8]>) {
    let mut bytes = Vec::with_capacity(FRAME_BLOCKS * BLOCK);
    blocks.for_each(|block| bytes.extend_from_slice(block));
    let packed = compress(&bytes);
    let (codec, payload) = packed.as_ref().map_or((0, &bytes), |packed| (1, packed));
    let start = body.bytes.len();
    body.u32(0);
    body.u32(payload.len() as u32);
    body.u8((bytes.len() / BLOCK) as u8);
    body.u8(codec);
    body.u16(0);
    body.u32(0);
    body.raw(payload);
    let place = place(&stamp.uuid, stamp.epoch, stamp.seq, (start / UNIT) as u32);
    let sum = crc(&[&place, body.bytes.get(start + 4..).unwrap_or_default()]);
    body.set_u32(start, sum);
    body.bytes.resize(body.bytes.len().next_multiple_of(UNIT), 0);
}

/// The blocks of a frame, from its stored bytes.
pub fn decode_frame(
    bytes: &[u8],
    uuid: &[u8; 16],
    epoch: u64,
    seq: u64,
    offset: u32,
) -> Result<Vec<u8>, Damage> {
    let what = "frame";
    let mut decoder = Decoder::new(bytes, what);
    let sum = decoder.u32()?;
    let length = decoder.u32()? as usize;
    let (blocks, codec) = (usize::from(decoder.u8()?), decoder.u8()?);
    decoder.raw(FRAME_HEADER - 10)?;
    let payload = decoder.raw(length)?;
    let covered = bytes.get(4..FRAME_HEADER + length).unwrap_or_default();
    if crc(&[&place(uuid, epoch, seq, offset), covered]) != sum {
        return Err(Damage { what, reason: "wrong checksum" });
    }
    match codec {
        _ if blocks == 0 || blocks > FRAME_BLOCKS => Err(Damage { what, reason: "wrong number of blocks" }),
        0 if length == blocks * BLOCK => Ok(payload.to_vec()),
        1 => decompress(payload, blocks * BLOCK, what),
        _ => Err(Damage { what, reason: "unknown compression" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum does not help against who writes it. An empty hole at the start of a page panicked when it was
    /// applied to the map.
    #[test]
    fn impossible_entries_are_refused() {
        let stamp = Stamp { uuid: [1; 16], epoch: 2, seq: 3, nonce: 4, by: 2 };
        let at = |offset, length, first| Location::new(0, offset, length, first);
        let decoded = |entry| decode(&encode_header(&stamp, &[entry], 640, 128));
        for entry in
            [Entry::Hole { block: 4096, count: 1 }, Entry::Data { block: 7, count: 2, at: at(2, 8, 14) }]
        {
            assert_eq!(decoded(entry).unwrap(), (stamp, vec![entry], 640));
        }
        for entry in [
            Entry::Hole { block: 4096, count: 0 },
            Entry::Hole { block: u64::MAX, count: 1 },
            Entry::Data { block: 7, count: 0, at: at(2, 8, 0) },
            Entry::Data { block: 7, count: 1, at: at(1, 8, 0) },
            Entry::Data { block: 7, count: 1, at: at(2, 9, 0) },
            Entry::Data { block: 7, count: 1, at: at(2, 0, 0) },
            Entry::Data { block: 7, count: 3, at: at(2, 8, 14) },
        ] {
            assert!(decoded(entry).is_err(), "{entry:?}");
        }
    }
}
