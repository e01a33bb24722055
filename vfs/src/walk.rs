//! Path walks over cached dentries.

use std::sync::Arc;

use base::rcu::Section;

use crate::dentry::{Child, Dentry, DentryCache, DirId, NodeKind};
use crate::name::Names;

/// The longest name of any file system on Linux.
const NAME_MAX: usize = 255;
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
    /// A dentry is not cached, or the path has a part that is not walked here: `..`, a symbolic link, a name that is
    /// too long.
    Unknown,
}

/// A walk along a path.
pub struct Walk<'s, N> {
    /// Where it ended.
    pub end: WalkEnd<'s, N>,
    passed: Passed<'s, N>,
}

/// The dentries that a walk has used.
struct Passed<'s, N> {
    first: [Option<&'s Dentry<N>>; SHORT_PATH],
    count: usize,
    others: Vec<&'s Dentry<N>>,
}

impl<'s, N> Passed<'s, N> {
    #[inline]
    fn push(&mut self, dentry: &'s Dentry<N>) {
        match self.first.get_mut(self.count) {
            Some(slot) => {
                *slot = Some(dentry);
                self.count += 1;
            }
            None => self.others.push(dentry),
        }
    }
}

impl<N> Walk<'_, N> {
    /// Whether all dentries of the walk are still in the cache. Then all of them were, at each moment of the walk and
    /// since.
    #[inline]
    pub fn is_current(&self) -> bool {
        let Passed { first, count, others } = &self.passed;
        // No dentry ends the loop: their loads do not wait for each other.
        let of_first =
            |removed, dentry: &Option<&Dentry<N>>| removed | dentry.is_some_and(Dentry::is_removed);
        let first = first.iter().take(*count).fold(false, of_first);
        !first && !others.iter().any(|dentry| dentry.is_removed())
    }
}

impl<N: Send + Sync> DentryCache<N> {
    /// Walks along a path from a directory. Leading and repeated slashes have no meaning; one at the end asks for a
    /// directory. Takes no lock.
    pub fn walk<'s>(
        &'s self,
        section: &'s Section,
        from: DirId,
        path: &[u8],
        last_link: LastLink,
    ) -> Walk<'s, N> {
        let passed = Passed { first: [None; SHORT_PATH], count: 0, others: Vec::new() };
        let mut walk = Walk { end: WalkEnd::Start, passed };
        let mut last: Option<Child<&'s Arc<N>>> = None;
        let mut names = Names::new(path, self.seed());
        while let Some(name) = names.next() {
            let parent = match last {
                None => from,
                Some(Child { ino, kind: NodeKind::Directory { generation }, .. }) => {
                    DirId { ino, generation }
                }
                Some(child) => {
                    walk.end = match child.kind {
                        NodeKind::Symlink => WalkEnd::Unknown,
                        _ => WalkEnd::NotDirectory,
                    };
                    return walk;
                }
            };
            if name.is_dot() {
                continue;
            }
            let dentry = match name.is_dot_dot() || name.bytes.len() > NAME_MAX {
                true => None,
                false => self.find_name(section, parent, name),
            };
            let Some(dentry) = dentry else {
                walk.end = WalkEnd::Unknown;
                return walk;
            };
            walk.passed.push(dentry);
            last = dentry.child();
            if last.is_none() {
                walk.end = WalkEnd::Absent;
                return walk;
            }
        }
        if let Some(child) = last {
            let wants_directory = path.last() == Some(&b'/');
            walk.end = match child.kind {
                NodeKind::Symlink if wants_directory || last_link == LastLink::Follow => WalkEnd::Unknown,
                NodeKind::Other if wants_directory => WalkEnd::NotDirectory,
                _ => WalkEnd::Found(child),
            };
        }
        walk
    }
}
