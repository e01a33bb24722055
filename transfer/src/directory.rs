//! A directory of this machine as a source, read by many threads.
//!
//! Names are given in the order of their bytes, the files of a directory before the directories in it, so that files of
//! one directory are made together. A file with several names is given once; its other names are links to the first.
//!
//! | part | subject |
//! |---|---|
//! | [`Directory`] | the source |
//! | `Walk` | what a thread does: a directory, some files of one, a piece of a large file |
//! | `Turns` | what follows in order: first names, and links to them |
//! | `places` | where shared blocks were seen first |
//! | `host` | the calls of the system |
//! | `look` | how much there is |
//! | [`sync`] | a tree that is there already becomes equal, by what differs alone |
//!
//! # Invariants
//! - A path is never walked twice from the top: everything is opened below the directory that was opened before it, and
//!   symbolic links are not followed.
//! - Contents are those of one moment: size and times of a file, that of its last change among them, are the same
//!   before and after it is read.

mod host;
mod look;
mod places;
pub mod sync;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::pipeline::{self, PipelineItem, PipelineItemOf, PipelineSink, PipelineWork};
use rustix::fs::{FileType, Stat};
use volume::Settings;

use crate::item::{Data, Entry, Facts, Item, Kind, Lost, Receiver, is_kept, join};
use crate::{Error, Excludes, Result, Source, Survey};
use host::{Folder, Name, OpenFile, Run};
use look::Glance;
use places::Places;

/// Files that a thread takes at once.
const BATCH: usize = 64;
/// Bytes after which it leaves the rest of them to others.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of contents that are read at once; more of a file is read by other threads.
const PIECE: u64 = 1 << 20;
/// Bytes that wait for their turn.
const WAITING: usize = 16 << 20;

/// See the module.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    one_file_system: bool,
    /// Files that are no part of it, such as the image that is being made, by device and number.
    without: Vec<(u64, u64)>,
    excludes: Arc<Excludes>,
    shares: bool,
}

impl Directory {
    /// The directory at `path`; a link there is followed.
    pub fn new(path: &Path) -> Self {
        let (without, excludes) = (Vec::new(), Arc::default());
        Self { path: path.into(), one_file_system: false, without, excludes, shares: true }
    }

    /// Directories of other file systems are left empty.
    #[must_use]
    pub fn one_file_system(mut self, one: bool) -> Self {
        self.one_file_system = one;
        self
    }

    /// Whether it is told which files share blocks ([`Item::Alike`]): as they do here, which another machine with the
    /// same files may do otherwise.
    #[must_use]
    pub fn shares(mut self, shares: bool) -> Self {
        self.shares = shares;
        self
    }

    /// Leaves out what patterns match. A file of which the first names are left out has the first of the others.
    #[must_use]
    pub fn excludes(mut self, excludes: &Arc<Excludes>) -> Self {
        self.excludes = Arc::clone(excludes);
        self
    }

    /// Leaves out the file with this device and number.
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
        let walk = Walk { contents, device, without: &self.without };
        let (links, places) = (HashMap::new(), Places::default());
        let mut turns = Turns { receiver, links, places, broken: None, skips: false };
        pipeline::run(&walk, vec![Task::Folder(Arc::new(root))], &mut turns, threads)
    }

    fn look(&self, threads: usize, survey: &mut Survey) -> Result<()> {
        let root = Folder::open_root(&self.path, false, &self.excludes)?;
        let device = self.one_file_system.then_some(root.stat.st_dev);
        let glance = Glance { survey: survey.fresh(), device, without: &self.without };
        look::look(root, glance, threads, survey)
    }
}

/// What a thread does, or knows.
struct Walk<'w> {
    contents: bool,
    device: Option<u64>,
    without: &'w [(u64, u64)],
}

enum Task {
    /// The directory itself, and what is in it.
    Folder(Arc<Folder>),
    /// A directory in one.
    Below(Arc<Folder>, Vec<u8>),
    /// Some files in one.
    Files(Arc<Folder>, Vec<Name>),
    /// The first name of a file that has several, and which file that was.
    First(Arc<Folder>, Name, Id),
    /// A piece of a large file.
    Contents(Arc<OpenFile>, Run, bool),
    /// The runs of data of a large file from a byte on.
    Runs(Arc<OpenFile>, u64),
}

/// Which file it is: its device and number.
type Id = (u64, u64);

/// What comes in order.
enum Turn {
    Items(Vec<Item>),
    /// Contents that lie at this byte of the file's device, and may be those of another file.
    Shared(Arc<OpenFile>, Data, u64),
    Lost(Lost),
    /// One of several names of a file.
    Linked {
        id: Id,
        names: u64,
        folder: Arc<Folder>,
        name: Name,
    },
    /// Something that cannot be read, and which file it is where others may be names of it, or more may come of it.
    Failed(Error, Option<Id>),
}

