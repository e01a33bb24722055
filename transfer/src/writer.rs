//! Writes items to an open volume.

mod contents;

use std::collections::{BTreeMap, HashMap};

use base::errno;
use base::time::Time;
use format::timestamp::Timestamp;
use volume::settings::HINTS;
use volume::{BulkWriter, Dir, File, FileId, NewFile, SetAttribute, SetMetadata, Settings, Volume};

use crate::item::{Entry, EntryKind, EntryMetadata, Item, Loss, Receiver, SharedRange, split};
use crate::options::setters;
use crate::progress::{Cancel, Counts, Progress};
use crate::tree::{Tree, exists};
use crate::{Error, Overrides, Result, labels};

/// Memory for the cache of directories, in bytes.
const DIR_CACHE_BYTES: usize = 4 << 20;
/// Number of bytes of a path's end that messages of [`Writer::finish`] show.
const SHOWN_BYTES: usize = 256;
/// Mode of parent directories that the source does not contain.
pub(crate) const IMPLIED: u16 = 0o755;
/// The default ACL: new files inherit it, so that a directory gets it last.
pub(crate) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// The set-group-ID bit: new files of a directory inherit its group, so that it is set last.
pub(crate) const SET_GROUP: u16 = 0o2000;

/// Writes files to an open volume. An existing file is replaced; a directory is merged and gets the metadata of the
/// source.
pub struct Writer<'v> {
    volume: &'v Volume,
    tree: Tree<'v>,
    overrides: Overrides,
    /// Inode numbers of recent directories by path.
    dir_cache: HashMap<Vec<u8>, FileId>,
    dir_cache_bytes: usize,
    /// Metadata that is set at the end.
    pending: Vec<PendingMetadata>,
    open: Option<OpenFile<'v>>,
    /// Contents that will be written together.
    bulk_writer: BulkWriter<'v>,
    /// The range of an earlier file that the next contents may share.
    shared: Option<SharedRange>,
    round: Round,
    /// Log bytes of a round; `None` without rounds.
    round_log_bytes: Option<u64>,
    done: ImportReport,
    progress: &'v dyn Progress,
    cancel: Cancel,
    /// Unreadable files are skipped; otherwise they are errors.
    skip_unreadable: bool,
}

/// What was imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Files of all types, with each of their names.
    pub files: u64,
    /// Hard links among them.
    pub links: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Metadata that was not preserved, by type.
    pub lost: BTreeMap<Loss, u64>,
    /// Unreadable files that were skipped.
    pub unreadable: u64,
}

/// The work since the last metadata writeback.
#[derive(Default)]
struct Round {
    logged: u64,
    contents: u64,
}

/// Log bytes of a round: blocks that change often are then written once for thousands of files.
const ROUND_LOG_BYTES: u64 = 4 << 20;
/// Bytes of contents of a round.
const ROUND_CONTENTS: u64 = 16 << 20;
/// Approximate log bytes of creating a file: its inode, its name, and its share of the btrees.
const FILE_LOG_BYTES: u64 = 1536;

/// A file whose contents are incomplete.
struct OpenFile<'v> {
    id: FileId,
    path: Vec<u8>,
    size: u64,
    /// End of the contents so far.
    reached: u64,
    times: SetMetadata,
    /// For contents that are not whole blocks: written through the page cache.
    cached: Option<File<'v>>,
}

/// Metadata of a file that is set at the end.
struct PendingMetadata {
    id: FileId,
    /// The end of its path, for messages.
    path: Box<[u8]>,
    set: SetMetadata,
    default_acl: Option<Vec<u8>>,
    settings: Settings,
}

impl<'v> Writer<'v> {
    /// Writes below the directory `root` of the volume.
    pub fn new(volume: &'v Volume, root: FileId, overrides: Overrides) -> Self {
        Self {
            volume,
            tree: Tree { volume, root },
            overrides,
            dir_cache: HashMap::new(),
            dir_cache_bytes: 0,
            pending: Vec::new(),
            open: None,
            bulk_writer: BulkWriter::new(volume),
            shared: None,
            round: Round::default(),
            round_log_bytes: None,
            done: ImportReport::default(),
            progress: &(),
            cancel: Cancel::default(),
            skip_unreadable: false,
        }
    }

