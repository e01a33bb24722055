//! Compares a directory with a tree in a volume.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

use base::Ino;
use base::pipeline::{PipelineItem, PipelineWork};
use format::inode::FileType;
use read::join;
use rustix::fs::Stat;
use volume::namespace::listing::Cookie;
use volume::{FileId, Settings, UncachedStat, Volume};

use super::amend::Amend;
use super::{TreeSync, contents};
use crate::directory::host::{Folder, Name, OpenFile};
use crate::directory::{self, BATCH, Walk};
use crate::item::{Entry, EntryKind, EntryMetadata, Loss};
use crate::syscalls::{self, Attributes};
use crate::{Error, Result};

/// What the tasks share.
pub(super) struct Comparison<'w> {
    /// How new and changed files are read.
    pub walk: Walk<'w>,
    pub volume: &'w Volume,
    pub sync: &'w TreeSync<'w>,
    /// Paths of the files in lists of overrides, and of their parent directories.
    pub listed: HashSet<Vec<u8>>,
}

pub(super) enum CompareTask {
    /// A directory that both trees have.
    Both(Arc<Folder>, Ino),
    /// A subdirectory that both trees have.
    Below(Arc<Folder>, Vec<u8>, Ino),
    /// Files that are not directories, each with the entry of the volume.
    Files(Arc<Folder>, Vec<(Name, Option<Ino>)>),
    /// The first name of a file with hard links.
    First(Arc<Folder>, Name, First),
    /// A file that the volume does not have.
    New(directory::WalkTask),
}

/// The first name of a file with hard links.
pub(super) struct First {
    /// Device and inode number on the host.
    pub id: (u64, u64),
    /// The file in the volume.
    pub there: Option<FileId>,
    /// No other file of the source uses the volume's inode.
    pub may_stay: bool,
}

/// Results, in order.
pub(super) enum CompareEvent {
    /// Number of files that are equal.
    Same(u64),
    /// A file to remove, with the number of files in it.
    Removed(Vec<u8>, u64),
    /// The next entry replaces an existing file.
    Replaces,
    /// A file whose metadata may change, and whether it is a directory.
    Stays(Vec<u8>, FileId, Box<Amend>, bool),
    /// A file with hard links that stays.
    Kept((u64, u64), FileId),
    /// A name of a file with hard links, on either side.
    Linked { id: (u64, u64), folder: Arc<Folder>, name: Name, there: Option<FileId> },
    /// An item of a new or changed file.
    Walk(directory::WalkEvent),
}

pub(super) type Pieces = Vec<PipelineItem<CompareTask, CompareEvent>>;

impl PipelineWork for Comparison<'_> {
    type Task = CompareTask;
    type Result = CompareEvent;
    type Worker = ();

    fn worker(&self) {}

    fn perform(&self, (): &mut (), task: CompareTask, pieces: &mut Pieces) {
        let id = match &task {
            CompareTask::First(_, _, first) => Some(first.id),
            _ => None,
        };
        let done = match task {
            CompareTask::Both(folder, ino) => self.both(&folder, ino, pieces),
            CompareTask::Below(above, name, ino) => {
                above.open_below(&name).and_then(|folder| self.both(&Arc::new(folder), ino, pieces))
            }
            CompareTask::Files(folder, names) => {
                self.files(&folder, names, pieces);
                Ok(())
            }
            CompareTask::First(folder, name, first) => self.first(&folder, name, &first, pieces),
            CompareTask::New(task) => {
                self.new_ones(task, pieces);
                Ok(())
            }
        };
        if let Err(error) = done {
            pieces.push(PipelineItem::Result(CompareEvent::Walk(directory::WalkEvent::Failed(error, id))));
        }
    }

    fn budget(&self) -> usize {
        self.walk.waiting
    }

    fn weight(&self, event: &CompareEvent) -> usize {
        const REST: usize = 256;
        match event {
            CompareEvent::Walk(event) => self.walk.weight(event),
            _ => REST,
        }
    }
}

/// An entry of a directory of the volume.
struct There {
    name: Vec<u8>,
    ino: Ino,
    is_directory: bool,
}

