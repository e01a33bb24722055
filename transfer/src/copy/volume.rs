//! An open volume as source or target of a copy. Files and directories are referenced while they are used: other
//! threads may remove them, and their inode numbers would be used again.

use std::ops::Range;

use base::errno;
use base::time::Time;
use format::inode::FileType;
use volume::{
    DeviceNumber, Dir, File, Handle, NewFile, NewFileType, OpenOptions, SetAttribute, SetMetadata, Volume,
};

use super::CopyReason;
use super::ends::{Attributes, Contents, Events, Location, SourceEnd, Stat, TargetEnd};
use super::error::Reasoned;

/// Umask of new files.
const UMASK: u16 = 0o022;

/// The volume.
pub struct VolumeEnd<'v> {
    pub volume: &'v Volume,
    /// Device number in identities: it differs between two volumes.
    pub device: u64,
}

/// A new or open file.
pub struct Node<'v> {
    handle: Handle,
    /// Open for writing, if it is a regular file.
    file: Option<File<'v>>,
    /// Mode of an existing file with set-ID bits, which a write clears: it is restored afterwards.
    set_id_mode: Option<u16>,
}

impl<'v> Node<'v> {
    fn open(&self) -> Reasoned<&File<'v>> {
        self.file.as_ref().ok_or_else(|| rustix::io::Errno::BADF.into())
    }
}

impl VolumeEnd<'_> {
    fn find(&self, location: &Location<Handle>, follow: bool) -> volume::Result<Handle> {
        match location.dir.as_deref() {
            None => self.volume.resolve_handle(&location.name, follow),
            Some(dir) if follow => self.volume.resolve_from(dir, &location.name),
            Some(dir) => self.volume.lookup_handle(dir.id(), &location.name),
        }
    }

    /// Parent directory and name.
    fn parent_of_new<'a>(
        &self,
        location: &'a Location<Handle>,
        is_directory: bool,
    ) -> Reasoned<(Handle, &'a [u8])> {
        if location.name.ends_with(b"/") && !is_directory {
            return Err(CopyReason::NoParent);
        }
        Ok(match location.dir.as_deref() {
            None => match self.volume.resolve_parent_handle(&location.name) {
                Err(error) if error.errno() == errno::ENOENT => return Err(CopyReason::NoParent),
                found => found?,
            },
            Some(dir) => (Handle::clone(dir), location.name.as_slice()),
        })
    }

    fn set_metadata(&self, node: &Node<'_>, set: &SetMetadata) -> Reasoned<()> {
        Ok(self.volume.set_metadata(node.handle.id(), set)?)
    }
}

impl SourceEnd for VolumeEnd<'_> {
    type Dir = Handle;

    fn stat(&self, location: &Location<Handle>, follow: bool) -> Reasoned<Option<Stat>> {
        let file = match self.find(location, follow) {
            Err(error) if error.errno() == errno::ENOENT => return Ok(None),
            found => found?,
        };
        let metadata = self.volume.metadata(file.id())?;
        if location.name.ends_with(b"/") && metadata.file_type != FileType::Directory {
            return Err(CopyReason::NotDirectory);
        }
        Ok(Some(Stat {
            id: (self.device, file.ino().0),
            kind: metadata.file_type,
            permissions: metadata.permissions,
            links: metadata.nlink.into(),
            size: metadata.size,
            uid: metadata.uid,
            gid: metadata.gid,
            accessed: metadata.accessed,
            modified: metadata.modified,
            device: metadata.device.unwrap_or(DeviceNumber { major: 0, minor: 0 }),
        }))
    }

    fn enter(&self, location: &Location<Handle>, follow: bool, _: Events<'_>) -> Reasoned<Handle> {
        Ok(self.find(location, follow)?)
    }

    fn list(&self, dir: &Handle) -> Reasoned<Vec<Vec<u8>>> {
        let entries = Dir::from_handle(self.volume, dir)?.entries()?;
        Ok(entries.map(|entry| Ok(entry?.name)).collect::<volume::Result<_>>()?)
    }

    fn read_link(&self, location: &Location<Handle>) -> Reasoned<Vec<u8>> {
        Ok(self.volume.read_link(self.find(location, false)?.id())?)
    }

    fn attributes(&self, location: &Location<Handle>, follow: bool, _: Events<'_>) -> Reasoned<Attributes> {
        let file = self.find(location, follow)?;
        let mut attributes = Attributes::new();
        for name in self.volume.list_attributes(file.id())? {
            match self.volume.get_attribute(file.id(), &name) {
                Err(error) if error.errno() == errno::ENODATA => {} // removed in the meantime
                value => attributes.push((name, value?)),
            }
        }
        Ok(attributes)
    }

    fn open(
        &self,
        location: &Location<Handle>,
        follow: bool,
        stat: &Stat,
        _: Events<'_>,
    ) -> Reasoned<Box<dyn Contents + '_>> {
        expect_contents(stat)?;
        let file = OpenOptions::new().read(true).open_handle(self.volume, &self.find(location, follow)?)?;
        if (self.device, file.ino().0) != stat.id {
            return Err(CopyReason::Replaced);
        }
        Ok(Box::new(OpenFile(file)))
    }
}

