//! Write access to a block, through a trait whose implementation learns which bytes are written and logs only those.

use std::ops::Range;

use crate::damage::Damage;
use crate::ondisk::{OnDisk, U16, U32};

/// A block that can be modified.
pub trait BlockMut {
    /// The whole block.
    fn bytes(&self) -> &[u8];
    /// Returns a byte range for writing. Callers only pass ranges within the block.
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8];
}

impl<B: BlockMut + ?Sized> BlockMut for &mut B {
    #[inline]
    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }

    #[inline]
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        (**self).bytes_mut(range)
    }
}

/// A block in memory whose changes are not tracked.
impl BlockMut for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.get_mut(range).unwrap_or_default()
    }
}

/// Returns a byte range for writing after checking that it lies within the block.
#[inline]
pub(crate) fn part_mut<'b, B: BlockMut + ?Sized>(
    block: &'b mut B,
    structure: &'static str,
    range: Range<usize>,
) -> Result<&'b mut [u8], Damage> {
    let have = block.bytes().len();
    if range.start <= range.end && range.end <= have {
        Ok(block.bytes_mut(range))
    } else {
        Err(outside(structure, have, range))
    }
}

#[cold]
fn outside(structure: &'static str, have: usize, range: Range<usize>) -> Damage {
    let found = format_args!("bytes {} to {}", range.start, range.end);
    Damage::new(structure, "length", format_args!("at most {have} bytes"), found)
}

/// Writes bytes at an offset.
#[inline]
pub(crate) fn put<B: BlockMut + ?Sized>(
    block: &mut B,
    structure: &'static str,
    at: usize,
    bytes: &[u8],
) -> Result<(), Damage> {
    part_mut(block, structure, at..at + bytes.len())?.copy_from_slice(bytes);
    Ok(())
}

/// The big-endian 16-bit number at an offset.
#[inline]
pub(crate) fn word16(bytes: &[u8], structure: &'static str, at: usize) -> Result<u16, Damage> {
    let word = bytes.get(at..).and_then(U16::view);
    word.map(|word| word.get()).ok_or_else(|| Damage::short(structure, at + 2, bytes.len()))
}

/// The big-endian 32-bit number at an offset.
#[inline]
pub(crate) fn word32(bytes: &[u8], structure: &'static str, at: usize) -> Result<u32, Damage> {
    let word = bytes.get(at..).and_then(U32::view);
    word.map(|word| word.get()).ok_or_else(|| Damage::short(structure, at + 4, bytes.len()))
}
