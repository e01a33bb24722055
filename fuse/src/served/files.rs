//! Contents.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::Ino;
use base::errno::{EBADF, EINVAL, ENXIO, EOPNOTSUPP};
use xebec::{File, OpenOptions};

use super::Served;
use crate::operations::{Errno, Open, Opened, Range, Result, Seek, WriteHow};

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

/// Bytes that are copied at once where blocks cannot be shared.
const COPIED_AT_ONCE: u64 = 1 << 20;

impl<'v> Served<'v> {
    /// Opens a regular file. The kernel cuts it off by a request of its own where that is asked for. Whoever opened it
    /// for writing alone reads, too: the kernel needs what stands around bytes that it keeps.
    ///
    /// A file that may only be appended to is written at the end that the kernel knows. Its page cache is not used: a
    /// page of it has bytes before the end, too, and a mapped page may have changed any of them.
    pub(super) fn open_file(&self, ino: Ino, flags: i32) -> Result<Opened> {
        let writes = flags & O_ACCMODE != O_RDONLY;
        let append = writes && flags & O_APPEND != 0;
        let mut how = OpenOptions::new();
        how.read(true).write(writes);
        let (file, direct) = match how.clone().open_ino(self.volume, ino) {
            Err(_) if append => (how.append(true).keep_offsets(true).open_ino(self.volume, ino)?, true),
            opened => (opened?, false),
        };
        let open = self.next.fetch_add(1, Relaxed);
        let _ = self.files.insert_sync(open, Arc::new(file)); // no number is given twice
        Ok(Opened { open: Open(open), direct })
    }

    pub(super) fn file(&self, open: Open) -> Result<Arc<File<'v>>> {
        self.files.read_sync(&open.0, |_, file| Arc::clone(file)).ok_or(Errno(EBADF))
    }

    pub(super) fn write_file(&self, open: Open, offset: u64, data: &[u8], how: WriteHow) -> Result<usize> {
        let file = self.file(open)?;
        let written = file.write_at(data, offset)?;
        if how.stable {
            file.sync_data()?;
        }
        Ok(written)
    }

    pub(super) fn allocate_range(&self, open: Open, range: Range, mode: u32) -> Result<()> {
        let file = self.file(open)?;
        let Range { offset, length } = range;
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

    pub(super) fn seek_in(&self, open: Open, offset: u64, what: Seek) -> Result<u64> {
        let file = self.file(open)?;
        let place = match what {
            Seek::Data => file.seek_data(offset)?,
            Seek::Hole => file.seek_hole(offset)?,
        };
        place.ok_or(Errno(ENXIO))
    }

    /// Copies by sharing blocks where both ranges begin at blocks, and by way of memory what is left.
    pub(super) fn copy_range(&self, from: (Open, u64), to: (Open, u64), length: u64) -> Result<u64> {
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
    let mut memory = vec![0; length.min(COPIED_AT_ONCE) as usize];
    let mut done = 0;
    while done < length {
        let count = (length - done).min(COPIED_AT_ONCE) as usize;
        let Some(bytes) = memory.get_mut(..count) else { break };
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
