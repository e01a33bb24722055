//! A directory of the host as a source, read by many threads.
//!
//! Names are sorted by their bytes, and the files of a directory precede its subdirectories, so that files of one
//! directory are created together. A file with hard links is yielded once; its other names are links to the first.
//!
//! | part | subject |
//! |---|---|
//! | [`Directory`] | the source |
//! | `Walk` | the tasks: a directory, a batch of files, a piece of a large file |
//! | `WalkSink` | what depends on order: first names, and links to them |
//! | `places` | where shared blocks were first seen |
//! | `host` | system calls |
//! | `count` | counts files for an estimate |
//! | [`sync`] | synchronizes an existing tree |
//!
//! # Invariants
//! - Every directory is opened relative to its parent, and symlinks are not followed: a path is resolved only once.
//! - Contents are consistent: size, mtime and ctime of a file are the same before and after it is read.

mod count;
mod host;
mod places;
pub mod sync;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use base::pipeline::{self, PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};
use read::join;
use rustix::fs::{FileType, Stat};
use volume::Settings;

use crate::item::{Data, Entry, EntryKind, EntryMetadata, Item, Loss, Receiver, is_kept};
use crate::options::setters;
use crate::syscalls::{self, Attributes};
use crate::{Error, Excludes, Result, Source, Survey};
use count::CountWalk;
use host::{Folder, Name, OpenFile, Run};
use places::Places;

/// Number of files of a task.
const BATCH: usize = 64;
/// Number of bytes after which a task leaves its remaining files to others.
const BATCH_BYTES: usize = 1 << 20;
/// Number of bytes of contents that are read at once; other threads read further pieces of a file.
const PIECE: u64 = 1 << 20;
/// Maximum size of queued results in bytes.
const WAITING: usize = 16 << 20;

/// A directory of the host.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    one_file_system: bool,
    /// Files to skip, such as the image itself, by device and inode number.
    without: Vec<(u64, u64)>,
    excludes: Excludes,
    shares: bool,
}

impl Directory {
    /// The directory at `path`; a symlink is followed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (without, excludes) = (Vec::new(), Excludes::default());
        Self { path: path.into(), one_file_system: false, without, excludes, shares: true }
    }

    setters! {
        /// Sets whether directories on other file systems are empty.
        one_file_system: bool;
        /// Sets whether shared blocks are reported ([`Item::Shared`]). They may differ on another machine with the same
        /// files.
        shares: bool;
        /// Skips files that match patterns. If the first names of a file are skipped, its next name becomes the first.
        excludes: Excludes;
    }

    /// Skips the file with this device and inode number.
    #[must_use]
    pub fn without(mut self, device: u64, inode: u64) -> Self {
        self.without.push((device, inode));
        self
    }
}

impl Source for Directory {
    fn read(&self, contents: bool, threads: usize, receiver: &mut dyn Receiver) -> Result<()> {
        let root = Folder::open_root(&self.path, self.shares, &self.excludes)?;
        let device = self.one_file_system.then_some(root.stat.st_dev);
        let walk = Walk { contents, device, without: &self.without, waiting: WAITING };
        let (links, places) = (HashMap::new(), Places::default());
        let mut sink = WalkSink { receiver, links, places, broken: None, skips: false };
        pipeline::run(&walk, vec![WalkTask::Folder(Arc::new(root))], &mut sink, threads)
    }

    fn survey(&self, threads: usize, survey: &mut Survey) -> Result<()> {
        let root = Folder::open_root(&self.path, false, &self.excludes)?;
        let device = self.one_file_system.then_some(root.stat.st_dev);
        let walk = CountWalk { survey: survey.fresh(), device, without: &self.without };
        count::count(root, walk, threads, survey)
    }
}

/// What the tasks share.
struct Walk<'w> {
    contents: bool,
    device: Option<u64>,
    without: &'w [(u64, u64)],
    /// Bytes of results that wait to be received, at most.
    waiting: usize,
}

