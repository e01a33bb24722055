//! Copies files between two sides with the semantics of GNU cp.
//!
//! # Invariants
//! - Trees are walked without recursion: they may be deeper than the stack allows.
//! - No file created by this run is overwritten by it, and no directory is entered while it is being copied.

mod contents;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use format::attr::acl;
use format::inode::FileType;
use transfer::Excludes;
use xebec::NewFileType;

use self::contents::{Unreadable, read};
use super::last_name;
use super::side::{At, Id, Side, Stat, Target};
use crate::failure;
use crate::names::quoted;

/// Size of a copy, in bytes.
const AT_ONCE: usize = 1 << 20;

/// Symbolic links to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// None: links are copied.
    Never,
    /// Links on the command line.
    Arguments,
    /// All links.
    Always,
}

/// Attributes to preserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Permissions and ACLs.
    pub mode: bool,
    /// Owner and group.
    pub ownership: bool,
    /// Access and modification times.
    pub timestamps: bool,
    /// Hard links.
    pub links: bool,
    /// Extended attributes.
    pub attributes: bool,
    /// Fail if an extended attribute cannot be preserved.
    pub attributes_or_fail: bool,
}

/// Options in effect.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub recursive: bool,
    pub follow: Follow,
    pub keep: Keep,
    /// Create files with the default mode instead of the source's.
    pub usual_mode: bool,
    /// Do not overwrite existing files.
    pub no_clobber: bool,
    /// Overwrite existing files only if the source is newer.
    pub update: bool,
    /// Skip unreadable files.
    pub ignore_unreadable: bool,
    /// Remove existing files that cannot be opened.
    pub force: bool,
    /// Remove existing files first.
    pub remove_destination: bool,
}

/// Events of a copy.
pub enum Report {
    /// A file was not copied.
    Failed(anyhow::Error),
    /// An unreadable file was skipped.
    LeftOut(anyhow::Error),
    /// A warning.
    Warned(String),
    /// A file is being copied.
    Copies { from: Vec<u8>, to: Vec<u8> },
}

/// Copies files from one side to another.
pub struct Copier<'c, S: Side, T: Target> {
    from: &'c S,
    to: &'c T,
    rules: Rules,
    report: &'c mut dyn FnMut(Report),
    /// Copies of files with several links, and of directories on the command line.
    copied: HashMap<Id, At<T::Dir>>,
    /// Files created by this run, except directories.
    made: HashSet<Id>,
    /// First directory created for the operand, with the names of its source and its own.
    own: Option<(Id, Vec<u8>, Vec<u8>)>,
    /// Source directories being copied.
    within: HashSet<Id>,
    /// Several operands: their names may collide.
    several: bool,
    buffer: Vec<u8>,
    /// Attributes that could not be preserved.
    lost: u64,
    /// Exclude patterns, relative to the operand.
    excludes: Arc<Excludes>,
    /// Length of the operand's path.
    operand: usize,
}

/// A directory that is being copied.
struct Level<S: Side, T: Side> {
    source: (Rc<S::Dir>, At<S::Dir>),
    target: (Rc<T::Dir>, At<T::Dir>),
    stat: Stat,
    follow: bool,
    /// Remaining names.
    left: Vec<Vec<u8>>,
    /// Final mode, if the directory had to be made writable.
    narrow: Option<u16>,
}

impl<'c, S: Side, T: Target> Copier<'c, S, T> {
    /// Creates a copier; `several`: [`copy`](Self::copy) is called more than once.
    pub fn new(
        from: &'c S,
        to: &'c T,
        rules: Rules,
        excludes: Arc<Excludes>,
        several: bool,
        report: &'c mut dyn FnMut(Report),
    ) -> Self {
        Self {
            from,
            to,
            rules,
            report,
            copied: HashMap::new(),
            made: HashSet::new(),
            own: None,
            within: HashSet::new(),
            several,
            buffer: vec![0; AT_ONCE],
            lost: 0,
            excludes,
            operand: 0,
        }
    }

