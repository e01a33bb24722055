//! Identity of a file in a volume.

use base::{Ino, errno};
use volume::{Metadata, Volume};

/// A file that is changed later and may be removed meanwhile. Its inode number may be reused, but with another
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    pub ino: Ino,
    generation: u32,
}

impl FileId {
    /// Identifies the file that has this inode number now.
    pub fn of(volume: &Volume, ino: Ino) -> volume::Result<Self> {
        volume.metadata(ino).map(|known| Self::from(&known))
    }

    /// Whether the file still exists.
    pub fn exists(self, volume: &Volume) -> volume::Result<bool> {
        match Self::of(volume, self.ino) {
            Err(error) if error.errno() == errno::ENOENT => Ok(false),
            now => Ok(now? == self),
        }
    }
}

impl From<&Metadata> for FileId {
    fn from(known: &Metadata) -> Self {
        Self { ino: known.ino, generation: known.generation }
    }
}