type Pieces = Vec<PipelineItem<Task, Turn>>;

/// Items that follow each other wait and are given out as one.
fn item(pieces: &mut Pieces, item: Item) {
    match pieces.last_mut() {
        Some(PipelineItem::Result(Turn::Items(items))) => items.push(item),
        _ => pieces.push(PipelineItem::Result(Turn::Items(vec![item]))),
    }
}

impl PipelineWork for Walk<'_> {
    type Task = Task;
    type Result = Turn;
    type Worker = ();

    fn worker(&self) {}

    fn perform(&self, (): &mut (), task: Task, pieces: &mut Pieces) {
        let id = match &task {
            Task::First(_, _, id) => Some(*id),
            Task::Contents(file, ..) | Task::Runs(file, _) => Some((file.stat.st_dev, file.stat.st_ino)),
            Task::Folder(_) | Task::Below(..) | Task::Files(..) => None,
        };
        let done = match task {
            Task::Folder(folder) => self.folder(&folder, pieces),
            Task::Below(above, name) => self.below(&above, &name, pieces),
            Task::Files(folder, names) => {
                self.files(&folder, names, pieces);
                Ok(())
            }
            Task::First(folder, name, id) => self.file(&folder, name, Some(id), pieces).map(drop),
            Task::Contents(file, run, more) => contents(&file, run, more, pieces),
            Task::Runs(file, from) => runs(&file, from, pieces),
        };
        if let Err(error) = done {
            pieces.push(PipelineItem::Result(Turn::Failed(error, id)));
        }
    }

    fn budget(&self) -> usize {
        WAITING
    }

    fn weight(&self, turn: &Turn) -> usize {
        const REST: usize = 256;
        match turn {
            Turn::Items(items) => items.iter().map(Item::weight).sum(),
            Turn::Shared(_, data, _) => data.bytes.capacity() + REST,
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

    /// A directory, then the files in it, then the directories in it.
    fn folder(&self, folder: &Arc<Folder>, pieces: &mut Pieces) -> Result<()> {
        self.itself(folder, pieces)?;
        let (mut files, folders) = folder.list()?;
        let later = files.split_off(files.len().min(BATCH));
        self.files(folder, files, pieces);
        for names in later.chunks(BATCH) {
            pieces.push(PipelineItem::Task(Task::Files(Arc::clone(folder), names.to_vec())));
        }
        for name in folders {
            pieces.push(PipelineItem::Task(Task::Below(Arc::clone(folder), name)));
        }
        Ok(())
    }

    /// Some files of a directory, up to so many bytes; what is left of them is a task of its own.
    fn files(&self, folder: &Arc<Folder>, names: Vec<Name>, pieces: &mut Pieces) {
        let (mut names, mut bytes) = (names.into_iter(), 0);
        while bytes < BATCH_BYTES {
            let Some(name) = names.next() else { return };
            match self.file(folder, name, None, pieces) {
                Ok(read) => bytes += read,
                // Whether it matters to the others is for the receiver to say.
                Err(error) => pieces.push(PipelineItem::Result(Turn::Failed(error, None))),
            }
        }
        pieces.push(PipelineItem::Task(Task::Files(Arc::clone(folder), names.collect())));
    }

    fn itself(&self, folder: &Folder, pieces: &mut Pieces) -> Result<()> {
        let facts = self.facts(&folder.stat, &|| folder.attributes(), pieces)?;
        let facts = Facts { settings: folder.settings()?, ..facts };
        item(pieces, Item::Entry(Entry { path: folder.path.clone(), kind: Kind::Directory, facts }));
        Ok(())
    }

    /// What is no directory; of several names the `first`, if it is still that file's. How many bytes of it were read.
    fn file(
        &self,
        folder: &Arc<Folder>,
        name: Name,
        first: Option<Id>,
        pieces: &mut Pieces,
    ) -> Result<usize> {
        if name.is_regular && self.contents {
            return self.regular(folder, name, first, pieces);
        }
        let stat = folder.stat_of(&name.bytes)?;
        let Some(name) = self.once(folder, &stat, name, first, pieces)? else { return Ok(0) };
        let path = join(&folder.path, &name.bytes);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            // It became one since it was listed.
            FileType::RegularFile if self.contents => {
                return Err(Error::Changed { path: folder.shown(&name.bytes) });
            }
            FileType::RegularFile => Kind::File { size: stat.st_size.unsigned_abs(), data: Data::default() },
            FileType::Symlink => Kind::Symlink(folder.target_of(&name.bytes)?),
            FileType::CharacterDevice => Kind::CharDevice(host::device_of(&stat)),
            FileType::BlockDevice => Kind::BlockDevice(host::device_of(&stat)),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            // It became one since it was listed.
            FileType::Directory => return Err(Error::Changed { path: folder.shown(&name.bytes) }),
            _ => return Err(Error::bad(&path, "is of a kind that XFS does not have")),
        };
        let mut facts = self.facts(&stat, &|| folder.attributes_of(&name.bytes), pieces)?;
        if let Kind::File { .. } = kind {
            facts.stored = Some(folder.stored(&name.bytes, &stat)?);
        }
        item(pieces, Item::Entry(Entry { path, kind, facts }));
        Ok(0)
    }

    /// Gives the name back if its file is to be given now: not one that is left out, and not one of several names
    /// before it is known to be the first.
    fn once(
        &self,
        folder: &Arc<Folder>,
        stat: &Stat,
        name: Name,
        first: Option<Id>,
        pieces: &mut Pieces,
    ) -> Result<Option<Name>> {
        let id = (stat.st_dev, stat.st_ino);
        if first.is_some_and(|first| first != id) {
            // Its other names would become names of another file.
            return Err(Error::Changed { path: folder.shown(&name.bytes) });
        }
        if self.without.contains(&id) {
            return Ok(None);
        }
        if stat.st_nlink > 1 && first.is_none() {
            let names = stat.st_nlink;
            pieces.push(PipelineItem::Result(Turn::Linked { id, names, folder: Arc::clone(folder), name }));
            return Ok(None);
        }
        Ok(Some(name))
    }

    /// A regular file with what it holds, or with the beginning of that.
    fn regular(
        &self,
        folder: &Arc<Folder>,
        name: Name,
        first: Option<Id>,
        pieces: &mut Pieces,
    ) -> Result<usize> {
        let file = folder.open_file(&name.bytes)?;
        let Some(name) = self.once(folder, &file.stat, name, first, pieces)? else { return Ok(0) };
        let (path, size) = (join(&folder.path, &name.bytes), file.size());
        let facts = self.facts(&file.stat, &|| file.attributes(), pieces)?;
        let facts = Facts { settings: file.settings()?, ..facts };
        let is_small = size <= PIECE && !file.has_holes() && !file.shares();
        let data = match is_small {
            true => Data { offset: 0, bytes: file.read(0, size)?, more: false },
            false => Data { more: true, ..Data::default() },
        };
        let read = data.bytes.len();
        item(pieces, Item::Entry(Entry { path, kind: Kind::File { size, data }, facts }));
        match is_small {
            true => file.expect_unchanged()?,
            false => pieces.push(PipelineItem::Task(Task::Runs(Arc::new(file), 0))),
        }
        Ok(read)
    }

    fn facts(
        &self,
        stat: &Stat,
        attributes: &dyn Fn() -> Result<host::Attributes>,
        pieces: &mut Pieces,
    ) -> Result<Facts> {
        let found = attributes()?;
        let (kept, other): (Vec<_>, Vec<_>) = found.readable.into_iter().partition(|(name, _)| is_kept(name));
        let lost = other.iter().map(|_| Lost::Attribute);
        let unreadable = (0..found.unreadable).map(|_| Lost::UnreadableAttribute);
        pieces.extend(lost.chain(unreadable).map(|lost| PipelineItem::Result(Turn::Lost(lost))));
        Ok(Facts {
            permissions: (stat.st_mode & 0o7777) as u16,
            uid: stat.st_uid,
            gid: stat.st_gid,
            accessed: Some(host::time(stat.st_atime, stat.st_atime_nsec)),
            modified: Some(host::modified(stat)),
            attributes: kept,
            settings: Settings::default(),
            stored: None,
        })
    }
}

