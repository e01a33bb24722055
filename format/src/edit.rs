//! How a block is changed: through whoever holds it, who thus learns which bytes were written and logs no others.

use std::ops::Range;

use crate::damage::Damage;
use crate::ondisk::{OnDisk, U16, U32};

/// A block that may be changed.
pub trait BlockMut {
    /// The whole block.
    fn bytes(&self) -> &[u8];
    /// Exactly these bytes, to be written. Only called with ranges that lie within the block.
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

/// A block in memory whose changes nobody follows.
impl BlockMut for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.get_mut(range).unwrap_or_default()
    }
}

/// The bytes of a range, to be written, once it is known to lie within the block.
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

/// A big-endian number of 16 bits at an offset.
#[inline]
pub(crate) fn word16(bytes: &[u8], structure: &'static str, at: usize) -> Result<u16, Damage> {
    let word = bytes.get(at..).and_then(U16::view);
    word.map(|word| word.get()).ok_or_else(|| Damage::short(structure, at + 2, bytes.len()))
}

/// A big-endian number of 32 bits at an offset.
#[inline]
pub(crate) fn word32(bytes: &[u8], structure: &'static str, at: usize) -> Result<u32, Damage> {
    let word = bytes.get(at..).and_then(U32::view);
    word.map(|word| word.get()).ok_or_else(|| Damage::short(structure, at + 4, bytes.len()))
}
