//! Immutable and append-only files: the owner of an image may clear these flags, and sets them again.

use base::errno;
use format::inode::flags;
use volume::{FileId, Result, Settings, Volume};

const LOCKED: u32 = (flags::IMMUTABLE | flags::APPEND) as u32;

/// Files whose flags were cleared.
pub(super) struct Lifted<'v> {
    volume: &'v Volume,
    files: Vec<(FileId, Settings)>,
}

impl<'v> Lifted<'v> {
    /// No files.
    pub fn new(volume: &'v Volume) -> Self {
        Self { volume, files: Vec::new() }
    }

    /// Clears the flags of a file that forbid changes.
    pub fn lift(&mut self, id: FileId) -> Result<()> {
        let before = self.volume.settings(id)?;
        if before.xflags & LOCKED != 0 {
            let xflags = before.xflags & !LOCKED;
            self.volume.set_settings(id, &Settings { xflags, ..before })?;
            self.files.push((id, before));
        }
        Ok(())
    }

    /// Clears the flags of the file with this name, if it exists.
    pub fn lift_name(&mut self, dir: FileId, name: &[u8]) -> Result<()> {
        match self.volume.lookup(dir, name) {
            Err(error) if error.errno() == errno::ENOENT => Ok(()),
            found => self.lift(found?),
        }
    }

    /// Clears the flags of a file and of everything below it.
    pub fn lift_all(&mut self, top: FileId) -> Result<()> {
        let volume = self.volume;
        volume.for_each_below(top, |id| self.lift(id))
    }

    /// Sets the flags again on files that still exist.
    pub fn set_again(self) -> Result<()> {
        for (id, before) in self.files {
            match self.volume.set_settings(id, &before) {
                Err(error) if error.errno() == errno::ESTALE => {}
                done => done?,
            }
        }
        Ok(())
    }
}

/// Performs an operation that flags may forbid: then `lift` clears them, it is repeated, and they are set again.
pub(super) fn despite<T>(
    volume: &Volume,
    mut act: impl FnMut() -> Result<T>,
    lift: impl FnOnce(&mut Lifted<'_>) -> Result<()>,
) -> Result<T> {
    match act() {
        Err(error) if error.errno() == errno::EPERM => {}
        done => return done,
    }
    let mut lifted = Lifted::new(volume);
    let done = lift(&mut lifted).and_then(|()| act());
    lifted.set_again().and(done)
}
