//! Names in memory: paths that are resolved without a lock, and dentries of names that were looked up.

use std::sync::{Arc, OnceLock};

use base::lock::{Locks, Mutex, MutexGuard, Rank};
use base::rcu::{self, Section};
use format::Geometry;
use format::inode::FileType;
use inode::inode::StaleInode;
use inode::{Inode, InodeRef, InodeState};
use vfs::{Child, Dentry, DentryCache, LastLink, NodeKind, WalkEnd};

use crate::namespace::handle::identity;
use crate::operation::{is_dots, no_such_file, not_a_directory};
use crate::permissions::{Caller, Credentials};
use crate::{FileId, Handle, Metadata, Options, Result, Volume};

/// The longest path that is walked in memory, as Linux limits all paths.
const PATH_MAX: usize = 4096;

/// The most names in memory. More would take memory when a volume is opened.
const NAMES_MAX: usize = 1 << 22;

/// Walks that are repeated because a name changed meanwhile, before names are looked up one by one.
const WALKS_MAX: usize = 4;

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
    /// holds.
    pub fn new(geometry: &Geometry, options: &Options) -> Self {
        Self {
            dentries: DentryCache::new((options.inodes / 2).min(NAMES_MAX), options.random().next_u64()),
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

    /// A walk of the program from there.
    #[inline]
    pub fn root_start(&self) -> Option<Start<'static>> {
        Some(Start { dir: self.root()?, user: None })
    }

    /// To be called before a read section, which must not wait.
    #[inline]
    fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.coarse.as_ref().map(Mutex::lock)
    }

    /// Removes all dentries, and so their references to inodes.
    pub fn clear(&self) {
        self.dentries.clear();
    }

    /// Adds the result of a lookup in a locked directory. `None`: the name does not exist.
    pub fn add(&self, dir: &InodeState, name: &[u8], inode: Option<&Arc<Inode>>) {
        if self.ignore_case || is_dots(name) || self.is_known(dir, name) {
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

/// Where a walk in memory begins, and for whom: the caller may search this directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'c> {
    pub dir: FileId,
    /// The user whose permissions are checked on the way; `None` for the program.
    user: Option<&'c Credentials>,
}

impl<'c> Start<'c> {
    /// A walk of the program.
    #[inline]
    pub fn of_program(dir: &Inode) -> Self {
        Self { dir: identity(dir), user: None }
    }

    /// A walk of a caller from a directory; `None` if the caller must not search it, or that is not known.
    pub fn of(caller: Caller<'c>, dir: &Inode) -> Option<Self> {
        let start = Self { dir: identity(dir), user: caller.user().map(Arc::as_ref) };
        start.may_search(dir).then_some(start)
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
    (!name.contains(&b'/')).then_some(Start { dir, user: None })
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
            WalkEnd::Found(_) | WalkEnd::Start | WalkEnd::Unknown => Self::Unknown,
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

/// References that the walks of one call took, one for each walk. They are dropped outside of the read sections, as
/// that may take a lock.
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
            let mut walker = self.names.dentries.walker(section, from.dir);
            if from.user.is_some() {
                walker.limit_search(&may_search);
            }
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
        let mut acquired = Acquired::default();
        let walked = self.walk(from, path, follow, |inode, _| acquired.add(inode));
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

    /// Like [`lookup_handle_cached`](Self::lookup_handle_cached), with the metadata, if these are in memory, too.
    #[inline]
    pub(crate) fn lookup_metadata_cached(
        &self,
        dir: FileId,
        name: &[u8],
    ) -> Option<Result<(Handle, Metadata)>> {
        let (mut acquired, mut metadata) = (Acquired::default(), None);
        let walked = self.walk(one_name(dir, name), name, false, |inode, section| {
            metadata = Metadata::in_memory(inode, section);
            metadata.is_some() && acquired.add(inode)
        });
        self.unless_removed(dir, walked.result(acquired.last().zip(metadata)))
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
        mut found: impl FnMut(&Arc<Inode>, &Section) -> bool,
    ) -> Walked {
        // A read section is short.
        let Some(from) = from.filter(|_| path.len() <= PATH_MAX) else { return Walked::Unknown };
        let last_link = if follow { LastLink::Follow } else { LastLink::Keep };
        let may_search = |dir: &Arc<Inode>| from.may_search(dir);
        let _locked = self.names.lock();
        for _ in 0..WALKS_MAX {
            let (walked, is_current) = rcu::read(|section| {
                let mut walker = self.names.dentries.walker(section, from.dir);
                if from.user.is_some() {
                    walker.limit_search(&may_search);
                }
                let walked = Walked::of(&walker.walk(path, last_link), |inode| found(inode, section));
                (walked, walker.is_current())
            });
            if is_current {
                return walked;
            }
        }
        Walked::Unknown
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{errno, percpu};

    use crate::{Credentials, Dir, Locks, NewFile, Options, Volume};

    /// A lookup waited for every create in its directory, however often the name had been looked up.
    #[test]
    fn a_lookup_of_a_name_in_memory_does_not_wait_for_its_directory() {
        let device = Arc::new(block::MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let volume = Volume::open(device, Options::default()).unwrap();
        let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
        let file = volume.create(dir, b"file", &NewFile::regular()).unwrap();
        let look_up = || {
            let absent = volume.lookup_handle(dir, b"absent").map(|_| ()).unwrap_err();
            (volume.lookup_handle(dir, b"file").unwrap().id(), absent.errno())
        };
        let expected = (file, errno::ENOENT);
        assert_eq!(look_up(), expected);
        let dir_ref = volume.inode(dir).unwrap();
        let locked = dir_ref.lock();
        std::thread::scope(|scope| assert_eq!(scope.spawn(look_up).join().unwrap(), expected));
        drop(locked);
        drop(dir_ref);
        volume.unmount().unwrap();
    }

    /// For a user, the names of a path were looked up one by one.
    #[test]
    fn a_user_walks_along_names_in_memory_without_locks() {
        let device = Arc::new(block::MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let volume = Volume::open(device, Options::default()).unwrap();
        let root = Dir::root(&volume).unwrap();
        root.create_dir_all("dir/sub").unwrap();
        root.write("dir/sub/file", "text").unwrap();
        let user = root.clone().with_credentials(Credentials::new(1000, 1000));
        let errno = || user.metadata("/dir/sub/file").map(|_| ()).map_err(|error| error.errno());
        assert_eq!(errno(), Ok(()));
        let dir = volume.resolve_handle(b"dir", false).unwrap();
        let locked = dir.inode().lock();
        std::thread::scope(|scope| assert_eq!(scope.spawn(errno).join().unwrap(), Ok(())));
        drop(locked);
        root.set_permissions("dir", 0o700).unwrap();
        assert_eq!(errno(), Err(errno::EACCES));
        root.set_permissions("dir", 0o711).unwrap();
        assert_eq!(errno(), Ok(()));
        drop((dir, root, user));
        volume.unmount().unwrap();
    }

    /// Where each absolute path begins was looked up in the read section of the walk before, which must take no lock.
    #[test]
    fn a_user_gets_the_metadata_of_many_absolute_paths() {
        for locks in [Locks::Fine, Locks::Coarse] {
            let device = Arc::new(block::MemoryDevice::new(64 << 20));
            mkfs::format(&*device, &mkfs::Options::default()).unwrap();
            let volume = Volume::open(device, Options { locks, ..Options::default() }).unwrap();
            let root = Dir::root(&volume).unwrap();
            root.create_dir("dir").unwrap();
            root.write("dir/file", "text").unwrap();
            root.metadata("/").unwrap();
            let user = root.clone().with_credentials(Credentials::new(1000, 1000));
            for _ in 0..2 {
                let found = user.stat_many(["/dir", "/dir/file", "dir/file", "/dir/none", "/"]);
                let errnos = found.iter().map(|known| known.as_ref().err().map(crate::Error::errno));
                assert_eq!(errnos.collect::<Vec<_>>(), [None, None, None, Some(errno::ENOENT), None]);
            }
            drop((root, user));
            volume.unmount().unwrap();
        }
    }

    /// After a name that did not exist was looked up in a directory that was then removed, another lookup of it still
    /// said so, of others that the directory was removed.
    #[test]
    fn a_removed_directory_is_stale_whatever_was_looked_up_in_it() {
        let device = Arc::new(block::MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let volume = Volume::open(device, Options::default()).unwrap();
        let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
        let look_up = |name: &[u8]| {
            let file = volume.lookup(dir, name).map(|_| ()).unwrap_err().errno();
            let handle = volume.lookup_handle(dir, name).map(|_| ()).unwrap_err().errno();
            let metadata = volume.lookup_metadata(dir, name).map(|_| ()).unwrap_err().errno();
            [file, handle, metadata]
        };
        assert_eq!(look_up(b"none"), [errno::ENOENT; 3]);
        volume.rmdir(volume.root(), b"dir").unwrap();
        volume.write_back_all().unwrap();
        inode::inactive::drain(volume.inode_cache.shared());
        assert_eq!([look_up(b"none"), look_up(b"other")], [[errno::ESTALE; 3]; 2]);
        volume.unmount().unwrap();
    }

    /// Dentries hold their inodes in memory. With as many dentries as inodes, the cache of inodes grew to 2.4 times its
    /// size.
    #[test]
    fn names_do_not_keep_more_inodes_than_the_cache_may_hold() {
        const INODES: usize = 16 << 10;
        let device = Arc::new(block::MemoryDevice::new(256 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let options = || Options { inodes: INODES, ..Options::default() };
        let volume = Volume::open(device.clone(), options()).unwrap();
        let root = volume.root();
        for n in 0..4 * INODES {
            volume.create(root, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
        }
        volume.unmount().unwrap();
        let volume = Volume::open(device, options()).unwrap();
        for n in 0..4 * INODES {
            volume.metadata_at(format!("{n}").as_bytes(), false).unwrap();
        }
        let cached = volume.inode_cache.len();
        assert!(cached <= INODES + INODES / 2, "{cached}");
        volume.unmount().unwrap();
    }

    /// Inodes whose references are counted on each CPU seem to be in use: they must be able to leave memory, and to let
    /// go of the device at unmount.
    #[test]
    fn files_that_several_cpus_opened_leave_memory() {
        const INODES: usize = 16 << 10;
        let device = Arc::new(block::MemoryDevice::new(256 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let options = Options { inodes: INODES, ..Options::default() };
        let volume = Volume::open(device.clone(), options).unwrap();
        let root = volume.root();
        let create = |n: usize| volume.create(root, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
        for n in 0..INODES {
            let file = create(n);
            for cpu in 0..20 {
                percpu::override_current(Some(cpu % 2));
                drop(volume.open_id(file).unwrap());
            }
        }
        percpu::override_current(None);
        volume.write_back_all().unwrap();
        // Each shard of the cache is used again.
        for n in INODES..5 * INODES {
            create(n);
            if n % INODES == 0 {
                volume.write_back_all().unwrap();
            }
        }
        let cached = volume.inode_cache.len();
        assert!(cached <= 5 * INODES / 2, "{cached}");
        volume.unmount().unwrap();
        assert_eq!(Arc::strong_count(&device), 1);
    }
}
