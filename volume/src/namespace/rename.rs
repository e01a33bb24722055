//! Moving names, with all flags.
//!
//! # Locking
//! A directory that gets another parent changes the tree of directories: such renames of a volume take turns (rank
//! `Rename`), so that the path upwards, which tells whether a directory would come to lie in itself, stands still.
//! All inodes are then locked together in order, and both names are looked at once more. A whiteout is made before, in
//! a change of its own, as a file without a name: so it is known which AGIs a rename needs, and they are locked first,
//! ascending. Where the rename does not come to be, the whiteout is freed as every file without a name is.

use std::collections::HashSet;

use base::lock::MutexGuard;
use base::{Ino, errno};
use format::Damage;
use format::inode::FileType;
use inode::InodeRef;
use inode::dir::FoundEntry;
use inode::state::InodeTime;

use super::create::{MAX_LINKS, NO_DEVICE};
use super::order::lock_all;
use super::parents::Parent;
use super::remove::expect_empty;
use crate::checks::{expect_changeable, expect_mutable, expect_same_project};
use crate::new_file::{DeviceNumber, NewFile, NewFileType};
use crate::operation::{Locked, Operation, expect_directory, is_directory, is_dots, parent_of};
use crate::recover::damaged;
use crate::{Error, Result, Volume};

/// What happens where the new name exists, and what stays at the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rename {
    /// The new name is taken from what had it.
    Replace,
    /// A new name that exists is refused.
    NoReplace,
    /// Both names must exist, and exchange what they stand for.
    Exchange,
    /// As `Replace`; the old name then stands for a whiteout, a character device 0/0, as overlay file systems want.
    Whiteout,
}

/// A name: the directory, held, and the name in it.
#[derive(Clone, Copy)]
struct Name<'a> {
    dir: &'a InodeRef,
    name: &'a [u8],
}

/// What a name stood for before everything was locked.
struct Seen {
    found: FoundEntry,
    inode: InodeRef,
}

/// Everything that a rename changes, locked.
struct Set {
    from: Locked,
    /// `None` where both names are in one directory.
    to: Option<Locked>,
    source: Locked,
    target: Option<Locked>,
    /// What the old name stands for afterwards; it has no name yet.
    whiteout: Option<Locked>,
}

impl Volume {
    /// Moves a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`, `EMLINK`, `ENOSPC`; `EEXIST` where the new name's directory is not empty, too,
    /// but `ENOTEMPTY` where that is one that the old name lies in; `EINVAL` where a directory would come to lie in
    /// itself; `EBUSY` for `.` and `..`; `EPERM` where a directory or a file is immutable or may only be appended to;
    /// `EXDEV` where the new name's directory hands another project down.
    pub fn rename(&self, from: Ino, from_name: &[u8], to: Ino, to_name: &[u8], how: Rename) -> Result<()> {
        if is_dots(from_name) || is_dots(to_name) {
            return Err(self.refuse_to_rename_dots((from, from_name), to, how));
        }
        inode::inactive::throttle(self.inode_cache.shared());
        let (from_ref, to_ref) = (self.inode(from)?, self.inode(to)?);
        let (from, to) = (Name { dir: &from_ref, name: from_name }, Name { dir: &to_ref, name: to_name });
        // A cheap first look tells whether a directory moves; what was seen is verified under all locks.
        let (mut moves_directory, mut whiteout) = (false, None);
        loop {
            let turn = moves_directory.then(|| self.rename_lock.lock());
            match self
                .retry_on_enospc(|| self.try_rename(from, to, how, (turn.as_ref(), whiteout.as_ref())))?
            {
                Tried::Done => return Ok(()),
                Tried::Changed => {}
                Tried::MovesDirectory => moves_directory = true,
                Tried::NeedsWhiteout => {
                    drop(turn);
                    whiteout = Some(self.retry_on_enospc(|| self.make_whiteout(from.dir))?);
                }
            }
        }
    }

    fn refuse_to_rename_dots(&self, (from, from_name): (Ino, &[u8]), to: Ino, how: Rename) -> Error {
        let busy = "\".\" and \"..\" cannot be renamed";
        let (errno, why) = match how {
            Rename::NoReplace if !is_dots(from_name) => (errno::EEXIST, "the new name exists"),
            _ => (errno::EBUSY, busy),
        };
        match self.refuse_dots(from, errno, why) {
            error if error.errno() == errno => self.refuse_dots(to, errno, why),
            error => error,
        }
    }

