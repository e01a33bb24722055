//! The directory of a checkpoint: its segments, its objects with pages, and where each page is.

use std::collections::BTreeMap;

use crate::codec::{Decoder, Encoder};
use crate::error::Damage;

use super::location::SLOT_MAX;
use super::table::Table;

const MAGIC: u32 = 0x5249_4458;
const WHAT: &str = "directory of the map";

/// A segment that contains live blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The volume that it belongs to: 0 for this one, else a parent.
    pub origin: u16,
    /// Its epoch.
    pub epoch: u64,
    /// Its position in the log of the epoch.
    pub seq: u64,
    /// Number of its blocks.
    pub blocks: u32,
    /// Number of its blocks that the map uses.
    pub live: u32,
    /// Length of the object.
    pub bytes: u64,
}

/// An object that contains pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapObject {
    /// The volume that it belongs to: 0 for this one, else a parent.
    pub origin: u16,
    /// The epoch of its writer.
    pub epoch: u64,
    /// Number of the object in the epoch.
    pub number: u64,
    /// Number of its pages that are in use.
    pub live: u32,
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// Slot of the object.
    pub object: u32,
    /// Offset in it.
    pub offset: u32,
    /// Length in bytes.
    pub length: u32,
}

/// The directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Segments by slots, which locations name.
    pub segments: Table<Segment>,
    /// Objects by slots, which page references name.
    pub objects: Table<MapObject>,
    /// Stored pages.
    pub pages: BTreeMap<u32, PageRef>,
}

impl Directory {
    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.u32(MAGIC);
        encoder.u32(1);
        encoder.u32(self.segments.len() as u32);
        for (slot, segment) in self.segments.iter() {
            encoder.u32(slot);
            encoder.u16(segment.origin);
            encoder.u64(segment.epoch);
            encoder.u64(segment.seq);
            encoder.u32(segment.blocks);
            encoder.u32(segment.live);
            encoder.u64(segment.bytes);
        }
        encoder.u32(self.objects.len() as u32);
        for (slot, object) in self.objects.iter() {
            encoder.u32(slot);
            encoder.u16(object.origin);
            encoder.u64(object.epoch);
            encoder.u64(object.number);
            encoder.u32(object.live);
        }
        encoder.u32(self.pages.len() as u32);
        for (number, page) in &self.pages {
            encoder.u32(*number);
            encoder.u32(page.object);
            encoder.u32(page.offset);
            encoder.u32(page.length);
        }
        encoder.bytes
    }

    /// Reads a stored directory that belongs to the volume `origin`, as the reading volume numbers it.
    pub fn decode(bytes: &[u8], origin: u16) -> Result<Self, Damage> {
        let mut decoder = Decoder::new(bytes, WHAT);
        if decoder.u32()? != MAGIC || decoder.u32()? != 1 {
            return Err(decoder.damage("wrong magic number or version"));
        }
        // Parents of a parent have the same numbers here.
        let translate = |stored: u16| if stored == 0 { origin } else { stored };
        let mut directory = Self::default();
        for _ in 0..decoder.count(38)? {
            let slot = decoder.u32()?;
            let origin = translate(decoder.u16()?);
            let (epoch, seq) = (decoder.u64()?, decoder.u64()?);
            let (blocks, live, bytes) = (decoder.u32()?, decoder.u32()?, decoder.u64()?);
            if slot >= SLOT_MAX {
                return Err(decoder.damage("a slot is too large"));
            }
            directory.segments.put(slot, Segment { origin, epoch, seq, blocks, live, bytes });
        }
        for _ in 0..decoder.count(26)? {
            let slot = decoder.u32()?;
            let origin = translate(decoder.u16()?);
            let (epoch, number, live) = (decoder.u64()?, decoder.u64()?, decoder.u32()?);
            directory.objects.put(slot, MapObject { origin, epoch, number, live });
        }
        for _ in 0..decoder.count(16)? {
            let number = decoder.u32()?;
            let page = PageRef { object: decoder.u32()?, offset: decoder.u32()?, length: decoder.u32()? };
            directory.pages.insert(number, page);
        }
        decoder.end()?;
        Ok(directory)
    }
}
