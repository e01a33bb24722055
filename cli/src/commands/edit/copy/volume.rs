//! A writable volume as source or target of `cp`.

use std::ops::Range;

use anyhow::{Context as _, Result, bail};
use base::time::Time;
use base::{Ino, errno};
use format::inode::FileType;
use xebec::{DeviceNumber, Dir, File, NewFile, NewFileType, OpenOptions, SetAttribute, SetMetadata, Volume};

use super::traits::{Attributes, Contents, CopySource, CopyTarget, Fail, Id, Location, Stat};
use crate::operands;

/// Device number in an [`Id`]; no host device has it.
const DEVICE: u64 = u64::MAX;
/// Umask of new files, as in `mkdir` and `touch`.
const UMASK: u16 = 0o022;

/// A new or open file.
pub struct Node<'v> {
    ino: Ino,
    /// Open for writing, if it is a regular file.
    file: Option<File<'v>>,
    /// Mode of an existing file with set-ID bits, which a write clears: it is restored afterwards.
    set_id_mode: Option<u16>,
}

fn find(volume: &Volume, location: &Location<Ino>, follow: bool) -> xebec::Result<Ino> {
    match location.dir.as_deref() {
        None => volume.resolve(&location.name, follow),
        Some(dir) if follow => volume.resolve_from(*dir, &location.name),
        Some(dir) => volume.lookup(*dir, &location.name),
    }
}

/// Error of creating a file in a missing directory.
pub const NO_DIRECTORY: &str = "no such directory in the volume (`xebec mkdir -p` creates it)";

/// Parent directory and name.
fn parent_of_new<'a>(
    volume: &Volume,
    location: &'a Location<Ino>,
    is_directory: bool,
) -> Result<(Ino, &'a [u8])> {
    if location.name.ends_with(b"/") && !is_directory {
        bail!("{NO_DIRECTORY}");
    }
    Ok(match location.dir.as_deref() {
        None => match volume.resolve_parent(&location.name) {
            Err(error) if error.errno() == errno::ENOENT => bail!("{NO_DIRECTORY}"),
            found => found?,
        },
        Some(dir) => (*dir, location.name.as_slice()),
    })
}

impl CopySource for Volume {
    type Dir = Ino;

    fn expand(&self, operands: &[Vec<u8>], fail: Fail<'_>) -> Vec<Vec<u8>> {
        operands::paths(self, operands.iter().map(Vec::as_slice), fail)
    }

    fn stat(&self, location: &Location<Ino>, follow: bool) -> Result<Option<Stat>> {
        let ino = match find(self, location, follow) {
            Err(error) if error.errno() == errno::ENOENT => return Ok(None),
            found => found?,
        };
        let metadata = self.metadata(ino)?;
        if location.name.ends_with(b"/") && metadata.file_type != FileType::Directory {
            bail!("is not a directory");
        }
        let id: Id = (DEVICE, ino.0);
        Ok(Some(Stat {
            id,
            kind: metadata.file_type,
            permissions: metadata.permissions,
            links: metadata.nlink.into(),
            uid: metadata.uid,
            gid: metadata.gid,
            accessed: metadata.accessed,
            modified: metadata.modified,
            device: metadata.device.unwrap_or(DeviceNumber { major: 0, minor: 0 }),
        }))
    }

    fn enter(&self, location: &Location<Ino>, follow: bool) -> Result<Ino> {
        Ok(find(self, location, follow)?)
    }

    fn list(&self, dir: &Ino) -> Result<Vec<Vec<u8>>> {
        let entries = Dir::open_ino(self, *dir)?.entries()?.into_iter().map(|(name, _)| name);
        Ok(entries.filter(|name| !matches!(name.as_slice(), b"." | b"..")).collect())
    }

    fn read_link(&self, location: &Location<Ino>) -> Result<Vec<u8>> {
        Ok(Volume::read_link(self, find(self, location, false)?)?)
    }

    fn attributes(&self, location: &Location<Ino>, follow: bool) -> Result<Attributes> {
        let ino = find(self, location, follow)?;
        let names = self.list_attributes(ino)?.into_iter();
        names.map(|name| Ok((name.clone(), self.get_attribute(ino, &name)?))).collect()
    }

    fn open(&self, location: &Location<Ino>, follow: bool, stat: &Stat) -> Result<Box<dyn Contents + '_>> {
        expect_contents(stat)?;
        let file = OpenOptions::new().read(true).open_ino(self, find(self, location, follow)?)?;
        Ok(Box::new(OpenFile(file)))
    }
}

/// In an image, devices and pipes have no contents.
pub fn expect_contents(stat: &Stat) -> Result<()> {
    match stat.kind {
        FileType::Regular => Ok(()),
        _ => bail!("is a device, pipe or socket without contents in an image (-r not specified)"),
    }
}

struct OpenFile<'v>(File<'v>);