    /// Copies an operand recursively.
    pub fn copy(&mut self, source: At<S::Dir>, target: At<T::Dir>) {
        self.own = None;
        self.operand = source.shown.len();
        let mut levels: Vec<Level<S, T>> = Vec::new();
        let mut next = Some((source, target, true));
        loop {
            if let Some((source, target, is_operand)) = next.take() {
                match self.one(&source, &target, is_operand) {
                    Ok(level) => levels.extend(level),
                    Err(error) => self.fail(error, &source.shown),
                }
            }
            let Some(level) = levels.last_mut() else { return };
            match level.left.pop() {
                Some(name) => {
                    let (from, to) = (&level.source, &level.target);
                    let source = At::below(&from.0, &from.1.shown, &name);
                    next = Some((source, At::below(&to.0, &to.1.shown, &name), false));
                }
                None => {
                    let Some(level) = levels.pop() else { return };
                    self.within.remove(&level.stat.id);
                    if let Err(error) = self.leave(&level) {
                        self.fail(error, &level.target.1.shown);
                    }
                }
            }
        }
    }

    /// Reports the summary.
    pub fn finish(self) {
        if self.lost > 0 {
            let text = format!("{} extended attributes or ACLs could not be preserved", self.lost);
            (self.report)(Report::Warned(text));
        }
    }

    fn fail(&mut self, error: anyhow::Error, path: &[u8]) {
        let is_left_out = self.rules.ignore_unreadable && error.is::<Unreadable>();
        let error = error.context(failure::At(path.to_vec()));
        (self.report)(if is_left_out { Report::LeftOut(error) } else { Report::Failed(error) });
    }

    /// Whether a special file is read and copied to a regular file.
    fn becomes_regular(&self, kind: FileType) -> bool {
        kind == FileType::Regular
            || !self.rules.recursive && !matches!(kind, FileType::Directory | FileType::Symlink)
    }

    /// Copies one file; a directory is pushed for the walk.
    fn one(
        &mut self,
        source: &At<S::Dir>,
        target: &At<T::Dir>,
        is_operand: bool,
    ) -> Result<Option<Level<S, T>>> {
        let follow = match self.rules.follow {
            Follow::Never => false,
            Follow::Arguments => is_operand,
            Follow::Always => true,
        };
        let found = self.find(source, follow, is_operand)?;
        let Some(stat) = found else { return Ok(None) };
        let is_directory = stat.kind == FileType::Directory;
        if is_directory && !self.rules.recursive {
            bail!("is a directory (-r not specified)");
        }
        let follow_target = self.becomes_regular(stat.kind) && !self.rules.remove_destination;
        let there = self.to.stat(target, follow_target);
        let mut there = there.with_context(|| quoted(&target.shown))?;
        if let Some(known) = &there {
            if self.stays(&stat, target, known)? {
                return Ok(None);
            }
            if self.is_in_the_way(&stat, known) {
                self.to.unlink(target)?;
                there = None;
            }
        }
        if self.is_earlier(&stat, source, target, is_operand, there.is_some())? {
            return Ok(None);
        }
        if is_directory {
            return self.directory(source, target, stat, follow, there.is_none()).map(Some);
        }
        (self.report)(Report::Copies { from: source.shown.clone(), to: target.shown.clone() });
        let is_new = there.is_none();
        let made = match self.becomes_regular(stat.kind) {
            true => self.regular(source, target, follow, &stat, there),
            false => self.special(source, target, &stat),
        };
        let node = made.inspect_err(|_| drop(self.copied.remove(&stat.id)))?;
        if is_new
            && self.several
            && let Some(made) = self.to.stat(target, false)?
        {
            self.made.insert(made.id);
        }
        let given = self.give(&node, source, follow, &stat, None);
        self.unmake(given, target, is_new)?;
        Ok(None)
    }

