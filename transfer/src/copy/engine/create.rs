//! Creates directories, regular files and special files.

use std::rc::Rc;

use format::inode::FileType;
use volume::NewFileType;

use super::{Copier, Level, Pair, Result};
use crate::copy::CopyReason;
use crate::copy::ends::{Location, SourceEnd, Stat, TargetEnd};
use crate::copy::error::{Failure, read};

impl<'c, S: SourceEnd, T: TargetEnd> Copier<'c, S, T> {
    /// Enters a source directory, and creates the target unless it exists.
    pub(super) fn directory(&mut self, pair: &Pair<'_, S, T>, is_new: bool) -> Result<Level<S, T>> {
        let Pair { source, target, stat, follow } = *pair;
        if self.ancestors.contains(&stat.id) {
            return Err(CopyReason::Loop.into());
        }
        if self.rules().ignore_unreadable {
            // Read before the target is created: an unreadable directory is skipped.
            self.enter(source, follow)?;
        }
        let final_mode = if is_new { self.create_directory(pair)? } else { None };
        let (source_dir, mut remaining) = self.enter(source, follow)?;
        remaining.reverse();
        let target_dir = self.to.enter(target, false, &mut *self.events)?;
        self.ancestors.insert(stat.id);
        let (source, target) = ((Rc::new(source_dir), source.clone()), (Rc::new(target_dir), target.clone()));
        Ok(Level { source, target, stat: stat.clone(), follow, remaining, final_mode })
    }

    /// Opens a source directory and lists it.
    fn enter(&mut self, source: &Location<S::Dir>, follow: bool) -> Result<(S::Dir, Vec<Vec<u8>>)> {
        let dir = read(self.from.enter(source, follow, &mut *self.events))?;
        let names = read(self.from.list(&dir))?;
        Ok((dir, names))
    }

    /// Creates a directory that its owner can write to, and returns the final mode if that differs.
    fn create_directory(&mut self, pair: &Pair<'_, S, T>) -> Result<Option<u16>> {
        const OWNERS: u16 = 0o700;
        let Pair { source, target, stat, .. } = *pair;
        // A default ACL may grant write access to others: the umask is applied in any case.
        let others = 0o022 & self.to.umask();
        let mode = self.mode_of_new(stat, 0o777) | stat.permissions & 0o1000;
        self.announce(pair);
        let node = self.create(target, NewFileType::Directory, mode & !others)?;
        self.count(1, 0);
        let created = self.to.stat(target, false)?.ok_or(CopyReason::Removed)?;
        if self.first_created.is_none() {
            self.first_created = Some((created.id, source.shown.clone(), target.shown.clone()));
        }
        if created.permissions & OWNERS == OWNERS {
            return Ok(None);
        }
        self.to.set_mode(&node, created.permissions | OWNERS)?;
        Ok(Some(created.permissions))
    }

    /// Completes a directory after its entries.
    pub(super) fn leave(&mut self, level: &Level<S, T>) -> Result<()> {
        let Level { source: (_, source), target: (_, target), stat, follow, final_mode, .. } = level;
        let node = self.to.node(target)?;
        self.preserve(&node, &Pair { source, target, stat, follow: *follow }, *final_mode)
    }

    /// Copies a regular file to a new or an existing one.
    pub(super) fn regular_file(
        &mut self,
        pair: &Pair<'_, S, T>,
        existing: Option<Stat>,
    ) -> Result<T::Node<'c>> {
        let Pair { source, target, stat, follow } = *pair;
        let from = self.from;
        let mut contents = read(from.open(source, follow, stat, &mut *self.events))?;
        let replaces = existing.is_some();
        let existing = self.remove_existing(pair, existing)?;
        let is_new = existing.is_none();
        let (to, mode) = (self.to, self.mode_of_new(stat, 0o666));
        let node = match existing {
            None => self.create(target, NewFileType::Regular, mode)?,
            Some(existing) if existing.kind != FileType::Regular && !self.rules().force => {
                return Err(CopyReason::NotRegular { target: target.shown.clone() }.into());
            }
            Some(_) => match to.overwrite(target) {
                Err(_) if self.rules().force => {
                    to.unlink(target)?;
                    self.create(target, NewFileType::Regular, mode)?
                }
                opened => opened.map_err(Failure::at(target))?,
            },
        };
        if !to.share(&node, &*contents) {
            let copied = self.contents(&mut *contents, &node, replaces);
            self.remove_incomplete(copied, pair, is_new)?;
        }
        to.written(&node)?;
        Ok(node)
    }

    /// Removes an existing target if that is necessary, after the source was read. Returns the target that is left.
    fn remove_existing(&mut self, pair: &Pair<'_, S, T>, existing: Option<Stat>) -> Result<Option<Stat>> {
        let Some(found) = existing else { return Ok(None) };
        self.expect_readable(pair)?;
        if !self.must_remove(pair.stat, &found) {
            return Ok(Some(found));
        }
        self.to.unlink(pair.target)?;
        Ok(None)
    }

    fn create(&self, target: &Location<T::Dir>, kind: NewFileType<'_>, mode: u16) -> Result<T::Node<'c>> {
        self.to.create(target, kind, mode).map_err(Failure::at(target))
    }

    /// Mode of a new file before the umask; `default` is the default of its type.
    fn mode_of_new(&self, stat: &Stat, default: u16) -> u16 {
        match (self.rules().preserve.mode, self.rules().default_mode) {
            // Inaccessible for others until its owner is set; the mode is set last.
            (true, _) => stat.permissions & 0o700,
            (false, true) => default,
            (false, false) => stat.permissions & 0o777,
        }
    }

    /// A symlink, a device, a pipe or a socket.
    pub(super) fn special_file(
        &mut self,
        pair: &Pair<'_, S, T>,
        existing: Option<Stat>,
    ) -> Result<T::Node<'c>> {
        let Pair { source, target, stat, .. } = *pair;
        let link;
        let kind = match stat.kind {
            FileType::Symlink => {
                link = read(self.from.read_link(source))?;
                NewFileType::Symlink(&link)
            }
            FileType::CharDevice => NewFileType::CharDevice(stat.device),
            FileType::BlockDevice => NewFileType::BlockDevice(stat.device),
            FileType::Fifo => NewFileType::Fifo,
            FileType::Socket => NewFileType::Socket,
            FileType::Regular | FileType::Directory => return Err(CopyReason::TypeChanged.into()),
        };
        self.remove_existing(pair, existing)?;
        let mode = if stat.kind == FileType::Symlink { 0o777 } else { self.mode_of_new(stat, 0o666) };
        self.create(target, kind, mode)
    }
}