impl Comparison<'_> {
    /// Compares a directory that both trees have: itself, files that only the volume has, files, and subdirectories.
    fn both(&self, folder: &Arc<Folder>, ino: Ino, pieces: &mut Pieces) -> Result<()> {
        self.itself(folder, ino, pieces)?;
        let is_other = self.walk.device.is_some_and(|device| device != folder.stat.st_dev);
        let (files, folders) = if is_other { Default::default() } else { folder.list()? };
        let there = self.list(ino).map_err(Error::volume(&folder.path))?;
        let find = |name: &[u8]| there.binary_search_by(|there| there.name.as_slice().cmp(name)).ok();
        let mut is_here = vec![false; there.len()];
        let names = files.iter().map(|name| &name.bytes).chain(&folders);
        for at in names.filter_map(|name| find(name)) {
            if let Some(here) = is_here.get_mut(at) {
                *here = true;
            }
        }
        let gone = there.iter().zip(&is_here).filter(|(there, here)| {
            self.sync.delete && !**here && !folder.is_excluded(&there.name, there.is_directory)
        });
        for (gone, _) in gone {
            self.gone(join(&folder.path, &gone.name), gone, pieces)?;
        }
        let mut files = files.into_iter().peekable();
        while files.peek().is_some() {
            let with_there = |name: Name| {
                let ino = find(&name.bytes).and_then(|at| there.get(at)).map(|there| there.ino);
                (name, ino)
            };
            let names = files.by_ref().take(BATCH).map(with_there).collect();
            pieces.push(PipelineItem::Task(CompareTask::Files(Arc::clone(folder), names)));
        }
        for name in folders {
            match find(&name).and_then(|at| there.get(at)) {
                Some(there) if there.is_directory => {
                    pieces.push(PipelineItem::Task(CompareTask::Below(Arc::clone(folder), name, there.ino)));
                    continue;
                }
                Some(there) => self.remove(folder, &name, there.ino, pieces)?,
                None => {}
            }
            pieces.push(PipelineItem::Task(CompareTask::New(directory::WalkTask::Below(
                Arc::clone(folder),
                name,
            ))));
        }
        Ok(())
    }

    /// Removes files that the source does not have, except those of a list.
    fn gone(&self, path: Vec<u8>, gone: &There, pieces: &mut Pieces) -> Result<()> {
        if !self.listed.contains(&path) {
            let files = self.count(gone.ino).map_err(Error::volume(&path))?;
            pieces.push(PipelineItem::Result(CompareEvent::Removed(path, files)));
        } else if gone.is_directory {
            let below = self.list(gone.ino).map_err(Error::volume(&path))?;
            below.iter().try_for_each(|there| self.gone(join(&path, &there.name), there, pieces))?;
        }
        Ok(())
    }

    fn remove(&self, folder: &Folder, name: &[u8], ino: Ino, pieces: &mut Pieces) -> Result<()> {
        let path = join(&folder.path, name);
        let files = self.count(ino).map_err(Error::volume(&path))?;
        pieces.push(PipelineItem::Result(CompareEvent::Removed(path, files)));
        Ok(())
    }

    fn itself(&self, folder: &Folder, ino: Ino, pieces: &mut Pieces) -> Result<()> {
        let there = self.volume.stat_uncached(ino).map_err(Error::volume(&folder.path))?;
        let looked = Looked {
            path: &|| folder.path.clone(),
            stat: &folder.stat,
            attributes: &|| folder.attributes(),
            settings: Some(folder.settings()?),
        };
        self.stays(&looked, &there, &EntryKind::Directory, pieces)
    }

    /// Compares files of a directory, sorted by name.
    fn files(&self, folder: &Arc<Folder>, names: Vec<(Name, Option<Ino>)>, pieces: &mut Pieces) {
        for (name, there) in names {
            let done = match there {
                Some(there) => self.file(folder, name, there, None, pieces),
                None => {
                    self.new_ones(directory::WalkTask::Files(Arc::clone(folder), vec![name]), pieces);
                    Ok(())
                }
            };
            // The sink decides whether this is fatal.
            let failed =
                done.err().map(|error| CompareEvent::Walk(directory::WalkEvent::Failed(error, None)));
            pieces.extend(failed.map(PipelineItem::Result));
        }
    }

    fn first(&self, folder: &Arc<Folder>, name: Name, first: &First, pieces: &mut Pieces) -> Result<()> {
        match first.there {
            Some(there) => self.file(folder, name, there.ino, Some(first), pieces),
            None => {
                self.new_ones(directory::WalkTask::First(Arc::clone(folder), name, first.id), pieces);
                Ok(())
            }
        }
    }

    /// Compares a file whose name exists in the volume.
    fn file(
        &self,
        folder: &Arc<Folder>,
        name: Name,
        there: Ino,
        first: Option<&First>,
        pieces: &mut Pieces,
    ) -> Result<()> {
        let path = || join(&folder.path, &name.bytes);
        let stat = folder.stat_of(&name.bytes)?;
        let id = (stat.st_dev, stat.st_ino);
        if self.walk.without.contains(&id) {
            return Ok(());
        }
        let known = self.volume.stat_uncached(there).map_err(|error| Error::volume(&path())(error))?;
        let metadata = &known.metadata;
        if metadata.file_type == FileType::Directory {
            self.remove(folder, &name.bytes, there, pieces)?;
            self.new_ones(directory::WalkTask::Files(Arc::clone(folder), vec![name]), pieces);
            return Ok(());
        }
        if first.is_none() && (stat.st_nlink > 1 || metadata.nlink > 1) {
            let there = Some(metadata.id());
            pieces.push(PipelineItem::Result(CompareEvent::Linked {
                id,
                folder: Arc::clone(folder),
                name,
                there,
            }));
            return Ok(());
        }
        let opened = Opened { folder, name: &name.bytes, stat: &stat, file: OnceCell::new() };
        let may_stay = first.is_none_or(|first| first.may_stay);
        let stays = match may_stay {
            true => self.kind_if_equal(&opened, &known)?,
            false => None,
        };
        let Some(kind) = stays else {
            pieces.push(PipelineItem::Result(CompareEvent::Replaces));
            self.new_ones(directory::WalkTask::First(Arc::clone(folder), name, id), pieces);
            return Ok(());
        };
        if let Some(first) = first {
            pieces.push(PipelineItem::Result(CompareEvent::Kept(first.id, metadata.id())));
        }
        let looked = Looked {
            path: &path,
            stat: &stat,
            attributes: &|| opened.attributes(),
            settings: opened.settings()?,
        };
        self.stays(&looked, &known, &kind, pieces)
    }

    /// Returns the type of a file if the volume's file has the same type and contents.
    fn kind_if_equal(&self, opened: &Opened<'_>, there: &UncachedStat) -> Result<Option<EntryKind>> {
        let (stat, known) = (opened.stat, &there.metadata);
        let path = || join(&opened.folder.path, opened.name);
        if FileType::from_mode(stat.st_mode as u16) != Some(known.file_type) {
            return Ok(None);
        }
        let is_device = known.device == Some(syscalls::device_of(stat));
        Ok(match known.file_type {
            FileType::Regular => {
                let size = stat.st_size.unsigned_abs();
                let is_later = syscalls::modified(stat) != known.modified;
                let is_equal = size == known.size
                    && (!(is_later || self.sync.checksum)
                        || contents::are_equal(opened.file()?, self.volume, known.id(), &path())?);
                is_equal.then(|| EntryKind::File { size, data: crate::item::Data::default() })
            }
            FileType::Symlink => {
                let target = opened.folder.target_of(opened.name)?;
                let is_equal = match &there.target {
                    Some(there) => target == *there,
                    None => target == self.volume.read_link(known.id()).map_err(Error::volume(&path()))?,
                };
                is_equal.then_some(EntryKind::Symlink(target))
            }
            FileType::CharDevice if is_device => Some(EntryKind::CharDevice(syscalls::device_of(stat))),
            FileType::BlockDevice if is_device => Some(EntryKind::BlockDevice(syscalls::device_of(stat))),
            FileType::Fifo => Some(EntryKind::Fifo),
            FileType::Socket => Some(EntryKind::Socket),
            _ => None,
        })
    }

    /// Compares the metadata of a file that stays.
    fn stays(
        &self,
        looked: &Looked<'_>,
        there: &UncachedStat,
        kind: &EntryKind,
        pieces: &mut Pieces,
    ) -> Result<()> {
        let known = &there.metadata;
        let mut lost = Vec::new();
        let mut metadata = self.walk.metadata(looked.stat, looked.attributes, &mut lost)?;
        let settings = looked.settings.unwrap_or_default();
        metadata.settings = settings.with_possible_hints(self.volume.geometry());
        if metadata.settings != settings {
            lost.push(PipelineItem::Result(directory::WalkEvent::Lost(Loss::ExtentSizeHint)));
        }
        give(lost, pieces);
        let metadata = self.overridden(looked, kind, metadata);
        let amend = Amend::of(self.volume, there, &metadata, looked.settings.is_some());
        let amend = amend.map_err(|error| Error::volume(&(looked.path)())(error))?;
        if amend.is_empty() {
            match pieces.last_mut() {
                Some(PipelineItem::Result(CompareEvent::Same(count))) => *count += 1,
                _ => pieces.push(PipelineItem::Result(CompareEvent::Same(1))),
            }
            return Ok(());
        }
        let is_directory = *kind == EntryKind::Directory;
        let amend = if is_directory { amend.with_times_of(known) } else { amend };
        pieces.push(PipelineItem::Result(CompareEvent::Stays(
            (looked.path)(),
            known.id(),
            Box::new(amend),
            is_directory,
        )));
        Ok(())
    }

    fn overridden(&self, looked: &Looked<'_>, kind: &EntryKind, metadata: EntryMetadata) -> EntryMetadata {
        if self.sync.overrides.is_empty() {
            return metadata;
        }
        let mut entry = Entry { path: (looked.path)(), kind: kind.clone(), metadata };
        self.sync.overrides.apply(&mut entry);
        entry.metadata
    }

    /// The entries of a directory of the volume, by name.
    fn list(&self, dir: Ino) -> volume::Result<Vec<There>> {
        list(self.volume, self.volume.id_of(dir)?)
    }

    /// Number of files that are removed with a file.
    fn count(&self, file: Ino) -> volume::Result<u64> {
        count(self.volume, self.volume.id_of(file)?)
    }

    /// Reads a new or changed file.
    fn new_ones(&self, task: directory::WalkTask, pieces: &mut Pieces) {
        let mut found = Vec::new();
        self.walk.perform(&mut (), task, &mut found);
        give(found, pieces);
    }
}