impl Contents for OpenFile<'_> {
    fn size(&self) -> Option<u64> {
        Some(self.0.len())
    }

    fn next_run(&mut self, from: u64) -> Result<Option<Range<u64>>> {
        let Some(start) = self.0.seek_data(from)? else { return Ok(None) };
        let end = self.0.seek_hole(start)?.unwrap_or(self.0.len());
        Ok((start < end).then_some(start..end))
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.0.read_at(buffer, at)?)
    }

    fn in_volume(&self) -> Option<&File<'_>> {
        Some(&self.0)
    }
}

impl CopyTarget for Volume {
    type Node<'t> = Node<'t>;

    fn umask(&self) -> u16 {
        UMASK
    }

    fn create(&self, location: &Location<Ino>, kind: NewFileType<'_>, mode: u16) -> Result<Node<'_>> {
        let (dir, name) = parent_of_new(self, location, kind == NewFileType::Directory)?;
        let new = NewFile { file_type: kind, permissions: mode, umask: UMASK, ..NewFile::regular() };
        let ino = match self.create(dir, name, &new) {
            Err(error) if error.errno() == errno::EEXIST && kind == NewFileType::Regular => {
                bail!("not writing through a dangling symbolic link")
            }
            created => created?,
        };
        let file = match kind {
            NewFileType::Regular => Some(OpenOptions::new().write(true).open_ino(self, ino)?),
            _ => None,
        };
        Ok(Node { ino, file, set_id_mode: None })
    }

    fn overwrite(&self, location: &Location<Ino>) -> Result<Node<'_>> {
        let ino = find(self, location, true)?;
        let mode = self.metadata(ino)?.permissions;
        let file = OpenOptions::new().write(true).truncate(true).open_ino(self, ino)?;
        let node = Node { ino, file: Some(file), set_id_mode: Some(mode).filter(|mode| mode & 0o6000 != 0) };
        // As in Linux, also for writes of root.
        CopyTarget::remove_attribute(self, &node, b"security.capability")?;
        Ok(node)
    }

    fn node(&self, location: &Location<Ino>) -> Result<Node<'_>> {
        Ok(Node { ino: find(self, location, false)?, file: None, set_id_mode: None })
    }

    fn write(&self, node: &Node<'_>, mut at: u64, mut bytes: &[u8]) -> Result<()> {
        let file = node.file.as_ref().context("is not open for writing")?;
        while !bytes.is_empty() {
            let written = file.write_at(bytes, at)?;
            at += written as u64;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    fn set_len(&self, node: &Node<'_>, size: u64) -> Result<()> {
        Ok(node.file.as_ref().context("is not open for writing")?.set_len(size)?)
    }

    fn written(&self, node: &Node<'_>) -> Result<()> {
        node.set_id_mode.map_or(Ok(()), |mode| self.set_mode(node, mode))
    }

    fn share(&self, node: &Node<'_>, contents: &dyn Contents) -> bool {
        let (Some(to), Some(from)) = (&node.file, contents.in_volume()) else { return false };
        from.is_empty() || to.clone_range(from, 0, 0, 0).is_ok()
    }

    fn link(&self, existing: &Location<Ino>, new: &Location<Ino>) -> Result<()> {
        let (dir, name) = parent_of_new(self, new, false)?;
        Ok(Volume::link(self, find(self, existing, false)?, dir, name)?)
    }

    fn unlink(&self, location: &Location<Ino>) -> Result<()> {
        let (dir, name) = parent_of_new(self, location, false)?;
        Ok(Volume::unlink(self, dir, name)?)
    }

    fn set_owner(&self, node: &Node<'_>, uid: u32, gid: u32) -> Result<bool> {
        let set = SetMetadata { uid: Some(uid), gid: Some(gid), ..SetMetadata::default() };
        self.set_metadata(node.ino, &set)?;
        Ok(true)
    }

    fn set_mode(&self, node: &Node<'_>, mode: u16) -> Result<()> {
        let set = SetMetadata { permissions: Some(mode), ..SetMetadata::default() };
        Ok(self.set_metadata(node.ino, &set)?)
    }

    fn set_times(&self, node: &Node<'_>, accessed: Time, modified: Time) -> Result<()> {
        let set =
            SetMetadata { accessed: Some(accessed), modified: Some(modified), ..SetMetadata::default() };
        Ok(self.set_metadata(node.ino, &set)?)
    }

    fn set_attribute(&self, node: &Node<'_>, name: &[u8], value: &[u8]) -> Result<()> {
        Ok(Volume::set_attribute(self, node.ino, name, value, SetAttribute::Any)?)
    }

    fn remove_attribute(&self, node: &Node<'_>, name: &[u8]) -> Result<()> {
        match Volume::remove_attribute(self, node.ino, name) {
            Err(error) if error.errno() == errno::ENODATA => Ok(()),
            removed => Ok(removed?),
        }
    }
}