    /// Works in rounds: after some files or contents, this thread writes back all metadata. A volume without background
    /// threads then never starts any, and its layout does not depend on their speed.
    #[must_use]
    pub fn in_rounds(mut self) -> Self {
        let geometry = self.volume.geometry();
        let log_bytes = u64::from(geometry.log_blocks) * u64::from(geometry.block_size);
        self.round_log_bytes = Some(ROUND_LOG_BYTES.min(log_bytes / 16));
        self
    }

    setters! {
        /// Reports progress and messages.
        progress: &'v dyn Progress;
        /// Fails with [`Error::Cancelled`] after [`Cancel::cancel`] of a clone.
        cancel: Cancel;
        /// Skips unreadable files with a message. By default, they are errors.
        skip_unreadable: bool;
    }

    fn advance(&self) {
        self.progress.advance(Counts { files: self.done.files, bytes: self.done.bytes });
    }

    /// Ends an import that failed: removes a file with incomplete contents.
    pub fn abort(mut self) {
        // The first error is reported.
        let _ = self.discard();
    }

    /// Sets the metadata that is set last, after the sources ended.
    ///
    /// # Errors
    /// Those of the volume; [`Error::Invalid`] for an override of a file that does not exist.
    pub fn finish(mut self) -> Result<ImportReport> {
        for entry in self.overrides.missing()? {
            self.entry(entry)?;
        }
        self.fill()?;
        self.label_root()?;
        for file in std::mem::take(&mut self.pending) {
            self.round(FILE_LOG_BYTES, 0)?;
            self.finish_one(&file).map_err(Error::volume(&file.path))?;
        }
        Ok(self.done)
    }

    /// Sets the SELinux label of a root without one.
    fn label_root(&self) -> Result<()> {
        let Some(label) = self.overrides.label_of_directory(b"") else { return Ok(()) };
        let set = self.volume.set_attribute(self.tree.root, labels::ATTRIBUTE, label, SetAttribute::Create);
        match set {
            Err(error) if error.errno() == errno::EEXIST => Ok(()),
            set => set.map_err(Error::volume(b"")),
        }
    }

    fn finish_one(&mut self, file: &PendingMetadata) -> volume::Result<()> {
        let id = file.id;
        if !exists(self.volume, id)? {
            // A later source removed it.
            return Ok(());
        }
        if let Some(list) = &file.default_acl {
            self.volume.set_attribute(id, DEFAULT_ACL, list, SetAttribute::Any)?;
        }
        if file.set != SetMetadata::default() {
            self.volume.set_metadata(id, &file.set)?;
        }
        self.set_settings(id, &file.settings)
    }

    /// Adds settings to those of a file.
    fn set_settings(&mut self, id: FileId, wanted: &Settings) -> volume::Result<()> {
        if *wanted == Settings::default() {
            return Ok(());
        }
        let mut settings = self.volume.settings(id)?;
        settings.xflags |= wanted.xflags;
        if wanted.without_hints() != Settings::default() {
            settings.project = wanted.project;
        }
        if wanted.xflags & HINTS != 0 {
            (settings.extsize, settings.cowextsize) = (wanted.extsize, wanted.cowextsize);
        }
        match self.volume.set_settings(id, &settings) {
            Err(error) if error.errno() == errno::EINVAL => {
                self.lose(Loss::Flags);
                Ok(())
            }
            done => done,
        }
    }

    fn entry(&mut self, mut entry: Entry) -> Result<()> {
        self.overrides.apply(&mut entry);
        let times = [entry.metadata.accessed, entry.metadata.modified];
        if !times.into_iter().flatten().all(|time| self.can_hold(time)) {
            self.lose(Loss::Time);
        }
        let possible = entry.metadata.settings.with_possible_hints(self.volume.geometry());
        if std::mem::replace(&mut entry.metadata.settings, possible) != possible {
            self.lose(Loss::ExtentSizeHint);
        }
        let attributes = entry.metadata.attributes.iter();
        let logged: usize = attributes.map(|(name, value)| 2 * (name.len() + value.len()) + 512).sum();
        self.round(FILE_LOG_BYTES + logged as u64, 0)?;
        self.make(&entry)?;
        self.done.files += 1;
        if let EntryKind::File { size: 1.., data } = entry.kind {
            self.data(data)?;
        }
        self.advance();
        Ok(())
    }

