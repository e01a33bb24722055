//! Dentries, and the cache of all dentries of a volume.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Ino;
use base::rcu::{Cached, Section, SetTable};
use rustc_hash::FxHasher;
use smallvec::SmallVec;

/// Bytes of a name that need no allocation.
const INLINE_NAME: usize = 32;

/// A directory. An inode number alone may be used again by another directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DirId {
    /// Inode number.
    pub ino: Ino,
    /// Inode generation.
    pub generation: u32,
}

/// What a walk must know of a node. It never changes during the life of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory, with its generation.
    Directory {
        /// Inode generation.
        generation: u32,
    },
    /// A symbolic link.
    Symlink,
    /// Any other file.
    Other,
}

/// A node that a name refers to.
pub struct Child<N> {
    /// Inode number.
    pub ino: Ino,
    /// Kind of the node.
    pub kind: NodeKind,
    /// The node. It stays in memory as long as the dentry, and may be freed on disk meanwhile.
    pub node: Arc<N>,
}

impl<N> Child<N> {
    /// The identity of a directory; `None` for other files.
    pub fn as_dir(&self) -> Option<DirId> {
        match self.kind {
            NodeKind::Directory { generation } => Some(DirId { ino: self.ino, generation }),
            _ => None,
        }
    }
}

/// A name in a directory, and what it refers to.
pub struct Dentry<N> {
    dir: DirId,
    name: SmallVec<[u8; INLINE_NAME]>,
    /// `None`: the name does not exist (a negative dentry).
    child: Option<Child<N>>,
    removed: AtomicBool,
    /// Used since the cache last considered it for eviction.
    used: AtomicBool,
}

impl<N> Dentry<N> {
    /// What the name refers to; `None` if it does not exist.
    #[inline]
    pub fn child(&self) -> Option<&Child<N>> {
        self.child.as_ref()
    }

    /// Whether the dentry was removed. What it says was true until then.
    #[inline]
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Marks the dentry as used. Stores only if it is not marked yet.
    #[inline]
    fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is(&self, dir: DirId, name: &[u8]) -> bool {
        self.dir == dir && *self.name == *name
    }
}

impl<N> Cached for Dentry<N> {
    fn take_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn removed(&self) {
        self.removed.store(true, Ordering::Release);
    }
}

impl<N> fmt::Debug for Dentry<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let child = self.child.as_ref().map(|child| child.ino);
        write!(f, "Dentry({}, {:?}: {child:?})", self.dir.ino, self.name.escape_ascii().to_string())
    }
}

/// The dentries of a volume.
#[derive(Debug)]
pub struct DentryCache<N: Send + Sync> {
    table: SetTable<Dentry<N>>,
    seed: u64,
}

impl<N: Send + Sync> DentryCache<N> {
    /// An empty cache of about `entries` dentries. Names are hashed with `seed`. Names that collide on purpose gain
    /// nothing: they only evict each other from one bucket.
    pub fn new(entries: usize, seed: u64) -> Self {
        Self { table: SetTable::new(entries), seed }
    }

    #[inline]
    fn hash(&self, dir: DirId, name: &[u8]) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write_u64(self.seed ^ dir.ino.get());
        hasher.write(name);
        hasher.finish()
    }

    /// The dentry of a name, if it is cached.
    #[inline]
    pub fn find<'s>(&'s self, section: &'s Section, dir: DirId, name: &[u8]) -> Option<&'s Dentry<N>> {
        let dentry = self.table.find(section, self.hash(dir, name), |dentry| dentry.is(dir, name))?;
        dentry.touch();
        Some(dentry)
    }

    /// Adds what a name refers to; `None` if it does not exist. The caller holds the lock of the directory, and has
    /// read the name in it.
    pub fn insert(&self, dir: DirId, name: &[u8], child: Option<Child<N>>) {
        let dentry = Dentry {
            dir,
            name: SmallVec::from_slice(name),
            child,
            removed: AtomicBool::new(false),
            used: AtomicBool::new(true),
        };
        self.table.insert(self.hash(dir, name), dentry, |dentry| dentry.is(dir, name));
    }

    /// Removes the dentry of a name that is about to change. The caller holds the lock of the directory, and no other
    /// thread can see the change yet.
    #[inline]
    pub fn remove(&self, dir: DirId, name: &[u8]) {
        self.table.remove(self.hash(dir, name), |dentry| dentry.is(dir, name));
    }

    /// Removes all dentries, and waits until they and their references to nodes are gone.
    pub fn clear(&self) {
        self.table.clear();
    }

    /// Number of dentries, negative ones included.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no dentries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