enum WalkTask {
    /// A directory and its entries.
    Folder(Arc<Folder>),
    /// A subdirectory.
    Below(Arc<Folder>, Vec<u8>),
    /// A batch of files of a directory.
    Files(Arc<Folder>, Vec<Name>),
    /// The first name of a file with hard links, and the identity of that file.
    First(Arc<Folder>, Name, HostFileId),
    /// A piece of a large file.
    Contents(Arc<OpenFile>, Run, bool),
    /// The runs of data of a large file from an offset.
    Runs(Arc<OpenFile>, u64),
}

/// Device and inode number.
type HostFileId = (u64, u64);

/// Results, in order.
enum WalkEvent {
    Items(Vec<Item>),
    /// Contents at this offset of the file's device; another file may have the same blocks.
    Shared(Arc<OpenFile>, Data, u64),
    Lost(Loss),
    /// A name of a file with hard links.
    Linked {
        id: HostFileId,
        names: u64,
        folder: Arc<Folder>,
        name: Name,
    },
    /// An unreadable file, with its identity if other names or further contents of it may follow.
    Failed(Error, Option<HostFileId>),
}

type Pieces = Vec<PipelineItem<WalkTask, WalkEvent>>;

/// Appends an item; consecutive items are one result.
fn item(pieces: &mut Pieces, item: Item) {
    match pieces.last_mut() {
        Some(PipelineItem::Result(WalkEvent::Items(items))) => items.push(item),
        _ => pieces.push(PipelineItem::Result(WalkEvent::Items(vec![item]))),
    }
}

impl PipelineWork for Walk<'_> {
    type Task = WalkTask;
    type Result = WalkEvent;
    type Worker = ();

    fn worker(&self) {}

    fn perform(&self, (): &mut (), task: WalkTask, pieces: &mut Pieces) {
        let id = match &task {
            WalkTask::First(_, _, id) => Some(*id),
            WalkTask::Contents(file, ..) | WalkTask::Runs(file, _) => {
                Some((file.stat.st_dev, file.stat.st_ino))
            }
            WalkTask::Folder(_) | WalkTask::Below(..) | WalkTask::Files(..) => None,
        };
        let done = match task {
            WalkTask::Folder(folder) => self.folder(&folder, pieces),
            WalkTask::Below(above, name) => self.below(&above, &name, pieces),
            WalkTask::Files(folder, names) => {
                self.files(&folder, names, pieces);
                Ok(())
            }
            WalkTask::First(folder, name, id) => self.file(&folder, name, Some(id), pieces).map(drop),
            WalkTask::Contents(file, run, more) => contents(&file, run, more, pieces),
            WalkTask::Runs(file, from) => runs(&file, from, pieces),
        };
        if let Err(error) = done {
            pieces.push(PipelineItem::Result(WalkEvent::Failed(error, id)));
        }
    }

    fn budget(&self) -> usize {
        self.waiting
    }

    fn weight(&self, event: &WalkEvent) -> usize {
        const REST: usize = 256;
        match event {
            WalkEvent::Items(items) => items.iter().map(Item::weight).sum(),
            WalkEvent::Shared(_, data, _) => data.bytes.capacity() + REST,
            _ => REST,
        }
    }
}

