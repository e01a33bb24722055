//! Copies files from a source to a target with the semantics of GNU cp.
//!
//! | part | does |
//! |---|---|
//! | this file | walks the source, and decides what becomes of each file |
//! | `create` | creates files of each type |
//! | `contents` | copies contents, and handles sources that cannot be read completely |
//! | `metadata` | preserves metadata |
//!
//! # Invariants
//! - Trees are walked without recursion: they may be deeper than the stack allows.
//! - No file created by this run is overwritten by it, and no directory is entered while it is being copied.
//! - An existing target is removed or truncated after the source was opened and, if unreadable files are skipped, read.

mod contents;
mod create;
mod metadata;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use format::inode::FileType;

use super::ends::{Id, Location, SourceEnd, Stat, TargetEnd};
use super::error::{Failure, read};
use super::{CopyEvent, CopyReason, CopyReport, CopyRules, CopySide, Follow, TreeCopy, last_name};
use crate::{Counts, Error, Excludes};
use contents::BUFFER_BYTES;

type Result<T> = std::result::Result<T, Failure>;

/// Copies files from a source to a target.
pub struct Copier<'c, S: SourceEnd, T: TargetEnd> {
    from: &'c S,
    to: &'c T,
    options: &'c TreeCopy<'c>,
    events: &'c mut dyn FnMut(CopyEvent),
    /// Copies of files with several links, and of directories that are sources.
    copied: HashMap<Id, Location<T::Dir>>,
    /// Files created by this run, except directories.
    created: HashSet<Id>,
    /// First directory created for the source, with the paths of source and target.
    first_created: Option<(Id, Vec<u8>, Vec<u8>)>,
    /// Source directories being copied.
    ancestors: HashSet<Id>,
    /// Several sources: their names may collide.
    several_sources: bool,
    buffer: Vec<u8>,
    report: CopyReport,
    /// Length of the path of the source, to which exclude patterns are relative.
    source_length: usize,
}

/// A file that is being copied, and its target.
struct Pair<'f, S: SourceEnd, T: SourceEnd> {
    source: &'f Location<S::Dir>,
    target: &'f Location<T::Dir>,
    /// The source.
    stat: &'f Stat,
    /// Whether a symlink at the source is followed.
    follow: bool,
}

/// A directory that is being copied.
struct Level<S: SourceEnd, T: SourceEnd> {
    source: (Rc<S::Dir>, Location<S::Dir>),
    target: (Rc<T::Dir>, Location<T::Dir>),
    stat: Stat,
    follow: bool,
    /// Remaining names.
    remaining: Vec<Vec<u8>>,
    /// Final mode, if the directory had to be made writable.
    final_mode: Option<u16>,
}

impl<'c, S: SourceEnd, T: TargetEnd> Copier<'c, S, T> {
    /// Creates a copier; `several_sources`: [`copy`](Self::copy) is called more than once.
    pub fn new(
        from: &'c S,
        to: &'c T,
        options: &'c TreeCopy<'c>,
        several_sources: bool,
        events: &'c mut dyn FnMut(CopyEvent),
    ) -> Self {
        Self {
            from,
            to,
            options,
            events,
            copied: HashMap::new(),
            created: HashSet::new(),
            first_created: None,
            ancestors: HashSet::new(),
            several_sources,
            buffer: vec![0; BUFFER_BYTES],
            report: CopyReport::default(),
            source_length: 0,
        }
    }

