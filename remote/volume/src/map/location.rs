//! Where a block is, in eight bytes.

use std::fmt;

const FIRST_BITS: u32 = 4;
const LENGTH_BITS: u32 = 11;
const OFFSET_BITS: u32 = 19;
const SLOT_SHIFT: u32 = FIRST_BITS + LENGTH_BITS + OFFSET_BITS;

/// Largest number of a slot for segments.
pub const SLOT_MAX: u32 = (1 << (64 - SLOT_SHIFT)) - 2;

/// A block in a frame of a segment, or a hole (zero).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Location(u64);

impl Location {
    /// Block `first` of the frame at `offset`, of `length`, both in units of 64 bytes.
    pub fn new(slot: u32, offset: u32, length: u32, first: u32) -> Self {
        let slot = u64::from(slot.min(SLOT_MAX)) + 1;
        let field = |value: u32, bits: u32| u64::from(value) & ((1 << bits) - 1);
        let frame = field(offset, OFFSET_BITS) << LENGTH_BITS | field(length, LENGTH_BITS);
        Self(slot << SLOT_SHIFT | frame << FIRST_BITS | field(first, FIRST_BITS))
    }

    /// From its stored form.
    pub fn from_bits(bits: u64) -> Self {
        if bits >> SLOT_SHIFT == 0 { Self(0) } else { Self(bits) }
    }

    /// The stored form.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether the block reads as zeros.
    pub fn is_hole(self) -> bool {
        self.0 == 0
    }

    /// The slot of its segment.
    pub fn slot(self) -> u32 {
        ((self.0 >> SLOT_SHIFT) as u32).saturating_sub(1)
    }

    fn field(self, shift: u32, bits: u32) -> u32 {
        (self.0 >> shift & ((1 << bits) - 1)) as u32
    }

    /// Offset of the frame, in units of 64 bytes.
    pub fn offset(self) -> u32 {
        self.field(FIRST_BITS + LENGTH_BITS, OFFSET_BITS)
    }

    /// Length of the frame, in units of 64 bytes.
    pub fn length(self) -> u32 {
        self.field(FIRST_BITS, LENGTH_BITS)
    }

    /// Index of the block in the frame.
    pub fn first(self) -> u32 {
        self.field(0, FIRST_BITS)
    }

    /// The same in another segment.
    pub fn in_segment(self, slot: u32) -> Self {
        Self::new(slot, self.offset(), self.length(), self.first())
    }

    /// The block `n` behind it in the frame.
    pub fn skip(self, n: u32) -> Self {
        Self::new(self.slot(), self.offset(), self.length(), self.first() + n)
    }

    /// Whether `next` is the following block of the same frame.
    pub fn precedes(self, next: Self) -> bool {
        !self.is_hole() && self.first() + 1 < 1 << FIRST_BITS && next.0 == self.0 + 1
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_hole() {
            return f.write_str("hole");
        }
        write!(f, "{}:{}+{}[{}]", self.slot(), self.offset(), self.length(), self.first())
    }
}
