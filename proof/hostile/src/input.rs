//! Reads values from a fuzz input. Zeros follow its end, so that every input is valid.

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The whole input.
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Whether the input is consumed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// A number below `bound` from the next two bytes; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.u16()).checked_rem(bound).unwrap_or(0)
    }

    /// The next bytes, at most `length`.
    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Exactly `length` bytes, padded with zeros.
    pub fn block(&mut self, length: usize) -> Vec<u8> {
        let mut block = self.bytes(length).to_vec();
        block.resize(length, 0);
        block
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.bytes(N);
        array.iter_mut().zip(taken).for_each(|(to, from)| *to = *from);
        array
    }
}