    fn try_rename(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        how: Rename,
        (turn, whiteout): (Option<&MutexGuard<'_, ()>>, Option<&InodeRef>),
    ) -> Result<Tried> {
        let mut change = self.begin_with_blocks(self.reservations.rename, self.reservations.rename_blocks)?;
        let source = change.see(from)?.ok_or_else(|| missing(to.dir))?;
        let target = change.see(to)?;
        verify(how, target.as_ref())?;
        if target.as_ref().is_some_and(|target| target.found.ino == source.found.ino) {
            return Ok(Tried::Done);
        }
        if how == Rename::Whiteout && whiteout.is_none() {
            return Ok(Tried::NeedsWhiteout);
        }
        let across = from.dir.ino() != to.dir.ino();
        let directory = |seen: &Seen| is_directory(&seen.inode.read());
        let moves = across && (directory(&source) || target.as_ref().is_some_and(directory));
        if moves {
            if turn.is_none() {
                return Ok(Tried::MovesDirectory);
            }
            self.expect_no_loop(from, to, &source, target.as_ref(), how)?;
        }
        let target_ref = target.as_ref().map(|target| &target.inode);
        let [Some(from_dir), to_dir, Some(locked), target_locked, whiteout] =
            lock_all([Some(from.dir), Some(to.dir), Some(&source.inode), target_ref, whiteout])
        else {
            return Err(Error::refused(errno::EINVAL, "a directory cannot be moved into itself"));
        };
        if target.is_some() && target_locked.is_none() {
            return Err(Error::refused(errno::ENOTEMPTY, "the directory is not empty"));
        }
        let mut set = Set { from: from_dir, to: to_dir, source: locked, target: target_locked, whiteout };
        if !change.still(&mut set, from.name, to.name, (&source, target.as_ref()))? {
            return Ok(Tried::Changed);
        }
        set.expect_movable()?;
        match how {
            Rename::Exchange => change.exchange(&mut set, from.name, to.name)?,
            _ => change.move_name(&mut set, from.name, to.name)?,
        }
        let Set { mut from, mut to, mut source, mut target, mut whiteout } = set;
        commit(change, [Some(&mut from), to.as_mut(), Some(&mut source), target.as_mut(), whiteout.as_mut()])
    }

    /// Makes a whiteout without a name. It inherits nothing from its directory.
    fn make_whiteout(&self, dir_ref: &InodeRef) -> Result<InodeRef> {
        let blocks = self.reservations.create_blocks(&WHITEOUT);
        let mut change = self.begin_with_blocks(self.reservations.create, blocks)?;
        let dir = dir_ref.lock();
        expect_directory(&dir)?;
        let mut whiteout = change.make((&dir, dir.ino()), &WHITEOUT, NO_DEVICE, 0)?;
        let held = whiteout.reference();
        drop(dir);
        inode::unlinked::insert(self.inode_cache.shared(), &mut change.tx, &mut whiteout)?;
        change.commit(&mut [&mut whiteout])?;
        drop(whiteout);
        Ok(held)
    }

    /// Refuses to move a directory below itself. The caller has its turn: no directory changes its parent meanwhile.
    fn expect_no_loop(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        source: &Seen,
        target: Option<&Seen>,
        how: Rename,
    ) -> Result<()> {
        if self.lies_within(to.dir, source.found.ino)? {
            return Err(Error::refused(errno::EINVAL, "a directory cannot be moved into itself"));
        }
        let Some(target) = target else { return Ok(()) };
        if self.lies_within(from.dir, target.found.ino)? {
            return Err(match how {
                Rename::Exchange => Error::refused(errno::EINVAL, "a directory cannot be moved into itself"),
                _ => Error::refused(errno::ENOTEMPTY, "the directory is not empty"),
            });
        }
        Ok(())
    }

    /// Whether a directory is `above`, or lies somewhere in it.
    fn lies_within(&self, dir: &InodeRef, above: Ino) -> Result<bool> {
        let (mut at, mut met) = (dir.clone(), HashSet::new());
        loop {
            if at.ino() == above {
                return Ok(true);
            }
            if at.ino() == self.root() {
                return Ok(false);
            }
            if !met.insert(at.ino()) {
                let damage =
                    Damage::new("directory", "..", "on the way to the root", "a way that comes back here");
                return Err(damaged(at.ino(), damage));
            }
            let mut reader = self.reader()?;
            let mut locked = at.lock();
            expect_directory(&locked)?;
            let parent = parent_of(&mut reader, &mut locked)?;
            drop(locked);
            if !is_directory(&parent.read()) {
                let found = format!("inode {}, which is none", parent.ino());
                return Err(damaged(at.ino(), Damage::new("directory", "..", "a directory", found)));
            }
            at = parent;
        }
    }
}

/// How far a rename came.
enum Tried {
    Done,
    /// A name stood for something else once everything was locked.
    Changed,
    /// It must have its turn.
    MovesDirectory,
    /// It must be given a whiteout.
    NeedsWhiteout,
}

const WHITEOUT: NewFile<'static> = NewFile {
    file_type: NewFileType::CharDevice(DeviceNumber { major: 0, minor: 0 }),
    permissions: 0,
    ..NewFile::directory()
};

