//! Walks two trees at once.
//!
//! # Invariants
//! - Trees are walked without recursion: they may be deeper than the stack allows.
//! - No directory of a tree is entered twice: a damaged tree may contain a cycle.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use base::time::Time;
use format::inode::FileType;

use super::contents::{ContentsComparison, SideResult};
use super::{
    Difference, DifferenceEvent, DifferenceReport, DifferentFile, FileProperty, TreeDifference, TreeSide,
};
use crate::copy::ends::{Attributes, Id, Location, SourceEnd, Stat};
use crate::copy::{CopyEvent, CopyReason};
use crate::{Counts, Result};

/// A comparison that is running.
pub struct DifferenceWalk<'w, S: SourceEnd, T: SourceEnd> {
    options: &'w TreeDifference<'w>,
    old: &'w S,
    new: &'w T,
    events: &'w mut dyn FnMut(DifferenceEvent),
    /// Directories that were entered, of each tree.
    entered: [HashSet<Id>; 2],
    contents: ContentsComparison,
    /// Bytes that were compared.
    bytes: u64,
    report: DifferenceReport,
}

/// A directory that is being compared.
struct Level<S: SourceEnd, T: SourceEnd> {
    /// Path below the roots.
    path: Vec<u8>,
    old: Option<Rc<S::Dir>>,
    new: Option<Rc<T::Dir>>,
    /// Remaining names, the next one last, with whether each tree has them.
    names: Vec<(Vec<u8>, bool, bool)>,
}

/// A name to compare.
struct Pair<S: SourceEnd, T: SourceEnd> {
    path: Vec<u8>,
    old: Option<Location<S::Dir>>,
    new: Option<Location<T::Dir>>,
    /// Symlinks at the roots are followed.
    follow: bool,
}

impl<'w, S: SourceEnd, T: SourceEnd> DifferenceWalk<'w, S, T> {
    pub fn new(
        options: &'w TreeDifference<'w>,
        old: &'w S,
        new: &'w T,
        events: &'w mut dyn FnMut(DifferenceEvent),
    ) -> Self {
        let (contents, report) = (ContentsComparison::default(), DifferenceReport::default());
        Self { options, old, new, events, entered: Default::default(), contents, bytes: 0, report }
    }

    /// Compares the trees.
    pub fn run(mut self) -> Result<DifferenceReport> {
        let (old, new) = (Location::path(&self.options.old.path), Location::path(&self.options.new.path));
        let mut next = Some(Pair { path: Vec::new(), old: Some(old), new: Some(new), follow: true });
        let mut levels: Vec<Level<S, T>> = Vec::new();
        loop {
            self.options.cancel.check()?;
            if let Some(pair) = next.take() {
                levels.extend(self.compare(&pair));
                self.options.progress.advance(Counts { files: self.report.files, bytes: self.bytes });
            }
            let Some(level) = levels.last_mut() else { return Ok(self.report) };
            let Some((name, in_old, in_new)) = level.names.pop() else {
                levels.pop();
                continue;
            };
            let old = level.old.as_ref().filter(|_| in_old);
            let new = level.new.as_ref().filter(|_| in_new);
            next = Some(Pair {
                path: read::join(&level.path, &name),
                old: old.map(|dir| Location::below(dir, &level.path, &name)),
                new: new.map(|dir| Location::below(dir, &level.path, &name)),
                follow: false,
            });
        }
    }

