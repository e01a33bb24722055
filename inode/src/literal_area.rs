//! The literal area of an inode: the bytes after the core, with both forks.

/// Stands for a literal area of zeros; as long as that of the largest inode.
static ZEROS: [u8; 2048] = [0; 2048];

/// A literal area. One of zeros, such as that of an empty file, takes no memory.
#[derive(Clone, Debug)]
pub(crate) struct LiteralArea {
    /// Empty for a literal area of zeros.
    bytes: Box<[u8]>,
    len: usize,
}

impl LiteralArea {
    /// A literal area of zeros.
    pub fn zeros(len: usize) -> Self {
        Self { bytes: Box::default(), len }
    }

    /// A copy of the bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let zeros = bytes.iter().all(|byte| *byte == 0);
        Self { bytes: if zeros { Box::default() } else { bytes.into() }, len: bytes.len() }
    }

    /// Sets all bytes to zero.
    pub fn clear(&mut self) {
        self.bytes = Box::default();
    }

    /// Whether all bytes are known to be zero.
    pub fn is_zeros(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        if self.bytes.is_empty() { ZEROS.get(..self.len).unwrap_or(&ZEROS) } else { &self.bytes }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = vec![0; self.len].into();
        }
        &mut self.bytes
    }

    pub fn len(&self) -> usize {
        self.len
    }
}