/// That the source is missing; what is no directory is told first.
fn missing(to: &InodeRef) -> Error {
    if is_directory(&to.read()) {
        Error::refused(errno::ENOENT, "no such file or directory")
    } else {
        Error::refused(errno::ENOTDIR, "not a directory")
    }
}

fn verify(how: Rename, target: Option<&Seen>) -> Result<()> {
    match (how, target) {
        (Rename::NoReplace, Some(_)) => Err(Error::refused(errno::EEXIST, "the new name exists")),
        (Rename::Exchange, None) => Err(Error::refused(errno::ENOENT, "no such file or directory")),
        _ => Ok(()),
    }
}

/// A directory replaces an empty directory only; a file, anything but a directory.
fn expect_replaceable(change: &mut Operation<'_>, set: &mut Set) -> Result<()> {
    let source = is_directory(&set.source);
    if set.target.as_ref().is_none_or(|target| is_directory(target) == source) {
        expect_same_project(set.to.as_ref().unwrap_or(&set.from), &set.source)?;
    }
    let Some(target) = &mut set.target else {
        let to = set.to.as_ref().filter(|_| source);
        return match to {
            Some(to) => expect_one_more(to),
            None => Ok(()),
        };
    };
    match (source, is_directory(target)) {
        (true, false) => Err(Error::refused(errno::ENOTDIR, "cannot replace a file with a directory")),
        (false, true) => Err(Error::refused(errno::EISDIR, "cannot replace a directory with a file")),
        (true, true) => expect_empty(change, target, errno::EEXIST),
        (false, false) => Ok(()),
    }
}

/// Refuses where a directory cannot have one more in it.
fn expect_one_more(dir: &Locked) -> Result<()> {
    if dir.nlink() < MAX_LINKS {
        return Ok(());
    }
    Err(Error::refused(errno::EMLINK, "the directory has as many directories as it can"))
}

fn commit(change: Operation<'_>, locked: [Option<&mut Locked>; 5]) -> Result<Tried> {
    let mut loggable: smallvec::SmallVec<[&mut dyn journal::engine::Loggable; 5]> =
        locked.into_iter().flatten().map(|locked| locked as &mut dyn journal::engine::Loggable).collect();
    change.commit(&mut loggable)?;
    Ok(Tried::Done)
}

impl Set {
    /// Refuses what flags forbid: a directory loses a name, and the other one or gets one more.
    fn expect_movable(&mut self) -> Result<()> {
        expect_changeable(&self.from)?;
        expect_changeable(&self.source)?;
        let target = self.target.as_ref().map(|target| expect_changeable(target));
        match target {
            Some(target) => expect_changeable(self.to()).and(target),
            None => expect_mutable(self.to()),
        }
    }

    /// Refuses an exchange after which one of both directories has one more in it than it can.
    fn expect_links(&self) -> Result<()> {
        let (Some(to), Some(target)) = (&self.to, &self.target) else { return Ok(()) };
        match (is_directory(&self.source), is_directory(target)) {
            (true, false) => expect_one_more(to),
            (false, true) => expect_one_more(&self.from),
            _ => Ok(()),
        }
    }

