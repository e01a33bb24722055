//! Names in memory: paths that are resolved without a lock, and dentries of names that were looked up.

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use base::lock::{Locks, Mutex, MutexGuard, Rank};
use base::memory::Share;
use base::rcu::{self, Section};
use format::Geometry;
use format::inode::FileType;
use inode::inode::StaleInode;
use inode::{Inode, InodeRef, InodeState};
use vfs::{Child, Dentry, DentryCache, LastLink, MaySearch, NodeKind, WalkEnd, Walker};

use crate::namespace::handle::identity;
use crate::operation::{no_such_file, not_a_directory};
use crate::permissions::{Caller, Credentials};
use crate::{FileId, Handle, Metadata, Options, Result, Volume};

/// The longest path that is walked in memory, as Linux limits all paths.
const PATH_MAX: usize = 4096;

/// The most names in memory. More would take memory when a volume is opened.
const NAMES_MAX: usize = 1 << 22;

/// Walks up to a symbolic link or the end of a path, before names are looked up one by one because they change
/// meanwhile.
const WALKS_MAX: usize = 4;

/// Maximum number of symbolic links followed on the way along a path, as in Linux.
pub(crate) const LINKS_MAX: u32 = 40;

/// The names of a volume.
#[derive(Debug)]
pub(crate) struct Names {
    dentries: DentryCache<Inode>,
    /// With coarse locks: held by all that use or change the dentries.
    coarse: Option<Mutex<()>>,
    /// Names that differ only in case are the same name: it cannot be told which dentries a change concerns.
    ignore_case: bool,
    root: OnceLock<FileId>,
}

impl Names {
    /// No names yet. The inodes of the names stay in memory, so there are at most half as many as the cache of inodes
    /// may always hold.
    pub fn new(geometry: &Geometry, inodes: &Arc<Share>, options: &Options) -> Self {
        let inodes_max = inodes.part() / inode::inode_bytes(geometry);
        // A name for each block of a small volume is enough, which is opened faster.
        let names_max = usize::try_from((inodes_max / 2).min(geometry.blocks())).unwrap_or(NAMES_MAX);
        Self {
            dentries: DentryCache::new(names_max.min(NAMES_MAX), options.random().next_u64())
                .counted_in(inodes),
            coarse: (options.locks == Locks::Coarse).then(|| Mutex::new(Rank::Cache, ())),
            ignore_case: geometry.features.ascii_ci(),
            root: OnceLock::new(),
        }
    }

    /// Sets where paths begin.
    pub fn set_root(&self, root: &Inode) {
        if self.root.get().is_none() {
            let _ = self.root.set(identity(root));
        }
    }

    /// Where paths begin, if it is known.
    pub fn root(&self) -> Option<FileId> {
        self.root.get().copied()
    }

    /// Start of a walk of the program from the root, if the root is known.
    #[inline]
    pub fn root_start(&self) -> Option<Start<'static>> {
        self.root().map(Start::at)
    }

    /// To be called before a read section, which must not wait.
    #[inline]
    fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.coarse.as_ref().map(Mutex::lock)
    }

    #[inline]
    fn walker<'s, 'p>(
        &'s self,
        section: &'s Section,
        from: Start<'_>,
        may_search: &'p MaySearch<'p, Inode>,
    ) -> Walker<'s, 'p, Inode> {
        let mut walker = self.dentries.walker(section, from.dir);
        if from.user.is_some() {
            walker.limit_search(may_search);
        }
        if from.stays_below {
            walker.stay_below();
        }
        walker
    }

    /// Removes all dentries, and so their references to inodes.
    pub fn clear(&self) {
        self.dentries.clear();
    }

    /// Adds the result of a lookup in a locked directory. `None`: the name does not exist.
    pub fn add(&self, dir: &InodeState, name: &[u8], inode: Option<&Arc<Inode>>) {
        // A removed directory has no names, but an entry `..` on disk.
        if self.ignore_case || name == b"." || dir.nlink() == 0 || self.is_known(dir, name) {
            return;
        }
        let child = match inode.map(child) {
            // Another thread has the inode locked. A later lookup adds the name.
            Some(None) => return,
            Some(child) => child,
            None => None,
        };
        let _locked = self.lock();
        self.dentries.insert(dir_id(dir), name, child);
    }

    fn is_known(&self, dir: &InodeState, name: &[u8]) -> bool {
        let _locked = self.lock();
        rcu::read(|section| self.dentries.find(section, dir_id(dir), name).is_some())
    }

    /// Whether the dentry of a name in a locked directory, if it is in memory, refers to this inode.
    pub fn agrees(&self, dir: &InodeState, name: &[u8], inode: Option<&Arc<Inode>>) -> bool {
        let _locked = self.lock();
        rcu::read(|section| {
            let known = self.dentries.find(section, dir_id(dir), name).map(Dentry::child);
            known.is_none_or(|child| child.map(|child| Arc::as_ptr(child.node)) == inode.map(Arc::as_ptr))
        })
    }

    /// A name in a locked directory is about to change. Called before any other trace of the change can be seen.
    #[inline]
    pub fn changing(&self, dir: &InodeState, name: &[u8]) {
        let _locked = self.lock();
        self.dentries.remove(dir_id(dir), name);
    }
}

