//! What differs between a directory and a tree in a volume.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

use base::Ino;
use base::pipeline::{PipelineItem, PipelineWork};
use format::inode::FileType;
use rustix::fs::Stat;
use volume::namespace::listing::Cookie;
use volume::{Settings, UncachedStat, Volume};

use super::amend::Amend;
use super::{TreeSync, contents};
use crate::directory::host::{self, Folder, Name, OpenFile};
use crate::directory::{self, BATCH, WAITING, Walk};
use crate::item::{Entry, Facts, Kind, Lost, join};
use crate::{Error, Result};

/// What the threads share.
pub(super) struct Against<'w> {
    /// How what is new or other is read.
    pub walk: Walk<'w>,
    pub volume: &'w Volume,
    pub sync: &'w TreeSync<'w>,
    /// What a list of overrides makes, and the directories above that.
    pub listed: HashSet<Vec<u8>>,
}

pub(super) enum Task {
    /// A directory of both.
    Both(Arc<Folder>, Ino),
    /// A directory of both in one.
    Below(Arc<Folder>, Vec<u8>, Ino),
    /// Names that are no directories, each with what the volume has under it.
    Files(Arc<Folder>, Vec<(Name, Option<Ino>)>),
    /// The first name of a file that has several.
    First(Arc<Folder>, Name, First),
    /// What the volume does not have.
    New(directory::Task),
}

/// The first of several names of a file.
pub(super) struct First {
    /// The file's device and number.
    pub id: (u64, u64),
    /// What the volume has under the name.
    pub there: Option<Ino>,
    /// That can be this file: it is no other's already.
    pub may_stay: bool,
}

/// What comes in order.
pub(super) enum Turn {
    /// So many names stay as they are.
    Same(u64),
    /// A name goes away, and so many with it.
    Removed(Vec<u8>, u64),
    /// The next entry takes the place of what has its name.
    Replaces,
    /// A file that stays, with what to change of it, and whether it is a directory.
    Stays(Vec<u8>, Ino, Box<Amend>, bool),
    /// A file with several names stays.
    Kept((u64, u64), Ino),
    /// One of several names of a file, here or there.
    Linked { id: (u64, u64), folder: Arc<Folder>, name: Name, there: Option<Ino> },
    /// Something of what is new or other.
    Walk(directory::Turn),
}

pub(super) type Pieces = Vec<PipelineItem<Task, Turn>>;

impl PipelineWork for Against<'_> {
    type Task = Task;
    type Result = Turn;
    type Worker = ();

    fn worker(&self) {}

    fn perform(&self, (): &mut (), task: Task, pieces: &mut Pieces) {
        let id = match &task {
            Task::First(_, _, first) => Some(first.id),
            _ => None,
        };
        let done = match task {
            Task::Both(folder, ino) => self.both(&folder, ino, pieces),
            Task::Below(above, name, ino) => {
                above.open_below(&name).and_then(|folder| self.both(&Arc::new(folder), ino, pieces))
            }
            Task::Files(folder, names) => {
                self.files(&folder, names, pieces);
                Ok(())
            }
            Task::First(folder, name, first) => self.first(&folder, name, &first, pieces),
            Task::New(task) => {
                self.new_ones(task, pieces);
                Ok(())
            }
        };
        if let Err(error) = done {
            pieces.push(PipelineItem::Result(Turn::Walk(directory::Turn::Failed(error, id))));
        }
    }

    fn budget(&self) -> usize {
        WAITING
    }

    fn weight(&self, turn: &Turn) -> usize {
        const REST: usize = 256;
        match turn {
            Turn::Walk(turn) => self.walk.weight(turn),
            _ => REST,
        }
    }
}

/// A name in a directory of the volume.
struct There {
    name: Vec<u8>,
    ino: Ino,
    is_directory: bool,
}

