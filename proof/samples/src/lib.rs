//! Two small volumes written by the kernel (see the script `make` in this package), for tests and examples without root
//! and without xfsprogs.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Size of each image in bytes.
pub const SIZE: u64 = 64 << 20;

/// A sample volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// A small tree with files of all types.
    Clean,
    /// The same tree after a crash: the newest changes are only in the log.
    Dirty,
}

impl Sample {
    /// All samples.
    pub const ALL: [Self; 2] = [Self::Clean, Self::Dirty];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Dirty => "dirty",
        }
    }

    /// Returns the image, compressed with zstd.
    fn packed(self) -> &'static [u8] {
        match self {
            Self::Clean => include_bytes!("../clean.xfs.zst"),
            Self::Dirty => include_bytes!("../dirty.xfs.zst"),
        }
    }

    /// Writes the image to a new sparse file.
    ///
    /// # Errors
    /// I/O errors of the host. An existing file is not overwritten.
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
    fn existing_files_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("precious");
        std::fs::write(&image, "precious").unwrap();
        assert!(Sample::Clean.unpack(&image).is_err());
        assert_eq!(std::fs::read(&image).unwrap(), b"precious");
    }
}
