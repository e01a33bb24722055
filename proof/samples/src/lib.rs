//! Two small volumes that the kernel made (see `make` beside this package), for tests and tours without root and
//! without XFS tools.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes of either image.
pub const SIZE: u64 = 64 << 20;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// A small tree with every kind of file.
    Clean,
    /// The same after a crash: the newest files lie in the log alone.
    Dirty,
}

impl Sample {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Clean, Self::Dirty];

    /// As a user names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Dirty => "dirty",
        }
    }

    /// The image, compressed by zstd.
    fn packed(self) -> &'static [u8] {
        match self {
            Self::Clean => include_bytes!("../clean.xfs.zst"),
            Self::Dirty => include_bytes!("../dirty.xfs.zst"),
        }
    }

    /// Writes the image to a new file, blocks of zeros as holes.
    ///
    /// # Errors
    /// What the host reports; a file that exists is not overwritten.
    pub fn unpack(self, image: &Path) -> io::Result<()> {
        const BLOCK: u64 = 4096;
        let mut source = ruzstd::decoding::StreamingDecoder::new(self.packed()).map_err(io::Error::other)?;
        let mut file = File::create_new(image)?;
        let mut block = Vec::new();
        for end in (BLOCK..=SIZE).step_by(BLOCK as usize) {
            block.clear();
            source.by_ref().take(BLOCK).read_to_end(&mut block)?;
            if block.iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Start(end))?;
            } else {
                file.write_all(&block)?;
            }
        }
        file.set_len(SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_samples_are_xfs_volumes() {
        let folder = tempfile::tempdir().unwrap();
        for sample in Sample::ALL {
            let image = folder.path().join(sample.name());
            sample.unpack(&image).unwrap();
            let mut magic = [0; 4];
            let mut file = File::open(&image).unwrap();
            file.read_exact(&mut magic).unwrap();
            assert_eq!(&magic, b"XFSB");
            assert_eq!(file.metadata().unwrap().len(), SIZE);
        }
    }

    #[test]
    fn a_file_that_exists_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("precious");
        std::fs::write(&image, "precious").unwrap();
        assert!(Sample::Clean.unpack(&image).is_err());
        assert_eq!(std::fs::read(&image).unwrap(), b"precious");
    }
}
