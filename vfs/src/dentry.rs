//! Dentries, and the cache of all dentries of a volume.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Ino;
use base::memory::Share;
use base::rcu::{Cached, Section, SetTable, TableChange};

use crate::name::{Name, mix};

/// The identity of a file, which calls take and programs may keep for long, as NFS servers do. An inode number alone
/// may be another file's by the time it is used. A call with the identity of a removed file returns `ESTALE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Inode number.
    pub ino: Ino,
    /// Generation: differs between files that use the same inode number one after the other.
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

/// A node that a name refers to. `A` is [`Arc<N>`], or a reference to it.
#[derive(Clone, Copy, Debug)]
pub struct Child<A> {
    /// Inode number.
    pub ino: Ino,
    /// Kind of the node.
    pub kind: NodeKind,
    /// The node. It stays in memory as long as the dentry, and may be freed on disk meanwhile.
    pub node: A,
}

/// A name in a directory, and what it refers to: one cache line. Most names have at most 16 bytes, and are part of it.
#[repr(align(64))]
pub struct Dentry<N> {
    dir_ino: Ino,
    dir_generation: u32,
    /// The first eight bytes of the name, followed by zeros.
    name_first: u64,
    /// The next eight.
    name_second: u64,
    /// The other bytes; `None` if there are none.
    name_rest: Option<Box<NameRest>>,
    child_ino: Ino,
    /// `None`: the name does not exist (a negative dentry).
    node: Option<Arc<N>>,
    child_kind: NodeKind,
    name_len: u8,
    removed: AtomicBool,
    /// Used since the cache last considered it for eviction.
    used: AtomicBool,
}

/// The bytes of a long name after its head. In a box of its own, as a dentry has space for a thin pointer.
struct NameRest(Box<[u8]>);

impl<N> Dentry<N> {
    /// `None` if the name is longer than any file system allows.
    fn new(dir: FileId, name: &Name<'_>, child: Option<Child<Arc<N>>>) -> Option<Self> {
        let rest = name.rest();
        Some(Self {
            dir_ino: dir.ino,
            dir_generation: dir.generation,
            name_first: name.first,
            name_second: name.second,
            name_rest: (!rest.is_empty()).then(|| Box::new(NameRest(rest.into()))),
            child_ino: child.as_ref().map_or(Ino(0), |child| child.ino),
            child_kind: child.as_ref().map_or(NodeKind::Other, |child| child.kind),
            node: child.map(|child| child.node),
            name_len: u8::try_from(name.bytes.len()).ok()?,
            removed: AtomicBool::new(false),
            used: AtomicBool::new(true),
        })
    }

    /// What the name refers to; `None` if it does not exist.
    #[inline]
    pub fn child(&self) -> Option<Child<&Arc<N>>> {
        Some(Child { ino: self.child_ino, kind: self.child_kind, node: self.node.as_ref()? })
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
    fn is(&self, dir: FileId, name: &Name<'_>) -> bool {
        self.name_first == name.first
            && self.name_second == name.second
            && self.dir_ino == dir.ino
            && self.dir_generation == dir.generation
            && usize::from(self.name_len) == name.bytes.len()
            && self.name_rest.as_ref().is_none_or(|rest| *rest.0 == *name.rest())
    }

    fn name_bytes(&self) -> Vec<u8> {
        let head = [self.name_first, self.name_second].into_iter().flat_map(u64::to_le_bytes);
        let rest = self.name_rest.iter().flat_map(|rest| rest.0.iter().copied());
        head.chain(rest).take(usize::from(self.name_len)).collect()
    }
}

impl<N> Cached for Dentry<N> {
    fn take_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn bytes(&self) -> usize {
        // With what the heap needs for a long name.
        const BESIDE: usize = size_of::<NameRest>() + 32;
        size_of::<Self>() + self.name_rest.as_ref().map_or(0, |rest| BESIDE + rest.0.len())
    }

    fn removed(&self) {
        self.removed.store(true, Ordering::Release);
    }
}

impl<N> fmt::Debug for Dentry<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let child = self.child().map(|child| child.ino);
        write!(f, "Dentry({}, {:?}: {child:?})", self.dir_ino, self.name_bytes().escape_ascii().to_string())
    }
}

/// Dentries of a part of the table that is not full.
const DENTRIES_OF_SEGMENT: usize = 32;

/// The dentries of a volume.
#[derive(Debug)]
pub struct DentryCache<N: Send + Sync> {
    table: SetTable<Dentry<N>>,
    seed: u64,
    /// Counts the memory of the dentries.
    memory: Option<Arc<Share>>,
}

impl<N: Send + Sync> DentryCache<N> {
    /// An empty cache of about `entries` dentries. Names are hashed with `seed`. Names that collide on purpose gain
    /// nothing: they only evict each other from one bucket.
    pub fn new(entries: usize, seed: u64) -> Self {
        Self { table: SetTable::new(entries), seed, memory: None }
    }

    /// Counts the memory of the dentries, and of the table, in a share of a budget.
    #[must_use]
    pub fn counted_in(self, memory: &Arc<Share>) -> Self {
        Self { memory: Some(Arc::clone(memory)), ..self }
    }

    #[inline]
    fn count(&self, change: TableChange) {
        let Some(memory) = &self.memory else { return };
        match change.added.checked_sub(change.removed) {
            Some(0) => {}
            Some(more) => memory.add(more as u64),
            None => memory.sub((change.removed - change.added) as u64),
        }
    }

    /// Seed of the hash of names.
    #[inline]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    fn hash(dir: FileId, name: &Name<'_>) -> u64 {
        mix(name.hash ^ dir.ino.get())
    }

    /// The dentry of a name, if it is cached.
    pub fn find<'s>(&'s self, section: &'s Section, dir: FileId, name: &[u8]) -> Option<&'s Dentry<N>> {
        self.find_name(section, dir, &Name::new(name, self.seed))
    }

    #[inline]
    pub(crate) fn find_name<'s>(
        &'s self,
        section: &'s Section,
        dir: FileId,
        name: &Name<'_>,
    ) -> Option<&'s Dentry<N>> {
        let dentry = self.table.find(section, Self::hash(dir, name), |dentry| dentry.is(dir, name))?;
        dentry.touch();
        Some(dentry)
    }

    /// Adds what a name refers to; `None` if it does not exist. The caller holds the lock of the directory, and has
    /// read the name in it.
    pub fn insert(&self, dir: FileId, name: &[u8], child: Option<Child<Arc<N>>>) {
        let name = Name::new(name, self.seed);
        if let Some(dentry) = Dentry::new(dir, &name, child) {
            let change = self.table.insert(Self::hash(dir, &name), dentry, |dentry| dentry.is(dir, &name));
            self.count(change);
        }
    }

    /// Removes the dentry of a name that is about to change. The caller holds the lock of the directory, and no other
    /// thread can see the change yet.
    #[inline]
    pub fn remove(&self, dir: FileId, name: &[u8]) {
        let name = Name::new(name, self.seed);
        let change = self.table.remove(Self::hash(dir, &name), |dentry| dentry.is(dir, &name));
        self.count(change);
    }

    /// Removes all dentries, and waits until they and their references to nodes are gone.
    pub fn clear(&self) {
        self.count(self.table.clear());
    }

    /// Looks at about this number of dentries, and drops those that were not used since they were last looked at, with
    /// their references to nodes. Returns whether another call may drop more. Must not be called in a read section.
    pub fn evict(&self, dentries: usize) -> bool {
        let (change, has_more) = self.table.evict(dentries.div_ceil(DENTRIES_OF_SEGMENT));
        self.count(change);
        has_more
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