    /// Compares a name, and enters directories.
    fn compare(&mut self, pair: &Pair<S, T>) -> Option<Level<S, T>> {
        self.report.files += 1;
        let old = self.stat(self.old, pair.old.as_ref(), pair.follow, TreeSide::Old, &pair.path)?;
        let new = self.stat(self.new, pair.new.as_ref(), pair.follow, TreeSide::New, &pair.path)?;
        match (&old, &new) {
            (Some(old), Some(new)) => self.compare_both(pair, old, new),
            (Some(old), None) => {
                self.report.removed += 1;
                self.report.bytes_removed += size(old);
                self.one_sided(pair, Some(old), None);
            }
            (None, Some(new)) => {
                self.report.added += 1;
                self.report.bytes_added += size(new);
                self.one_sided(pair, None, Some(new));
            }
            (None, None) => {}
        }
        let is_directory =
            |stat: &Option<Stat>| stat.as_ref().is_some_and(|stat| stat.kind == FileType::Directory);
        let (in_old, in_new) = (is_directory(&old), is_directory(&new));
        let (old, new) = (old.filter(|_| in_old), new.filter(|_| in_new));
        if in_old || in_new { self.enter(pair, old, new) } else { None }
    }

    /// Metadata of a file; `Some(None)` if the tree does not have it, `None` after an error.
    fn stat<E: SourceEnd>(
        &mut self,
        end: &E,
        location: Option<&Location<E::Dir>>,
        follow: bool,
        side: TreeSide,
        path: &[u8],
    ) -> Option<Option<Stat>> {
        let Some(location) = location else { return Some(None) };
        match end.stat(location, follow) {
            // The caller has named the roots; other files may have been removed in the meantime.
            Ok(None) if follow => self.fail(side, path, CopyReason::NotFound),
            Ok(found) => return Some(found),
            Err(reason) => self.fail(side, path, reason),
        }
        None
    }

    fn fail(&mut self, side: TreeSide, path: &[u8], reason: CopyReason) {
        self.report.failed += 1;
        (self.events)(DifferenceEvent::Failed { side, path: path.to_vec(), reason });
    }

    /// Reports a file that only one of the trees has.
    fn one_sided(&mut self, pair: &Pair<S, T>, old: Option<&Stat>, new: Option<&Stat>) {
        (self.events)(DifferenceEvent::Different(Difference {
            path: pair.path.clone(),
            old: old.map(|stat| file(stat, None)),
            new: new.map(|stat| file(stat, None)),
            properties: BTreeSet::new(),
            attributes: Vec::new(),
        }));
    }

    fn compare_both(&mut self, pair: &Pair<S, T>, old: &Stat, new: &Stat) {
        use FileProperty as P;
        let mut properties = BTreeSet::new();
        let mut targets = (None, None);
        let mut attributes = Vec::new();
        if old.kind != new.kind {
            properties.insert(P::Type);
        } else if old.kind == FileType::Symlink {
            targets = self.targets(pair);
        }
        let is_device = matches!(old.kind, FileType::BlockDevice | FileType::CharDevice);
        let numbers = |stat: &Stat| (stat.device.major, stat.device.minor);
        let is_link = old.kind == FileType::Symlink || new.kind == FileType::Symlink;
        let times = |time: Time| (time.seconds, time.nanos);
        let is_same_type = properties.is_empty();
        for (property, differs) in [
            (P::Contents, is_same_type && self.contents_differ(pair, old, new)),
            (P::Target, targets.0 != targets.1),
            (P::Device, is_same_type && is_device && numbers(old) != numbers(new)),
            (P::Mode, !is_link && old.permissions != new.permissions),
            (P::Owner, (old.uid, old.gid) != (new.uid, new.gid)),
            (P::Modified, times(old.modified) != times(new.modified)),
        ] {
            if differs && self.options.compared.contains(&property) {
                properties.insert(property);
            }
        }
        if is_same_type && self.options.compared.contains(&P::Attributes) {
            attributes = self.attributes_differ(pair);
            if !attributes.is_empty() {
                properties.insert(P::Attributes);
            }
        }
        if properties.is_empty() {
            return;
        }
        self.report.changed += 1;
        if properties.contains(&P::Contents) || properties.contains(&P::Type) {
            self.report.rewritten += u64::from(properties.contains(&P::Contents));
            self.report.bytes_added += size(new);
            self.report.bytes_removed += size(old);
        }
        let (old, new) = (file(old, targets.0), file(new, targets.1));
        let path = pair.path.clone();
        let difference = Difference { path, old: Some(old), new: Some(new), properties, attributes };
        (self.events)(DifferenceEvent::Different(difference));
    }