    fn rules(&self) -> &'c CopyRules {
        &self.options.rules
    }

    fn excludes(&self) -> &'c Excludes {
        &self.options.excludes
    }

    /// Copies a source recursively.
    ///
    /// # Errors
    /// [`Error::Cancelled`]. Other errors are events.
    pub fn copy(&mut self, source: Location<S::Dir>, target: Location<T::Dir>) -> crate::Result<()> {
        self.first_created = None;
        self.source_length = source.shown.len();
        let mut levels: Vec<Level<S, T>> = Vec::new();
        let mut next = Some((source, target, true));
        loop {
            self.options.cancel.check()?;
            if let Some((source, target, is_source)) = next.take() {
                match self.copy_one(&source, &target, is_source) {
                    Ok(level) => levels.extend(level),
                    Err(failure) => self.fail(failure, CopySide::Source, &source.shown)?,
                }
            }
            let Some(level) = levels.last_mut() else { return Ok(()) };
            match level.remaining.pop() {
                Some(name) => {
                    let (from, to) = (&level.source, &level.target);
                    let source = Location::below(&from.0, &from.1.shown, &name);
                    next = Some((source, Location::below(&to.0, &to.1.shown, &name), false));
                }
                None => {
                    let Some(level) = levels.pop() else { return Ok(()) };
                    self.ancestors.remove(&level.stat.id);
                    if let Err(failure) = self.leave(&level) {
                        self.fail(failure, CopySide::Target, &level.target.1.shown)?;
                    }
                }
            }
        }
    }

    /// What was copied.
    pub fn finish(self) -> CopyReport {
        self.report
    }

    fn fail(&mut self, failure: Failure, side: CopySide, path: &[u8]) -> crate::Result<()> {
        let error = failure.into_error(side, path).ok_or(Error::Cancelled)?;
        if self.rules().ignore_unreadable && error.is_unreadable() {
            self.report.unreadable += 1;
            (self.events)(CopyEvent::Skipped(error));
        } else {
            self.report.failed += 1;
            (self.events)(CopyEvent::Failed(error));
        }
        Ok(())
    }

    /// Announces that a file is being copied.
    fn announce(&mut self, pair: &Pair<'_, S, T>) {
        (self.events)(CopyEvent::Copying { from: pair.source.shown.clone(), to: pair.target.shown.clone() });
    }

    /// Counts a file, and some bytes of data.
    fn count(&mut self, files: u64, bytes: u64) {
        let CopyReport { files: all_files, bytes: all_bytes, .. } = &mut self.report;
        (*all_files, *all_bytes) = (*all_files + files, *all_bytes + bytes);
        self.options.progress.advance(Counts { files: *all_files, bytes: *all_bytes });
    }

    /// Whether a special file is read and copied to a regular file.
    fn becomes_regular(&self, kind: FileType) -> bool {
        kind == FileType::Regular
            || !self.rules().recursive && !matches!(kind, FileType::Directory | FileType::Symlink)
    }

    /// Copies one file; a directory is pushed for the walk.
    fn copy_one(
        &mut self,
        source: &Location<S::Dir>,
        target: &Location<T::Dir>,
        is_source: bool,
    ) -> Result<Option<Level<S, T>>> {
        let follow = self.rules().follow.applies(is_source);
        let found = self.find(source, follow, is_source)?;
        let Some(stat) = found else { return Ok(None) };
        let is_directory = stat.kind == FileType::Directory;
        if is_directory && !self.rules().recursive {
            return Err(CopyReason::IsDirectory.into());
        }
        let follow_target = self.becomes_regular(stat.kind) && !self.rules().remove_destination;
        let existing = self.to.stat(target, follow_target);
        let existing = existing.map_err(Failure::at(target))?;
        if let Some(found) = &existing
            && self.keeps_existing(&stat, target, found)?
        {
            return Ok(None);
        }
        let pair = Pair { source, target, stat: &stat, follow };
        if self.link_to_earlier(&pair, is_source, existing.is_some())? {
            return Ok(None);
        }
        if is_directory {
            return self.directory(&pair, existing.is_none()).map(Some);
        }
        self.announce(&pair);
        let is_new = existing.as_ref().is_none_or(|existing| self.must_remove(&stat, existing));
        let created = match self.becomes_regular(stat.kind) {
            true => self.regular_file(&pair, existing),
            false => self.special_file(&pair, existing),
        };
        let node = created.inspect_err(|_| drop(self.copied.remove(&stat.id)))?;
        if is_new
            && self.several_sources
            && let Some(created) = self.to.stat(target, false)?
        {
            self.created.insert(created.id);
        }
        let preserved = self.preserve(&node, &pair, None);
        self.remove_incomplete(preserved, &pair, is_new)?;
        self.count(1, 0);
        Ok(None)
    }

    /// Metadata of a source; `None` if it is skipped.
    fn find(&self, source: &Location<S::Dir>, follow: bool, is_source: bool) -> Result<Option<Stat>> {
        let stat = || read(self.from.stat(source, follow))?.ok_or_else(|| CopyReason::NotFound.into());
        if is_source {
            // Patterns are relative to a source that is a directory. Another file is matched by its name.
            let found: Stat = stat()?;
            let name = last_name(&source.shown).unwrap_or_default();
            let is_skipped = found.kind != FileType::Directory && self.excludes().matches(name, false);
            return Ok((!is_skipped).then_some(found));
        }
        let path = source.shown.get(self.source_length..).unwrap_or_default();
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let is_directory = || Ok::<_, Failure>(stat()?.kind == FileType::Directory);
        match self.excludes().matches_with(path, is_directory)? {
            true => Ok(None),
            false => stat().map(Some),
        }
    }

    /// Whether to keep the existing target. Fails if it cannot be replaced.
    fn keeps_existing(&self, stat: &Stat, target: &Location<T::Dir>, existing: &Stat) -> Result<bool> {
        let (from_directory, to_directory) =
            (stat.kind == FileType::Directory, existing.kind == FileType::Directory);
        let target = || target.shown.clone();
        if existing.id == stat.id && !from_directory {
            return Err(CopyReason::SameFile { target: target() }.into());
        }
        if !from_directory && self.rules().update && stat.modified <= existing.modified {
            return Ok(true);
        }
        if !from_directory && self.rules().no_clobber {
            return Ok(true);
        }
        match (from_directory, to_directory) {
            (true, false) => Err(CopyReason::OverwritesFile { target: target() }.into()),
            (false, true) => Err(CopyReason::OverwritesDirectory { target: target() }.into()),
            (false, false) if self.created.contains(&existing.id) => {
                Err(CopyReason::JustCreated { target: target() }.into())
            }
            _ => Ok(false),
        }
    }

    /// Whether to remove the target before it is created again: with preserved links, other names of the file must keep
    /// its contents, and only regular files are written to.
    fn must_remove(&self, stat: &Stat, existing: &Stat) -> bool {
        let CopyRules { remove_destination, preserve, follow, .. } = *self.rules();
        existing.kind != FileType::Directory
            && (remove_destination
                || preserve.links && existing.links > 1
                || follow == Follow::Never && stat.kind != FileType::Regular)
    }

    /// Creates a hard link if the file was copied before.
    fn link_to_earlier(&mut self, pair: &Pair<'_, S, T>, is_source: bool, exists: bool) -> Result<bool> {
        let Pair { source, target, stat, follow } = *pair;
        if stat.kind == FileType::Directory {
            if let Some((first_created, from, to)) = &self.first_created
                && *first_created == stat.id
            {
                return Err(CopyReason::IntoItself { source: from.clone(), target: to.clone() }.into());
            }
            let Some(earlier) = self.copied.get(&stat.id) else {
                if is_source {
                    self.copied.insert(stat.id, target.clone());
                }
                return Ok(false);
            };
            if earlier.shown == target.shown {
                (self.events)(CopyEvent::Repeated { path: source.shown.clone() });
                return Ok(true);
            }
            if follow {
                return Ok(false);
            }
            return Err(CopyReason::CopiedAlready { target: earlier.shown.clone() }.into());
        }
        if !self.rules().preserve.links || (stat.links < 2 && !follow) {
            return Ok(false);
        }
        let Some(earlier) = self.copied.get(&stat.id).cloned() else {
            self.copied.insert(stat.id, target.clone());
            return Ok(false);
        };
        self.announce(pair);
        if exists {
            self.to.unlink(target)?;
        }
        self.to.link(&earlier, target)?;
        self.count(1, 0);
        Ok(true)
    }
}