/// A file of the host that is opened when necessary.
struct Opened<'o> {
    folder: &'o Folder,
    name: &'o [u8],
    /// Its stat.
    stat: &'o Stat,
    file: OnceCell<OpenFile>,
}

impl Opened<'_> {
    fn file(&self) -> Result<&OpenFile> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.folder.open_file(self.name)?;
        let metadata = |stat: &Stat| {
            (stat.st_dev, stat.st_ino, stat.st_size, syscalls::modified(stat), syscalls::changed(stat))
        };
        if metadata(&file.stat) != metadata(self.stat) {
            return Err(Error::Changed { path: self.folder.shown(self.name) });
        }
        Ok(self.file.get_or_init(|| file))
    }

    fn is_regular(&self) -> bool {
        FileType::from_mode(self.stat.st_mode as u16) == Some(FileType::Regular)
    }

    fn attributes(&self) -> Result<Attributes> {
        match self.folder.has_attributes(self.name) {
            Some(false) => Ok(Attributes::default()),
            _ if self.is_regular() => self.file()?.attributes(),
            _ => self.folder.attributes_of(self.name),
        }
    }

    /// Project ID and flags, if known.
    fn settings(&self) -> Result<Option<Settings>> {
        if !self.is_regular() {
            return Ok(None);
        }
        match self.folder.settings_of(self.name) {
            Some(settings) => Ok(Some(settings)),
            None => self.file()?.settings().map(Some),
        }
    }
}

