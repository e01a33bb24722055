//! Pages of the map, in memory and stored.

use crate::codec::{Decoder, Encoder, compress, crc, decompress};
use crate::error::Damage;

use super::location::Location;

/// Entries of a page.
pub const ENTRIES: usize = 4096;
const HEADER: usize = 20;
const WHAT: &str = "page of the map";

/// Where 4,096 consecutive blocks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page(Box<[Location]>);

impl Default for Page {
    fn default() -> Self {
        Self(vec![Location::default(); ENTRIES].into_boxed_slice())
    }
}

impl Page {
    /// An entry.
    pub fn get(&self, index: usize) -> Location {
        self.0.get(index).copied().unwrap_or_default()
    }

    /// Replaces an entry, and returns the old one.
    pub fn replace(&mut self, index: usize, location: Location) -> Location {
        self.0.get_mut(index).map(|entry| std::mem::replace(entry, location)).unwrap_or_default()
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = Location> {
        self.0.iter().copied()
    }

    /// Whether all blocks are holes.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| entry.is_hole())
    }
}

/// What the checksum covers besides the bytes.
fn place(epoch: u64, object: u64, number: u32) -> [u8; 20] {
    let mut place = [0; 20];
    place[..8].copy_from_slice(&epoch.to_le_bytes());
    place[8..16].copy_from_slice(&object.to_le_bytes());
    place[16..].copy_from_slice(&number.to_le_bytes());
    place
}

/// The stored form of page `number`, in the object with these numbers.
pub fn encode_page(page: &Page, number: u32, epoch: u64, object: u64) -> Vec<u8> {
    let mut runs = Encoder::default();
    let mut index = 0u16;
    for run in page.0.chunk_by(|one, next| one.precedes(*next) || one.is_hole() && next.is_hole()) {
        if let Some(first) = run.first().filter(|first| !first.is_hole()) {
            runs.u16(index);
            runs.u16(run.len() as u16);
            runs.u64(first.bits());
        }
        index += run.len() as u16;
    }
    let is_runs = runs.bytes.len() < ENTRIES * 8;
    let body = match is_runs {
        true => runs.bytes,
        false => page.0.iter().flat_map(|entry| entry.bits().to_le_bytes()).collect(),
    };
    let packed = compress(&body);
    let payload = packed.as_ref().unwrap_or(&body);
    let mut encoder = Encoder::default();
    encoder.u32(0);
    encoder.u32(body.len() as u32);
    encoder.u32(payload.len() as u32);
    encoder.u8(u8::from(packed.is_some()));
    encoder.u8(u8::from(is_runs));
    encoder.bytes.resize(HEADER, 0);
    encoder.raw(payload);
    let sum = crc(&[&place(epoch, object, number), encoder.bytes.get(4..).unwrap_or_default()]);
    encoder.set_u32(0, sum);
    encoder.bytes
}

/// Reads a stored page.
pub fn decode_page(bytes: &[u8], number: u32, epoch: u64, object: u64) -> Result<Page, Damage> {
    let damage = |reason| Damage { what: WHAT, reason };
    let mut decoder = Decoder::new(bytes, WHAT);
    let sum = decoder.u32()?;
    if crc(&[&place(epoch, object, number), bytes.get(4..).unwrap_or_default()]) != sum {
        return Err(damage("wrong checksum"));
    }
    let (length, stored) = (decoder.u32()? as usize, decoder.u32()? as usize);
    let (packed, is_runs) = (decoder.u8()? == 1, decoder.u8()? == 1);
    decoder.raw(HEADER - 14)?;
    let payload = decoder.raw(stored)?;
    decoder.end()?;
    if length > ENTRIES * 8 || !packed && stored != length {
        return Err(damage("wrong length"));
    }
    let body = if packed { decompress(payload, length, WHAT)? } else { payload.to_vec() };
    let mut decoder = Decoder::new(&body, WHAT);
    let mut page = Page::default();
    if !is_runs {
        for entry in &mut page.0 {
            *entry = Location::from_bits(decoder.u64()?);
        }
        return decoder.end().map(|()| page);
    }
    while decoder.end().is_err() {
        let (index, count) = (usize::from(decoder.u16()?), usize::from(decoder.u16()?));
        let first = Location::from_bits(decoder.u64()?);
        let run = page.0.get_mut(index..index + count).ok_or_else(|| damage("a run does not fit"))?;
        if first.first() as usize + count > crate::segment::FRAME_BLOCKS {
            return Err(damage("a run does not fit into a frame"));
        }
        for (entry, n) in run.iter_mut().zip(0..) {
            *entry = first.skip(n);
        }
    }
    Ok(page)
}
