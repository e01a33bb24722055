//! What an archive must know of a file's contents before it begins with them, and how they are read.

use read::{Inode, Volume, read_at};

use super::archive::BUFFER;
use super::source::{Run, Runs};

/// Reads contents to their place. What cannot be read is zeros: the archive has promised so many bytes.
pub fn fill(volume: &Volume, inode: &Inode, offset: u64, room: &mut [u8]) -> read::Result<()> {
    let read = read_at(volume, &inode.dinode(), offset, room);
    let got = *read.as_ref().unwrap_or(&0);
    room.get_mut(got..).unwrap_or_default().fill(0);
    read.map(|_| ())
}

/// Reads all of a file, to find out whether it can be read.
pub fn verify(volume: &Volume, inode: &Inode) -> read::Result<()> {
    let mut room = vec![0; BUFFER];
    for run in Runs::new(volume, &inode.dinode(), 0)? {
        let run = run?;
        for offset in (run.offset..run.end()).step_by(BUFFER) {
            let length = (run.end() - offset).min(BUFFER as u64) as usize;
            read_at(volume, &inode.dinode(), offset, room.get_mut(..length).unwrap_or_default())?;
        }
    }
    Ok(())
}

/// What a header must know of a file's contents.
pub struct Survey {
    pub is_sparse: bool,
    /// Bytes that are stored.
    pub data: u64,
    /// Entries of the map, and the length of its text.
    pub entries: u64,
    pub map_bytes: u64,
}

impl Survey {
    pub fn of(volume: &Volume, inode: &Inode, size: u64) -> read::Result<Self> {
        let mut survey = Self { is_sparse: false, data: 0, entries: 0, map_bytes: 0 };
        let mut text = Vec::new();
        let mut add = |survey: &mut Self, run: Run| {
            text.clear();
            push_map_entry(&mut text, run);
            survey.data += run.length;
            survey.entries += 1;
            survey.map_bytes += text.len() as u64;
        };
        let mut end = 0;
        for run in Runs::new(volume, &inode.dinode(), 0)? {
            let run = run?;
            add(&mut survey, run);
            end = run.end();
        }
        survey.is_sparse = survey.data < size;
        if end < size {
            add(&mut survey, Run { offset: size, length: 0 });
        }
        survey.map_bytes += crate::sizes::digits(survey.entries) as u64 + 1;
        Ok(survey)
    }
}

pub fn push_map_entry(text: &mut Vec<u8>, run: Run) {
    for number in [run.offset, run.length] {
        crate::sizes::push_number(text, number, 0);
        text.push(b'\n');
    }
}
