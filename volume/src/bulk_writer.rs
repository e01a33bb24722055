//! Writing contents of many new files at once.

use base::errno;
use format::inode::FileType;
use inode::InodeRef;
use inode::contents::{VolumeBacking, WeakInode};

use crate::contents::in_memory;
use crate::{Error, FileId, Result, Volume};

/// Writes contents of new files without the cache: the bytes go from the caller's buffers to contiguous blocks, for
/// many files in one batch.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{BulkWriter, NewFile, Options, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let mut writer = BulkWriter::new(&volume);
/// for name in [b"one", b"two"] {
///     let file = volume.create(volume.root(), name, &NewFile::regular())?;
///     writer.put(file, 0, b"contents".to_vec())?;
/// }
/// writer.finish()?;
/// drop(writer);
/// assert_eq!(volume.metadata(volume.resolve(b"/two", true)?)?.size, 8);
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BulkWriter<'v> {
    volume: &'v Volume,
    writer: cache::BulkWriter<VolumeBacking, PinnedInode>,
}

/// A file with a reference that keeps its inode in memory.
#[derive(Debug)]
struct PinnedInode {
    file: WeakInode,
    _inode: InodeRef,
}

impl AsRef<WeakInode> for PinnedInode {
    fn as_ref(&self) -> &WeakInode {
        &self.file
    }
}

impl<'v> BulkWriter<'v> {
    /// Returns a writer without pending writes.
    pub fn new(volume: &'v Volume) -> Self {
        Self { volume, writer: cache::BulkWriter::new(&volume.cache) }
    }

    /// Alignment of offsets in bytes: the block size.
    pub fn alignment(&self) -> u64 {
        self.volume.geometry.block_size.into()
    }

    /// Adds contents of a regular file that nobody has open, at an offset that is a multiple of
    /// [`alignment`](Self::alignment), where nothing was written before. Without bytes the file grows to `offset`,
    /// which need not be aligned then. Writes to a file must come in the order of their offsets.
    ///
    /// # Errors
    /// `ENOSPC` if blocks are missing even after all earlier writes are finished; `EINVAL`; `ESTALE` if the file was
    /// removed; those of [`finish`](Self::finish).
    pub fn put(&mut self, file: FileId, offset: u64, bytes: Vec<u8>) -> Result<()> {
        let inode = self.volume.inode(file)?;
        if FileType::from_mode(inode.read().mode()) != Some(FileType::Regular) {
            return Err(Error::refused(errno::EINVAL, "only regular files have contents"));
        }
        if in_memory(&inode).is_some() {
            let why = "contents of the file are cached: it was opened before";
            return Err(Error::refused(errno::EINVAL, why));
        }
        let file = PinnedInode { file: WeakInode::new(&inode), _inode: inode };
        Ok(self.writer.put(file, offset, bytes, || self.volume.release_space())?)
    }

    /// Writes and maps all pending contents. They are stable after the next sync of the volume.
    ///
    /// # Errors
    /// `EIO` if a write fails: files that are not finished are as they were. Other errors shut the volume down.
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.writer.finish()?)
    }
}