    /// Metadata of a source; `None` if it is skipped.
    fn find(&self, source: &At<S::Dir>, follow: bool, is_operand: bool) -> Result<Option<Stat>> {
        let stat = || match read(self.from.stat(source, follow))? {
            Some(stat) => Ok(stat),
            None => bail!("no such file or directory"),
        };
        if is_operand {
            // Patterns are relative to a directory operand. A file operand is matched by its name.
            let found = stat()?;
            let name = last_name(&source.shown).unwrap_or_default();
            let is_left_out = found.kind != FileType::Directory && self.excludes.matches(name, false);
            return Ok((!is_left_out).then_some(found));
        }
        let path = source.shown.get(self.operand..).unwrap_or_default();
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let is_directory = || Ok::<_, anyhow::Error>(stat()?.kind == FileType::Directory);
        match self.excludes.matches_with(path, is_directory)? {
            true => Ok(None),
            false => stat().map(Some),
        }
    }

    /// Whether to keep the existing target. Fails if it cannot be replaced.
    fn stays(&self, stat: &Stat, target: &At<T::Dir>, there: &Stat) -> Result<bool> {
        let (from_directory, to_directory) =
            (stat.kind == FileType::Directory, there.kind == FileType::Directory);
        if there.id == stat.id && !from_directory {
            bail!("is the same file as {}", quoted(&target.shown));
        }
        if !from_directory && self.rules.update && stat.modified <= there.modified {
            return Ok(true);
        }
        if !from_directory && self.rules.no_clobber {
            return Ok(true);
        }
        match (from_directory, to_directory) {
            (true, false) => {
                bail!("cannot overwrite non-directory {} with a directory", quoted(&target.shown))
            }
            (false, true) => {
                bail!("cannot overwrite directory {} with a non-directory", quoted(&target.shown))
            }
            (false, false) if self.made.contains(&there.id) => {
                bail!("will not overwrite just-created {}", quoted(&target.shown))
            }
            _ => Ok(false),
        }
    }

    /// Whether to remove the target first: with preserved links, other names of the file must keep its contents, and
    /// only regular files are written to.
    fn is_in_the_way(&self, stat: &Stat, there: &Stat) -> bool {
        let Rules { remove_destination, keep, follow, .. } = self.rules;
        there.kind != FileType::Directory
            && (remove_destination
                || keep.links && there.links > 1
                || follow == Follow::Never && stat.kind != FileType::Regular)
    }

    /// Creates a hard link if the file was copied before.
    fn is_earlier(
        &mut self,
        stat: &Stat,
        source: &At<S::Dir>,
        target: &At<T::Dir>,
        is_operand: bool,
        exists: bool,
    ) -> Result<bool> {
        let followed = match self.rules.follow {
            Follow::Never => false,
            Follow::Arguments => is_operand,
            Follow::Always => true,
        };
        if stat.kind == FileType::Directory {
            if let Some((own, from, to)) = &self.own
                && *own == stat.id
            {
                bail!("cannot copy a directory, {}, into itself, {}", quoted(from), quoted(to));
            }
            let Some(earlier) = self.copied.get(&stat.id) else {
                if is_operand {
                    self.copied.insert(stat.id, target.clone());
                }
                return Ok(false);
            };
            if earlier.shown == target.shown {
                let text = format!("{}: source directory specified more than once", quoted(&source.shown));
                (self.report)(Report::Warned(text));
                return Ok(true);
            }
            if followed {
                return Ok(false);
            }
            bail!("was copied to {} already; directories cannot have hard links", quoted(&earlier.shown));
        }
        if !self.rules.keep.links || (stat.links < 2 && !followed) {
            return Ok(false);
        }
        let Some(earlier) = self.copied.get(&stat.id).cloned() else {
            self.copied.insert(stat.id, target.clone());
            return Ok(false);
        };
        (self.report)(Report::Copies { from: source.shown.clone(), to: target.shown.clone() });
        if exists {
            self.to.unlink(target)?;
        }
        self.to.link(&earlier, target)?;
        Ok(true)
    }

