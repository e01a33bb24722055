//! The state of one in-core inode: its on-disk bytes, the fields that changed, and its decoded extents.

mod fork_extents;
mod types;

use base::Ino;
use format::Geometry;
use format::inode::{Dinode, FileType, ForkKind, RawInode, flags2};
use format::log::inode::fields;
use format::ondisk::{OnDisk, U16, U32, U64};
use format::timestamp::Timestamp;
pub use types::{Features, ForkFormat, InodeTime};
use zerocopy::FromZeros;

use crate::dir::collision_index::CollisionIndex;
use crate::dir::recent_buffers::RecentBuffers;
use crate::extents::{ExtentList, LoadedExtents};
use crate::fork::root::InlineRoot;
use crate::literal_area::LiteralArea;

/// The state of one inode, protected by its lock.
#[derive(Debug)]
pub struct InodeState {
    ino: Ino,
    core: RawInode,
    /// The literal area: data fork, then attribute fork.
    literal: LiteralArea,
    features: Features,
    /// Fields changed since the last metadata writeback ([`fields`]).
    fields: u32,
    /// Changed since the last commit.
    changed: bool,
    /// See [`is_watched`](Self::is_watched).
    watched: bool,
    /// Extents of the data and attribute forks; `None` until they are needed.
    extents: [Option<LoadedExtents>; 2],
    /// Recently used buffers of a directory; dropped when the extents change.
    recent_buffers: Option<Box<RecentBuffers>>,
    /// The collision index of a directory.
    collision_index: Option<Box<CollisionIndex>>,
}

impl InodeState {
    fn new(ino: Ino, core: RawInode, literal: LiteralArea, features: Features) -> Self {
        Self {
            ino,
            core,
            literal,
            features,
            fields: 0,
            changed: false,
            watched: false,
            extents: [None, None],
            recent_buffers: None,
            collision_index: None,
        }
    }

    /// The state of a verified inode in a cluster buffer.
    pub fn load(inode: &Dinode<'_>, features: Features) -> Self {
        let (core, literal) = inode.parts();
        Self::new(inode.ino(), *core, LiteralArea::of(literal), features)
    }

    /// A free inode in a new chunk: all zero except for its identity.
    pub fn blank(ino: Ino, geometry: &Geometry, generation: u32) -> Self {
        let literal = LiteralArea::zeros((geometry.inode_size as usize).saturating_sub(RawInode::SIZE));
        let mut state = Self::new(ino, RawInode::new_zeroed(), literal, Features::of(geometry));
        state.core.uuid = geometry.uuid;
        state.clear_core(generation);
        state
    }

    /// Initializes a free inode as an empty file. Inode number and generation stay; the extent counters and times have
    /// the width of the volume's new inodes.
    pub(crate) fn init(&mut self, features: Features) {
        let mut flags = 0;
        if features.bigtime {
            flags |= flags2::BIGTIME;
        }
        if features.nrext64 {
            flags |= flags2::NREXT64;
        }
        self.clear_core(self.core.generation.get());
        self.core.aformat = ForkFormat::Extents as u8;
        self.core.flags2 = U64::new(flags);
        self.literal.clear();
        self.drop_caches();
        self.features = features;
        // The change that creates the inode adds another one.
        self.core.changecount = U64::new(1);
        (self.changed, self.watched) = (false, false);
        self.edit();
    }

    /// Frees the inode: only the inode number and the next generation stay.
    pub(crate) fn uninit(&mut self) {
        let changes = self.core.changecount.get();
        let flags = self.core.flags2.get() & (flags2::BIGTIME | flags2::NREXT64);
        let times = (self.core.atime, self.core.mtime, self.core.ctime, self.core.crtime);
        self.clear_core(self.core.generation.get().wrapping_add(1));
        self.core.format = ForkFormat::Extents as u8;
        self.core.aformat = ForkFormat::Extents as u8;
        self.core.flags2 = U64::new(flags);
        self.core.changecount = U64::new(changes);
        (self.core.atime, self.core.mtime, self.core.ctime, self.core.crtime) = times;
        self.drop_caches();
        self.edit();
    }

