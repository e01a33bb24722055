//! The traits of `std::io`, with one position for each open file. Threads that use them on one file take turns as they
//! come: each transfer moves the position by what it read or wrote.

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
        let at = self.position.load(Relaxed);
        let read = self.read_at(buf, at)?;
        self.position.store(at + read as u64, Relaxed);
        Ok(read)
    }
}

impl Write for &File<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.access.append {
            let at = self.append(buf)?;
            self.position.store(at + buf.len() as u64, Relaxed);
            return Ok(buf.len());
        }
        let at = self.position.load(Relaxed);
        let written = self.write_at(buf, at)?;
        self.position.store(at + written as u64, Relaxed);
        Ok(written)
    }

    /// Nothing is held back: what was written is read by everybody. To make it stable is another thing
    /// ([`File::sync_all`]).
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.position.load(Relaxed), by),
            SeekFrom::End(by) => (self.len(), by),
        };
        let at = base.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        self.position.store(at, Relaxed);
        Ok(at)
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
