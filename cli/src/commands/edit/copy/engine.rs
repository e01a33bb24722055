//! Copies files from a source to a target with the semantics of GNU cp.
//!
//! # Invariants
//! - Trees are walked without recursion: they may be deeper than the stack allows.
//! - No file created by this run is overwritten by it, and no directory is entered while it is being copied.

mod contents;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use anyhow::{Context as _, Result, anyhow, bail};
use format::attr::acl;
use format::inode::FileType;
use xebec::{Excludes, NewFileType};

use self::contents::{Unreadable, read};
use super::last_name;
use super::traits::{CopySource, CopyTarget, Id, Location, Stat};
use crate::failure;
use crate::names::quoted;

/// Buffer size in bytes.
const BUFFER_BYTES: usize = 1 << 20;

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

impl Follow {
    /// Whether to follow a link.
    fn applies(self, is_operand: bool) -> bool {
        self == Self::Always || self == Self::Arguments && is_operand
    }
}

/// Attributes to preserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
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
    pub require_attributes: bool,
}

/// Options in effect.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub recursive: bool,
    pub follow: Follow,
    pub preserve: Preserve,
    /// Create files with the default mode instead of the source's.
    pub default_mode: bool,
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
pub enum CopyEvent {
    /// A file was not copied.
    Failed(anyhow::Error),
    /// An unreadable file was skipped.
    Skipped(anyhow::Error),
    /// A warning.
    Warning(String),
    /// A file is being copied.
    Copying { from: Vec<u8>, to: Vec<u8> },
}

/// Copies files from a source to a target.
pub struct Copier<'c, S: CopySource, T: CopyTarget> {
    from: &'c S,
    to: &'c T,
    rules: Rules,
    report: &'c mut dyn FnMut(CopyEvent),
    /// Copies of files with several links, and of directories on the command line.
    copied: HashMap<Id, Location<T::Dir>>,
    /// Files created by this run, except directories.
    created: HashSet<Id>,
    /// First directory created for the operand, with the paths of source and target.
    first_created: Option<(Id, Vec<u8>, Vec<u8>)>,
    /// Source directories being copied.
    ancestors: HashSet<Id>,
    /// Several operands: their names may collide.
    several_operands: bool,
    buffer: Vec<u8>,
    /// Attributes that could not be preserved.
    lost: u64,
    /// Exclude patterns, relative to the operand.
    excludes: Excludes,
    /// Length of the operand's path.
    operand_length: usize,
}

/// A directory that is being copied.
struct Level<S: CopySource, T: CopySource> {
    source: (Rc<S::Dir>, Location<S::Dir>),
    target: (Rc<T::Dir>, Location<T::Dir>),
    stat: Stat,
    follow: bool,
    /// Remaining names.
    remaining: Vec<Vec<u8>>,
    /// Final mode, if the directory had to be made writable.
    final_mode: Option<u16>,
}

impl<'c, S: CopySource, T: CopyTarget> Copier<'c, S, T> {
    /// Creates a copier; `several_operands`: [`copy`](Self::copy) is called more than once.
    pub fn new(
        from: &'c S,
        to: &'c T,
        rules: Rules,
        excludes: Excludes,
        several_operands: bool,
        report: &'c mut dyn FnMut(CopyEvent),
    ) -> Self {
        Self {
            from,
            to,
            rules,
            report,
            copied: HashMap::new(),
            created: HashSet::new(),
            first_created: None,
            ancestors: HashSet::new(),
            several_operands,
            buffer: vec![0; BUFFER_BYTES],
            lost: 0,
            excludes,
            operand_length: 0,
        }
    }

