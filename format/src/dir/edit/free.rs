//! Changes of free-index blocks.

use zerocopy::IntoBytes;

use super::put_header;
use crate::damage::Damage;
use crate::dir::DirHeader;
use crate::dir::data::NULL_BEST;
use crate::dir::free::{FreeHeader, HEADER_SIZE, MAGIC};
use crate::edit::{BlockMut, put, word32};
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16, U32};

const NAME: &str = "directory free block";

/// The decoded header of a free-index block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeShape {
    /// Number of the directory block that the first best describes.
    pub first: u32,
    /// Number of bests.
    pub valid: usize,
    /// Number of bests that describe an existing block.
    pub used: usize,
}

impl FreeShape {
    /// Decodes the header.
    pub fn of(bytes: &[u8]) -> Result<Self, Damage> {
        let magic = word32(bytes, NAME, 0)?;
        ensure!(magic == MAGIC, NAME, "magic", format_args!("{MAGIC:#x}"), format_args!("{magic:#x}"));
        let header = bytes.get(DirHeader::SIZE..).and_then(FreeHeader::view);
        let header = header.ok_or_else(|| Damage::short(NAME, HEADER_SIZE, bytes.len()))?;
        let (valid, used) = (header.nvalid.get() as usize, header.nused.get() as usize);
        let most = bytes.len().saturating_sub(HEADER_SIZE) / 2;
        ensure!(valid <= most, NAME, "nvalid", format_args!("at most {most}"), valid);
        ensure!(used <= valid, NAME, "nused", format_args!("at most {valid}"), used);
        Ok(Self { first: header.firstdb.get(), valid, used })
    }

    /// The bests.
    #[inline]
    pub fn bests<'b>(&self, bytes: &'b [u8]) -> Result<&'b [U16], Damage> {
        let table = bytes.get(HEADER_SIZE..).and_then(|rest| U16::view_array(rest, self.valid));
        table.ok_or_else(|| Damage::short(NAME, HEADER_SIZE + 2 * self.valid, bytes.len()))
    }

    fn put<B: BlockMut + ?Sized>(&self, block: &mut B) -> Result<(), Damage> {
        let header = FreeHeader {
            firstdb: U32::new(self.first),
            nvalid: U32::new(self.valid as u32),
            nused: U32::new(self.used as u32),
            pad: 0.into(),
        };
        put(block, NAME, DirHeader::SIZE, header.as_bytes())
    }
}

/// Initializes a free-index block whose first best describes directory block `first`.
pub fn init<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    at: ForkBlock,
    first: u32,
    bests: &[U16],
) -> Result<(), Damage> {
    put_header(block, NAME, MAGIC, geometry, at)?;
    let used = bests.iter().filter(|best| best.get() != NULL_BEST).count();
    put(block, NAME, HEADER_SIZE, bests.as_bytes())?;
    FreeShape { first, valid: bests.len(), used }.put(block)
}

/// The bests of a free-index block.
pub fn bests(bytes: &[u8]) -> Result<&[U16], Damage> {
    FreeShape::of(bytes)?.bests(bytes)
}

/// Sets the best of a data block; `None` if the block was removed. Extends the array as needed and drops trailing
/// entries of missing blocks. Returns the new header.
pub fn set<B: BlockMut + ?Sized>(
    block: &mut B,
    index: usize,
    best: Option<u16>,
) -> Result<FreeShape, Damage> {
    let old = FreeShape::of(block.bytes())?;
    let mut shape = old;
    let most = block.bytes().len().saturating_sub(HEADER_SIZE) / 2;
    ensure!(index < most, NAME, "nvalid", format_args!("at most {most}"), index);
    let table = shape.bests(block.bytes())?;
    let before = table.get(index).map(|best| best.get()).filter(|best| *best != NULL_BEST);
    if before == best {
        return Ok(shape);
    }
    match (before, best) {
        (None, Some(_)) => shape.used += 1,
        (Some(_), None) => shape.used = shape.used.saturating_sub(1),
        _ => {}
    }
    if best.is_none() && index + 1 == shape.valid {
        let there = table.iter().take(index).rposition(|best| best.get() != NULL_BEST);
        shape.valid = there.map_or(0, |last| last + 1);
        shape.put(block)?;
        return Ok(shape);
    }
    // The array now also covers blocks that do not exist.
    for gap in shape.valid..index {
        put(block, NAME, HEADER_SIZE + 2 * gap, &NULL_BEST.to_be_bytes())?;
    }
    shape.valid = shape.valid.max(index + 1);
    put(block, NAME, HEADER_SIZE + 2 * index, &best.unwrap_or(NULL_BEST).to_be_bytes())?;
    if shape != old {
        shape.put(block)?;
    }
    Ok(shape)
}