    fn can_hold(&self, time: Time) -> bool {
        let bigtime = self.volume.geometry().features.bigtime();
        let time = Timestamp { seconds: time.seconds, nanoseconds: time.nanos };
        Timestamp::decode(time.encode(bigtime), bigtime) == time
    }

    /// Ends the round if the next change exceeds its limits.
    fn round(&mut self, logged: u64, contents: u64) -> Result<()> {
        let is_logged = self.round_log_bytes.is_some_and(|most| self.round.logged + logged > most);
        if is_logged || self.round.contents + contents > ROUND_CONTENTS {
            self.fill()?;
            if self.round_log_bytes.is_some() {
                self.volume.write_back_all().map_err(Error::volume(b""))?;
            }
            self.round = Round::default();
        }
        self.round.logged += logged;
        self.round.contents += contents;
        Ok(())
    }

    /// Empties the directory cache after a removal.
    pub(crate) fn forget(&mut self) {
        self.dir_cache.clear();
        self.dir_cache_bytes = 0;
    }

    /// Writes pending contents.
    pub(crate) fn fill(&mut self) -> Result<()> {
        self.bulk_writer.finish().map_err(Error::volume(b""))
    }

    /// Creates a file. If the volume is full, pending contents are written first: they reserve blocks for their maps
    /// that they mostly do not need.
    fn create(&mut self, dir: FileId, name: &[u8], new: &NewFile<'_>, path: &[u8]) -> Result<FileId> {
        let mut made = self.volume.create(dir, name, new);
        if made.as_ref().is_err_and(|error| error.errno() == errno::ENOSPC) {
            self.fill()?;
            made = self.volume.create(dir, name, new);
        }
        made.map_err(Error::volume(path))
    }

    fn make(&mut self, entry: &Entry) -> Result<()> {
        let path = entry.path.as_slice();
        let Some((parent, name)) = split(path) else { return self.adopt(self.tree.root, entry) };
        let dir = self.directory(parent)?;
        let made = self.make_in(dir, name, entry);
        match made {
            Err(Error::Volume { source, .. }) if source.errno() == errno::EEXIST => {
                self.make_over(dir, name, entry)
            }
            made => made,
        }
    }

    fn make_in(&mut self, dir: FileId, name: &[u8], entry: &Entry) -> Result<()> {
        let (path, metadata) = (entry.path.as_slice(), &entry.metadata);
        let kind = match &entry.kind {
            EntryKind::File { .. } => volume::NewFileType::Regular,
            EntryKind::Directory => return self.make_directory(dir, name, entry),
            EntryKind::Symlink(target) => volume::NewFileType::Symlink(target),
            EntryKind::Link(target) => {
                let target = self.named(target)?;
                self.volume.link(target, dir, name).map_err(Error::volume(path))?;
                self.done.links += 1;
                return Ok(());
            }
            EntryKind::CharDevice(device) => volume::NewFileType::CharDevice(*device),
            EntryKind::BlockDevice(device) => volume::NewFileType::BlockDevice(*device),
            EntryKind::Fifo => volume::NewFileType::Fifo,
            EntryKind::Socket => volume::NewFileType::Socket,
        };
        let attributes: Vec<_> = borrowed(metadata).collect();
        let new = NewFile { attributes: &attributes, ..of(kind, metadata) };
        let id = self.create(dir, name, &new, path)?;
        let settings = metadata.settings;
        if settings.xflags & HINTS != 0 {
            // Hints must be set before contents; flags that forbid changes are set last.
            let hints = Settings { xflags: settings.xflags & HINTS, project: 0, ..settings };
            self.round(FILE_LOG_BYTES, 0)?;
            self.set_settings(id, &hints).map_err(Error::volume(path))?;
        }
        if settings.without_hints() != Settings::default() {
            self.finish_later(id, path, SetMetadata::default(), settings.without_hints(), metadata)?;
        }
        if let EntryKind::File { size: size @ 1.., .. } = &entry.kind {
            let (path, times) = (path.to_vec(), times(metadata));
            self.open = Some(OpenFile { id, path, size: *size, reached: 0, times, cached: None });
        }
        Ok(())
    }

