//! Names in memory: paths that are resolved without a lock, and dentries of names that were looked up.

use std::sync::{Arc, OnceLock};

use base::rcu::{self, Section};
use format::Geometry;
use format::inode::FileType;
use inode::{Inode, InodeState};
use vfs::{Child, Dentry, DentryCache, DirId, LastLink, NodeKind, WalkEnd};

use crate::metadata::UnmappedData;
use crate::operation::{is_dots, no_such_file, not_a_directory};
use crate::{Handle, Metadata, Result, Volume};

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
    /// Names that differ only in case are the same name: it cannot be told which dentries a change concerns.
    ignore_case: bool,
    root: OnceLock<DirId>,
}

impl Names {
    /// No names yet. The inodes of the names stay in memory, so there are at most half as many as the cache of inodes
    /// holds.
    pub fn new(geometry: &Geometry, inodes: usize, seed: u64) -> Self {
        Self {
            dentries: DentryCache::new((inodes / 2).min(NAMES_MAX), seed),
            ignore_case: geometry.features.ascii_ci(),
            root: OnceLock::new(),
        }
    }

    /// Sets where paths begin.
    pub fn set_root(&self, root: &Inode) {
        if self.root.get().is_none() {
            let _ = self.root.set(dir_of(root));
        }
    }

    /// Where paths begin, if it is known.
    pub fn root(&self) -> Option<DirId> {
        self.root.get().copied()
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
        self.dentries.insert(dir_id(dir), name, child);
    }

    fn is_known(&self, dir: &InodeState, name: &[u8]) -> bool {
        rcu::read(|section| self.dentries.find(section, dir_id(dir), name).is_some())
    }

    /// Whether the dentry of a name in a locked directory, if it is in memory, refers to this inode.
    pub fn agrees(&self, dir: &InodeState, name: &[u8], inode: Option<&Arc<Inode>>) -> bool {
        rcu::read(|section| {
            let known = self.dentries.find(section, dir_id(dir), name).map(Dentry::child);
            known.is_none_or(|child| child.map(|child| Arc::as_ptr(child.node)) == inode.map(Arc::as_ptr))
        })
    }

    /// A name in a locked directory is about to change. Called before any other trace of the change can be seen.
    #[inline]
    pub fn changing(&self, dir: &InodeState, name: &[u8]) {
        self.dentries.remove(dir_id(dir), name);
    }
}

/// The identity of a directory to which the caller has a reference.
pub(crate) fn dir_of(dir: &Inode) -> DirId {
    DirId { ino: dir.ino(), generation: dir.generation() }
}

/// The identity of a locked directory.
fn dir_id(dir: &InodeState) -> DirId {
    DirId { ino: dir.ino(), generation: dir.core().generation.get() }
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

/// How a walk in memory ended.
enum Walked<T> {
    Found(T),
    Absent,
    NotDirectory,
    /// The names must be looked up.
    Unknown,
}

impl Volume {
    /// Metadata of the file at a path, from memory if possible: without a lock, and without a store to memory that
    /// other threads use. A symbolic link at the end is followed if `follow`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`; damage.
    pub fn metadata_at(&self, path: &[u8], follow: bool) -> Result<Metadata> {
        self.metadata_cached(self.names.root(), path, follow)
            .unwrap_or_else(|| self.metadata_of(self.look_up_path(path, follow)?.inode()))
    }

    /// Metadata of the file at a path from a directory, if its names are in memory.
    #[inline]
    pub(crate) fn metadata_cached(
        &self,
        from: Option<DirId>,
        path: &[u8],
        follow: bool,
    ) -> Option<Result<Metadata>> {
        let mut found = None;
        let walked = self.walk(from, path, follow, |inode, section| {
            let data = UnmappedData::in_memory(inode, section);
            found = Metadata::of(&inode.published_stat()?);
            if let Some((metadata, data)) = found.as_mut().zip(data) {
                metadata.add_unmapped(data);
            }
            found.is_some().then_some(())
        });
        match walked {
            Walked::Found(()) => found.map(Ok),
            Walked::Absent => Some(Err(no_such_file())),
            Walked::NotDirectory => Some(Err(not_a_directory())),
            Walked::Unknown => None,
        }
    }

    /// A reference to the file at a path from a directory, if its names are in memory.
    pub(crate) fn resolve_cached(
        &self,
        from: Option<DirId>,
        path: &[u8],
        follow: bool,
    ) -> Option<Result<Handle>> {
        match self.walk(from, path, follow, |inode, _| Some(inode.acquire())) {
            Walked::Found(Ok(inode)) => Some(Ok(Handle::new(inode))),
            Walked::Absent => Some(Err(no_such_file())),
            Walked::NotDirectory => Some(Err(not_a_directory())),
            Walked::Found(Err(_)) | Walked::Unknown => None,
        }
    }

    /// Walks along a path from a directory, as far as its names are in memory, and calls `found` with the inode.
    #[inline]
    fn walk<T>(
        &self,
        from: Option<DirId>,
        path: &[u8],
        follow: bool,
        mut found: impl FnMut(&Arc<Inode>, &Section) -> Option<T>,
    ) -> Walked<T> {
        // A read section is short.
        let Some(from) = from.filter(|_| path.len() <= PATH_MAX) else { return Walked::Unknown };
        let last_link = if follow { LastLink::Follow } else { LastLink::Keep };
        for _ in 0..WALKS_MAX {
            let (walked, is_current) = rcu::read(|section| {
                let walk = self.names.dentries.walk(section, from, path, last_link);
                let walked = match walk.end {
                    WalkEnd::Found(child) => {
                        found(child.node, section).map_or(Walked::Unknown, Walked::Found)
                    }
                    WalkEnd::Absent => Walked::Absent,
                    WalkEnd::NotDirectory => Walked::NotDirectory,
                    WalkEnd::Start | WalkEnd::Unknown => Walked::Unknown,
                };
                // A reference that was taken is dropped outside of the section.
                (walked, walk.is_current())
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

    use crate::{NewFile, Options, Volume};

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
            (volume.lookup_handle(dir, b"file").unwrap().ino(), absent.errno())
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
                drop(volume.open_ino(file).unwrap());
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
