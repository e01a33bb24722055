//! Looking up, making, removing, listing.

use base::Ino;
use base::errno::{EINVAL, ENOENT};
use format::inode::FileType;
use xebec::{Cookie, DeviceNumber, Handle, NewFile, NewFileType};

use super::Served;
use crate::operations::{Caller, Errno, Found, Listed, Make, Result};

const S_IFMT: u32 = 0o170_000;

/// Entries of a directory that are looked at in one go: while they are, it is locked. About as many as the kernel's
/// page has room for, without and with what they stand for.
const AT_ONCE: (usize, usize) = (128, 32);

/// One of them.
struct Seen {
    name: Vec<u8>,
    ino: Ino,
    kind: u32,
    next: u64,
}

/// What became of an entry.
enum Given {
    Yes,
    /// Its file was removed meanwhile.
    Gone,
    NoRoom,
}

impl Served<'_> {
    /// What is found under a name.
    pub(super) fn look_up(&self, dir: Ino, name: &[u8]) -> Result<Found> {
        // By this name the kernel asks for any file that it has forgotten and somebody has a handle of.
        let handle = match name {
            b"." => self.volume.open_ino(dir)?,
            name => self.volume.lookup_handle(dir, name)?,
        };
        self.found(handle)
    }

    /// A file, as it is told to the kernel, which counts as a lookup.
    fn found(&self, handle: Handle) -> Result<Found> {
        let ino = handle.ino();
        let known = self.volume.metadata(ino)?;
        let found = Found {
            node: self.node(ino),
            generation: known.generation.into(),
            attributes: self.told(&known),
        };
        self.nodes.note(handle);
        Ok(found)
    }

    /// Makes a file and gives it a name.
    pub(super) fn make_named(&self, caller: Caller, dir: Ino, name: &[u8], make: &Make<'_>) -> Result<Found> {
        self.found(self.volume.create_handle(dir, name, &new(caller, make)?)?)
    }

    /// Makes a file without one.
    pub(super) fn make_nameless(&self, caller: Caller, dir: Ino, make: &Make<'_>) -> Result<Found> {
        let handle: Handle = self.volume.create_tmpfile(dir, &new(caller, make)?)?;
        self.found(handle)
    }

    /// Gives a file another name, or its first.
    pub(super) fn link_held(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Found> {
        let handle = self.nodes.get(ino).ok_or(Errno(ENOENT))?;
        self.volume.link_handle(&handle, dir, name)?;
        self.found(handle)
    }

    /// See [`Operations::list`](crate::Operations::list). A file that is removed between the look at its name and the
    /// look at itself is left out; one that cannot be looked at is listed by its name alone. What was given before a
    /// failure is kept, as the kernel counts it: the next listing meets the failure first.
    pub(super) fn list_directory(
        &self,
        dir: Ino,
        from: u64,
        plus: bool,
        give: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        let (mut from, mut given) = (from, false);
        if from == 0 {
            self.note_read(dir)?;
        }
        let at_once = if plus { AT_ONCE.1 } else { AT_ONCE.0 };
        loop {
            let mut seen: Vec<Seen> = Vec::new();
            let read = self.volume.read_dir(dir, Cookie(from), &mut |entry| {
                let kind = entry.file_type.map_or(0, |kind| u32::from(kind.mode()));
                seen.push(Seen { name: entry.name.to_vec(), ino: entry.ino, kind, next: entry.next.0 });
                seen.len() < at_once
            });
            if read.is_err() && seen.is_empty() && !given {
                return Ok(read?);
            }
            let failed = read.is_err();
            let Some(last) = seen.last() else { return Ok(()) };
            from = last.next;
            let more = seen.len() == at_once && !failed;
            for entry in &seen {
                match self.give(dir, entry, plus, give) {
                    Given::Yes => given = true,
                    Given::Gone => {}
                    Given::NoRoom => return Ok(()),
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn give(&self, dir: Ino, entry: &Seen, plus: bool, give: &mut dyn FnMut(&Listed<'_>) -> bool) -> Given {
        let is_dots = matches!(entry.name.as_slice(), b"." | b"..");
        let found = match plus && !is_dots {
            false => None,
            true => match self.look_up(dir, &entry.name) {
                // It may have become another file's name since. Then the listing shows that file, too.
                Ok(found) => Some(found),
                Err(Errno(ENOENT)) => return Given::Gone,
                // Whoever asks for it by its name is told what is wrong.
                Err(_) => None,
            },
        };
        let Seen { name, ino, kind, next } = entry;
        let (ino, kind) = found
            .as_ref()
            .map_or((ino.0, *kind), |found| (found.attributes.ino, found.attributes.mode & S_IFMT));
        let given = give(&Listed { name, ino, kind, next: *next, found });
        if !given && let Some(found) = found {
            self.nodes.forget(self.ino(found.node), 1);
        }
        if given { Given::Yes } else { Given::NoRoom }
    }
}

fn new<'a>(caller: Caller, make: &Make<'a>) -> Result<NewFile<'a>> {
    let device = DeviceNumber { major: make.device.0, minor: make.device.1 };
    let kind = match FileType::from_mode((make.mode & S_IFMT) as u16) {
        Some(FileType::Regular) => NewFileType::Regular,
        Some(FileType::Directory) => NewFileType::Directory,
        Some(FileType::Symlink) => NewFileType::Symlink(make.target),
        Some(FileType::CharDevice) => NewFileType::CharDevice(device),
        Some(FileType::BlockDevice) => NewFileType::BlockDevice(device),
        Some(FileType::Fifo) => NewFileType::Fifo,
        Some(FileType::Socket) => NewFileType::Socket,
        // As `mknod` takes no kind at all for a file.
        None if make.mode & S_IFMT == 0 => NewFileType::Regular,
        None => return Err(Errno(EINVAL)),
    };
    Ok(NewFile {
        file_type: kind,
        permissions: (make.mode & 0o7777) as u16,
        umask: (make.umask & 0o777) as u16,
        uid: caller.uid,
        gid: caller.gid,
        attributes: &[],
        accessed: None,
        modified: None,
    })
}