    fn make_directory(&mut self, dir: FileId, name: &[u8], entry: &Entry) -> Result<()> {
        let (path, metadata) = (entry.path.as_slice(), &entry.metadata);
        let attributes: Vec<_> = borrowed(metadata).filter(|(name, _)| *name != DEFAULT_ACL).collect();
        let mut new = NewFile { attributes: &attributes, ..of(volume::NewFileType::Directory, metadata) };
        new.permissions &= !SET_GROUP;
        let id = self.create(dir, name, &new, path)?;
        self.cache_dir(path, id);
        self.finish_directory(id, path, metadata)
    }

    /// Sets the metadata of an existing directory.
    fn adopt(&mut self, id: FileId, entry: &Entry) -> Result<()> {
        if entry.kind != EntryKind::Directory {
            return Err(Error::invalid(&entry.path, "the root of a volume is a directory"));
        }
        for (name, value) in borrowed(&entry.metadata).filter(|(name, _)| *name != DEFAULT_ACL) {
            let set = self.volume.set_attribute(id, name, value, SetAttribute::Any);
            set.map_err(Error::volume(&entry.path))?;
        }
        self.finish_directory(id, &entry.path, &entry.metadata)
    }

    /// Replaces an existing file.
    fn make_over(&mut self, dir: FileId, name: &[u8], entry: &Entry) -> Result<()> {
        let failed = || Error::volume(&entry.path);
        let there = self.volume.lookup(dir, name).map_err(failed())?;
        let is_directory = self.is_directory(there).map_err(failed())?;
        if is_directory && entry.kind == EntryKind::Directory {
            self.cache_dir(&entry.path, there);
            return self.adopt(there, entry);
        }
        if let EntryKind::Link(target) = &entry.kind
            && self.named(target)? == there
        {
            return Ok(());
        }
        self.forget();
        self.volume.remove_all(dir, name).map_err(failed())?;
        self.make_in(dir, name, entry)
    }

    /// Removes a file. Symlinks are not followed: the path is one of a lower layer.
    fn remove(&mut self, path: &[u8]) -> Result<()> {
        let Some((parent, name)) = split(path) else { return Ok(()) };
        let there = self.tree.literal(parent);
        let gone = there.and_then(|dir| self.volume.remove_all(dir, name));
        self.forget();
        ignore_missing(gone).map_err(Error::volume(path))
    }

    /// Removes the contents of a directory, unless it is a symlink.
    fn empty(&mut self, path: &[u8]) -> Result<()> {
        let dir = self.tree.literal(path);
        self.forget();
        let emptied = dir.and_then(|dir| {
            let mut entries = Dir::open_id(self.volume, dir)?.entries()?;
            entries.try_for_each(|entry| self.volume.remove_all(dir, &entry?.name))
        });
        ignore_missing(emptied).map_err(Error::volume(path))
    }

    fn is_directory(&self, id: FileId) -> volume::Result<bool> {
        Ok(self.volume.metadata(id)?.file_type == format::inode::FileType::Directory)
    }

    /// Sets the metadata of a directory at the end.
    fn finish_directory(&mut self, id: FileId, path: &[u8], metadata: &EntryMetadata) -> Result<()> {
        let set = SetMetadata {
            permissions: Some(metadata.permissions),
            uid: Some(metadata.uid),
            gid: Some(metadata.gid),
            ..times(metadata)
        };
        self.finish_later(id, path, set, metadata.settings, metadata)
    }

    fn finish_later(
        &mut self,
        id: FileId,
        path: &[u8],
        set: SetMetadata,
        settings: Settings,
        metadata: &EntryMetadata,
    ) -> Result<()> {
        let default_acl = metadata.attributes.iter().find(|(name, _)| name == DEFAULT_ACL);
        let default_acl = default_acl.map(|(_, value)| value.clone());
        // An archive may contain very many deep directories.
        let path = path.get(path.len().saturating_sub(SHOWN_BYTES)..).unwrap_or_default().into();
        self.pending.push(PendingMetadata { id, path, set, default_acl, settings });
        Ok(())
    }