impl inode::Names for Names {
    fn drop_unused(&self, names: usize) -> bool {
        let _locked = self.lock();
        self.dentries.evict(names)
    }
}

/// Where a walk in memory begins, and for whom: the caller may search this directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'c> {
    pub dir: FileId,
    /// The user whose permissions are checked on the way; `None` for the program.
    user: Option<&'c Credentials>,
    /// The walk follows no symbolic link and no `..`, so that it stays below the directory.
    stays_below: bool,
}

impl<'c> Start<'c> {
    fn at(dir: FileId) -> Self {
        Self { dir, user: None, stays_below: false }
    }

    /// A walk of the program.
    #[inline]
    pub fn of_program(dir: &Inode) -> Self {
        Self::at(identity(dir))
    }

    /// A walk of a caller from a directory; `None` if the caller must not search it, or that is not known.
    pub fn of(caller: Caller<'c>, dir: &Inode) -> Option<Self> {
        let start = Self { user: caller.user().map(Arc::as_ref), ..Self::of_program(dir) };
        start.may_search(dir).then_some(start)
    }

    /// Returns this start for a walk that follows no symbolic link and no `..`.
    pub fn staying_below(self) -> Self {
        Self { stays_below: true, ..self }
    }

    /// Whether a directory on the way may be searched; `false` if that is not known.
    #[inline]
    fn may_search(&self, dir: &Inode) -> bool {
        self.user.is_none_or(|user| user.may_search(dir))
    }
}

/// The identity of a locked directory.
fn dir_id(dir: &InodeState) -> FileId {
    FileId { ino: dir.ino(), generation: dir.core().generation.get() }
}

/// Where the walk of a single name begins; `None` if it is a path. The directory may have been removed: then it has no
/// names.
#[inline]
fn one_name(dir: FileId, name: &[u8]) -> Option<Start<'static>> {
    (!name.contains(&b'/')).then_some(Start::at(dir))
}

/// What a dentry says of an inode; `None` if the inode is locked by others, or free.
fn child(inode: &Arc<Inode>) -> Option<Child<Arc<Inode>>> {
    let stat = inode.try_stat()?;
    let kind = match FileType::from_mode(stat.mode)? {
        FileType::Directory => NodeKind::Directory { generation: stat.generation },
        FileType::Symlink => NodeKind::Symlink,
        _ => NodeKind::Other,
    };
    Some(Child { ino: inode.ino(), kind, node: Arc::clone(inode) })
}

/// How a walk in memory ended. What it found is not a part, as large results are slow to move.
enum Walked {
    Found,
    Absent,
    NotDirectory,
    /// The names must be looked up.
    Unknown,
}

impl Walked {
    /// `found` is called with the inode at the end of a walk, and returns whether it can be used.
    #[inline]
    fn of(end: &WalkEnd<'_, Inode>, found: impl FnOnce(&Arc<Inode>) -> bool) -> Self {
        match end {
            WalkEnd::Found(child) if found(child.node) => Self::Found,
            WalkEnd::Absent => Self::Absent,
            WalkEnd::NotDirectory => Self::NotDirectory,
            WalkEnd::Found(_) | WalkEnd::Start | WalkEnd::Link { .. } | WalkEnd::Unknown => Self::Unknown,
        }
    }

    /// The result of a call, with what was found. `None` if the names must be looked up.
    #[inline]
    fn result<T>(&self, found: Option<T>) -> Option<Result<T>> {
        match self {
            Self::Found => found.map(Ok),
            Self::Absent => Some(Err(no_such_file())),
            Self::NotDirectory => Some(Err(not_a_directory())),
            Self::Unknown => None,
        }
    }
}

/// A symbolic link at which a walk continues.
struct Link {
    /// The directory that it is in.
    dir: FileId,
    /// The target of the link, followed by the rest of the path that was walked.
    path: Vec<u8>,
}

