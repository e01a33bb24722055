//! Contents of files.

use std::sync::Arc;

use base::errno::{EBADF, EINVAL, ENFILE, ENXIO, EOPNOTSUPP};
use xebec::{BlockReserve, File, OpenOptions};

use super::VolumeOperations;
use super::open_files::OpenFile;
use crate::operations::{ByteRange, Errno, FileHandle, Opened, Result, Seek, WriteFlags};

/// Flags of `open`.
const O_ACCMODE: i32 = 3;
const O_RDONLY: i32 = 0;
const O_APPEND: i32 = 0o2000;

/// Modes of `fallocate`.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const COLLAPSE_RANGE: u32 = 0x08;
const ZERO_RANGE: u32 = 0x10;
const INSERT_RANGE: u32 = 0x20;
const UNSHARE_RANGE: u32 = 0x40;

/// Buffer size for copies without shared blocks.
const COPY_BUFFER: u64 = 1 << 20;

impl<'v> VolumeOperations<'v> {
    /// Opens a regular file by `open`. For `O_TRUNC` the kernel sends a separate request. A file that is opened only
    /// for writing can be read, too: the kernel reads the rest of partially written pages.
    ///
    /// An append-only file is written at the end that the kernel knows, without the page cache: a page also contains
    /// bytes before the end, which may have been changed through `mmap`.
    pub(super) fn open_file(
        &self,
        flags: i32,
        open: impl Fn(&OpenOptions) -> std::result::Result<File<'v>, xebec::Error>,
    ) -> Result<Opened> {
        let writes = flags & O_ACCMODE != O_RDONLY;
        let append = writes && flags & O_APPEND != 0;
        let mut options = OpenOptions::new();
        options.read(true).write(writes);
        let (file, direct_io) = match open(&options) {
            Err(_) if append => (open(options.append(true).keep_offsets(true))?, true),
            opened => (opened?, false),
        };
        let handle = self.files.add(file).ok_or(Errno(ENFILE))?;
        Ok(Opened { handle: FileHandle(handle), direct_io })
    }

    pub(super) fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile<'v>>> {
        self.files.get(handle.0).ok_or(Errno(EBADF))
    }

    pub(super) fn write_file(
        &self,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
    ) -> Result<usize> {
        let file = self.file(handle)?;
        let written = match &self.reserve {
            Some(reserve) if how.from_cache => reserve.write_at(&file, data, offset)?,
            reserve => {
                let written = file.write_at(data, offset)?;
                reserve.as_ref().map(BlockReserve::refill);
                written
            }
        };
        if how.dsync {
            file.sync_data()?;
        }
        Ok(written)
    }

    pub(super) fn allocate_range(&self, handle: FileHandle, range: ByteRange, mode: u32) -> Result<()> {
        let file = self.file(handle)?;
        let ByteRange { offset, length } = range;
        let keep_size = mode & KEEP_SIZE != 0;
        match mode & !KEEP_SIZE {
            0 => file.allocate(offset, length, keep_size)?,
            PUNCH_HOLE if keep_size => file.punch_hole(offset, length)?,
            ZERO_RANGE => file.zero_range(offset, length, keep_size)?,
            UNSHARE_RANGE => file.unshare_range(offset, length, keep_size)?,
            COLLAPSE_RANGE if !keep_size => file.collapse_range(offset, length)?,
            INSERT_RANGE if !keep_size => file.insert_range(offset, length)?,
            _ => return Err(Errno(EOPNOTSUPP)),
        }
        Ok(())
    }

    pub(super) fn seek_data_or_hole(&self, handle: FileHandle, offset: u64, target: Seek) -> Result<u64> {
        let file = self.file(handle)?;
        let offset = match target {
            Seek::Data => file.seek_data(offset)?,
            Seek::Hole => file.seek_hole(offset)?,
        };
        offset.ok_or(Errno(ENXIO))
    }

    /// Copies by sharing blocks if both ranges are aligned to blocks, and through memory otherwise.
    pub(super) fn copy_range(
        &self,
        from: (FileHandle, u64),
        to: (FileHandle, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, target) = (self.file(from.0)?, self.file(to.0)?);
        let length = length.min(source.len().saturating_sub(from.1));
        if length == 0 {
            return Ok(0);
        }
        let block = u64::from(self.volume.geometry().block_size);
        let ends = from.1 + length == source.len() && to.1 + length >= target.len();
        let shared = if ends { length } else { length / block * block };
        if shared > 0 {
            match target.clone_range(&source, from.1, to.1, shared) {
                Ok(()) => return Ok(shared),
                Err(error) if matches!(error.errno(), EINVAL | EOPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        copy_bytes((&source, from.1), (&target, to.1), length)
    }
}

fn copy_bytes(from: (&File<'_>, u64), to: (&File<'_>, u64), length: u64) -> Result<u64> {
    let mut buffer = vec![0; length.min(COPY_BUFFER) as usize];
    let mut done = 0;
    while done < length {
        let count = (length - done).min(COPY_BUFFER) as usize;
        let Some(bytes) = buffer.get_mut(..count) else { break };
        let read = from.0.read_at(bytes, from.1 + done)?;
        let Some(bytes) = bytes.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        match to.0.write_at(bytes, to.1 + done) {
            Ok(0) => break,
            Ok(written) => done += written as u64,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}
