//! Contents of files for an archive: the sizes that a header announces, and the data.

use std::io::Write as _;

use read::{Inode, Volume, read_at};

use super::archive::BUFFER;
use super::pax::digits;
use super::source::{DataRun, DataRuns};

/// Reads contents into a buffer. Unreadable bytes become zeros, as the header has announced the length.
pub fn fill(volume: &Volume, inode: &Inode, offset: u64, buffer: &mut [u8]) -> read::Result<()> {
    let read = read_at(volume, &inode.dinode(), offset, buffer);
    let length = *read.as_ref().unwrap_or(&0);
    buffer.get_mut(length..).unwrap_or_default().fill(0);
    read.map(|_| ())
}

/// Reads the whole file, to find out whether it is readable.
pub fn verify(volume: &Volume, inode: &Inode) -> read::Result<()> {
    let mut buffer = vec![0; BUFFER];
    for run in DataRuns::new(volume, &inode.dinode(), 0)? {
        let run = run?;
        for offset in (run.offset..run.end()).step_by(BUFFER) {
            let length = (run.end() - offset).min(BUFFER as u64) as usize;
            read_at(volume, &inode.dinode(), offset, buffer.get_mut(..length).unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Sizes of a file's contents in an archive.
#[derive(Default)]
pub struct StoredData {
    pub is_sparse: bool,
    /// Bytes of data.
    pub bytes: u64,
    /// Number of entries of the sparse map.
    pub map_entries: u64,
    /// Length of the sparse map as text.
    pub map_bytes: u64,
}

impl StoredData {
    pub fn of(volume: &Volume, inode: &Inode, size: u64) -> read::Result<Self> {
        let (mut data, mut end) = (Self::default(), 0);
        for run in DataRuns::new(volume, &inode.dinode(), 0)? {
            let run = run?;
            data.add(run);
            end = run.end();
        }
        data.is_sparse = data.bytes < size;
        if end < size {
            data.add(DataRun { offset: size, length: 0 });
        }
        data.map_bytes += digits(data.map_entries) + 1;
        Ok(data)
    }

    fn add(&mut self, run: DataRun) {
        self.bytes += run.length;
        self.map_entries += 1;
        self.map_bytes += digits(run.offset) + digits(run.length) + 2; // as push_map_entry writes it
    }
}

/// Appends an entry of the sparse map.
pub fn push_map_entry(text: &mut Vec<u8>, run: DataRun) {
    // Writing to a vector cannot fail.
    let _ = writeln!(text, "{}\n{}", run.offset, run.length);
}