impl Against<'_> {
    /// A directory of both: itself, what only the volume has, files, and the directories in it.
    fn both(&self, folder: &Arc<Folder>, ino: Ino, pieces: &mut Pieces) -> Result<()> {
        self.itself(folder, ino, pieces)?;
        let is_other = self.walk.device.is_some_and(|device| device != folder.stat.st_dev);
        let (files, folders) = if is_other { Default::default() } else { folder.list()? };
        let there = list(self.volume, ino).map_err(Error::volume(&folder.path))?;
        let find = |name: &[u8]| there.binary_search_by(|there| there.name.as_slice().cmp(name)).ok();
        let mut is_here = vec![false; there.len()];
        let names = files.iter().map(|name| &name.bytes).chain(&folders);
        for at in names.filter_map(|name| find(name)) {
            if let Some(here) = is_here.get_mut(at) {
                *here = true;
            }
        }
        let gone = there.iter().zip(&is_here).filter(|(there, here)| {
            self.sync.delete && !**here && !folder.leaves_out(&there.name, there.is_directory)
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
            pieces.push(PipelineItem::Task(Task::Files(Arc::clone(folder), names)));
        }
        for name in folders {
            match find(&name).and_then(|at| there.get(at)) {
                Some(there) if there.is_directory => {
                    pieces.push(PipelineItem::Task(Task::Below(Arc::clone(folder), name, there.ino)));
                    continue;
                }
                Some(there) => self.remove(folder, &name, there.ino, pieces)?,
                None => {}
            }
            pieces.push(PipelineItem::Task(Task::New(directory::Task::Below(Arc::clone(folder), name))));
        }
        Ok(())
    }

    /// What the directory does not have goes away, unless a list makes it.
    fn gone(&self, path: Vec<u8>, gone: &There, pieces: &mut Pieces) -> Result<()> {
        if !self.listed.contains(&path) {
            let files = count(self.volume, gone.ino).map_err(Error::volume(&path))?;
            pieces.push(PipelineItem::Result(Turn::Removed(path, files)));
        } else if gone.is_directory {
            let below = list(self.volume, gone.ino).map_err(Error::volume(&path))?;
            below.iter().try_for_each(|there| self.gone(join(&path, &there.name), there, pieces))?;
        }
        Ok(())
    }

    fn remove(&self, folder: &Folder, name: &[u8], ino: Ino, pieces: &mut Pieces) -> Result<()> {
        let path = join(&folder.path, name);
        let files = count(self.volume, ino).map_err(Error::volume(&path))?;
        pieces.push(PipelineItem::Result(Turn::Removed(path, files)));
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
        self.stays(&looked, &there, &Kind::Directory, pieces)
    }

    /// Files in a directory, in the order of their names.
    fn files(&self, folder: &Arc<Folder>, names: Vec<(Name, Option<Ino>)>, pieces: &mut Pieces) {
        for (name, there) in names {
            let done = match there {
                Some(there) => self.file(folder, name, there, None, pieces),
                None => {
                    self.new_ones(directory::Task::Files(Arc::clone(folder), vec![name]), pieces);
                    Ok(())
                }
            };
            // Whether it matters to the others is for the sink to say.
            let failed = done.err().map(|error| Turn::Walk(directory::Turn::Failed(error, None)));
            pieces.extend(failed.map(PipelineItem::Result));
        }
    }

    fn first(&self, folder: &Arc<Folder>, name: Name, first: &First, pieces: &mut Pieces) -> Result<()> {
        match first.there {
            Some(there) => self.file(folder, name, there, Some(first), pieces),
            None => {
                self.new_ones(directory::Task::First(Arc::clone(folder), name, first.id), pieces);
                Ok(())
            }
        }
    }

    /// A file whose name the volume has.
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
            self.new_ones(directory::Task::Files(Arc::clone(folder), vec![name]), pieces);
            return Ok(());
        }
        if first.is_none() && (stat.st_nlink > 1 || metadata.nlink > 1) {
            let there = Some(there);
            pieces.push(PipelineItem::Result(Turn::Linked { id, folder: Arc::clone(folder), name, there }));
            return Ok(());
        }
        let opened = Opened { folder, name: &name.bytes, stat: &stat, file: OnceCell::new() };
        let may_stay = first.is_none_or(|first| first.may_stay);
        let stays = match may_stay {
            true => self.kind_if_equal(&opened, &known)?,
            false => None,
        };
        let Some(kind) = stays else {
            pieces.push(PipelineItem::Result(Turn::Replaces));
            self.new_ones(directory::Task::First(Arc::clone(folder), name, id), pieces);
            return Ok(());
        };
        if let Some(first) = first {
            pieces.push(PipelineItem::Result(Turn::Kept(first.id, there)));
        }
        let looked = Looked {
            path: &path,
            stat: &stat,
            attributes: &|| opened.attributes(),
            settings: opened.settings()?,
        };
        self.stays(&looked, &known, &kind, pieces)
    }

    /// What a file is, if the volume has one of the same kind with the same contents there.
    fn kind_if_equal(&self, opened: &Opened<'_>, there: &UncachedStat) -> Result<Option<Kind>> {
        let (stat, known) = (opened.stat, &there.metadata);
        let path = || join(&opened.folder.path, opened.name);
        if FileType::from_mode(stat.st_mode as u16) != Some(known.file_type) {
            return Ok(None);
        }
        let is_device = known.device == Some(host::device_of(stat));
        Ok(match known.file_type {
            FileType::Regular => {
                let size = stat.st_size.unsigned_abs();
                let is_later = host::modified(stat) != known.modified;
                let is_equal = size == known.size
                    && (!(is_later || self.sync.checksum)
                        || contents::are_equal(opened.file()?, self.volume, known.ino, &path())?);
                is_equal.then(|| Kind::File { size, data: crate::item::Data::default() })
            }
            FileType::Symlink => {
                let target = opened.folder.target_of(opened.name)?;
                let is_equal = match &there.target {
                    Some(there) => target == *there,
                    None => target == self.volume.read_link(known.ino).map_err(Error::volume(&path()))?,
                };
                is_equal.then_some(Kind::Symlink(target))
            }
            FileType::CharDevice if is_device => Some(Kind::CharDevice(host::device_of(stat))),
            FileType::BlockDevice if is_device => Some(Kind::BlockDevice(host::device_of(stat))),
            FileType::Fifo => Some(Kind::Fifo),
            FileType::Socket => Some(Kind::Socket),
            _ => None,
        })
    }

    /// A file that stays: what is to be changed of it.
    fn stays(
        &self,
        looked: &Looked<'_>,
        there: &UncachedStat,
        kind: &Kind,
        pieces: &mut Pieces,
    ) -> Result<()> {
        let known = &there.metadata;
        let mut lost = Vec::new();
        let mut facts = self.walk.facts(looked.stat, looked.attributes, &mut lost)?;
        let settings = looked.settings.unwrap_or_default();
        facts.settings = settings.with_possible_hints(self.volume.geometry());
        if facts.settings != settings {
            lost.push(PipelineItem::Result(directory::Turn::Lost(Lost::ExtentSizeHint)));
        }
        give(lost, pieces);
        let facts = self.overridden(looked, kind, facts);
        let amend = Amend::of(self.volume, there, &facts, looked.settings.is_some());
        let amend = amend.map_err(|error| Error::volume(&(looked.path)())(error))?;
        if amend.is_empty() {
            match pieces.last_mut() {
                Some(PipelineItem::Result(Turn::Same(count))) => *count += 1,
                _ => pieces.push(PipelineItem::Result(Turn::Same(1))),
            }
            return Ok(());
        }
        let is_directory = *kind == Kind::Directory;
        let amend = if is_directory { amend.with_times_of(known) } else { amend };
        pieces.push(PipelineItem::Result(Turn::Stays(
            (looked.path)(),
            known.ino,
            Box::new(amend),
            is_directory,
        )));
        Ok(())
    }

    fn overridden(&self, looked: &Looked<'_>, kind: &Kind, facts: Facts) -> Facts {
        if self.sync.overrides.is_empty() {
            return facts;
        }
        let mut entry = Entry { path: (looked.path)(), kind: kind.clone(), facts };
        self.sync.overrides.apply(&mut entry);
        entry.facts
    }

    /// What the volume does not have, or has otherwise.
    fn new_ones(&self, task: directory::Task, pieces: &mut Pieces) {
        let mut found = Vec::new();
        self.walk.perform(&mut (), task, &mut found);
        give(found, pieces);
    }
}

