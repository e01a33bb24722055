//! Contents of files on a Xebec volume, as a subject of the model.

use model::contents::{FallocateMode, OpenFile, Subject};
use model::{Answer, Failure};
use volume::{File, OpenOptions, Volume};

/// A volume as a subject of the model.
pub struct ContentsSubject<'v>(pub &'v Volume);

/// An open file: once for buffered and once for direct I/O.
pub struct TestFile<'v> {
    file: File<'v>,
    direct: File<'v>,
}

fn failed(error: volume::Error) -> Failure {
    Failure { errno: error.errno().get(), message: error.to_string() }
}

impl<'v> Subject for ContentsSubject<'v> {
    type File = TestFile<'v>;

    fn open(&self, name: &str) -> Answer<TestFile<'v>> {
        let open = |direct| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).direct(direct);
            options.open(self.0, name.as_bytes()).map_err(failed)
        };
        Ok(TestFile { file: open(false)?, direct: open(true)? })
    }

    fn sync(&self) -> Answer<()> {
        self.0.sync().map_err(failed)
    }
}

impl OpenFile for TestFile<'_> {
    fn read(&self, at: u64, length: u64, direct: bool) -> Answer<Vec<u8>> {
        let length = length.min(self.file.len().saturating_sub(at).next_multiple_of(65536));
        let mut bytes = vec![0xee; length as usize];
        let from = if direct { &self.direct } else { &self.file };
        let read = from.read_at(&mut bytes, at).map_err(failed)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn write(&self, at: u64, bytes: &[u8], direct: bool) -> Answer<()> {
        let to = if direct { &self.direct } else { &self.file };
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = at + (bytes.len() - rest.len()) as u64;
            let done = to.write_at(rest, at).map_err(failed)?;
            rest = rest.get(done..).unwrap_or(&[]);
        }
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> Answer<()> {
        self.file.append(bytes).map(drop).map_err(failed)
    }

    fn size(&self) -> Answer<u64> {
        let (stat_size, size) = (self.file.metadata().map_err(failed)?.size, self.file.len());
        let message = format!("the inode has a size of {stat_size} bytes, the open file of {size}");
        if stat_size == size { Ok(stat_size) } else { Err(Failure { errno: 0, message }) }
    }

    fn set_size(&self, size: u64) -> Answer<()> {
        self.file.set_len(size).map_err(failed)
    }

    fn fallocate(&self, mode: FallocateMode, at: u64, length: u64, keep_size: bool) -> Answer<()> {
        let file = &self.file;
        match mode {
            FallocateMode::Allocate => file.allocate(at, length, keep_size),
            FallocateMode::Punch => file.punch_hole(at, length),
            FallocateMode::Zero => file.zero_range(at, length, keep_size),
            FallocateMode::Collapse => file.collapse_range(at, length),
            FallocateMode::Insert => file.insert_range(at, length),
            FallocateMode::Unshare => file.unshare_range(at, length, keep_size),
        }
        .map_err(failed)
    }

    fn share(&self, from: &Self, from_at: u64, to_at: u64, length: u64, dedupe: bool) -> Answer<()> {
        let done = match dedupe {
            true => self.file.dedupe_range(&from.file, from_at, to_at, length),
            false => self.file.clone_range(&from.file, from_at, to_at, length),
        };
        done.map_err(failed)
    }

    fn seek(&self, at: u64, data: bool) -> Answer<Option<u64>> {
        if data { self.file.seek_data(at) } else { self.file.seek_hole(at) }.map_err(failed)
    }

    fn sync(&self) -> Answer<()> {
        self.file.sync_all().map_err(failed)
    }
}
