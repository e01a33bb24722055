//! Path walks over cached dentries.

use std::sync::Arc;

use base::rcu::Section;

use crate::dentry::{Child, Dentry, DentryCache, FileId, NodeKind};
use crate::name::Names;

/// Names of a path that need no allocation.
const SHORT_PATH: usize = 8;

/// What to do with a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Continue the walk at its target, as `stat` does.
    Follow,
    /// The symbolic link is the result of the walk, as in `lstat`.
    Keep,
}

/// Where a walk ended.
pub enum WalkEnd<'s, N> {
    /// The path has no names: it is the directory where the walk began.
    Start,
    /// The path refers to this node.
    Found(Child<&'s Arc<N>>),
    /// A name of the path does not exist.
    Absent,
    /// A name of the path that must be a directory is another file.
    NotDirectory,
    /// A name of the path is a symbolic link, where the walk continues. The link is in the [parent](Walker::parent).
    Link {
        /// The symbolic link.
        link: &'s Arc<N>,
        /// Where the rest of the path begins: after the name of the link.
        rest: usize,
    },
    /// A dentry is not cached, or the path has a part that is not walked here: a name that is too long, a directory
    /// that must not be searched, `..` or a link in a walk that [stays below](Walker::stay_below) a directory.
    Unknown,
}

/// Walks along paths from one directory, in one read section. A path that begins with the directories of the last path
/// is walked from the last of them.
pub struct Walker<'s, 'p, N: Send + Sync> {
    dentries: &'s DentryCache<N>,
    section: &'s Section,
    from: FileId,
    /// The dentries of the last walk.
    passed: Passed<'s, N>,
    /// The directories of the last path, up to the slash before its last name.
    directories: &'p [u8],
    /// Where they lead.
    parent: FileId,
    /// The number of their dentries.
    parent_depth: usize,
    /// `None`: all directories may be searched.
    may_search: Option<&'p MaySearch<'p, N>>,
    stays_below: bool,
}

/// Whether a directory may be searched.
pub type MaySearch<'p, N> = dyn Fn(&Arc<N>) -> bool + 'p;

/// The dentries that a walk has used.
struct Passed<'s, N> {
    first: [Option<&'s Dentry<N>>; SHORT_PATH],
    count: usize,
    others: Vec<&'s Dentry<N>>,
}

impl<'s, N> Passed<'s, N> {
    fn new() -> Self {
        Self { first: [None; SHORT_PATH], count: 0, others: Vec::new() }
    }

    #[inline]
    fn push(&mut self, dentry: &'s Dentry<N>) {
        match self.first.get_mut(self.count) {
            Some(slot) => *slot = Some(dentry),
            None => self.others.push(dentry),
        }
        self.count += 1;
    }

    #[inline]
    fn truncate(&mut self, count: usize) {
        self.count = count;
        self.others.truncate(count.saturating_sub(SHORT_PATH));
    }

    #[inline]
    fn are_current(&self) -> bool {
        // No dentry ends the loop: their loads do not wait for each other.
        let of_first =
            |removed, dentry: &Option<&Dentry<N>>| removed | dentry.is_some_and(Dentry::is_removed);
        let first = self.first.iter().take(self.count).fold(false, of_first);
        !first && !self.others.iter().any(|dentry| dentry.is_removed())
    }
}

impl<'s, 'p, N: Send + Sync> Walker<'s, 'p, N> {
    /// From now on, a directory after the first is searched only if `may_search`, and walks end as unknown otherwise.
    pub fn limit_search(&mut self, may_search: &'p MaySearch<'p, N>) {
        self.may_search = Some(may_search);
    }

    /// From now on, walks that come to a `..`, or to a symbolic link that must be followed, end as unknown.
    pub fn stay_below(&mut self) {
        self.stays_below = true;
    }

    /// The directory of the last name that was looked up.
    pub fn parent(&self) -> FileId {
        self.parent
    }

