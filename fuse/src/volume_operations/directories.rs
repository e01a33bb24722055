//! Lookup, create, link, readdir.

use base::Ino;
use base::errno::{EINVAL, ENOENT, ESTALE};
use format::inode::FileType;
use xebec::{Cookie, DeviceNumber, FileId, Handle, Metadata, NewFile, NewFileType};

use super::VolumeOperations;
use crate::operations::{Caller, DirEntry, Entry, Errno, NewInode, NodeId, ROOT, Result};

const S_IFMT: u32 = 0o170_000;

/// Entries that are read at once, while the directory is locked: about as many as fit into the kernel's buffer.
const READDIR_BATCH: usize = 128;
/// The same for `FUSE_READDIRPLUS`.
const READDIRPLUS_BATCH: usize = 32;

/// An entry that was read.
struct ReadEntry {
    name: Vec<u8>,
    ino: Ino,
    file_type: u32,
    next_offset: u64,
}

/// Result of adding an entry to a reply.
enum AddResult {
    Added,
    /// The inode was removed meanwhile.
    Removed,
    /// The reply is full.
    Full,
}

impl VolumeOperations<'_> {
    /// Looks up a name.
    pub(super) fn lookup_entry(&self, dir: FileId, name: &[u8]) -> Result<Entry> {
        if name != b"." {
            return self.entry(&self.volume.lookup_metadata(dir, name)?);
        }
        // The kernel looks up `.` for an inode that it has forgotten, but that is known by a file handle of NFS. A file
        // without names is gone with the kernel's inode.
        let metadata = self.volume.metadata(dir)?;
        if metadata.nlink == 0 { Err(Errno(ESTALE)) } else { self.entry(&metadata) }
    }

    /// The entry of a file.
    pub(super) fn entry_of(&self, file: &Handle) -> Result<Entry> {
        self.entry(&self.volume.handle_metadata(file)?)
    }

    fn entry(&self, metadata: &Metadata) -> Result<Entry> {
        let node = self.node(metadata.id())?;
        Ok(Entry {
            node,
            // Kernels before 6.9 have the root with generation 0, and take another one for another inode.
            generation: if node == ROOT { 0 } else { metadata.generation.into() },
            attributes: self.to_attributes(metadata),
        })
    }

    /// Creates an inode with a name, or without (`O_TMPFILE`).
    pub(super) fn create_inode(
        &self,
        caller: Caller,
        dir: FileId,
        name: Option<&[u8]>,
        new: &NewInode<'_>,
    ) -> Result<Handle> {
        let file = new_file(caller, new)?;
        Ok(match name {
            Some(name) => self.volume.create_handle(dir, name, &file)?,
            None => self.volume.create_tmpfile(dir, &file)?,
        })
    }

    /// Creates another name of an inode, or the first.
    pub(super) fn link_inode(&self, node: NodeId, dir: FileId, name: &[u8]) -> Result<Entry> {
        let file = self.volume.open_id(self.id(node)?)?;
        self.volume.link_handle(&file, dir, name)?;
        self.removed.remove(node);
        self.entry_of(&file)
    }

    /// See [`Operations::readdir`](crate::Operations::readdir). An inode that is removed between reading its name and
    /// its attributes is skipped; one whose attributes cannot be read is listed without them. Entries before an error
    /// are returned; the next call returns the error.
    pub(super) fn read_directory(
        &self,
        dir: FileId,
        offset: u64,
        plus: bool,
        add: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let (mut offset, mut has_added) = (offset, false);
        if offset == 0 {
            self.update_atime(|| self.volume.touch_atime(dir));
        }
        let batch = if plus { READDIRPLUS_BATCH } else { READDIR_BATCH };
        loop {
            let mut entries: Vec<ReadEntry> = Vec::new();
            let read = self.volume.read_dir(dir, Cookie(offset), &mut |entry| {
                let file_type = entry.file_type.map_or(0, |file_type| u32::from(file_type.mode()));
                entries.push(ReadEntry {
                    name: entry.name.to_vec(),
                    ino: entry.ino,
                    file_type,
                    next_offset: entry.next.0,
                });
                entries.len() < batch
            });
            if read.is_err() && entries.is_empty() && !has_added {
                return Ok(read?);
            }
            let failed = read.is_err();
            let Some(last) = entries.last() else { return Ok(()) };
            offset = last.next_offset;
            let more = entries.len() == batch && !failed;
            for entry in &entries {
                match self.add_entry(dir, entry, plus, add) {
                    AddResult::Added => has_added = true,
                    AddResult::Removed => {}
                    AddResult::Full => return Ok(()),
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn add_entry(
        &self,
        dir: FileId,
        entry: &ReadEntry,
        plus: bool,
        add: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> AddResult {
        let is_dots = matches!(entry.name.as_slice(), b"." | b"..");
        let looked_up = match plus && !is_dots {
            false => None,
            true => match self.lookup_entry(dir, &entry.name) {
                // The name may belong to another inode by now, which is listed then.
                Ok(entry) => Some(entry),
                Err(Errno(ENOENT)) => return AddResult::Removed,
                // A lookup of the name returns the error.
                Err(_) => None,
            },
        };
        let ReadEntry { name, ino, file_type, next_offset } = entry;
        let (ino, file_type) = looked_up
            .map_or((ino.0, *file_type), |entry| (entry.attributes.ino, entry.attributes.mode & S_IFMT));
        let added = add(&DirEntry { name, ino, file_type, next_offset: *next_offset, entry: looked_up });
        if added { AddResult::Added } else { AddResult::Full }
    }
}

fn new_file<'a>(caller: Caller, new: &NewInode<'a>) -> Result<NewFile<'a>> {
    let device = DeviceNumber { major: new.device.0, minor: new.device.1 };
    let kind = match FileType::from_mode((new.mode & S_IFMT) as u16) {
        Some(FileType::Regular) => NewFileType::Regular,
        Some(FileType::Directory) => NewFileType::Directory,
        Some(FileType::Symlink) => NewFileType::Symlink(new.target),
        Some(FileType::CharDevice) => NewFileType::CharDevice(device),
        Some(FileType::BlockDevice) => NewFileType::BlockDevice(device),
        Some(FileType::Fifo) => NewFileType::Fifo,
        Some(FileType::Socket) => NewFileType::Socket,
        // Like `mknod(2)`: no file type means a regular file.
        None if new.mode & S_IFMT == 0 => NewFileType::Regular,
        None => return Err(Errno(EINVAL)),
    };
    Ok(NewFile {
        file_type: kind,
        permissions: (new.mode & 0o7777) as u16,
        umask: (new.umask & 0o777) as u16,
        uid: caller.uid,
        gid: caller.gid,
        attributes: &[],
        accessed: None,
        modified: None,
    })
}