    /// Targets of symlinks; equal after an error.
    fn targets(&mut self, pair: &Pair<S, T>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let (Some(old), Some(new)) = (&pair.old, &pair.new) else { return (None, None) };
        let read = self.old.read_link(old).map_err(|reason| (TreeSide::Old, reason));
        let both = read.and_then(|old| {
            let new = self.new.read_link(new).map_err(|reason| (TreeSide::New, reason))?;
            Ok((Some(old), Some(new)))
        });
        self.unless_failed(pair, both).unwrap_or_default()
    }

    fn unless_failed<V>(&mut self, pair: &Pair<S, T>, result: SideResult<V>) -> Option<V> {
        result.map_err(|(side, reason)| self.fail(side, &pair.path, reason)).ok()
    }

    /// Whether the contents of regular files differ.
    fn contents_differ(&mut self, pair: &Pair<S, T>, old: &Stat, new: &Stat) -> bool {
        let is_compared = self.options.compared.contains(&FileProperty::Contents);
        let (Some(from), Some(to)) = (&pair.old, &pair.new) else { return false };
        if !is_compared || old.kind != FileType::Regular {
            return false;
        }
        if old.size != new.size {
            return true;
        }
        let mut unfinished = Vec::new();
        let result = compare_contents(
            (self.old, from, old),
            (self.new, to, new),
            pair.follow,
            &mut self.contents,
            &mut unfinished,
        );
        self.bytes += old.size;
        for (side, event) in unfinished {
            self.note(side, pair, event);
        }
        self.unless_failed(pair, result).is_some_and(|equal| !equal)
    }

    /// Names of attributes that differ.
    fn attributes_differ(&mut self, pair: &Pair<S, T>) -> Vec<Vec<u8>> {
        let (Some(from), Some(to)) = (&pair.old, &pair.new) else { return Vec::new() };
        let mut notes = Vec::new();
        let old = self.old.attributes(from, pair.follow, &mut |event| notes.push((TreeSide::Old, event)));
        let both = old.map_err(|reason| (TreeSide::Old, reason)).and_then(|old| {
            let new = self.new.attributes(to, pair.follow, &mut |event| notes.push((TreeSide::New, event)));
            Ok((old, new.map_err(|reason| (TreeSide::New, reason))?))
        });
        for (side, event) in notes {
            self.note(side, pair, event);
        }
        let Some((old, new)) = self.unless_failed(pair, both) else { return Vec::new() };
        let ignores_trusted = self.options.ignores_trusted();
        let shown = |attributes: Attributes| -> BTreeSet<(Vec<u8>, Vec<u8>)> {
            attributes.into_iter().filter(|(name, _)| is_compared(name, ignores_trusted)).collect()
        };
        let (old, new) = (shown(old), shown(new));
        let names: BTreeSet<_> = old.symmetric_difference(&new).map(|(name, _)| name.clone()).collect();
        names.into_iter().collect()
    }

    /// An event of a source.
    fn note(&mut self, side: TreeSide, pair: &Pair<S, T>, event: CopyEvent) {
        let path = pair.path.clone();
        match event {
            CopyEvent::Damaged { error, .. } => self.fail(side, &path, CopyReason::Read(error)),
            CopyEvent::InvalidName { .. } => self.fail(side, &path, CopyReason::InvalidName),
            CopyEvent::Unfinished { .. } => (self.events)(DifferenceEvent::Unfinished { side, path }),
            _ => {}
        }
    }

