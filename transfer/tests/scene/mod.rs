//! A volume in memory that sources are written to, and archives made byte by byte.
#![allow(dead_code, reason = "no test uses all of it")]

use std::sync::Arc;

use block::MemoryDevice;
use tar::{Builder, EntryType, Header};
use volume::{OpenOptions, Options, Volume};
use xebec_transfer::ImportReport;
use xebec_transfer::{Archive, Overrides, Source, Writer};

#[path = "../../../volume/tests/common/mod.rs"]
mod common;

/// A volume that sources are written to.
pub struct Made(Arc<MemoryDevice>);

impl Made {
    pub fn new() -> Self {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        Self(device)
    }

    pub fn open(&self) -> Volume {
        Volume::open(self.0.clone(), Options::default()).unwrap()
    }

    pub fn device(&self) -> Arc<MemoryDevice> {
        self.0.clone()
    }

    /// No finding of the checker.
    #[track_caller]
    pub fn judge(&self) {
        common::judge(&self.0);
    }

    pub fn write(&self, source: &dyn Source, overrides: Overrides) -> xebec_transfer::Result<ImportReport> {
        self.write_all(&[source], overrides)
    }

    /// Sources on top of each other.
    pub fn write_all(
        &self,
        sources: &[&dyn Source],
        overrides: Overrides,
    ) -> xebec_transfer::Result<ImportReport> {
        let volume = self.open();
        let mut writer = Writer::new(&volume, volume.root(), overrides);
        let read = sources.iter().try_for_each(|source| source.read(true, 3, &mut writer));
        let done = read.and_then(|()| writer.finish());
        volume.unmount().unwrap();
        common::judge(&self.0);
        done
    }

    pub fn look<T>(&self, look: impl FnOnce(&Volume) -> T) -> T {
        let volume = self.open();
        let seen = look(&volume);
        volume.unmount().unwrap();
        seen
    }

    pub fn contents(&self, path: &str) -> Vec<u8> {
        self.look(|volume| {
            let file = OpenOptions::new().read(true).open(volume, path.as_bytes()).unwrap();
            let mut bytes = vec![0; usize::try_from(file.len()).unwrap()];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
            bytes
        })
    }

    pub fn has(&self, path: &str) -> bool {
        self.look(|volume| volume.resolve(path.as_bytes(), false).is_ok())
    }
}

pub fn member(builder: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, link: &str, contents: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o640);
    header.set_uid(1000);
    header.set_gid(2000);
    header.set_mtime(1_500_000_000);
    header.set_size(contents.len() as u64);
    if link.is_empty() {
        builder.append_data(&mut header, path, contents).unwrap();
    } else {
        builder.append_link(&mut header, path, link).unwrap();
    }
}

pub fn archive(write: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    write(&mut builder);
    builder.into_inner().unwrap()
}

pub fn once(bytes: Vec<u8>) -> Archive {
    Archive::from_reader("the archive", std::io::Cursor::new(bytes))
}

/// A member by its header's fields as they are written, with what is behind it.
pub fn raw(kind: u8, path: &str, fields: &[(usize, &[u8])], contents: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_path(path).unwrap();
    header.set_entry_type(EntryType::new(kind));
    header.set_size(contents.len() as u64);
    for (at, bytes) in fields {
        header.as_mut_bytes()[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    header.set_cksum();
    let mut member = [header.as_bytes(), contents].concat();
    member.resize(member.len().next_multiple_of(512), 0);
    member
}