    /// The directory of the new name.
    fn to(&mut self) -> &mut Locked {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

impl Operation<'_> {
    /// What a name stands for, with nothing left locked.
    fn see(&mut self, at: Name<'_>) -> Result<Option<Seen>> {
        let mut dir = at.dir.lock();
        expect_directory(&dir)?;
        let found = self.lookup(&mut dir, at.name)?;
        // Held before the directory is let go: until then nobody frees it, nor gives its blocks to something else.
        let seen = |found: FoundEntry| Ok(Seen { inode: self.named(&dir, at.name, found.ino)?, found });
        found.map(seen).transpose()
    }

    /// Whether both names still stand for what was seen, now that everything is locked.
    fn still(
        &mut self,
        set: &mut Set,
        from_name: &[u8],
        to_name: &[u8],
        seen: (&Seen, Option<&Seen>),
    ) -> Result<bool> {
        expect_directory(&set.from)?;
        expect_directory(set.to())?;
        let ino = |found: Option<FoundEntry>| found.map(|found| found.ino);
        let source = ino(self.lookup(&mut set.from, from_name)?);
        let target = ino(self.lookup(set.to(), to_name)?);
        Ok(source == Some(seen.0.found.ino) && target == seen.1.map(|seen| seen.found.ino))
    }

    fn move_name(&mut self, set: &mut Set, from_name: &[u8], to_name: &[u8]) -> Result<()> {
        inode::dir::verify_name(to_name)?;
        expect_replaceable(self, set)?;
        self.lock_lists(set)?;
        self.remove_parents(set, from_name, to_name)?;
        self.place(set, to_name)?;
        let (from, to) = (Parent::of(&set.from), Parent::of(set.to()));
        self.add_parent(&mut set.source, to, to_name)?;
        match &mut set.whiteout {
            Some(whiteout) => {
                self.add_parent(whiteout, from, from_name)?;
                let (ino, ftype) = (whiteout.ino(), FileType::CharDevice.ftype());
                self.directory(&mut set.from, |dir| dir.replace(from_name, ino, ftype))?;
            }
            None => {
                self.directory(&mut set.from, |dir| dir.remove(from_name))?;
            }
        }
        // Last, as nobody who has locked clusters of inodes waits for an AGF.
        if let Some(target) = &mut set.target {
            self.drop_link(target, is_directory(&set.source))?;
        }
        if let Some(whiteout) = &mut set.whiteout {
            inode::unlinked::remove(self.volume.inode_cache.shared(), &mut self.tx, whiteout)?;
            whiteout.set_nlink(1);
            self.volume.touch(whiteout, &[InodeTime::Change]);
        }
        self.touch_all(set);
        Ok(())
    }

    /// Locks the AGIs of the lists that the whiteout is taken off, and the target comes on: before any AGF.
    fn lock_lists(&mut self, set: &Set) -> Result<()> {
        let loses_last = |target: &&Locked| is_directory(target) || target.nlink() <= 1;
        let target = set.target.as_ref().filter(loses_last).map(|target| target.ino());
        let mut listed = [set.whiteout.as_ref().map(|whiteout| whiteout.ino()), target];
        // A number begins with that of its AG.
        listed.sort_unstable();
        for ino in listed.into_iter().flatten() {
            inode::unlinked::lock(self.volume.inode_cache.shared(), &mut self.tx, ino)?;
        }
        Ok(())
    }

    /// Puts the source at the new name, which what was there is still to lose.
    fn place(&mut self, set: &mut Set, to_name: &[u8]) -> Result<()> {
        let (ino, directory) = (set.source.ino(), is_directory(&set.source));
        let ftype = FileType::from_mode(set.source.mode()).map_or(0, FileType::ftype);
        match &set.target {
            Some(_) => {
                let to = set.to.as_mut().unwrap_or(&mut set.from);
                self.directory(to, |dir| dir.replace(to_name, ino, ftype))?;
                if directory {
                    change_links(to, -1);
                }
            }
            None => {
                self.directory(set.to(), |dir| dir.add(to_name, ino, ftype))?;
            }
        }
        if directory && let Some(to) = &mut set.to {
            let parent = to.ino();
            self.directory(&mut set.source, |dir| dir.replace(b"..", parent, FileType::Directory.ftype()))?;
            change_links(to, 1);
            change_links(&mut set.from, -1);
        }
        Ok(())
    }

    /// Both inodes lose the names that they had.
    fn remove_parents(&mut self, set: &mut Set, from_name: &[u8], to_name: &[u8]) -> Result<()> {
        let (from, to) = (Parent::of(&set.from), Parent::of(set.to()));
        self.remove_parent(&mut set.source, from, from_name)?;
        match &mut set.target {
            Some(target) => self.remove_parent(target, to, to_name),
            None => Ok(()),
        }
    }

    fn exchange(&mut self, set: &mut Set, from_name: &[u8], to_name: &[u8]) -> Result<()> {
        expect_same_project(set.to.as_ref().unwrap_or(&set.from), &set.source)?;
        let kind = |locked: &Locked| FileType::from_mode(locked.mode()).map_or(0, FileType::ftype);
        let Some((target_ino, target_kind)) = set.target.as_ref().map(|target| (target.ino(), kind(target)))
        else {
            return Ok(());
        };
        let (source_ino, source_kind) = (set.source.ino(), kind(&set.source));
        set.expect_links()?;
        self.remove_parents(set, from_name, to_name)?;
        let (from, to) = (Parent::of(&set.from), Parent::of(set.to()));
        self.add_parent(&mut set.source, to, to_name)?;
        if let Some(target) = &mut set.target {
            self.add_parent(target, from, from_name)?;
        }
        self.directory(&mut set.from, |dir| dir.replace(from_name, target_ino, target_kind))?;
        self.directory(set.to(), |dir| dir.replace(to_name, source_ino, source_kind))?;
        let directory = FileType::Directory.ftype();
        if let (Some(to), Some(target)) = (&mut set.to, &mut set.target) {
            let moved = [(&mut set.source, to.ino(), 1), (target, set.from.ino(), -1)];
            for (child, parent, direction) in moved {
                if is_directory(child) {
                    self.directory(child, |dir| dir.replace(b"..", parent, directory))?;
                    change_links(to, direction);
                    change_links(&mut set.from, -direction);
                }
            }
        }
        if let Some(target) = &mut set.target {
            self.volume.touch(target, &[InodeTime::Change]);
        }
        self.touch_all(set);
        Ok(())
    }

    fn touch_all(&mut self, set: &mut Set) {
        self.volume.touch(&mut set.source, &[InodeTime::Change]);
        self.volume.touch(&mut set.from, &[InodeTime::Modify, InodeTime::Change]);
        if let Some(to) = &mut set.to {
            self.volume.touch(to, &[InodeTime::Modify, InodeTime::Change]);
        }
    }
}

fn change_links(dir: &mut Locked, by: i32) {
    let nlink = dir.nlink().saturating_add_signed(by);
    dir.set_nlink(nlink);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::MemoryDevice;

    use super::*;
    use crate::Options;

    fn volume(parent: bool) -> Volume {
        let device = Arc::new(MemoryDevice::new(32 << 20));
        mkfs::format(&*device, &mkfs::Options { parent, ..mkfs::Options::default() }).unwrap();
        Volume::open(device, Options::default()).unwrap()
    }

    /// An exchange of a file with a directory gave the file's directory one more, however many it had: its link count
    /// went past what Linux reads.
    #[test]
    fn an_exchange_leaves_no_directory_with_too_many_links() {
        let volume = volume(false);
        let full = volume.create(volume.root(), b"full", &NewFile::directory()).unwrap();
        let file = volume.create(full, b"file", &NewFile::regular()).unwrap();
        let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
        let set_links = |nlink| {
            let change = volume.begin(volume.reservations.inode).unwrap();
            let inode = volume.inode(full).unwrap();
            let mut state = inode.lock();
            state.set_nlink(nlink);
            change.commit(&mut [&mut state]).unwrap();
        };
        set_links(MAX_LINKS);
        let root = volume.root();
        for names in [[(full, &b"file"[..]), (root, b"dir")], [(root, b"dir"), (full, b"file")]] {
            let [(from, from_name), (to, to_name)] = names;
            let refused = volume.rename(from, from_name, to, to_name, Rename::Exchange).unwrap_err();
            assert_eq!(refused.errno(), errno::EMLINK);
            assert_eq!(volume.lookup(full, b"file").unwrap(), file);
        }
        set_links(MAX_LINKS - 1);
        volume.rename(root, b"dir", full, b"file", Rename::Exchange).unwrap();
        assert_eq!(volume.lookup(full, b"file").unwrap(), dir);
        assert_eq!(volume.metadata(full).unwrap().nlink, MAX_LINKS);
    }

    /// On a volume with parent pointers, a new name that cannot be one was found out after the pointer of the old one
    /// had gone: the volume was shut down.
    #[test]
    fn a_name_that_cannot_be_one_is_refused_before_anything_changes() {
        for parents in [false, true] {
            let volume = volume(parents);
            let root = volume.root();
            volume.create(root, b"file", &NewFile::regular()).unwrap();
            for (name, errno) in
                [(&b"a/b"[..], errno::EINVAL), (b"", errno::EINVAL), (&[b'x'; 256], errno::ENAMETOOLONG)]
            {
                for how in [Rename::Replace, Rename::NoReplace, Rename::Whiteout] {
                    let refused = volume.rename(root, b"file", root, name, how).unwrap_err();
                    assert_eq!(refused.errno(), errno, "{how:?} {}", name.escape_ascii());
                }
            }
            volume.rename(root, b"file", root, b"other", Rename::Replace).unwrap();
            volume.unmount().unwrap();
        }
    }
}