/// A file of this machine that is opened when something is asked for that cannot be known otherwise.
struct Opened<'o> {
    folder: &'o Folder,
    name: &'o [u8],
    /// What it was when it was looked at.
    stat: &'o Stat,
    file: OnceCell<OpenFile>,
}

impl Opened<'_> {
    fn file(&self) -> Result<&OpenFile> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.folder.open_file(self.name)?;
        let facts =
            |stat: &Stat| (stat.st_dev, stat.st_ino, stat.st_size, host::modified(stat), host::changed(stat));
        if facts(&file.stat) != facts(self.stat) {
            return Err(Error::Changed { path: self.folder.shown(self.name) });
        }
        Ok(self.file.get_or_init(|| file))
    }

    fn is_regular(&self) -> bool {
        FileType::from_mode(self.stat.st_mode as u16) == Some(FileType::Regular)
    }

    fn attributes(&self) -> Result<host::Attributes> {
        match self.folder.has_attributes(self.name) {
            Some(false) => Ok(host::Attributes::default()),
            _ if self.is_regular() => self.file()?.attributes(),
            _ => self.folder.attributes_of(self.name),
        }
    }

    /// Project and flags, where they can be known.
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

/// A file that was looked at.
struct Looked<'l> {
    path: &'l dyn Fn() -> Vec<u8>,
    stat: &'l Stat,
    attributes: &'l dyn Fn() -> Result<host::Attributes>,
    /// Project and flags, where they can be known.
    settings: Option<Settings>,
}

fn give(found: directory::Pieces, pieces: &mut Pieces) {
    pieces.extend(found.into_iter().map(|piece| match piece {
        PipelineItem::Task(task) => PipelineItem::Task(Task::New(task)),
        PipelineItem::Result(turn) => PipelineItem::Result(Turn::Walk(turn)),
    }));
}

/// What a directory of the volume has, by name.
fn list(volume: &Volume, dir: Ino) -> volume::Result<Vec<There>> {
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
            None => volume.metadata(there.ino)?.file_type,
        };
        Ok(There { is_directory: file_type == FileType::Directory, ..there })
    };
    let mut all = all.into_iter().map(known).collect::<volume::Result<Vec<_>>>()?;
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// How many names go away with one.
pub(super) fn count(volume: &Volume, ino: Ino) -> volume::Result<u64> {
    let mut count = 0;
    volume.for_each_below(ino, |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}