/// Plans the contents of a large file: some runs of data, and to go on behind them.
fn runs(file: &Arc<OpenFile>, from: u64, pieces: &mut Pieces) -> Result<()> {
    /// Pieces of one file that are planned at once.
    const AT_ONCE: usize = 32;
    let mut at = from;
    for _ in 0..AT_ONCE {
        let Some(run) = file.next_run(at, PIECE)? else {
            let end = Run { bytes: at..at, physical: None };
            pieces.push(PipelineItem::Task(Task::Contents(Arc::clone(file), end, false)));
            return Ok(());
        };
        at = run.bytes.end;
        pieces.push(PipelineItem::Task(Task::Contents(Arc::clone(file), run, true)));
    }
    pieces.push(PipelineItem::Task(Task::Runs(Arc::clone(file), at)));
    Ok(())
}

/// A piece of a file. The last one is empty, and tells whether all of them are of one moment.
fn contents(file: &Arc<OpenFile>, run: Run, more: bool, pieces: &mut Pieces) -> Result<()> {
    if !more {
        file.expect_unchanged()?;
    }
    let Range { start, end } = run.bytes;
    let data = Data { offset: start, bytes: file.read(start, end - start)?, more };
    match run.physical {
        None => item(pieces, Item::Data(data)),
        Some(physical) => pieces.push(PipelineItem::Result(Turn::Shared(Arc::clone(file), data, physical))),
    }
    Ok(())
}