/// In a volume, devices and pipes have no contents.
pub fn expect_contents(stat: &Stat) -> Reasoned<()> {
    if stat.kind == FileType::Regular { Ok(()) } else { Err(CopyReason::NoContents) }
}

struct OpenFile<'v>(File<'v>);

impl Contents for OpenFile<'_> {
    fn size(&self) -> Option<u64> {
        Some(self.0.len())
    }

    fn next_run(&mut self, from: u64) -> Reasoned<Option<Range<u64>>> {
        let Some(start) = self.0.seek_data(from)? else { return Ok(None) };
        let end = self.0.seek_hole(start)?.unwrap_or(self.0.len());
        Ok((start < end).then_some(start..end))
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Reasoned<usize> {
        Ok(self.0.read_at(buffer, at)?)
    }

    fn in_volume(&self) -> Option<&File<'_>> {
        Some(&self.0)
    }
}

impl<'v> TargetEnd for VolumeEnd<'v> {
    type Node<'t>
        = Node<'t>
    where
        Self: 't;

    fn umask(&self) -> u16 {
        UMASK
    }

    fn create(&self, location: &Location<Handle>, kind: NewFileType<'_>, mode: u16) -> Reasoned<Node<'_>> {
        let (dir, name) = self.parent_of_new(location, kind == NewFileType::Directory)?;
        let new = NewFile { file_type: kind, permissions: mode, umask: UMASK, ..NewFile::regular() };
        let handle = match self.volume.create_handle(dir.id(), name, &new) {
            Err(error) if error.errno() == errno::EEXIST && kind == NewFileType::Regular => {
                return Err(CopyReason::DanglingLink);
            }
            created => created?,
        };
        let file = match kind {
            NewFileType::Regular => Some(OpenOptions::new().write(true).open_handle(self.volume, &handle)?),
            _ => None,
        };
        Ok(Node { handle, file, set_id_mode: None })
    }

    fn overwrite(&self, location: &Location<Handle>) -> Reasoned<Node<'_>> {
        let handle = self.find(location, true)?;
        let mode = self.volume.metadata(handle.id())?.permissions;
        let file = OpenOptions::new().write(true).truncate(true).open_handle(self.volume, &handle)?;
        let node =
            Node { handle, file: Some(file), set_id_mode: Some(mode).filter(|mode| mode & 0o6000 != 0) };
        // A write removes capabilities, as in Linux, where root's writes do so, too.
        self.remove_attribute(&node, b"security.capability")?;
        Ok(node)
    }

    fn node(&self, location: &Location<Handle>) -> Reasoned<Node<'_>> {
        Ok(Node { handle: self.find(location, false)?, file: None, set_id_mode: None })
    }

    fn write(&self, node: &Node<'_>, at: u64, bytes: &[u8]) -> Reasoned<()> {
        Ok(node.open()?.write_all_at(bytes, at)?)
    }

    fn set_len(&self, node: &Node<'_>, size: u64) -> Reasoned<()> {
        Ok(node.open()?.set_len(size)?)
    }

    fn written(&self, node: &Node<'_>) -> Reasoned<()> {
        node.set_id_mode.map_or(Ok(()), |mode| self.set_mode(node, mode))
    }

    fn share(&self, node: &Node<'_>, contents: &dyn Contents) -> bool {
        let (Some(to), Some(from)) = (&node.file, contents.in_volume()) else { return false };
        std::ptr::eq(to.volume(), from.volume()) && (from.is_empty() || to.clone_range(from, 0, 0, 0).is_ok())
    }

    fn link(&self, existing: &Location<Handle>, new: &Location<Handle>) -> Reasoned<()> {
        let (dir, name) = self.parent_of_new(new, false)?;
        Ok(self.volume.link(self.find(existing, false)?.id(), dir.id(), name)?)
    }

    fn unlink(&self, location: &Location<Handle>) -> Reasoned<()> {
        let (dir, name) = self.parent_of_new(location, false)?;
        Ok(self.volume.unlink(dir.id(), name)?)
    }

    fn set_owner(&self, node: &Node<'_>, uid: u32, gid: u32) -> Reasoned<bool> {
        let set = SetMetadata { uid: Some(uid), gid: Some(gid), ..SetMetadata::default() };
        self.set_metadata(node, &set).map(|()| true)
    }

    fn set_mode(&self, node: &Node<'_>, mode: u16) -> Reasoned<()> {
        self.set_metadata(node, &SetMetadata { permissions: Some(mode), ..SetMetadata::default() })
    }

    fn set_times(&self, node: &Node<'_>, accessed: Time, modified: Time) -> Reasoned<()> {
        let (accessed, modified) = (Some(accessed), Some(modified));
        self.set_metadata(node, &SetMetadata { accessed, modified, ..SetMetadata::default() })
    }

    fn set_attribute(&self, node: &Node<'_>, name: &[u8], value: &[u8]) -> Reasoned<()> {
        Ok(self.volume.set_attribute(node.handle.id(), name, value, SetAttribute::Any)?)
    }

    fn remove_attribute(&self, node: &Node<'_>, name: &[u8]) -> Reasoned<()> {
        match self.volume.remove_attribute(node.handle.id(), name) {
            Err(error) if error.errno() == errno::ENODATA => Ok(()),
            removed => Ok(removed?),
        }
    }
}