    /// Drops extents and caches.
    fn drop_caches(&mut self) {
        (self.extents, self.recent_buffers, self.collision_index) = ([None, None], None, None);
    }

    /// Resets the core to its identity.
    fn clear_core(&mut self, generation: u32) {
        let uuid = self.core.uuid;
        self.core.zero();
        self.core.magic = U16::new(format::inode::MAGIC);
        self.core.version = 3;
        self.core.generation = U32::new(generation);
        self.core.next_unlinked = U32::new(format::agi::NULL_AG_INO);
        self.core.ino = U64::new(self.ino.get());
        self.core.uuid = uuid;
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The core, for reading any field.
    pub fn core(&self) -> &RawInode {
        &self.core
    }

    /// The core, for changing any field. Marks it as changed, and increments the change count once per commit, as Linux
    /// does. Prefer the setters below: they change related fields together.
    pub fn edit(&mut self) -> &mut RawInode {
        if !self.changed {
            self.changed = true;
            self.core.changecount = U64::new(self.core.changecount.get().wrapping_add(1));
            if self.features.bigtime && self.core.flags2.get() & flags2::BIGTIME == 0 {
                self.widen_times();
            }
        }
        self.fields |= fields::CORE;
        &mut self.core
    }

    /// A view that decodes types, times, counts and forks.
    pub fn dinode(&self) -> Dinode<'_> {
        Dinode::from_parts(&self.core, self.literal.bytes())
    }

    /// The core and the literal area.
    pub fn parts(&self) -> (&RawInode, &[u8]) {
        (&self.core, self.literal.bytes())
    }

    /// Whether the literal area may contain anything but zeros.
    pub(crate) fn has_literal_data(&self) -> bool {
        !self.literal.is_zeros()
    }

    /// Fields changed since the last metadata writeback ([`fields`]).
    pub fn fields(&self) -> u32 {
        self.fields
    }

    /// Marks fields as changed.
    pub fn mark(&mut self, more: u32) {
        self.edit();
        self.fields |= more;
    }

    /// Whether the inode changed since the last commit.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Whether a program may be watching this directory for changes. An upper layer keeps the watches. In the state,
    /// the flag costs a change of an unwatched directory one load of memory that the change uses anyway.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Sets [`is_watched`](Self::is_watched). Whoever sets it keeps the inode in memory while the flag is needed: it is
    /// not stored.
    pub fn set_watched(&mut self, is_watched: bool) {
        self.watched = is_watched;
    }

    /// The fields that a commit must log: those that changed, and `unwritten`, which a metadata write carries or has
    /// failed to carry.
    pub(crate) fn commit_fields(&mut self, unwritten: u32) -> u32 {
        self.changed = false;
        self.fields |= unwritten;
        self.fields
    }

    /// Marks fields again that a metadata write failed to carry.
    pub(crate) fn restore_fields(&mut self, lost: u32) {
        self.fields |= lost;
    }

    /// All changed fields are in a metadata write.
    pub(crate) fn clear_fields(&mut self) {
        self.fields = 0;
    }

    fn widen_times(&mut self) {
        let widen = |raw| Timestamp::decode(raw, false).encode(true);
        let core = &mut self.core;
        core.atime = widen(core.atime);
        core.mtime = widen(core.mtime);
        core.ctime = widen(core.ctime);
        core.crtime = widen(core.crtime);
        core.flags2 = U64::new(core.flags2.get() | flags2::BIGTIME);
    }

    /// Sets one time, clamped to the range of the inode's timestamp format.
    pub fn set_time(&mut self, which: InodeTime, time: Timestamp) {
        self.set_times(&[which], time);
    }

    /// Sets several times to the same value.
    pub fn set_times(&mut self, which: &[InodeTime], time: Timestamp) {
        let core = self.edit();
        let raw = time.encode(core.flags2.get() & flags2::BIGTIME != 0);
        for which in which {
            match which {
                InodeTime::Access => core.atime = raw,
                InodeTime::Modify => core.mtime = raw,
                InodeTime::Change => core.ctime = raw,
                InodeTime::Create => core.crtime = raw,
            }
        }
    }

