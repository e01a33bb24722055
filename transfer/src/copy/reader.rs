//! A volume that is read without the engine, as source of a copy.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use base::time::Time;
use base::{Ino, errno};
use format::inode::FileType;
use format::timestamp::Timestamp;
use read::{FinalSymlink, Inode, Listing, Metadata, Volume, read_at, read_link, resolve};
use volume::DeviceNumber;

use super::ends::{Attributes, Contents, Events, Location, SourceEnd, Stat, joined};
use super::error::Reasoned;
use super::volume::expect_contents;
use super::{CopyEvent, CopyReason};
use crate::extract::{DataRuns, FileInfo, is_safe};

/// The volume.
pub struct ReaderEnd<'r> {
    pub volume: &'r Volume,
    /// Device number in identities.
    pub device: u64,
    /// Files with unfinished operations in the log.
    pub unfinished: &'r BTreeSet<Ino>,
}

/// A directory that was entered.
pub struct Folder {
    /// Path of the directory in the volume.
    path: Vec<u8>,
    names: HashMap<Vec<u8>, Ino>,
}

impl ReaderEnd<'_> {
    fn find(&self, location: &Location<Folder>, follow: bool) -> read::Result<Option<Inode>> {
        let last = if follow { FinalSymlink::Follow } else { FinalSymlink::Keep };
        let found = match &location.dir {
            Some(dir) => match dir.names.get(&location.name) {
                None => return Ok(None),
                Some(ino) => {
                    let inode = self.volume.inode(*ino)?;
                    match follow && inode.dinode().file_type() == Some(FileType::Symlink) {
                        true => resolve(self.volume, &joined(&dir.path, &location.name), last),
                        false => Ok(inode),
                    }
                }
            },
            None => resolve(self.volume, &location.name, last),
        };
        match found {
            Err(error) if error.errno() == errno::ENOENT => Ok(None),
            found => found.map(Some),
        }
    }

    fn expect(&self, location: &Location<Folder>, follow: bool) -> Reasoned<Inode> {
        self.find(location, follow)?.ok_or(CopyReason::NotFound)
    }
}

/// Reports damage in a part of a file.
fn damaged<'e>(location: &Location<Folder>, events: Events<'e>) -> impl FnMut(read::Error) + use<'e> {
    let path = location.shown.clone();
    move |error| events(CopyEvent::Damaged { path: path.clone(), error })
}

impl SourceEnd for ReaderEnd<'_> {
    type Dir = Folder;

    fn stat(&self, location: &Location<Folder>, follow: bool) -> Reasoned<Option<Stat>> {
        let Some(inode) = self.find(location, follow)? else { return Ok(None) };
        let metadata = Metadata::of(&inode.dinode(), self.volume.geometry())?;
        if location.name.ends_with(b"/") && metadata.file_type != FileType::Directory {
            return Err(CopyReason::NotDirectory);
        }
        let time = |time: Timestamp| Time { seconds: time.seconds, nanos: time.nanoseconds };
        Ok(Some(Stat {
            id: (self.device, metadata.ino.0),
            kind: metadata.file_type,
            permissions: metadata.permissions,
            links: metadata.links.into(),
            size: metadata.size,
            uid: metadata.uid,
            gid: metadata.gid,
            accessed: time(metadata.times.access),
            modified: time(metadata.times.modify),
            device: DeviceNumber { major: metadata.device.0, minor: metadata.device.1 },
        }))
    }

    fn enter(&self, location: &Location<Folder>, follow: bool, events: Events<'_>) -> Reasoned<Folder> {
        let inode = self.expect(location, follow)?;
        let listing = Listing::read(self.volume, &inode.dinode(), damaged(location, &mut *events));
        let mut names = HashMap::new();
        for entry in listing.items() {
            let name = listing.name(entry);
            match is_safe(name) {
                true => drop(names.insert(name.to_vec(), entry.ino)),
                false => events(CopyEvent::InvalidName { path: location.shown.clone() }),
            }
        }
        let path = location
            .dir
            .as_ref()
            .map_or_else(|| location.name.clone(), |dir| joined(&dir.path, &location.name));
        Ok(Folder { path, names })
    }

    fn list(&self, dir: &Folder) -> Reasoned<Vec<Vec<u8>>> {
        let mut names: Vec<_> = dir.names.keys().cloned().collect();
        names.sort_unstable();
        Ok(names)
    }

    fn read_link(&self, location: &Location<Folder>) -> Reasoned<Vec<u8>> {
        Ok(read_link(self.volume, &self.expect(location, false)?.dinode())?)
    }

    fn attributes(
        &self,
        location: &Location<Folder>,
        follow: bool,
        events: Events<'_>,
    ) -> Reasoned<Attributes> {
        let inode = self.expect(location, follow)?;
        Ok(FileInfo::read(self.volume, &inode.dinode(), damaged(location, events))?.xattrs)
    }

    fn open(
        &self,
        location: &Location<Folder>,
        follow: bool,
        stat: &Stat,
        events: Events<'_>,
    ) -> Reasoned<Box<dyn Contents + '_>> {
        expect_contents(stat)?;
        let inode = self.expect(location, follow)?;
        if self.unfinished.contains(&inode.ino()) {
            events(CopyEvent::Unfinished { path: location.shown.clone() });
        }
        let size = inode.dinode().core.size.get();
        Ok(Box::new(OpenFile { volume: self.volume, inode, size }))
    }
}

struct OpenFile<'r> {
    volume: &'r Volume,
    inode: Inode,
    size: u64,
}

impl Contents for OpenFile<'_> {
    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn next_run(&mut self, from: u64) -> Reasoned<Option<Range<u64>>> {
        let mut runs = DataRuns::new(self.volume, &self.inode.dinode(), from)?;
        Ok(runs.next().transpose()?.map(|run| run.offset..run.end()))
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Reasoned<usize> {
        Ok(read_at(self.volume, &self.inode.dinode(), at, buffer)?)
    }
}
