//! The traits of `std::io`, with one file position for each open file, which each read and write advances. Threads that
//! share a file this way see its position change in no particular order.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::Ordering::Relaxed;

use super::File;
use crate::Error;

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = io::Error::from_raw_os_error(error.errno().get()).kind();
        Self::new(kind, error)
    }
}

impl Read for &File<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let offset = self.position.load(Relaxed);
        let read = self.read_at(buf, offset)?;
        self.position.store(offset + read as u64, Relaxed);
        Ok(read)
    }
}

impl Write for &File<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.access.append {
            let offset = self.append(buf)?;
            self.position.store(offset + buf.len() as u64, Relaxed);
            return Ok(buf.len());
        }
        let offset = self.position.load(Relaxed);
        let written = self.write_at(buf, offset)?;
        self.position.store(offset + written as u64, Relaxed);
        Ok(written)
    }

    /// Does nothing: there is no buffer here. [`File::sync_all`] makes data stable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(by) => (self.position.load(Relaxed), by),
            SeekFrom::End(by) => (self.len(), by),
        };
        let offset = base.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        self.position.store(offset, Relaxed);
        Ok(offset)
    }
}

impl Read for File<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
