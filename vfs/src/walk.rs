//! Path walks over cached dentries.

use base::rcu::Section;
use smallvec::SmallVec;

use crate::dentry::{Child, Dentry, DentryCache, DirId, NodeKind};

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
    Found(&'s Child<N>),
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
    dentries: SmallVec<[&'s Dentry<N>; SHORT_PATH]>,
}

impl<N> Walk<'_, N> {
    /// Whether all dentries of the walk are still in the cache. Then all of them were, at each moment of the walk and
    /// since.
    #[inline]
    pub fn is_current(&self) -> bool {
        !self.dentries.iter().any(|dentry| dentry.is_removed())
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
        let mut walk = Walk { end: WalkEnd::Start, dentries: SmallVec::new() };
        let mut dir = Some(from);
        let mut rest = path;
        while let Some((name, after)) = next_name(rest) {
            rest = after;
            let Some(parent) = dir else {
                walk.end = match walk.end {
                    WalkEnd::Found(Child { kind: NodeKind::Symlink, .. }) => WalkEnd::Unknown,
                    _ => WalkEnd::NotDirectory,
                };
                return walk;
            };
            if name == b"." {
                continue;
            }
            if name == b".." || name.len() > NAME_MAX {
                walk.end = WalkEnd::Unknown;
                return walk;
            }
            let Some(dentry) = self.find(section, parent, name) else {
                walk.end = WalkEnd::Unknown;
                return walk;
            };
            walk.dentries.push(dentry);
            let Some(child) = dentry.child() else {
                walk.end = WalkEnd::Absent;
                return walk;
            };
            walk.end = WalkEnd::Found(child);
            dir = child.as_dir();
        }
        if let WalkEnd::Found(child) = walk.end {
            let wants_directory = path.last() == Some(&b'/');
            walk.end = match child.kind {
                NodeKind::Symlink if wants_directory || last_link == LastLink::Follow => WalkEnd::Unknown,
                NodeKind::Other if wants_directory => WalkEnd::NotDirectory,
                _ => walk.end,
            };
        }
        walk
    }
}

/// The first name of a path, and what follows it; `None` if only slashes are left.
#[inline]
fn next_name(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().position(|byte| *byte != b'/')?;
    let path = path.get(start..)?;
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    path.split_at_checked(end)
}
