//! A read-only image as source of `cp`.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Result, bail};
use base::time::Time;
use base::{Ino, errno};
use format::inode::FileType;
use format::timestamp::Timestamp;
use read::{FinalSymlink, Inode, Listing, Metadata, Volume, read_at, read_link, resolve};
use xebec::DeviceNumber;
use xebec::transfer::extract::{DataRuns, FileInfo, is_safe};

use super::traits::{Attributes, Contents, CopySource, Fail, Location, Stat, joined};
use super::volume::expect_contents;
use crate::failure::Failure;
use crate::names::quoted;
use crate::open::Image;
use crate::operands;

/// Device number in an identity; no host device has it.
const DEVICE: u64 = u64::MAX - 1;

/// A directory that was entered.
pub struct Folder {
    /// Its path in the volume.
    path: Vec<u8>,
    names: HashMap<Vec<u8>, Ino>,
}

fn find(image: &Image, location: &Location<Folder>, follow: bool) -> read::Result<Option<Inode>> {
    let last = if follow { FinalSymlink::Follow } else { FinalSymlink::Keep };
    let found = match &location.dir {
        Some(dir) => match dir.names.get(&location.name) {
            None => return Ok(None),
            Some(ino) => {
                let inode = image.volume.inode(*ino)?;
                match follow && inode.dinode().file_type() == Some(FileType::Symlink) {
                    true => resolve(&image.volume, &joined(&dir.path, &location.name), last),
                    false => Ok(inode),
                }
            }
        },
        None => resolve(&image.volume, &location.name, last),
    };
    match found {
        Err(error) if error.errno() == errno::ENOENT => Ok(None),
        found => found.map(Some),
    }
}

fn expect(image: &Image, location: &Location<Folder>, follow: bool) -> Result<Inode> {
    match find(image, location, follow)? {
        Some(inode) => Ok(inode),
        None => bail!("no such file or directory"),
    }
}

impl CopySource for Image {
    type Dir = Folder;

    fn expand(&self, operands: &[Vec<u8>], fail: Fail<'_>) -> Vec<Vec<u8>> {
        operands::paths(&self.volume, operands.iter().map(Vec::as_slice), fail)
    }

    fn stat(&self, location: &Location<Folder>, follow: bool) -> Result<Option<Stat>> {
        let Some(inode) = find(self, location, follow)? else { return Ok(None) };
        let metadata = Metadata::of(&inode.dinode(), self.volume.geometry())?;
        if location.name.ends_with(b"/") && metadata.file_type != FileType::Directory {
            bail!("is not a directory");
        }
        let time = |time: Timestamp| Time { seconds: time.seconds, nanos: time.nanoseconds };
        Ok(Some(Stat {
            id: (DEVICE, metadata.ino.0),
            kind: metadata.file_type,
            permissions: metadata.permissions,
            links: metadata.links.into(),
            uid: metadata.uid,
            gid: metadata.gid,
            accessed: time(metadata.times.access),
            modified: time(metadata.times.modify),
            device: DeviceNumber { major: metadata.device.0, minor: metadata.device.1 },
        }))
    }

    fn enter(&self, location: &Location<Folder>, follow: bool) -> Result<Folder> {
        let inode = expect(self, location, follow)?;
        let fail = |error| self.messages.unreadable(Failure::at(&location.shown, error));
        let listing = Listing::read(&self.volume, &inode.dinode(), fail);
        let mut names = HashMap::new();
        for entry in listing.items() {
            let name = listing.name(entry);
            match is_safe(name) {
                true => drop(names.insert(name.to_vec(), entry.ino)),
                false => self
                    .messages
                    .unreadable(format_args!("{}: skipped an invalid name", quoted(&location.shown))),
            }
        }
        let path = location
            .dir
            .as_ref()
            .map_or_else(|| location.name.clone(), |dir| joined(&dir.path, &location.name));
        Ok(Folder { path, names })
    }

    fn list(&self, dir: &Folder) -> Result<Vec<Vec<u8>>> {
        let mut names: Vec<_> = dir.names.keys().cloned().collect();
        names.sort_unstable();
        Ok(names)
    }

    fn read_link(&self, location: &Location<Folder>) -> Result<Vec<u8>> {
        Ok(read_link(&self.volume, &expect(self, location, false)?.dinode())?)
    }

    fn attributes(&self, location: &Location<Folder>, follow: bool) -> Result<Attributes> {
        let inode = expect(self, location, follow)?;
        let fail = |error| self.messages.unreadable(Failure::at(&location.shown, error));
        Ok(FileInfo::read(&self.volume, &inode.dinode(), fail)?.xattrs)
    }

    fn open(&self, location: &Location<Folder>, follow: bool, stat: &Stat) -> Result<Box<dyn Contents + '_>> {
        expect_contents(stat)?;
        let inode = expect(self, location, follow)?;
        if self.log.files_unfinished().contains(&inode.ino()) {
            let name = quoted(&location.shown);
            self.messages.warn(format_args!(
                "{name}: the log has an unfinished operation on this file; the copy may be \
                inconsistent"
            ));
        }
        let size = inode.dinode().core.size.get();
        Ok(Box::new(OpenFile { volume: &self.volume, inode, size }))
    }
}

struct OpenFile<'i> {
    volume: &'i Volume,
    inode: Inode,
    size: u64,
}

impl Contents for OpenFile<'_> {
    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn next_run(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let mut runs = DataRuns::new(self.volume, &self.inode.dinode(), from)?;
        Ok(runs.next().transpose()?.map(|run| run.offset..run.end()))
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(read_at(self.volume, &self.inode.dinode(), at, buffer)?)
    }
}