/// References that the walks of one call took, one for each walk that found a file. They are dropped outside of the
/// read sections, as that may take a lock.
#[derive(Default)]
struct Acquired([Option<std::result::Result<InodeRef, StaleInode>>; WALKS_MAX]);

impl Acquired {
    /// Takes a reference; returns whether the inode can be used.
    #[inline]
    fn add(&mut self, inode: &Arc<Inode>) -> bool {
        let unused = self.0.iter_mut().find(|reference| reference.is_none());
        unused.is_some_and(|unused| unused.insert(inode.acquire()).is_ok())
    }

    /// The reference of the last walk.
    #[inline]
    fn last(self) -> Option<Handle> {
        self.0.into_iter().flatten().last()?.ok().map(Handle::new)
    }
}

impl Volume {
    /// Metadata of the file at a path, from memory if possible: without a lock, and without a store to memory that
    /// other threads use. A symbolic link at the end is followed if `follow`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`; damage.
    pub fn metadata_at(&self, path: &[u8], follow: bool) -> Result<Metadata> {
        self.metadata_cached(self.names.root_start(), path, follow)
            .unwrap_or_else(|| self.metadata_of(self.look_up_path(path, follow)?.inode()))
    }

    /// Metadata of the file at a path from a directory, if its names are in memory.
    #[inline]
    pub(crate) fn metadata_cached(
        &self,
        from: Option<Start<'_>>,
        path: &[u8],
        follow: bool,
    ) -> Option<Result<Metadata>> {
        let mut metadata = None;
        let walked = self.walk(from, path, follow, |inode, section| {
            metadata = Metadata::in_memory(inode, section);
            metadata.is_some()
        });
        walked.result(metadata)
    }