    /// Walks along a path. Leading and repeated slashes have no meaning; one at the end asks for a directory. Takes no
    /// lock.
    #[inline]
    pub fn walk(&mut self, path: &'p [u8], last_link: LastLink) -> WalkEnd<'s, N> {
        let begin = match self.directories {
            // Not compared: the pointer of an empty slice may be invalid, and glibc's `memcmp` took 100 ns for it.
            [] => 0,
            directories if path.starts_with(directories) => directories.len(),
            _ => {
                self.forget_directories();
                0
            }
        };
        let mut names = Names::new(path, begin, self.dentries.seed());
        let mut last: Option<Child<&'s Arc<N>>> = None;
        // In variables, as they change with each name.
        let (mut parent, mut parent_depth, mut last_name) = (self.parent, self.parent_depth, begin);
        self.passed.truncate(parent_depth);
        let ended = loop {
            let before = names.position();
            let Some(name) = names.next() else { break None };
            if let Some(child) = last {
                match child.kind {
                    NodeKind::Directory { .. } if self.may_search.is_some_and(|may| !may(child.node)) => {
                        break Some(WalkEnd::Unknown);
                    }
                    NodeKind::Directory { generation } => parent = FileId { ino: child.ino, generation },
                    NodeKind::Symlink => break Some(self.follow(child.node, before)),
                    NodeKind::Other => break Some(WalkEnd::NotDirectory),
                }
                (parent_depth, last_name) = (self.passed.count, before + 1);
            }
            if name.begins_with_dot() {
                if name.is_dot() {
                    continue;
                }
                if self.stays_below && name.is_dot_dot() {
                    break Some(WalkEnd::Unknown);
                }
            }
            let found = self.dentries.find_name(self.section, parent, &name);
            let Some(dentry) = found else { break Some(WalkEnd::Unknown) };
            self.passed.push(dentry);
            last = dentry.child();
            if last.is_none() {
                break Some(WalkEnd::Absent);
            }
        };
        self.directories = path.get(..last_name).unwrap_or_default();
        (self.parent, self.parent_depth) = (parent, parent_depth);
        match (ended, last) {
            (Some(end), _) => end,
            (None, Some(child)) => self.end_at(child, path, last_link),
            (None, None) if begin == 0 => WalkEnd::Start,
            (None, None) => {
                // The path refers to one of the directories.
                self.forget_directories();
                self.walk(path, last_link)
            }
        }
    }

    /// The end of a walk along a path that has no more names.
    #[inline]
    fn end_at(&self, child: Child<&'s Arc<N>>, path: &[u8], last_link: LastLink) -> WalkEnd<'s, N> {
        let wants_directory = path.last() == Some(&b'/');
        match child.kind {
            NodeKind::Symlink if wants_directory || last_link == LastLink::Follow => {
                // With a slash, which asks for a directory.
                self.follow(child.node, path.len() - usize::from(wants_directory))
            }
            NodeKind::Other if wants_directory => WalkEnd::NotDirectory,
            _ => WalkEnd::Found(child),
        }
    }

    /// The end of a walk at a symbolic link that must be followed.
    #[cold]
    fn follow(&self, link: &'s Arc<N>, rest: usize) -> WalkEnd<'s, N> {
        if self.stays_below { WalkEnd::Unknown } else { WalkEnd::Link { link, rest } }
    }

    /// The next walk begins where the walker began.
    fn forget_directories(&mut self) {
        (self.directories, self.parent, self.parent_depth) = (&[], self.from, 0);
    }

    /// Whether all dentries of the last walk are still in the cache. Then all of them were, at each moment of the walk
    /// and since.
    #[inline]
    pub fn is_current(&mut self) -> bool {
        let is_current = self.passed.are_current();
        if !is_current {
            self.forget_directories();
        }
        is_current
    }
}

impl<N: Send + Sync> DentryCache<N> {
    /// Walks from a directory.
    #[inline]
    pub fn walker<'s, 'p>(&'s self, section: &'s Section, from: FileId) -> Walker<'s, 'p, N> {
        Walker {
            dentries: self,
            section,
            from,
            passed: Passed::new(),
            directories: &[],
            parent: from,
            parent_depth: 0,
            may_search: None,
            stays_below: false,
        }
    }
}