/// See the module.
struct Turns<'r> {
    receiver: &'r mut dyn Receiver,
    /// The first names of files that have more, with how many are still to come.
    links: HashMap<Id, (Vec<u8>, u64)>,
    places: Places,
    /// The last file of which something could not be read.
    broken: Option<Id>,
    /// What comes of contents is of a file that is left out.
    skips: bool,
}

impl<'w> PipelineSink<Walk<'w>> for Turns<'_> {
    type Error = Error;

    fn take(&mut self, turn: Turn, pieces: &mut Vec<PipelineItemOf<Walk<'w>>>) -> Result<()> {
        match turn {
            Turn::Items(items) => items.into_iter().try_for_each(|item| match item {
                Item::Data(_) if self.skips => Ok(()),
                item => {
                    self.skips = false;
                    self.receiver.take(item)
                }
            }),
            Turn::Shared(..) if self.skips => Ok(()),
            Turn::Shared(file, data, physical) => {
                let place = (file.stat.st_dev, physical);
                if let Some(alike) = self.places.look(place, &file.name, data.offset, data.bytes.len() as u64)
                {
                    self.receiver.take(Item::Alike(alike))?;
                }
                self.receiver.take(Item::Data(data))
            }
            Turn::Lost(lost) => {
                self.receiver.lose(lost);
                Ok(())
            }
            Turn::Linked { id, names, folder, name } => self.linked(id, names, folder, name, pieces),
            Turn::Failed(error, id) => self.failed(error, id),
        }
    }
}

impl Turns<'_> {
    fn failed(&mut self, error: Error, id: Option<Id>) -> Result<()> {
        if !error.is_unreadable() {
            return Err(error);
        }
        // Pieces of one file fail one after the other.
        if !(self.skips && id.is_some() && id == self.broken) {
            self.receiver.unreadable(error)?;
        }
        if let Some(id) = id {
            // The next of its names is tried as the first.
            self.links.remove(&id);
        }
        (self.broken, self.skips) = (id, true);
        Ok(())
    }

    fn linked(
        &mut self,
        id: Id,
        names: u64,
        folder: Arc<Folder>,
        name: Name,
        pieces: &mut Pieces,
    ) -> Result<()> {
        let path = join(&folder.path, &name.bytes);
        let Some((first, left)) = self.links.get_mut(&id) else {
            self.links.insert(id, (path, names - 1));
            pieces.push(PipelineItem::Task(Task::First(folder, name, id)));
            return Ok(());
        };
        let kind = Kind::Link(first.clone());
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.links.remove(&id);
        }
        self.receiver.take(Item::Entry(Entry { path, kind, facts: Facts::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes what comes.
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

        fn lose(&mut self, _: Lost) {}

        fn unreadable(&mut self, error: Error) -> Result<()> {
            self.0.push(format!("not {}", error.to_string().split('"').nth(1).unwrap_or_default()));
            Ok(())
        }
    }

    /// A disk fails in the midst of a large file: that is told once, no more of the file comes, what follows does, and
    /// another name of the file becomes no link to what is not there.
    #[test]
    fn a_file_that_cannot_be_read_to_its_end_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["behind", "large", "other"] {
            std::fs::write(folder.path().join(name), vec![7; 5 << 20]).unwrap();
        }
        let root = Arc::new(Folder::open_root(folder.path(), false, &Arc::default()).unwrap());
        let file = root.open_file(b"large").unwrap();
        let id = (file.stat.st_dev, file.stat.st_ino);
        let walk = Walk { contents: true, device: None, without: &[] };
        let mut notes = Notes::default();
        let links = HashMap::from([(id, (b"large".to_vec(), 1))]);
        let places = Places::default();
        let mut turns = Turns { receiver: &mut notes, links, places, broken: None, skips: false };
        let name = Name { bytes: b"behind".to_vec(), is_regular: true };
        let tasks = vec![
            Task::Runs(Arc::new(file.with_failing_disk()), 0),
            Task::Files(Arc::clone(&root), vec![name]),
        ];
        pipeline::run(&walk, tasks, &mut turns, 2).unwrap();
        assert!(turns.links.is_empty());
        let shown = folder.path().join("large").display().to_string();
        let entries: Vec<_> = notes.0.iter().filter(|note| !note.starts_with("Data")).collect();
        assert_eq!(entries, [&format!("not {shown}"), "behind"]);
        let pieces = notes.0.iter().skip(2).filter(|note| note.starts_with("Data")).count();
        assert_eq!(pieces, notes.0.len() - 2, "those of the file that can be read");
    }
}