    /// Copies an operand recursively.
    pub fn copy(&mut self, source: Location<S::Dir>, target: Location<T::Dir>) {
        self.first_created = None;
        self.operand_length = source.shown.len();
        let mut levels: Vec<Level<S, T>> = Vec::new();
        let mut next = Some((source, target, true));
        loop {
            if let Some((source, target, is_operand)) = next.take() {
                match self.copy_one(&source, &target, is_operand) {
                    Ok(level) => levels.extend(level),
                    Err(error) => self.fail(error, &source.shown),
                }
            }
            let Some(level) = levels.last_mut() else { return };
            match level.remaining.pop() {
                Some(name) => {
                    let (from, to) = (&level.source, &level.target);
                    let source = Location::below(&from.0, &from.1.shown, &name);
                    next = Some((source, Location::below(&to.0, &to.1.shown, &name), false));
                }
                None => {
                    let Some(level) = levels.pop() else { return };
                    self.ancestors.remove(&level.stat.id);
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
            (self.report)(CopyEvent::Warning(text));
        }
    }

    fn fail(&mut self, error: anyhow::Error, path: &[u8]) {
        let is_skipped = self.rules.ignore_unreadable && error.is::<Unreadable>();
        let error = error.context(failure::AtPath(path.to_vec()));
        (self.report)(if is_skipped { CopyEvent::Skipped(error) } else { CopyEvent::Failed(error) });
    }

    /// Whether a special file is read and copied to a regular file.
    fn becomes_regular(&self, kind: FileType) -> bool {
        kind == FileType::Regular
            || !self.rules.recursive && !matches!(kind, FileType::Directory | FileType::Symlink)
    }

    /// Copies one file; a directory is pushed for the walk.
    fn copy_one(
        &mut self,
        source: &Location<S::Dir>,
        target: &Location<T::Dir>,
        is_operand: bool,
    ) -> Result<Option<Level<S, T>>> {
        let follow = self.rules.follow.applies(is_operand);
        let found = self.find(source, follow, is_operand)?;
        let Some(stat) = found else { return Ok(None) };
        let is_directory = stat.kind == FileType::Directory;
        if is_directory && !self.rules.recursive {
            bail!("is a directory (-r not specified)");
        }
        let follow_target = self.becomes_regular(stat.kind) && !self.rules.remove_destination;
        let existing = self.to.stat(target, follow_target);
        let mut existing = existing.with_context(|| quoted(&target.shown))?;
        if let Some(found) = &existing {
            if self.keeps_existing(&stat, target, found)? {
                return Ok(None);
            }
            if self.must_remove(&stat, found) {
                self.to.unlink(target)?;
                existing = None;
            }
        }
        if self.link_to_earlier(&stat, source, target, is_operand, existing.is_some())? {
            return Ok(None);
        }
        if is_directory {
            return self.directory(source, target, stat, follow, existing.is_none()).map(Some);
        }
        (self.report)(CopyEvent::Copying { from: source.shown.clone(), to: target.shown.clone() });
        let is_new = existing.is_none();
        let created = match self.becomes_regular(stat.kind) {
            true => self.regular_file(source, target, follow, &stat, existing),
            false => self.special_file(source, target, &stat),
        };
        let node = created.inspect_err(|_| drop(self.copied.remove(&stat.id)))?;
        if is_new
            && self.several_operands
            && let Some(created) = self.to.stat(target, false)?
        {
            self.created.insert(created.id);
        }
        let preserved = self.preserve(&node, source, follow, &stat, None);
        self.remove_incomplete(preserved, target, is_new)?;
        Ok(None)
    }

    /// Metadata of a source; `None` if it is skipped.
    fn find(&self, source: &Location<S::Dir>, follow: bool, is_operand: bool) -> Result<Option<Stat>> {
        let stat = || match read(self.from.stat(source, follow))? {
            Some(stat) => Ok(stat),
            None => bail!("no such file or directory"),
        };
        if is_operand {
            // Patterns are relative to a directory operand. A file operand is matched by its name.
            let found = stat()?;
            let name = last_name(&source.shown).unwrap_or_default();
            let is_skipped = found.kind != FileType::Directory && self.excludes.matches(name, false);
            return Ok((!is_skipped).then_some(found));
        }
        let path = source.shown.get(self.operand_length..).unwrap_or_default();
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let is_directory = || Ok::<_, anyhow::Error>(stat()?.kind == FileType::Directory);
        match self.excludes.matches_with(path, is_directory)? {
            true => Ok(None),
            false => stat().map(Some),
        }
    }

    /// Whether to keep the existing target. Fails if it cannot be replaced.
    fn keeps_existing(&self, stat: &Stat, target: &Location<T::Dir>, existing: &Stat) -> Result<bool> {
        let (from_directory, to_directory) =
            (stat.kind == FileType::Directory, existing.kind == FileType::Directory);
        if existing.id == stat.id && !from_directory {
            bail!("is the same file as {}", quoted(&target.shown));
        }
        if !from_directory && self.rules.update && stat.modified <= existing.modified {
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
            (false, false) if self.created.contains(&existing.id) => {
                bail!("will not overwrite just-created {}", quoted(&target.shown))
            }
            _ => Ok(false),
        }
    }

    /// Whether to remove the target first: with preserved links, other names of the file must keep its contents, and
    /// only regular files are written to.
    fn must_remove(&self, stat: &Stat, existing: &Stat) -> bool {
        let Rules { remove_destination, preserve, follow, .. } = self.rules;
        existing.kind != FileType::Directory
            && (remove_destination
                || preserve.links && existing.links > 1
                || follow == Follow::Never && stat.kind != FileType::Regular)
    }

    /// Creates a hard link if the file was copied before.
    fn link_to_earlier(
        &mut self,
        stat: &Stat,
        source: &Location<S::Dir>,
        target: &Location<T::Dir>,
        is_operand: bool,
        exists: bool,
    ) -> Result<bool> {
        let followed = self.rules.follow.applies(is_operand);
        if stat.kind == FileType::Directory {
            if let Some((first_created, from, to)) = &self.first_created
                && *first_created == stat.id
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
                (self.report)(CopyEvent::Warning(text));
                return Ok(true);
            }
            if followed {
                return Ok(false);
            }
            bail!("was copied to {} already; directories cannot have hard links", quoted(&earlier.shown));
        }
        if !self.rules.preserve.links || (stat.links < 2 && !followed) {
            return Ok(false);
        }
        let Some(earlier) = self.copied.get(&stat.id).cloned() else {
            self.copied.insert(stat.id, target.clone());
            return Ok(false);
        };
        (self.report)(CopyEvent::Copying { from: source.shown.clone(), to: target.shown.clone() });
        if exists {
            self.to.unlink(target)?;
        }
        self.to.link(&earlier, target)?;
        Ok(true)
    }

    /// Enters a source directory, and creates the target unless it exists.
    fn directory(
        &mut self,
        source: &Location<S::Dir>,
        target: &Location<T::Dir>,
        stat: Stat,
        follow: bool,
        is_new: bool,
    ) -> Result<Level<S, T>> {
        if self.ancestors.contains(&stat.id) {
            bail!("directory loop, by a symbolic link or by damage");
        }
        let from = self.from;
        let enter = || read(from.enter(source, follow).and_then(|dir| Ok((from.list(&dir)?, dir))));
        if self.rules.ignore_unreadable {
            // Read before the target is created: an unreadable directory is skipped.
            enter()?;
        }
        let final_mode = if is_new { self.create_directory(source, target, &stat)? } else { None };
        let (mut remaining, source_dir) = enter()?;
        remaining.reverse();
        let target_dir = self.to.enter(target, false)?;
        self.ancestors.insert(stat.id);
        let (source, target) = ((Rc::new(source_dir), source.clone()), (Rc::new(target_dir), target.clone()));
        Ok(Level { source, target, stat, follow, remaining, final_mode })
    }

    /// Creates a directory that its owner can write to, and returns the final mode if that differs.
    fn create_directory(
        &mut self,
        source: &Location<S::Dir>,
        target: &Location<T::Dir>,
        stat: &Stat,
    ) -> Result<Option<u16>> {
        const OWNERS: u16 = 0o700;
        // A default ACL may grant write access to others: the umask is applied in any case.
        let others = 0o022 & self.to.umask();
        let mode = self.mode_of_new(stat, 0o777) | stat.permissions & 0o1000;
        (self.report)(CopyEvent::Copying { from: source.shown.clone(), to: target.shown.clone() });
        let node = self.create(target, NewFileType::Directory, mode & !others)?;
        let created = self.to.stat(target, false)?.ok_or_else(|| anyhow!("was removed during the copy"))?;
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
    fn leave(&mut self, level: &Level<S, T>) -> Result<()> {
        let node = self.to.node(&level.target.1)?;
        self.preserve(&node, &level.source.1, level.follow, &level.stat, level.final_mode)
    }

    /// Copies a regular file to a new or an existing one.
    fn regular_file(
        &mut self,
        source: &Location<S::Dir>,
        target: &Location<T::Dir>,
        follow: bool,
        stat: &Stat,
        existing: Option<Stat>,
    ) -> Result<T::Node<'c>> {
        let mut contents = read(self.from.open(source, follow, stat))?;
        if self.rules.ignore_unreadable && existing.is_some() && stat.kind == FileType::Regular {
            // The target is not truncated for an unreadable source.
            self.expect_readable(&mut *read(self.from.open(source, follow, stat))?)?;
        }
        let is_new = existing.is_none();
        let (to, mode) = (self.to, self.mode_of_new(stat, 0o666));
        let node = match existing {
            None => self.create(target, NewFileType::Regular, mode)?,
            Some(existing) if existing.kind != FileType::Regular && !self.rules.force => {
                bail!("not writing to {}, which is not a regular file", quoted(&target.shown));
            }
            Some(_) => match to.overwrite(target) {
                Err(_) if self.rules.force => {
                    to.unlink(target)?;
                    self.create(target, NewFileType::Regular, mode)?
                }
                opened => opened.with_context(|| quoted(&target.shown))?,
            },
        };
        if !to.share(&node, &*contents) {
            let copied = self.contents(&mut *contents, &node);
            self.remove_incomplete(copied, target, is_new)?;
        }
        to.written(&node)?;
        Ok(node)
    }

    fn create(&self, target: &Location<T::Dir>, kind: NewFileType<'_>, mode: u16) -> Result<T::Node<'c>> {
        self.to.create(target, kind, mode).with_context(|| quoted(&target.shown))
    }

    /// Mode of a new file before the umask; `default` is the default of its type.
    fn mode_of_new(&self, stat: &Stat, default: u16) -> u16 {
        match (self.rules.preserve.mode, self.rules.default_mode) {
            // Inaccessible for others until its owner is set; the mode is set last.
            (true, _) => stat.permissions & 0o700,
            (false, true) => default,
            (false, false) => stat.permissions & 0o777,
        }
    }

    /// A symbolic link, a device, a pipe or a socket.
    fn special_file(
        &mut self,
        source: &Location<S::Dir>,
        target: &Location<T::Dir>,
        stat: &Stat,
    ) -> Result<T::Node<'c>> {
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
        self.create(target, kind, mode)
    }

    /// Preserves attributes. The order matters: changing the owner clears set-user-ID bits and capabilities, and every
    /// change may update times.
    fn preserve(
        &mut self,
        node: &T::Node<'_>,
        source: &Location<S::Dir>,
        follow: bool,
        stat: &Stat,
        final_mode: Option<u16>,
    ) -> Result<()> {
        let (preserve, to) = (self.rules.preserve, self.to);
        let mut mode = stat.permissions;
        if preserve.ownership && !to.set_owner(node, stat.uid, stat.gid)? {
            // Set-ID bits for another owner would grant unintended privileges.
            mode &= 0o777;
        }
        let attributes = match preserve.attributes || preserve.mode {
            true => read(self.from.attributes(source, follow))?,
            false => Vec::new(),
        };
        let (acls, attributes): (Vec<_>, Vec<_>) = attributes.into_iter().partition(|(name, _)| is_acl(name));
        for (name, value) in attributes.iter().filter(|_| preserve.attributes) {
            match to.set_attribute(node, name, value) {
                Err(error) if preserve.require_attributes => return Err(error),
                set => self.lost += u64::from(set.is_err()),
            }
        }
        if stat.kind != FileType::Symlink {
            if preserve.mode {
                self.preserve_acls(node, stat.kind, &acls)?;
                to.set_mode(node, mode)?;
            } else if let Some(final_mode) = final_mode {
                to.set_mode(node, final_mode)?;
            }
        }
        match preserve.timestamps {
            true => to.set_times(node, stat.accessed, stat.modified),
            false => Ok(()),
        }
    }

    /// ACLs are part of the mode: those of the source, or none.
    fn preserve_acls(
        &mut self,
        node: &T::Node<'_>,
        kind: FileType,
        acls: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        let names = match kind {
            FileType::Directory => &[acl::LINUX_ACCESS, acl::LINUX_DEFAULT][..],
            _ => &[acl::LINUX_ACCESS],
        };
        for name in names {
            match acls.iter().find(|(acl, _)| acl == name.as_bytes()) {
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
fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_") || name.starts_with(b"trusted.SGI_ACL_")
}
