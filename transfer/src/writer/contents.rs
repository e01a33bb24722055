//! Contents of files: written, or shared with an earlier file.

use base::errno;
use volume::{File, OpenOptions};

use super::{FILE_LOG_BYTES, OpenFile, Writer};
use crate::item::{Data, SharedRange, split};
use crate::{Error, Result};

impl<'v> Writer<'v> {
    /// Removes the file whose contents are incomplete, if there is one.
    pub(crate) fn discard(&mut self) -> Result<()> {
        self.shared = None;
        let Some(OpenFile { path, cached, .. }) = self.open.take() else { return Ok(()) };
        drop(cached);
        // Pending contents include those of this file.
        self.fill()?;
        self.done.files -= 1;
        let Some((parent, name)) = split(&path) else { return Ok(()) };
        let dir = self.reach(parent, false)?;
        self.volume.unlink(dir, name).map_err(Error::volume(&path))
    }

    pub(super) fn data(&mut self, data: Data) -> Result<()> {
        self.round(FILE_LOG_BYTES, data.bytes.len() as u64)?;
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let length = data.bytes.len() as u64;
        let end = data.offset + length;
        let unit = self.bulk_writer.alignment();
        let is_whole = data.offset.is_multiple_of(unit) && (length.is_multiple_of(unit) || end == open.size);
        let shared = self.shared.take().filter(|_| length > 0);
        if shared.map_or(Ok(false), |shared| self.share(&mut open, &shared, &data))? {
            // The contents were shared.
        } else if open.cached.is_none() && is_whole {
            if length > 0 {
                let put = self.bulk_writer.put(open.id, data.offset, data.bytes);
                put.map_err(Error::volume(&open.path))?;
            }
        } else {
            self.write_cached(&mut open, data.offset, &data.bytes)?;
        }
        open.reached = end;
        self.done.bytes += length;
        match data.more {
            true => self.open = Some(open),
            false => self.close(open)?,
        }
        Ok(())
    }

    fn write_cached(&mut self, open: &mut OpenFile<'v>, at: u64, bytes: &[u8]) -> Result<()> {
        let path = open.path.clone();
        self.cached(open)?.write_all_at(bytes, at).map_err(Error::volume(&path))
    }

    /// Opens the file through the page cache; it is no longer written by direct writes.
    fn cached<'o>(&mut self, open: &'o mut OpenFile<'v>) -> Result<&'o File<'v>> {
        let file = match open.cached.take() {
            Some(file) => file,
            None => {
                self.fill()?;
                let file = OpenOptions::new().write(true).open_id(self.volume, open.id);
                file.map_err(Error::volume(&open.path))?
            }
        };
        Ok(open.cached.insert(file))
    }

    /// Shares the blocks of an earlier file if it has the same contents here; returns whether it did.
    fn share(&mut self, open: &mut OpenFile<'v>, shared: &SharedRange, data: &Data) -> Result<bool> {
        if !self.volume.geometry().features.reflink() {
            return Ok(false);
        }
        let id = self.named(&shared.path)?;
        let path = open.path.clone();
        let file = self.cached(open)?;
        let length = data.bytes.len();
        let shared = OpenOptions::new().read(true).open_id(file.volume(), id).and_then(|other| {
            let mut there = vec![0; length];
            let mut read = 0;
            while let Some(rest) = there.get_mut(read..).filter(|rest| !rest.is_empty()) {
                match other.read_at(rest, shared.offset + read as u64)? {
                    0 => return Ok(false),
                    more => read += more,
                }
            }
            if there != data.bytes {
                return Ok(false);
            }
            file.clone_range(&other, shared.offset, data.offset, length as u64).map(|()| true)
        });
        match shared {
            // The blocks are larger here, or are shared too often: the contents are written.
            Err(error) if matches!(error.errno(), errno::EINVAL | errno::ENOSPC) => Ok(false),
            shared => shared.map_err(Error::volume(&path)),
        }
    }

    /// Completes the file.
    fn close(&mut self, open: OpenFile<'v>) -> Result<()> {
        let failed = || Error::volume(&open.path);
        match &open.cached {
            Some(file) => {
                if file.len() != open.size {
                    file.set_len(open.size).map_err(failed())?;
                }
                file.set_metadata(&open.times).map_err(failed())
            }
            None if open.reached < open.size => {
                self.bulk_writer.put(open.id, open.size, Vec::new()).map_err(failed())
            }
            None => Ok(()),
        }
    }
}