    fn directory(
        &mut self,
        source: &At<S::Dir>,
        target: &At<T::Dir>,
        stat: Stat,
        follow: bool,
        is_new: bool,
    ) -> Result<Level<S, T>> {
        let id = stat.id;
        if !self.within.insert(id) {
            bail!("directory loop, by a symbolic link or by damage");
        }
        let entered = self.enter(source, target, stat, follow, is_new);
        if entered.is_err() {
            self.within.remove(&id);
        }
        entered
    }

    fn enter(
        &mut self,
        source: &At<S::Dir>,
        target: &At<T::Dir>,
        stat: Stat,
        follow: bool,
        is_new: bool,
    ) -> Result<Level<S, T>> {
        let side = self.from;
        let enter = || read(side.enter(source, follow).and_then(|from| Ok((side.list(&from)?, from))));
        if self.rules.ignore_unreadable {
            // Read before the target is created: an unreadable directory is skipped.
            enter()?;
        }
        let narrow = if is_new { self.make_directory(source, target, &stat)? } else { None };
        let (mut left, from) = enter()?;
        let from = Rc::new(from);
        left.reverse();
        let to = Rc::new(self.to.enter(target, false)?);
        let (source, target) = ((from, source.clone()), (to, target.clone()));
        Ok(Level { source, target, stat, follow, left, narrow })
    }

    /// Creates a directory that its owner can write to, and returns the final mode if that differs.
    fn make_directory(
        &mut self,
        source: &At<S::Dir>,
        target: &At<T::Dir>,
        stat: &Stat,
    ) -> Result<Option<u16>> {
        const OWNERS: u16 = 0o700;
        // A default ACL may grant write access to others: the umask is applied in any case.
        let others = 0o022 & self.to.umask();
        let mode = self.mode_of_new(stat, 0o777) | stat.permissions & 0o1000;
        (self.report)(Report::Copies { from: source.shown.clone(), to: target.shown.clone() });
        let node = self.make(target, NewFileType::Directory, mode & !others)?;
        let made = self.to.stat(target, false)?.ok_or_else(|| anyhow!("was removed during the copy"))?;
        if self.own.is_none() {
            self.own = Some((made.id, source.shown.clone(), target.shown.clone()));
        }
        if made.permissions & OWNERS == OWNERS {
            return Ok(None);
        }
        self.to.set_mode(&node, made.permissions | OWNERS)?;
        Ok(Some(made.permissions))
    }

    /// Completes a directory after its entries.
    fn leave(&mut self, level: &Level<S, T>) -> Result<()> {
        let node = self.to.node(&level.target.1)?;
        self.give(&node, &level.source.1, level.follow, &level.stat, level.narrow)
    }

