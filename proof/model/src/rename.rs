//! Rename with all its flags.

use base::time::Time;

use crate::operation::{FileKind, Id, NewFile, RenameMode};
use crate::refusal::Refusal;
use crate::tree::{Node, Tree, is_dots};

/// A directory and a name in it.
type DirName<'a> = (Id, &'a [u8]);

/// The effect of a permitted rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Both names refer to the same file: nothing changes.
    Nothing,
    /// Moves the first file; the second one, if any, loses this name.
    Move(Id, Option<Id>),
    /// Exchanges both files.
    Exchange(Id, Id),
}

impl Tree {
    /// Checks in the order of Linux: names, flags, loops, types, emptiness.
    pub(crate) fn check_rename(
        &self,
        (from, name): DirName<'_>,
        (to, to_name): DirName<'_>,
        mode: RenameMode,
    ) -> Result<Plan, Refusal> {
        self.directory(from)?;
        self.directory(to)?;
        match (is_dots(name), is_dots(to_name)) {
            (true, _) => return Err(Refusal::Busy),
            (_, true) if mode == RenameMode::NoReplace => return Err(Refusal::Exists),
            (_, true) => return Err(Refusal::Busy),
            _ => (),
        }
        let source = self.child(from, name)?;
        let target = match self.child(to, to_name) {
            Ok(_) if mode == RenameMode::NoReplace => return Err(Refusal::Exists),
            Ok(target) => Some(target),
            Err(Refusal::NoEntry) if mode != RenameMode::Exchange => None,
            Err(refusal) => return Err(refusal),
        };
        if self.is_within(to, source) {
            return Err(Refusal::Invalid);
        }
        if target.is_some_and(|target| self.is_within(from, target)) {
            return Err(if mode == RenameMode::Exchange { Refusal::Invalid } else { Refusal::NotEmpty });
        }
        if self.directory(to)?.stat.links == 0 {
            return Err(Refusal::NoEntry);
        }
        let Some(target) = target else { return Ok(Plan::Move(source, None)) };
        if source == target {
            return Ok(Plan::Nothing);
        }
        if mode == RenameMode::Exchange {
            return Ok(Plan::Exchange(source, target));
        }
        match (self.existing(source)?.is_directory(), self.existing(target)?) {
            (true, target) if !target.is_directory() => Err(Refusal::NotDirectory),
            (false, target) if target.is_directory() => Err(Refusal::IsDirectory),
            // POSIX allows EEXIST and ENOTEMPTY; XFS returns EEXIST.
            (_, target) if !target.entries.is_empty() => Err(Refusal::Exists),
            _ => Ok(Plan::Move(source, Some(target))),
        }
    }

    /// Returns true if `dir` is `ancestor` or lies below it.
    fn is_within(&self, mut dir: Id, ancestor: Id) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match self.node(dir) {
                Some(node) if node.parent != dir && dir != crate::HOME => dir = node.parent,
                _ => return false,
            }
        }
    }

    pub(crate) fn rename(
        &mut self,
        from: DirName<'_>,
        to: DirName<'_>,
        mode: RenameMode,
        now: Time,
        number: u64,
    ) -> Result<(), Refusal> {
        match self.check_rename(from, to, mode)? {
            Plan::Nothing => (),
            Plan::Exchange(source, target) => self.exchange(from, to, source, target, now),
            Plan::Move(source, target) => {
                let whiteout = match mode {
                    RenameMode::Whiteout(id) => Some((id, self.whiteout(from.0, now, number)?)),
                    _ => None,
                };
                self.remove_entry(from.0, from.1, now);
                if target.is_some() {
                    self.remove_entry(to.0, to.1, now);
                }
                self.add_entry(to.0, to.1, source, now);
                self.change(source, |node| node.stamp(now, false));
                if let Some(target) = target {
                    self.drop_link(target, now);
                }
                if let Some((id, node)) = whiteout {
                    self.insert(id, node);
                    self.add_entry(from.0, from.1, id, now);
                }
            }
        }
        Ok(())
    }

    /// The device that a whiteout leaves behind: 0/0 without any permission.
    fn whiteout(&self, dir: Id, now: Time, number: u64) -> Result<Node, Refusal> {
        let new = NewFile { kind: FileKind::CharDevice(0, 0), mode: 0, uid: 0, gid: 0 };
        Ok(Node::create(&new, number, dir, self.keeps_times().then_some(now), &self.directory(dir)?.stat))
    }

    /// Both files are stamped, as by any other rename. (Linux stamps them in some cases only.)
    fn exchange(&mut self, from: DirName<'_>, to: DirName<'_>, source: Id, target: Id, now: Time) {
        self.remove_entry(from.0, from.1, now);
        self.remove_entry(to.0, to.1, now);
        self.add_entry(to.0, to.1, source, now);
        self.add_entry(from.0, from.1, target, now);
        for file in [source, target] {
            self.change(file, |node| node.stamp(now, false));
        }
    }
}