    /// Change time (ctime).
    pub fn ctime(&self) -> Timestamp {
        Timestamp::decode(self.core.ctime, self.core.flags2.get() & flags2::BIGTIME != 0)
    }

    /// File type and permissions.
    pub fn mode(&self) -> u16 {
        self.core.mode.get()
    }

    /// Sets file type and permissions.
    pub fn set_mode(&mut self, mode: u16) {
        self.edit().mode = U16::new(mode);
    }

    /// Sets user and group id.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        let core = self.edit();
        (core.uid, core.gid) = (U32::new(uid), U32::new(gid));
    }

    /// Link count.
    pub fn nlink(&self) -> u32 {
        self.core.nlink.get()
    }

    /// Sets the link count.
    pub fn set_nlink(&mut self, nlink: u32) {
        self.edit().nlink = U32::new(nlink);
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.core.size.get()
    }

    /// Sets the size.
    pub fn set_size(&mut self, size: u64) {
        self.edit().size = U64::new(size);
    }

    /// Blocks of both forks, including their btrees.
    pub fn nblocks(&self) -> u64 {
        self.core.nblocks.get()
    }

    /// Adds to the block count, or subtracts from it.
    pub fn change_nblocks(&mut self, by: i64) {
        let blocks = self.core.nblocks.get().saturating_add_signed(by);
        self.edit().nblocks = U64::new(blocks);
    }

    /// Sets the project id.
    pub fn set_project(&mut self, project: u32) {
        let core = self.edit();
        (core.projid_lo, core.projid_hi) = (U16::new(project as u16), U16::new((project >> 16) as u16));
    }

    /// The format of a fork; `None` for an absent attribute fork or an invalid number.
    pub fn fork_format(&self, kind: ForkKind) -> Option<ForkFormat> {
        match kind {
            ForkKind::Data => ForkFormat::from_raw(self.core.format),
            ForkKind::Attr if self.core.forkoff == 0 => None,
            ForkKind::Attr => ForkFormat::from_raw(self.core.aformat),
        }
    }

    /// Sets the format of a fork. The caller fills the fork's area.
    pub fn set_fork_format(&mut self, kind: ForkKind, form: ForkFormat) {
        let core = self.edit();
        match kind {
            ForkKind::Data => core.format = form as u8,
            ForkKind::Attr => core.aformat = form as u8,
        }
    }

    /// Bytes of the inode that a fork has.
    pub fn fork_capacity(&self, kind: ForkKind) -> usize {
        self.dinode().fork_bytes(kind).len()
    }

    /// A fork's part of the literal area.
    pub fn fork_bytes(&self, kind: ForkKind) -> &[u8] {
        self.dinode().fork_bytes(kind)
    }

    /// Mutable access to a fork's part of the literal area; the caller marks what changed.
    pub fn fork_bytes_mut(&mut self, kind: ForkKind) -> &mut [u8] {
        let split = match usize::from(self.core.forkoff) * 8 {
            0 => self.literal.len(),
            at => at.min(self.literal.len()),
        };
        let (data, attr) = self.literal.bytes_mut().split_at_mut(split);
        match kind {
            ForkKind::Data => data,
            ForkKind::Attr => attr,
        }
    }

    /// Size of the literal area in bytes.
    pub fn literal_len(&self) -> usize {
        self.literal.len()
    }

    /// Whether the inode is that of a regular file without names, blocks and attributes.
    pub(crate) fn is_empty_and_unnamed(&self) -> bool {
        self.nlink() == 0
            && FileType::from_mode(self.mode()) == Some(FileType::Regular)
            && self.core.nblocks.get() == 0
            && self.forkoff() == 0
            && self.fork_format(ForkKind::Data) == Some(ForkFormat::Extents)
            && self.extent_count(ForkKind::Data) == 0
            // It may have blocks for copy on write, which are not counted.
            && self.core.flags2.get() & flags2::REFLINK == 0
    }

    /// `forkoff`: the start of the attribute fork in units of 8 bytes; 0 without an attribute fork.
    pub fn forkoff(&self) -> u8 {
        self.core.forkoff
    }

    /// Sets `forkoff`; 0 removes the attribute fork. The caller has checked that the data fork fits. The attribute fork
    /// becomes an empty list of extents.
    pub fn set_forkoff(&mut self, units: u8) {
        let root = (self.fork_format(ForkKind::Data) == Some(ForkFormat::Btree))
            .then(|| InlineRoot::take(self.fork_bytes(ForkKind::Data)));
        let core = self.edit();
        core.forkoff = units;
        core.aformat = ForkFormat::Extents as u8;
        if let Some(root) = root {
            root.put(self.fork_bytes_mut(ForkKind::Data));
            self.mark(fields::DATA_ROOT);
        }
        if units != 0 {
            self.fork_bytes_mut(ForkKind::Attr).fill(0);
        }
        self.set_list(ForkKind::Attr, Some(ExtentList::new()));
    }

    /// Shortform attributes, from their header on; `None` in other formats.
    pub fn attr_local(&self) -> Option<&[u8]> {
        (self.fork_format(ForkKind::Attr) == Some(ForkFormat::Local)).then(|| self.fork_bytes(ForkKind::Attr))
    }

    /// Makes the attribute fork local. Returns `false`, with nothing changed, if `contents` does not fit.
    #[must_use]
    pub fn set_attr_local(&mut self, contents: &[u8]) -> bool {
        if contents.len() > self.fork_capacity(ForkKind::Attr) {
            return false;
        }
        self.set_list(ForkKind::Attr, Some(ExtentList::new()));
        self.edit().aformat = ForkFormat::Local as u8;
        self.mark(fields::ATTR_LOCAL);
        let area = self.fork_bytes_mut(ForkKind::Attr);
        area.fill(0);
        if let Some(target) = area.get_mut(..contents.len()) {
            target.copy_from_slice(contents);
        }
        true
    }

    /// Contents of a local data fork; `None` in other formats.
    pub fn local(&self) -> Option<&[u8]> {
        (self.core.format == ForkFormat::Local as u8).then_some(())?;
        self.fork_bytes(ForkKind::Data).get(..usize::try_from(self.core.size.get()).ok()?)
    }

    /// Makes the data fork local with `bytes` bytes, of which the first old ones stay; sets the size and marks both.
    /// Returns the contents for changing; `None`, with nothing changed, if they do not fit.
    pub fn resize_local(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.fork_capacity(ForkKind::Data) {
            return None;
        }
        let core = self.edit();
        (core.format, core.size) = (ForkFormat::Local as u8, U64::new(bytes as u64));
        self.fields |= fields::DATA_LOCAL;
        self.fork_bytes_mut(ForkKind::Data).get_mut(..bytes)
    }

    /// Makes `contents` the local data fork. Returns `false`, with nothing changed, if it does not fit.
    #[must_use]
    pub fn set_local(&mut self, contents: &[u8]) -> bool {
        match self.resize_local(contents.len()) {
            Some(target) => {
                target.copy_from_slice(contents);
                true
            }
            None => false,
        }
    }

    /// Device number of a special file, in the 32-bit sysv encoding.
    pub fn device(&self) -> Option<u32> {
        (self.core.format == ForkFormat::Device as u8).then_some(())?;
        U32::view(self.fork_bytes(ForkKind::Data)).map(|raw| raw.get())
    }

    /// Makes the data fork a device number.
    pub fn set_device(&mut self, device: u32) {
        self.edit().format = ForkFormat::Device as u8;
        self.fields |= fields::DEVICE;
        if let Some(field) = self.fork_bytes_mut(ForkKind::Data).first_chunk_mut() {
            *field = device.to_be_bytes();
        }
    }

    /// Recently used buffers of a directory.
    pub(crate) fn recent_buffers(&self) -> Option<&RecentBuffers> {
        self.recent_buffers.as_deref()
    }

    /// Recently used buffers of a directory, for adding one.
    pub(crate) fn recent_buffers_mut(&mut self) -> &mut RecentBuffers {
        self.recent_buffers.get_or_insert_default()
    }

    /// The collision index of a directory.
    pub(crate) fn collision_index(&mut self) -> &mut Option<Box<CollisionIndex>> {
        &mut self.collision_index
    }
}