    /// The directory with this path, created with its parents if missing.
    fn directory(&mut self, path: &[u8]) -> Result<FileId> {
        self.reach(path, true)
    }

    /// Resolves the path of a directory; creates missing ones if `make` is set.
    fn reach(&mut self, path: &[u8], make: bool) -> Result<FileId> {
        let Some((parent, name)) = split(path) else { return Ok(self.tree.root) };
        if let Some(id) = self.dir_cache.get(path) {
            return Ok(*id);
        }
        let (from, rest) = match self.dir_cache.get(parent) {
            Some(id) => (*id, name),
            None => (self.tree.root, path),
        };
        let tree = self.tree;
        let at = tree.walk(from, rest, |dir, name| match make {
            true => {
                let label = self.overrides.label_of_directory(path).map(<[u8]>::to_vec);
                let attributes: Vec<_> =
                    label.iter().map(|label| (labels::ATTRIBUTE, label.as_slice())).collect();
                let new = NewFile { permissions: IMPLIED, attributes: &attributes, ..NewFile::directory() };
                self.create(dir, name, &new, path)
            }
            false => Err(Error::invalid(path, "no such directory in the archive")),
        })?;
        self.cache_dir(path, at);
        Ok(at)
    }

    fn cache_dir(&mut self, path: &[u8], id: FileId) {
        /// Memory of an entry beside its path.
        const EACH: usize = 64;
        if self.dir_cache_bytes >= DIR_CACHE_BYTES {
            self.forget();
        }
        self.dir_cache_bytes += path.len() + EACH;
        self.dir_cache.insert(path.to_vec(), id);
    }

    /// The existing file with this path.
    fn named(&mut self, path: &[u8]) -> Result<FileId> {
        let Some((parent, name)) = split(path) else { return Ok(self.tree.root) };
        let dir = self.reach(parent, false)?;
        self.volume.lookup(dir, name).map_err(Error::volume(path))
    }
}

impl Receiver for Writer<'_> {
    fn take(&mut self, item: Item) -> Result<()> {
        self.cancel.check()?;
        match item {
            Item::Entry(entry) => self.entry(entry),
            Item::Data(data) => {
                self.data(data)?;
                self.advance();
                Ok(())
            }
            Item::Shared(range) => {
                self.shared = Some(range);
                Ok(())
            }
            Item::Removed(path) => self.remove(&path),
            Item::Emptied(path) => self.empty(&path),
        }
    }

    fn lose(&mut self, lost: Loss) {
        *self.done.lost.entry(lost).or_default() += 1;
    }

    fn unreadable(&mut self, error: Error) -> Result<()> {
        if !self.skip_unreadable {
            return Err(error);
        }
        self.progress.notice(&error.notice());
        self.done.unreadable += 1;
        self.discard()
    }
}

/// Ignores that a file to be removed does not exist.
fn ignore_missing(removed: volume::Result<()>) -> volume::Result<()> {
    match removed {
        Err(error) if matches!(error.errno(), errno::ENOENT | errno::ENOTDIR) => Ok(()),
        done => done,
    }
}

fn of<'a>(kind: volume::NewFileType<'a>, metadata: &EntryMetadata) -> NewFile<'a> {
    let (permissions, uid, gid) = (metadata.permissions, metadata.uid, metadata.gid);
    let (accessed, modified) = (metadata.accessed, metadata.modified);
    NewFile { file_type: kind, permissions, umask: 0, uid, gid, attributes: &[], accessed, modified }
}

fn borrowed(metadata: &EntryMetadata) -> impl Iterator<Item = (&[u8], &[u8])> {
    metadata.attributes.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
}

fn times(metadata: &EntryMetadata) -> SetMetadata {
    let (accessed, modified): (Option<Time>, Option<Time>) = (metadata.accessed, metadata.modified);
    SetMetadata { accessed, modified, ..SetMetadata::default() }
}