impl Walk<'_> {
    fn below(&self, above: &Folder, name: &[u8], pieces: &mut Pieces) -> Result<()> {
        let folder = above.open_below(name)?;
        if self.device.is_some_and(|device| device != folder.stat.st_dev) {
            return self.itself(&folder, pieces);
        }
        self.folder(&Arc::new(folder), pieces)
    }

    /// Yields a directory, then its files, then its subdirectories.
    fn folder(&self, folder: &Arc<Folder>, pieces: &mut Pieces) -> Result<()> {
        self.itself(folder, pieces)?;
        let (mut files, folders) = folder.list()?;
        let later = files.split_off(files.len().min(BATCH));
        self.files(folder, files, pieces);
        for names in later.chunks(BATCH) {
            pieces.push(PipelineItem::Task(WalkTask::Files(Arc::clone(folder), names.to_vec())));
        }
        for name in folders {
            pieces.push(PipelineItem::Task(WalkTask::Below(Arc::clone(folder), name)));
        }
        Ok(())
    }

    /// Yields files of a directory up to a number of bytes; the rest becomes another task.
    fn files(&self, folder: &Arc<Folder>, names: Vec<Name>, pieces: &mut Pieces) {
        let (mut names, mut bytes) = (names.into_iter(), 0);
        while bytes < BATCH_BYTES {
            let Some(name) = names.next() else { return };
            match self.file(folder, name, None, pieces) {
                Ok(read) => bytes += read,
                // The receiver decides whether this is fatal.
                Err(error) => pieces.push(PipelineItem::Result(WalkEvent::Failed(error, None))),
            }
        }
        pieces.push(PipelineItem::Task(WalkTask::Files(Arc::clone(folder), names.collect())));
    }

    fn itself(&self, folder: &Folder, pieces: &mut Pieces) -> Result<()> {
        let metadata = self.metadata(&folder.stat, &|| folder.attributes(), pieces)?;
        let metadata = EntryMetadata { settings: folder.settings()?, ..metadata };
        item(pieces, Item::Entry(Entry { path: folder.path.clone(), kind: EntryKind::Directory, metadata }));
        Ok(())
    }

    /// Yields a file that is not a directory, and returns the number of bytes read. `first` is the identity of a file
    /// with hard links whose first name this was.
    fn file(
        &self,
        folder: &Arc<Folder>,
        name: Name,
        first: Option<HostFileId>,
        pieces: &mut Pieces,
    ) -> Result<usize> {
        if name.is_regular && self.contents {
            return self.regular(folder, name, first, pieces);
        }
        let stat = folder.stat_of(&name.bytes)?;
        let Some(name) = self.once(folder, &stat, name, first, pieces)? else { return Ok(0) };
        let path = join(&folder.path, &name.bytes);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            // It was not a regular file when it was listed.
            FileType::RegularFile if self.contents => {
                return Err(Error::Changed { path: folder.shown(&name.bytes) });
            }
            FileType::RegularFile => {
                EntryKind::File { size: stat.st_size.unsigned_abs(), data: Data::default() }
            }
            FileType::Symlink => EntryKind::Symlink(folder.target_of(&name.bytes)?),
            FileType::CharacterDevice => EntryKind::CharDevice(syscalls::device_of(&stat)),
            FileType::BlockDevice => EntryKind::BlockDevice(syscalls::device_of(&stat)),
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
            // It was not a directory when it was listed.
            FileType::Directory => return Err(Error::Changed { path: folder.shown(&name.bytes) }),
            _ => return Err(Error::invalid(&path, "its file type is not supported by XFS")),
        };
        let mut metadata = self.metadata(&stat, &|| folder.attributes_of(&name.bytes), pieces)?;
        if let EntryKind::File { .. } = kind {
            metadata.stored = Some(folder.stored(&name.bytes, &stat)?);
        }
        item(pieces, Item::Entry(Entry { path, kind, metadata }));
        Ok(0)
    }

    /// Returns the name if its file is to be yielded now: it is not skipped, and not a name of a file with hard links
    /// before it is known to be the first.
    fn once(
        &self,
        folder: &Arc<Folder>,
        stat: &Stat,
        name: Name,
        first: Option<HostFileId>,
        pieces: &mut Pieces,
    ) -> Result<Option<Name>> {
        let id = (stat.st_dev, stat.st_ino);
        if first.is_some_and(|first| first != id) {
            // The other names would become links to another file.
            return Err(Error::Changed { path: folder.shown(&name.bytes) });
        }
        if self.without.contains(&id) {
            return Ok(None);
        }
        if stat.st_nlink > 1 && first.is_none() {
            let names = stat.st_nlink;
            pieces.push(PipelineItem::Result(WalkEvent::Linked {
                id,
                names,
                folder: Arc::clone(folder),
                name,
            }));
            return Ok(None);
        }
        Ok(Some(name))
    }

    /// Yields a regular file with its contents, or the beginning of them.
    fn regular(
        &self,
        folder: &Arc<Folder>,
        name: Name,
        first: Option<HostFileId>,
        pieces: &mut Pieces,
    ) -> Result<usize> {
        let file = folder.open_file(&name.bytes)?;
        let Some(name) = self.once(folder, &file.stat, name, first, pieces)? else { return Ok(0) };
        let (path, size) = (join(&folder.path, &name.bytes), file.size());
        let metadata = self.metadata(&file.stat, &|| file.attributes(), pieces)?;
        let metadata = EntryMetadata { settings: file.settings()?, ..metadata };
        let is_small = size <= PIECE && !file.has_holes() && !file.shares();
        let data = match is_small {
            true => Data { offset: 0, bytes: file.read(0, size)?, more: false },
            false => Data { more: true, ..Data::default() },
        };
        let read = data.bytes.len();
        item(pieces, Item::Entry(Entry { path, kind: EntryKind::File { size, data }, metadata }));
        match is_small {
            true => file.expect_unchanged()?,
            false => pieces.push(PipelineItem::Task(WalkTask::Runs(Arc::new(file), 0))),
        }
        Ok(read)
    }

    fn metadata(
        &self,
        stat: &Stat,
        attributes: &dyn Fn() -> Result<Attributes>,
        pieces: &mut Pieces,
    ) -> Result<EntryMetadata> {
        let found = attributes()?;
        let (kept, other): (Vec<_>, Vec<_>) = found.readable.into_iter().partition(|(name, _)| is_kept(name));
        let lost = other.iter().map(|_| Loss::Attribute);
        let unreadable = (0..found.unreadable).map(|_| Loss::UnreadableAttribute);
        pieces.extend(lost.chain(unreadable).map(|lost| PipelineItem::Result(WalkEvent::Lost(lost))));
        Ok(EntryMetadata {
            permissions: (stat.st_mode & 0o7777) as u16,
            uid: stat.st_uid,
            gid: stat.st_gid,
            accessed: Some(syscalls::accessed(stat)),
            modified: Some(syscalls::modified(stat)),
            attributes: kept,
            settings: Settings::default(),
            stored: None,
        })
    }
}