    /// Copies a regular file to a new or an existing one.
    fn regular(
        &mut self,
        source: &At<S::Dir>,
        target: &At<T::Dir>,
        follow: bool,
        stat: &Stat,
        there: Option<Stat>,
    ) -> Result<T::Node<'c>> {
        let mut contents = read(self.from.open(source, follow, stat))?;
        if self.rules.ignore_unreadable && there.is_some() && stat.kind == FileType::Regular {
            // The target is not truncated for an unreadable source.
            self.expect_readable(&mut *read(self.from.open(source, follow, stat))?)?;
        }
        let is_new = there.is_none();
        let (to, mode) = (self.to, self.mode_of_new(stat, 0o666));
        let node = match there {
            None => self.make(target, NewFileType::Regular, mode)?,
            Some(there) if there.kind != FileType::Regular && !self.rules.force => {
                bail!("not writing to {}, which is not a regular file", quoted(&target.shown));
            }
            Some(_) => match to.overwrite(target) {
                Err(_) if self.rules.force => {
                    to.unlink(target)?;
                    self.make(target, NewFileType::Regular, mode)?
                }
                opened => opened.with_context(|| quoted(&target.shown))?,
            },
        };
        if !to.share(&node, &*contents) {
            let copied = self.contents(&mut *contents, &node);
            self.unmake(copied, target, is_new)?;
        }
        to.written(&node)?;
        Ok(node)
    }

    fn make(&self, target: &At<T::Dir>, kind: NewFileType<'_>, mode: u16) -> Result<T::Node<'c>> {
        self.to.make(target, kind, mode).with_context(|| quoted(&target.shown))
    }

    /// Mode of a new file before the umask; `usual` is the default of its type.
    fn mode_of_new(&self, stat: &Stat, usual: u16) -> u16 {
        match (self.rules.keep.mode, self.rules.usual_mode) {
            // Inaccessible for others until its owner is set; the mode is set last.
            (true, _) => stat.permissions & 0o700,
            (false, true) => usual,
            (false, false) => stat.permissions & 0o777,
        }
    }

    /// A symbolic link, a device, a pipe or a socket.
    fn special(&mut self, source: &At<S::Dir>, target: &At<T::Dir>, stat: &Stat) -> Result<T::Node<'c>> {
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
            FileType::Regular | FileType::Directory => bail!("changed its type during the copy"),
        };
        let mode = if stat.kind == FileType::Symlink { 0o777 } else { self.mode_of_new(stat, 0o666) };
        self.make(target, kind, mode)
    }

    /// Preserves attributes. The order matters: changing the owner clears set-user-ID bits and capabilities, and every
    /// change may update times.
    fn give(
        &mut self,
        node: &T::Node<'_>,
        source: &At<S::Dir>,
        follow: bool,
        stat: &Stat,
        narrow: Option<u16>,
    ) -> Result<()> {
        let (keep, to) = (self.rules.keep, self.to);
        let mut mode = stat.permissions;
        if keep.ownership && !to.set_owner(node, stat.uid, stat.gid)? {
            // Set-ID bits for another owner would grant unintended privileges.
            mode &= 0o777;
        }
        let attributes = match keep.attributes || keep.mode {
            true => read(self.from.attributes(source, follow))?,
            false => Vec::new(),
        };
        let (lists, attributes): (Vec<_>, Vec<_>) =
            attributes.into_iter().partition(|(name, _)| is_list(name));
        for (name, value) in attributes.iter().filter(|_| keep.attributes) {
            match to.set_attribute(node, name, value) {
                Err(error) if keep.attributes_or_fail => return Err(error),
                set => self.lost += u64::from(set.is_err()),
            }
        }
        if stat.kind != FileType::Symlink {
            if keep.mode {
                self.give_lists(node, stat.kind, &lists)?;
                to.set_mode(node, mode)?;
            } else if let Some(narrow) = narrow {
                to.set_mode(node, narrow)?;
            }
        }
        match keep.timestamps {
            true => to.set_times(node, stat.accessed, stat.modified),
            false => Ok(()),
        }
    }

    /// ACLs are part of the mode: those of the source, or none.
    fn give_lists(&mut self, node: &T::Node<'_>, kind: FileType, lists: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let names = match kind {
            FileType::Directory => &[acl::LINUX_ACCESS, acl::LINUX_DEFAULT][..],
            _ => &[acl::LINUX_ACCESS],
        };
        for name in names {
            match lists.iter().find(|(list, _)| list == name.as_bytes()) {
                Some((_, value)) => {
                    let set = self.to.set_attribute(node, name.as_bytes(), value);
                    self.lost += u64::from(set.is_err());
                }
                None => self.to.remove_attribute(node, name.as_bytes())?,
            }
        }
        Ok(())
    }
}

/// Whether an attribute is an ACL. XFS also shows them to root under other names.
fn is_list(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_") || name.starts_with(b"trusted.SGI_ACL_")
}