    /// Adds the metadata of files at paths from a directory, as long as their names are in memory. Symbolic links are
    /// not followed.
    pub(crate) fn add_metadata_cached<'p>(
        &self,
        from: Start<'_>,
        paths: impl Iterator<Item = &'p [u8]>,
        results: &mut Vec<Result<Metadata>>,
    ) {
        let may_search = |dir: &Arc<Inode>| from.may_search(dir);
        let _locked = self.names.lock();
        rcu::read(|section| {
            let mut walker = self.names.walker(section, from, &may_search);
            // A read section is short.
            let mut bytes = 0;
            for path in paths {
                bytes += path.len();
                if bytes > PATH_MAX {
                    break;
                }
                let mut metadata = None;
                let walked = Walked::of(&walker.walk(path, LastLink::Keep), |inode| {
                    metadata = Metadata::in_memory(inode, section);
                    metadata.is_some()
                });
                match walked.result(metadata) {
                    Some(result) if walker.is_current() => results.push(result),
                    _ => break,
                }
            }
        });
    }

    /// A reference to the file at a path from a directory, if its names are in memory.
    pub(crate) fn resolve_cached(
        &self,
        from: Option<Start<'_>>,
        path: &[u8],
        follow: bool,
    ) -> Option<Result<Handle>> {
        self.resolve_cached_within(from, path, follow, &mut { LINKS_MAX })
    }

    /// Like [`resolve_cached`](Self::resolve_cached), but follows at most `links` symbolic links, and subtracts those
    /// that it followed from `links`.
    pub(crate) fn resolve_cached_within(
        &self,
        from: Option<Start<'_>>,
        path: &[u8],
        follow: bool,
        links: &mut u32,
    ) -> Option<Result<Handle>> {
        let mut acquired = Acquired::default();
        let walked = self.walk_within(from, path, follow, links, |inode, _| acquired.add(inode));
        walked.result(acquired.last())
    }

    /// The file with a name in a directory, if the name is in memory.
    #[inline]
    pub(crate) fn lookup_id_cached(&self, dir: FileId, name: &[u8]) -> Option<Result<FileId>> {
        let mut id = None;
        let walked = self.walk(one_name(dir, name), name, false, |inode, _| {
            id = Some(identity(inode));
            true
        });
        self.unless_removed(dir, walked.result(id))
    }

    /// A reference to the file with a name in a directory, if the name is in memory.
    #[inline]
    pub(crate) fn lookup_handle_cached(&self, dir: FileId, name: &[u8]) -> Option<Result<Handle>> {
        self.unless_removed(dir, self.resolve_cached(one_name(dir, name), name, false))
    }

    /// The metadata of the file with a name in a directory, if both are in memory.
    #[inline]
    pub(crate) fn lookup_metadata_cached(&self, dir: FileId, name: &[u8]) -> Option<Result<Metadata>> {
        self.unless_removed(dir, self.metadata_cached(one_name(dir, name), name, false))
    }

    /// The result of a lookup in a directory that may have been removed, where only names that do not exist are found.
    #[inline]
    fn unless_removed<T>(&self, dir: FileId, found: Option<Result<T>>) -> Option<Result<T>> {
        found.filter(|found| found.is_ok() || self.is_cached(dir))
    }

    /// Walks along a path from a directory, as far as its names are in memory, and calls `found` with the inode. It
    /// returns whether it can use it, and is called again if a name changed meanwhile.
    #[inline]
    fn walk(
        &self,
        from: Option<Start<'_>>,
        path: &[u8],
        follow: bool,
        found: impl FnMut(&Arc<Inode>, &Section) -> bool,
    ) -> Walked {
        self.walk_within(from, path, follow, &mut { LINKS_MAX }, found)
    }

    /// Like [`walk`](Self::walk), but follows at most `links` symbolic links, and subtracts those that it followed from
    /// `links`.
    #[inline]
    fn walk_within(
        &self,
        from: Option<Start<'_>>,
        path: &[u8],
        follow: bool,
        links: &mut u32,
        mut found: impl FnMut(&Arc<Inode>, &Section) -> bool,
    ) -> Walked {
        let Some(from) = from else { return Walked::Unknown };
        let last_link = if follow { LastLink::Follow } else { LastLink::Keep };
        let mut link = None;
        let walked = self.walk_to_link(from, path, last_link, &mut link, &mut found);
        match link {
            None => walked,
            Some(link) => self.walk_from_link(from, link, last_link, links, &mut found),
        }
    }

    /// Walks along a path up to the first symbolic link that is followed, which is stored in `link`.
    #[inline]
    fn walk_to_link(
        &self,
        from: Start<'_>,
        path: &[u8],
        last_link: LastLink,
        link: &mut Option<Link>,
        found: &mut (impl FnMut(&Arc<Inode>, &Section) -> bool + ?Sized),
    ) -> Walked {
        // A read section is short.
        if path.len() > PATH_MAX {
            return Walked::Unknown;
        }
        let may_search = |dir: &Arc<Inode>| from.may_search(dir);
        let _locked = self.names.lock();
        for _ in 0..WALKS_MAX {
            let (walked, is_current) = rcu::read(|section| {
                let mut walker = self.names.walker(section, from, &may_search);
                let end = walker.walk(path, last_link);
                if let WalkEnd::Link { link: inode, rest } = end {
                    *link =
                        self.follow(section, walker.parent(), inode, path.get(rest..).unwrap_or_default());
                }
                (Walked::of(&end, |inode| found(inode, section)), walker.is_current())
            });
            if is_current {
                return walked;
            }
            *link = None;
        }
        Walked::Unknown
    }

    /// Reads the target of a symbolic link in a directory; `None` if it is not in memory. `rest` is the path after it.
    #[cold]
    fn follow(&self, section: &Section, dir: FileId, link: &Inode, rest: &[u8]) -> Option<Link> {
        let target = inode::symlink::peek_in(self.inode_cache.shared(), section, link)?;
        Some(Link { dir, path: [&target, rest].concat() })
    }

    /// Continues a walk that came to a symbolic link. Each part of the way was there at some moment, as in a walk that
    /// looks names up one by one.
    #[cold]
    fn walk_from_link(
        &self,
        from: Start<'_>,
        mut link: Link,
        last_link: LastLink,
        links: &mut u32,
        found: &mut dyn FnMut(&Arc<Inode>, &Section) -> bool,
    ) -> Walked {
        while let Some(left) = links.checked_sub(1) {
            *links = left;
            let start = match link.path.first() {
                Some(b'/') => self.start_at_root(from.user),
                _ => Some(Start { dir: link.dir, ..from }),
            };
            let Some(start) = start else { break };
            let mut next = None;
            let walked = self.walk_to_link(start, &link.path, last_link, &mut next, found);
            match next {
                None => return walked,
                Some(next) => link = next,
            }
        }
        Walked::Unknown
    }

    /// Where a user's walk along an absolute path begins; `None` if the user must not search the root, or that is not
    /// known.
    pub(crate) fn start_at_root<'c>(&self, user: Option<&'c Credentials>) -> Option<Start<'c>> {
        let start = Start { user, ..self.names.root_start()? };
        match user {
            Some(_) => {
                let may_search = |root: &Inode| start.may_search(root).then_some(start);
                self.inode_cache.read_cached(start.dir.ino, may_search)
            }
            None => Some(start),
        }
    }
}