/// Plans the contents of a large file: some runs of data, and a task for the rest.
fn runs(file: &Arc<OpenFile>, from: u64, pieces: &mut Pieces) -> Result<()> {
    /// Number of pieces that are planned at once.
    const AT_ONCE: usize = 32;
    let mut at = from;
    for _ in 0..AT_ONCE {
        let Some(run) = file.next_run(at, PIECE)? else {
            let end = Run { bytes: at..at, physical: None };
            pieces.push(PipelineItem::Task(WalkTask::Contents(Arc::clone(file), end, false)));
            return Ok(());
        };
        at = run.bytes.end;
        pieces.push(PipelineItem::Task(WalkTask::Contents(Arc::clone(file), run, true)));
    }
    pieces.push(PipelineItem::Task(WalkTask::Runs(Arc::clone(file), at)));
    Ok(())
}

/// Reads a piece of a file. The last one is empty, and verifies that the file did not change.
fn contents(file: &Arc<OpenFile>, run: Run, more: bool, pieces: &mut Pieces) -> Result<()> {
    if !more {
        file.expect_unchanged()?;
    }
    let Range { start, end } = run.bytes;
    let data = Data { offset: start, bytes: file.read(start, end - start)?, more };
    match run.physical {
        None => item(pieces, Item::Data(data)),
        Some(physical) => {
            pieces.push(PipelineItem::Result(WalkEvent::Shared(Arc::clone(file), data, physical)))
        }
    }
    Ok(())
}

/// Handles what depends on order.
struct WalkSink<'r> {
    receiver: &'r mut dyn Receiver,
    /// First names of files with hard links, with the number of further names.
    links: HashMap<HostFileId, (Vec<u8>, u64)>,
    places: Places,
    /// The last unreadable file.
    broken: Option<HostFileId>,
    /// Further contents belong to a skipped file.
    skips: bool,
}

