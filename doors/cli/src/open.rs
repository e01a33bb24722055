//! From a path on the command line to a volume: container, partition, journal.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use base::Ino;
use block::{Device, OpenOptions, WindowDevice};
use clap::Args;
use read::{Inode, Last, Volume, read_at, resolve};

use crate::args::{Global, Io};
use crate::output::Messages;
use crate::owners::{Names, Owners};

/// An opened image.
pub struct Image {
    /// The volume as the user wants it: with the log replayed in memory, or as it lies.
    pub volume: Volume,
    /// What a command has to say about it.
    pub messages: Messages,
}

/// The largest `passwd` or `group` that is looked at, in bytes.
const NAMES_BYTES_MAX: u64 = 4 << 20;

/// Files that a command line names: by path, or by number.
#[derive(Clone, Debug, Args)]
pub struct Files {
    /// Paths in the image.
    #[arg(required_unless_present = "inodes")]
    paths: Vec<OsString>,
    /// A file by its inode number; may be given several times.
    #[arg(long = "inode", value_name = "N", value_parser = parse_inode)]
    inodes: Vec<u64>,
}

/// An inode number in decimal, or in hexadecimal after `0x`.
fn parse_inode(text: &str) -> Result<u64, std::num::ParseIntError> {
    text.strip_prefix("0x").map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16))
}

impl Image {
    /// Finds the files of a command line; those that cannot be found are counted as failures. A file that was named by number is
    /// called by it.
    pub fn find_files(&self, files: &Files, last: Last) -> Vec<(Vec<u8>, Inode)> {
        let by_path = files.paths.iter().map(|path| {
            let path = path.as_bytes();
            (path.to_vec(), resolve(&self.volume, path, last))
        });
        let by_number = files
            .inodes
            .iter()
            .map(|ino| (format!("inode {ino}").into_bytes(), self.volume.inode(Ino(*ino))));
        let mut found = Vec::new();
        for (name, inode) in by_path.chain(by_number) {
            match inode {
                Ok(inode) => found.push((name, inode)),
                Err(error) => self.messages.fail(error),
            }
        }
        found
    }

    /// The names of owners in the image's own `/etc/passwd` and `/etc/group`; none where they cannot be read.
    pub fn owners(&self) -> Owners {
        Owners { users: self.names_of(b"/etc/passwd"), groups: self.names_of(b"/etc/group") }
    }

    fn names_of(&self, path: &[u8]) -> Names {
        let Ok(inode) = resolve(&self.volume, path, Last::Follow) else { return Names::default() };
        let dinode = inode.dinode();
        let size = dinode.core.size.get().min(NAMES_BYTES_MAX);
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        match read_at(&self.volume, &dinode, 0, &mut text) {
            Ok(length) => Names::parse(text.get(..length).unwrap_or_default()),
            Err(_) => Names::default(),
        }
    }
}

/// Opens an image as the options ask.
pub fn open(path: &Path, global: &Global) -> anyhow::Result<Image> {
    let messages = Messages::new(global, path.display().to_string());
    let device = device(path, global)?;
    let volume = Volume::open(device)?;
    Ok(Image { volume, messages })
}

/// The device that holds the volume.
pub fn device(path: &Path, global: &Global) -> anyhow::Result<Arc<dyn Device>> {
    let device = block::open_file(path, &options(global))?;
    match global.offset {
        Some(offset) => {
            let length = device.size().checked_sub(offset).with_context(|| {
                format!("{}: --offset {offset} lies behind its end at {}", device.describe(), device.size())
            })?;
            Ok(Arc::new(WindowDevice::new(device, offset, length, format!("from byte {offset}"))?))
        }
        None => Ok(device),
    }
}

fn options(global: &Global) -> OpenOptions {
    let io = match global.io {
        Io::Auto => block::Io::Auto,
        Io::Pread => block::Io::Pread,
        Io::Uring => block::Io::Uring,
    };
    OpenOptions { direct: global.direct, io, ..OpenOptions::default() }
}
