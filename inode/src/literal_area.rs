//! An inode's slot behind the core: the areas of both forks.

/// What stands for a slot's rest that is all zeros: as long as the largest inode.
static ZEROS: [u8; 2048] = [0; 2048];

/// See the module. One that is all zeros takes no memory, as that of files without contents.
#[derive(Clone, Debug)]
pub(crate) struct LiteralArea {
    /// Empty where all is zeros.
    bytes: Box<[u8]>,
    len: usize,
}

impl LiteralArea {
    /// All zeros.
    pub fn zeros(len: usize) -> Self {
        Self { bytes: Box::default(), len }
    }

    /// As it was read.
    pub fn of(bytes: &[u8]) -> Self {
        let zeros = bytes.iter().all(|byte| *byte == 0);
        Self { bytes: if zeros { Box::default() } else { bytes.into() }, len: bytes.len() }
    }

    /// Makes it zeros again.
    pub fn clear(&mut self) {
        self.bytes = Box::default();
    }

    /// Whether it is all zeros for sure.
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
