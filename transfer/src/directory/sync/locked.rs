//! Files that are immutable, or may only be appended to: whoever owns the image may lift that, and sets it again.

use base::{Ino, errno};
use format::inode::flags;
use volume::{Result, Settings, Volume};

const LOCKED: u32 = (flags::IMMUTABLE | flags::APPEND) as u32;

/// Files that can be changed for a while.
pub(super) struct Lifted<'v> {
    volume: &'v Volume,
    files: Vec<(Ino, Settings)>,
}

impl<'v> Lifted<'v> {
    /// None yet.
    pub fn new(volume: &'v Volume) -> Self {
        Self { volume, files: Vec::new() }
    }

    /// Lifts what keeps a file from being changed, if anything does.
    pub fn lift(&mut self, ino: Ino) -> Result<()> {
        let before = self.volume.settings(ino)?;
        if before.xflags & LOCKED != 0 {
            let xflags = before.xflags & !LOCKED;
            self.volume.set_settings(ino, &Settings { xflags, ..before })?;
            self.files.push((ino, before));
        }
        Ok(())
    }

    /// The same for what has a name, if anything has.
    pub fn lift_name(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        match self.volume.lookup(dir, name) {
            Err(error) if error.errno() == errno::ENOENT => Ok(()),
            found => self.lift(found?),
        }
    }

    /// The same for a file with all below it.
    pub fn lift_all(&mut self, top: Ino) -> Result<()> {
        let volume = self.volume;
        volume.for_each_below(top, |ino| self.lift(ino))
    }

    /// Sets it again of what is still there.
    pub fn set_again(self) -> Result<()> {
        for (ino, before) in self.files {
            match self.volume.set_settings(ino, &before) {
                Err(error) if error.errno() == errno::ENOENT => {}
                done => done?,
            }
        }
        Ok(())
    }
}

/// Does what files may forbid: then `lift` lifts that, it is done once more, and what was lifted is set again.
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
