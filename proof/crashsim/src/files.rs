//! Files of a volume of Xebec with their contents, as the model's subject.

use model::contents::{OpenFile, Reserve, Subject};
use model::{Answer, Failure};
use volume::{File, OpenOptions, Volume};

/// A volume as the model's subject.
pub struct Files<'v>(pub &'v Volume);

/// A file, open twice: with and without the cache.
pub struct Open<'v> {
    file: File<'v>,
    direct: File<'v>,
}

fn failed(error: volume::Error) -> Failure {
    Failure { errno: error.errno().get(), message: error.to_string() }
}

impl<'v> Subject for Files<'v> {
    type File = Open<'v>;

    fn open(&self, name: &str) -> Answer<Open<'v>> {
        let open = |direct| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).direct(direct);
            options.open(self.0, name.as_bytes()).map_err(failed)
        };
        Ok(Open { file: open(false)?, direct: open(true)? })
    }

    fn sync(&self) -> Answer<()> {
        self.0.sync().map_err(failed)
    }
}

impl OpenFile for Open<'_> {
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
        let (told, size) = (self.file.metadata().map_err(failed)?.size, self.file.len());
        let message = format!("the metadata tell {told} bytes, the file {size}");
        if told == size { Ok(told) } else { Err(Failure { errno: 0, message }) }
    }

    fn set_size(&self, size: u64) -> Answer<()> {
        self.file.set_len(size).map_err(failed)
    }

    fn reserve(&self, what: Reserve, at: u64, length: u64, keep: bool) -> Answer<()> {
        let file = &self.file;
        match what {
            Reserve::Allocate => file.allocate(at, length, keep),
            Reserve::Punch => file.punch_hole(at, length),
            Reserve::Zero => file.zero_range(at, length, keep),
            Reserve::Collapse => file.collapse_range(at, length),
            Reserve::Insert => file.insert_range(at, length),
            Reserve::Unshare => file.unshare_range(at, length, keep),
        }
        .map_err(failed)
    }

    fn share(&self, from: &Self, from_at: u64, to_at: u64, length: u64, equal: bool) -> Answer<()> {
        let done = match equal {
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