/// A file and its stat.
struct Looked<'l> {
    path: &'l dyn Fn() -> Vec<u8>,
    stat: &'l Stat,
    attributes: &'l dyn Fn() -> Result<Attributes>,
    /// Project ID and flags, if known.
    settings: Option<Settings>,
}

fn give(found: directory::Pieces, pieces: &mut Pieces) {
    pieces.extend(found.into_iter().map(|piece| match piece {
        PipelineItem::Task(task) => PipelineItem::Task(CompareTask::New(task)),
        PipelineItem::Result(event) => PipelineItem::Result(CompareEvent::Walk(event)),
    }));
}

/// The entries of a directory of the volume, by name.
fn list(volume: &Volume, dir: FileId) -> volume::Result<Vec<There>> {
    let mut all = Vec::new();
    volume.read_dir(dir, Cookie::default(), &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            all.push((
                There { name: entry.name.into(), ino: entry.ino, is_directory: false },
                entry.file_type,
            ));
        }
        true
    })?;
    let known = |(there, file_type): (There, Option<FileType>)| {
        let file_type = match file_type {
            Some(known) => known,
            None => volume.metadata(volume.id_of(there.ino)?)?.file_type,
        };
        Ok(There { is_directory: file_type == FileType::Directory, ..there })
    };
    let mut all = all.into_iter().map(known).collect::<volume::Result<Vec<_>>>()?;
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Number of files that are removed with a directory.
pub(super) fn count(volume: &Volume, file: FileId) -> volume::Result<u64> {
    let mut count = 0;
    volume.for_each_below(file, |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}
