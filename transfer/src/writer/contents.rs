//! What files hold: written as it comes, or shared with what is here already.

use base::errno;
use volume::{File, OpenOptions};

use super::{FILE_LOG_BYTES, Open, Writer};
use crate::item::{Alike, Data, split};
use crate::{Error, Result};

impl<'v> Writer<'v> {
    /// Removes the file whose contents were still coming, if there is one.
    pub(crate) fn discard(&mut self) -> Result<()> {
        self.alike = None;
        let Some(Open { path, cached, .. }) = self.open.take() else { return Ok(()) };
        drop(cached);
        // Contents that wait are of this file, too.
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
        let alike = self.alike.take().filter(|_| length > 0);
        if alike.map_or(Ok(false), |alike| self.share(&mut open, &alike, &data))? {
            // It is here already.
        } else if open.cached.is_none() && is_whole {
            if length > 0 {
                let put = self.bulk_writer.put(open.ino, data.offset, data.bytes);
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

    fn write_cached(&mut self, open: &mut Open<'v>, mut at: u64, mut bytes: &[u8]) -> Result<()> {
        let path = open.path.clone();
        let file = self.cached(open)?;
        while !bytes.is_empty() {
            let written = file.write_at(bytes, at).map_err(Error::volume(&path))?;
            at += written as u64;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// The file as the cache has it, and no longer to be filled past it.
    fn cached<'o>(&mut self, open: &'o mut Open<'v>) -> Result<&'o File<'v>> {
        let file = match open.cached.take() {
            Some(file) => file,
            None => {
                self.fill()?;
                let file = OpenOptions::new().write(true).open_ino(self.volume, open.ino);
                file.map_err(Error::volume(&open.path))?
            }
        };
        Ok(open.cached.insert(file))
    }

    /// Lets a piece of contents share the blocks of what was alike in the source, if it is so here; whether it does.
    fn share(&mut self, open: &mut Open<'v>, alike: &Alike, data: &Data) -> Result<bool> {
        if !self.volume.geometry().features.reflink() {
            return Ok(false);
        }
        let ino = self.named(&alike.path)?;
        let path = open.path.clone();
        let file = self.cached(open)?;
        let length = data.bytes.len();
        let shared = OpenOptions::new().read(true).open_ino(file.volume(), ino).and_then(|other| {
            let mut there = vec![0; length];
            let mut read = 0;
            while let Some(rest) = there.get_mut(read..).filter(|rest| !rest.is_empty()) {
                match other.read_at(rest, alike.offset + read as u64)? {
                    0 => return Ok(false),
                    more => read += more,
                }
            }
            if there != data.bytes {
                return Ok(false);
            }
            file.clone_range(&other, alike.offset, data.offset, length as u64).map(|()| true)
        });
        match shared {
            // Blocks there are larger, or are shared too often: it is written.
            Err(error) if matches!(error.errno(), errno::EINVAL | errno::ENOSPC) => Ok(false),
            shared => shared.map_err(Error::volume(&path)),
        }
    }

    /// All of the contents came.
    fn close(&mut self, open: Open<'v>) -> Result<()> {
        let failed = || Error::volume(&open.path);
        match &open.cached {
            Some(file) => {
                if file.len() != open.size {
                    file.set_len(open.size).map_err(failed())?;
                }
                file.set_metadata(&open.times).map_err(failed())
            }
            None if open.reached < open.size => {
                self.bulk_writer.put(open.ino, open.size, Vec::new()).map_err(failed())
            }
            None => Ok(()),
        }
    }
}