impl<'w> PipelineSink<Walk<'w>> for WalkSink<'_> {
    type Error = Error;

    fn take(&mut self, event: WalkEvent, pieces: &mut Vec<PipelineItemOf<Walk<'w>>>) -> Result<()> {
        match event {
            WalkEvent::Items(items) => items.into_iter().try_for_each(|item| match item {
                Item::Data(_) if self.skips => Ok(()),
                item => {
                    self.skips = false;
                    self.receiver.take(item)
                }
            }),
            WalkEvent::Shared(..) if self.skips => Ok(()),
            WalkEvent::Shared(file, data, physical) => {
                let place = (file.stat.st_dev, physical);
                if let Some(alike) = self.places.look(place, &file.name, data.offset, data.bytes.len() as u64)
                {
                    self.receiver.take(Item::Shared(alike))?;
                }
                self.receiver.take(Item::Data(data))
            }
            WalkEvent::Lost(lost) => {
                self.receiver.lose(lost);
                Ok(())
            }
            WalkEvent::Linked { id, names, folder, name } => self.linked(id, names, folder, name, pieces),
            WalkEvent::Failed(error, id) => self.failed(error, id),
        }
    }
}

impl WalkSink<'_> {
    fn failed(&mut self, error: Error, id: Option<HostFileId>) -> Result<()> {
        if !error.is_unreadable() {
            return Err(error);
        }
        // Several pieces of one file may fail.
        if !(self.skips && id.is_some() && id == self.broken) {
            self.receiver.unreadable(error)?;
        }
        if let Some(id) = id {
            // The next name becomes the first.
            self.links.remove(&id);
        }
        (self.broken, self.skips) = (id, true);
        Ok(())
    }

    fn linked(
        &mut self,
        id: HostFileId,
        names: u64,
        folder: Arc<Folder>,
        name: Name,
        pieces: &mut Pieces,
    ) -> Result<()> {
        let path = join(&folder.path, &name.bytes);
        let Some((first, left)) = self.links.get_mut(&id) else {
            self.links.insert(id, (path, names - 1));
            pieces.push(PipelineItem::Task(WalkTask::First(folder, name, id)));
            return Ok(());
        };
        let kind = EntryKind::Link(first.clone());
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.links.remove(&id);
        }
        self.receiver.take(Item::Entry(Entry { path, kind, metadata: EntryMetadata::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records items.
    #[derive(Default)]
    struct Notes(Vec<String>);

    impl Receiver for Notes {
        fn take(&mut self, item: Item) -> Result<()> {
            self.0.push(match item {
                Item::Entry(entry) => String::from_utf8(entry.path).unwrap(),
                other => format!("{other:?}"),
            });
            Ok(())
        }

        fn lose(&mut self, _: Loss) {}

        fn unreadable(&mut self, error: Error) -> Result<()> {
            self.0.push(format!("not {}", error.to_string().split('"').nth(1).unwrap_or_default()));
            Ok(())
        }
    }

    /// A device fails in the middle of a large file: that is reported once, no more of the file follows, other files
    /// do, and another name of the file does not become a link to the missing file.
    #[test]
    fn a_file_that_cannot_be_read_to_its_end_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["behind", "large", "other"] {
            std::fs::write(folder.path().join(name), vec![7; 5 << 20]).unwrap();
        }
        let root = Arc::new(Folder::open_root(folder.path(), false, &Excludes::default()).unwrap());
        let file = root.open_file(b"large").unwrap();
        let id = (file.stat.st_dev, file.stat.st_ino);
        let walk = Walk { contents: true, device: None, without: &[], waiting: WAITING };
        let mut notes = Notes::default();
        let links = HashMap::from([(id, (b"large".to_vec(), 1))]);
        let places = Places::default();
        let mut sink = WalkSink { receiver: &mut notes, links, places, broken: None, skips: false };
        let name = Name { bytes: b"behind".to_vec(), is_regular: true };
        let tasks = vec![
            WalkTask::Runs(Arc::new(file.with_failing_disk()), 0),
            WalkTask::Files(Arc::clone(&root), vec![name]),
        ];
        pipeline::run(&walk, tasks, &mut sink, 2).unwrap();
        assert!(sink.links.is_empty());
        let shown = folder.path().join("large").display().to_string();
        let entries: Vec<_> = notes.0.iter().filter(|note| !note.starts_with("Data")).collect();
        assert_eq!(entries, [&format!("not {shown}"), "behind"]);
        let pieces = notes.0.iter().skip(2).filter(|note| note.starts_with("Data")).count();
        assert_eq!(pieces, notes.0.len() - 2, "those of the file that can be read");
    }
}