    /// Enters directories, and merges their names. `None` if one of them cannot be read: its files would seem to be
    /// missing.
    fn enter(&mut self, pair: &Pair<S, T>, old: Option<Stat>, new: Option<Stat>) -> Option<Level<S, T>> {
        let from = pair.old.as_ref().zip(old);
        let (old, old_names) = self.names(self.old, from, pair, TreeSide::Old)?;
        let to = pair.new.as_ref().zip(new);
        let (new, new_names) = self.names(self.new, to, pair, TreeSide::New)?;
        let mut names = Vec::with_capacity(old_names.len().max(new_names.len()));
        let (mut left, mut right) = (old_names.into_iter().peekable(), new_names.into_iter().peekable());
        // Both are in descending order.
        loop {
            let (in_old, in_new) = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(left), Some(right)) => (left >= right, right >= left),
                (left, right) => (left.is_some(), right.is_some()),
            };
            let old = if in_old { left.next() } else { None };
            let new = if in_new { right.next() } else { None };
            names.extend(old.or(new).map(|name| (name, in_old, in_new)));
        }
        // The next name is taken from the end.
        Some(Level { path: pair.path.clone(), old, new, names })
    }

    /// Enters a directory: its names, in descending order.
    fn names<E: SourceEnd>(
        &mut self,
        end: &E,
        found: Option<(&Location<E::Dir>, Stat)>,
        pair: &Pair<S, T>,
        side: TreeSide,
    ) -> Option<Listed<E>> {
        let Some((location, stat)) = found else { return Some((None, Vec::new())) };
        let [old, new] = &mut self.entered;
        let entered = if side == TreeSide::Old { old } else { new };
        if !entered.insert(stat.id) {
            self.fail(side, &pair.path, CopyReason::Loop);
            return None;
        }
        let mut notes = Vec::new();
        let listed = end.enter(location, pair.follow, &mut |event| notes.push(event));
        let listed = listed.and_then(|dir| Ok((end.list(&dir)?, dir)));
        for event in notes {
            self.note(side, pair, event);
        }
        match listed {
            Ok((mut names, dir)) => {
                names.sort_unstable_by(|left, right| right.cmp(left));
                Some((Some(Rc::new(dir)), names))
            }
            Err(reason) => {
                self.fail(side, &pair.path, reason);
                None
            }
        }
    }
}

/// A directory and its names; no directory if a tree does not have it.
type Listed<E> = (Option<Rc<<E as SourceEnd>::Dir>>, Vec<Vec<u8>>);

/// A file of a tree: where it is, and its metadata.
type Opened<'o, E> = (&'o E, &'o Location<<E as SourceEnd>::Dir>, &'o Stat);

/// Compares two regular files of the same size. Events are added to `notes`.
fn compare_contents<S: SourceEnd, T: SourceEnd>(
    (old, from, old_stat): Opened<'_, S>,
    (new, to, new_stat): Opened<'_, T>,
    follow: bool,
    comparison: &mut ContentsComparison,
    notes: &mut Vec<(TreeSide, CopyEvent)>,
) -> SideResult<bool> {
    let opened = old.open(from, follow, old_stat, &mut |event| notes.push((TreeSide::Old, event)));
    let mut old = opened.map_err(|reason| (TreeSide::Old, reason))?;
    let opened = new.open(to, follow, new_stat, &mut |event| notes.push((TreeSide::New, event)));
    let mut new = opened.map_err(|reason| (TreeSide::New, reason))?;
    comparison.are_equal(&mut *old, &mut *new, old_stat.size)
}

/// Whether an attribute is compared. The kernel shows ACLs to root in a second form.
fn is_compared(name: &[u8], ignores_trusted: bool) -> bool {
    !(name.starts_with(b"trusted.SGI_ACL_") || ignores_trusted && name.starts_with(b"trusted."))
}

/// Bytes of a regular file.
fn size(stat: &Stat) -> u64 {
    if stat.kind == FileType::Regular { stat.size } else { 0 }
}

fn file(stat: &Stat, target: Option<Vec<u8>>) -> DifferentFile {
    DifferentFile {
        kind: stat.kind,
        size: size(stat),
        permissions: stat.permissions,
        uid: stat.uid,
        gid: stat.gid,
        modified: stat.modified,
        device: stat.device,
        target,
    }
}
