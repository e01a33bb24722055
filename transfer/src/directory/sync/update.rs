//! Changes the volume.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use base::pipeline::{PipelineItem, PipelineItemOf, PipelineSink};
use base::{Ino, errno};
use format::inode::FileType;
use volume::{Metadata, Rename, Volume};

use super::amend::Amend;
use super::compare::{Against, First, Pieces, Task, Turn, count};
use super::locked::{Lifted, despite};
use super::{SyncAction, SyncReport, TreeSync, Watch};
use crate::directory;
use crate::directory::host::{Folder, Name};
use crate::file_id::FileId;
use crate::item::{Data, Entry, Facts, Item, Kind, Lost, Receiver as _, join, split};
use crate::tree::Tree;
use crate::writer::{IMPLIED, Writer};
use crate::{Error, Overrides, Result};

/// Files that wait under hidden names, at most, and bytes in them: then they are made stable, and get their names.
const STAGED: usize = 4096;
const STAGED_BYTES: u64 = 64 << 20;

/// See the module.
pub(super) struct Update<'v, 's> {
    volume: &'v Volume,
    tree: Tree<'v>,
    sync: &'s TreeSync<'s>,
    watch: Watch<'s>,
    writer: Writer<'v>,
    /// The next entry takes the place of what has its name.
    replaces: bool,
    /// What comes has no name of its own yet.
    coming: Option<Staged>,
    staged: Vec<Staged>,
    staged_bytes: u64,
    /// Where files lie that wait for their names.
    hidden: HashMap<Vec<u8>, Vec<u8>>,
    /// How many hidden names there were.
    hidden_names: u64,
    /// The first names of files with several, and what the volume has of them, if that stays.
    firsts: HashMap<(u64, u64), (Vec<u8>, Option<Ino>)>,
    /// Inodes that are one of these files already.
    claimed: HashSet<Ino>,
    /// What directories get when all is in them.
    later: BTreeMap<FileId, Amend>,
    /// Of these, directories in which something was changed.
    touched: HashSet<FileId>,
    /// The directory in which something was changed last.
    folder: Option<(Vec<u8>, Ino)>,
    /// The last file of which something could not be read.
    broken: Option<(u64, u64)>,
    /// What comes of contents is of a file that is left out.
    skips: bool,
    done: SyncReport,
}

/// A file under a hidden name.
struct Staged {
    dir: Ino,
    hidden: Vec<u8>,
    path: Vec<u8>,
    bytes: u64,
    /// Something has its name.
    replaces: bool,
}

impl<'v, 's> Update<'v, 's> {
    pub fn new(volume: &'v Volume, root: Ino, sync: &'s TreeSync<'s>, watch: Watch<'s>) -> Self {
        Self {
            volume,
            tree: Tree { volume, root },
            sync,
            watch,
            writer: Writer::new(volume, root, Overrides::default()),
            replaces: false,
            coming: None,
            staged: Vec::new(),
            staged_bytes: 0,
            hidden: HashMap::new(),
            hidden_names: 0,
            firsts: HashMap::new(),
            claimed: HashSet::new(),
            later: BTreeMap::new(),
            touched: HashSet::new(),
            folder: None,
            broken: None,
            skips: false,
            done: SyncReport::default(),
        }
    }

    /// All came.
    pub fn finish(mut self) -> Result<SyncReport> {
        let (made, unknown) = self.sync.overrides.missing();
        if let Some(path) = unknown.first() {
            let why = "the list of overrides names it, and the directory does not have it: say what to make by type=";
            self.give_up();
            return Err(Error::bad(path, why));
        }
        let mut there = HashSet::new();
        if let Err(error) = made.into_iter().try_for_each(|entry| self.listed(entry, &mut there)) {
            self.give_up();
            return Err(error);
        }
        if !self.sync.dry_run {
            self.place()?;
            for (id, amend) in std::mem::take(&mut self.later) {
                amend.apply_if_there(self.volume, id).map_err(Error::volume(b""))?;
            }
        }
        let written = self.writer.finish()?;
        for (lost, count) in written.lost {
            *self.done.lost.entry(lost).or_default() += count;
        }
        Ok(self.done)
    }

    /// Something failed: what is complete gets its name, and what is not goes away.
    pub fn give_up(mut self) {
        // The first error is told.
        let _ = self.place();
        let coming = self.coming.take();
        drop(self.writer);
        if let Some(coming) = coming {
            let _ = self.volume.unlink(coming.dir, &coming.hidden);
        }
        for (id, amend) in self.later {
            let _ = amend.apply_if_there(self.volume, id);
        }
    }

    fn tell(&mut self, step: SyncAction, path: &[u8], count: u64) {
        *match step {
            SyncAction::Created => &mut self.done.created,
            SyncAction::Replaced => &mut self.done.replaced,
            SyncAction::Amended => &mut self.done.amended,
            SyncAction::Removed => &mut self.done.removed,
        } += count;
        (self.watch)(Some((step, path)), &self.done);
    }

    /// The directory of a path is about to be changed: its times come back later.
    fn touch(&mut self, path: &[u8]) -> Result<Ino> {
        let parent = split(path).map_or(&b""[..], |(parent, _)| parent);
        if let Some((last, ino)) = &self.folder
            && last == parent
        {
            return Ok(*ino);
        }
        let failed = || Error::volume(parent);
        let ino = self.tree.literal(parent).map_err(failed())?;
        let known = self.volume.metadata(ino).map_err(failed())?;
        let id = FileId::from(&known);
        if self.touched.insert(id) {
            let amend = self.later.remove(&id).unwrap_or_else(|| Amend::keeping_times(&known));
            self.later.insert(id, amend.open_up(self.volume, &known).map_err(failed())?);
        }
        self.folder = Some((parent.to_vec(), ino));
        Ok(ino)
    }

    fn remove(&mut self, path: Vec<u8>, count: u64) -> Result<()> {
        self.tell(SyncAction::Removed, &path, count);
        if self.sync.dry_run {
            return Ok(());
        }
        let dir = self.touch(&path)?;
        self.folder = None;
        self.writer.forget();
        let name = split(&path).map_or(&b""[..], |(_, name)| name);
        let volume = self.volume;
        let lift = |lifted: &mut Lifted<'_>| lifted.lift_all(volume.lookup(dir, name)?);
        despite(volume, || volume.remove_all(dir, name), lift).map_err(Error::volume(&path))
    }

    fn stays(&mut self, path: &[u8], ino: Ino, amend: Amend, is_directory: bool) -> Result<()> {
        self.tell(SyncAction::Amended, path, 1);
        if self.sync.dry_run {
            return Ok(());
        }
        if is_directory {
            let id = FileId::of(self.volume, ino).map_err(Error::volume(path))?;
            self.later.insert(id, amend);
            return Ok(());
        }
        amend.apply(self.volume, ino).map_err(Error::volume(path))
    }

    /// What the list of overrides makes. Paths that are there by now are `made`, even if nothing is done.
    fn listed(&mut self, mut entry: Entry, made: &mut HashSet<Vec<u8>>) -> Result<()> {
        self.implied(&entry.path, made)?;
        made.insert(entry.path.clone());
        let path = entry.path.as_slice();
        let Some(ino) = self.named(path)? else { return self.entry(entry) };
        let there = self.volume.stat_uncached(ino).map_err(Error::volume(path))?;
        let known = &there.metadata;
        let is_directory = known.file_type == FileType::Directory;
        if !is_kind(self.volume, known, &entry.kind).map_err(Error::volume(path))? {
            if is_directory || entry.kind == Kind::Directory {
                let names = count(self.volume, ino).map_err(Error::volume(path))?;
                self.remove(path.to_vec(), names)?;
            } else {
                self.replaces = true;
            }
            return self.entry(entry);
        }
        self.sync.overrides.apply(&mut entry);
        let path = entry.path.as_slice();
        let amend = Amend::of(self.volume, &there, &entry.facts, false).map_err(Error::volume(path))?;
        let is_same = amend.is_empty();
        let amend = match self.later.remove(&known.into()) {
            Some(before) => amend.instead_of(before),
            None if is_same => amend,
            None if is_directory => amend.with_times_of(known),
            None => amend,
        };
        if is_same {
            self.done.unchanged += 1;
            if !amend.is_empty() {
                self.later.insert(known.into(), amend);
            }
            return Ok(());
        }
        self.stays(path, ino, amend, is_directory)
    }

    /// Makes the directories above a path that neither the directory nor the list has.
    fn implied(&mut self, path: &[u8], made: &mut HashSet<Vec<u8>>) -> Result<()> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for above in slashes.filter_map(|(at, _)| path.get(..at)) {
            if !made.insert(above.to_vec()) {
                continue;
            }
            if let Some(there) = self.named(above)? {
                let known = self.volume.metadata(there).map_err(Error::volume(above))?;
                if known.file_type == FileType::Directory {
                    continue;
                }
                // A link would lead elsewhere.
                self.remove(above.to_vec(), 1)?;
            }
            let facts = Facts { permissions: IMPLIED, ..Facts::default() };
            self.entry(Entry { path: above.to_vec(), kind: Kind::Directory, facts })?;
        }
        Ok(())
    }

    /// What a path stands for, if it does for anything.
    fn named(&self, path: &[u8]) -> Result<Option<Ino>> {
        match self.tree.literal(path) {
            Ok(ino) => Ok(Some(ino)),
            Err(error) if matches!(error.errno(), errno::ENOENT | errno::ENOTDIR) => Ok(None),
            Err(error) => Err(Error::volume(path)(error)),
        }
    }

    fn entry(&mut self, mut entry: Entry) -> Result<()> {
        self.sync.overrides.apply(&mut entry);
        let replaces = std::mem::take(&mut self.replaces);
        self.tell(if replaces { SyncAction::Replaced } else { SyncAction::Created }, &entry.path, 1);
        if self.sync.dry_run {
            return Ok(());
        }
        let dir = self.touch(&entry.path)?;
        if let Kind::Link(target) = &mut entry.kind
            && let Some(hidden) = self.hidden.get(target)
        {
            target.clone_from(hidden);
        }
        let (size, more) = match &entry.kind {
            Kind::File { size, data } => {
                self.done.bytes += data.bytes.len() as u64;
                (*size, *size > 0 && data.more)
            }
            _ => (0, false),
        };
        let mut lifted = Lifted::new(self.volume);
        if let Kind::Link(target) = &entry.kind {
            // It gets one more name, and that is a change of it.
            if let Some(ino) = self.named(target)? {
                lifted.lift(ino).map_err(Error::volume(target))?;
            }
        }
        let path = entry.path.clone();
        let taken = self.take_entry(dir, entry, (replaces, size, more));
        lifted.set_again().map_err(Error::volume(&path))?;
        taken
    }

    fn take_entry(
        &mut self,
        dir: Ino,
        mut entry: Entry,
        (replaces, size, more): (bool, u64, bool),
    ) -> Result<()> {
        if !replaces && size == 0 {
            return self.writer.take(Item::Entry(entry));
        }
        let hidden = self.hide(dir).map_err(Error::volume(&entry.path))?;
        let hidden_path = join(split(&entry.path).map_or(&b""[..], |(parent, _)| parent), &hidden);
        let path = std::mem::replace(&mut entry.path, hidden_path);
        self.hidden.insert(path.clone(), entry.path.clone());
        self.coming = Some(Staged { dir, hidden, path, bytes: size, replaces });
        self.writer.take(Item::Entry(entry))?;
        if more { Ok(()) } else { self.stage() }
    }

    fn data(&mut self, data: Data) -> Result<()> {
        let more = data.more;
        self.done.bytes += data.bytes.len() as u64;
        self.writer.take(Item::Data(data))?;
        if more { Ok(()) } else { self.stage() }
    }

    /// A name that nobody has.
    fn hide(&mut self, dir: Ino) -> volume::Result<Vec<u8>> {
        loop {
            let name = format!(".xebec-sync.{}", self.hidden_names).into_bytes();
            self.hidden_names += 1;
            match self.volume.lookup(dir, &name) {
                Ok(_) => {}
                Err(error) if error.errno() == base::errno::ENOENT => return Ok(name),
                Err(error) => return Err(error),
            }
        }
    }

    /// A file is complete but for its name.
    fn stage(&mut self) -> Result<()> {
        if let Some(staged) = self.coming.take() {
            self.staged_bytes += staged.bytes;
            self.staged.push(staged);
        }
        if self.staged.len() < STAGED && self.staged_bytes < STAGED_BYTES {
            return Ok(());
        }
        self.place()
    }

    /// Files that wait get their names, when what they hold is stable.
    fn place(&mut self) -> Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        self.writer.fill()?;
        self.volume.sync().map_err(Error::volume(b""))?;
        for staged in self.staged.drain(..) {
            let Staged { dir, hidden, path, .. } = staged;
            let name = split(&path).map_or(&b""[..], |(_, name)| name);
            let rename = || self.volume.rename(dir, &hidden, dir, name, Rename::Replace);
            // What is there may have other names, and a name that comes may be one of a file that stays.
            let lift = |lifted: &mut Lifted<'_>| {
                lifted.lift_name(dir, &hidden)?;
                lifted.lift_name(dir, name)
            };
            despite(self.volume, rename, lift).map_err(Error::volume(&path))?;
        }
        self.hidden.clear();
        self.staged_bytes = 0;
        Ok(())
    }

    fn linked(
        &mut self,
        id: (u64, u64),
        (folder, name): (Arc<Folder>, Name),
        there: Option<Ino>,
        pieces: &mut Pieces,
    ) -> Result<()> {
        let path = join(&folder.path, &name.bytes);
        let Some((first, kept)) = self.firsts.get(&id) else {
            let may_stay = there.is_some_and(|ino| self.claimed.insert(ino));
            self.firsts.insert(id, (path, None));
            pieces.push(PipelineItem::Task(Task::First(folder, name, First { id, there, may_stay })));
            return Ok(());
        };
        if there.is_some() && there == *kept {
            self.done.unchanged += 1;
            return Ok(());
        }
        self.replaces = there.is_some();
        let kind = Kind::Link(first.clone());
        self.entry(Entry { path, kind, facts: Facts::default() })
    }

    fn walked(&mut self, turn: directory::Turn, pieces: &mut Pieces) -> Result<()> {
        match turn {
            directory::Turn::Items(items) => items.into_iter().try_for_each(|item| match item {
                Item::Data(_) if self.skips => Ok(()),
                Item::Entry(entry) => {
                    self.skips = false;
                    self.entry(entry)
                }
                Item::Data(data) => self.data(data),
                Item::Removed(_) | Item::Emptied(_) | Item::Alike(_) => Ok(()),
            }),
            directory::Turn::Shared(..) if self.skips => Ok(()),
            directory::Turn::Shared(_, data, _) => self.data(data),
            directory::Turn::Lost(lost) => {
                self.lose(lost);
                Ok(())
            }
            directory::Turn::Linked { id, folder, name, .. } => self.linked(id, (folder, name), None, pieces),
            directory::Turn::Failed(error, id) => self.failed(&error, id).unwrap_or(Err(error)),
        }
    }

    /// What cannot be read is left out, if that is wanted: what the volume has of it stays. `None` where it is not.
    fn failed(&mut self, error: &Error, id: Option<(u64, u64)>) -> Option<Result<()>> {
        if !self.sync.skip_unreadable || !error.is_unreadable() {
            return None;
        }
        // Pieces of one file fail one after the other.
        if !(self.skips && id.is_some() && id == self.broken) {
            self.sync.progress.notice(&error.notice());
            self.done.unreadable += 1;
        }
        if let Some(id) = id {
            // The next of its names is tried as the first.
            self.firsts.remove(&id);
        }
        (self.broken, self.skips) = (id, true);
        self.replaces = false;
        Some(match self.coming.take() {
            Some(coming) => {
                self.hidden.remove(&coming.path);
                *(if coming.replaces { &mut self.done.replaced } else { &mut self.done.created }) -= 1;
                self.writer.discard()
            }
            None => Ok(()),
        })
    }

    fn lose(&mut self, lost: Lost) {
        *self.done.lost.entry(lost).or_default() += 1;
    }
}

impl<'w> PipelineSink<Against<'w>> for Update<'_, '_> {
    type Error = Error;

    fn take(&mut self, turn: Turn, pieces: &mut Vec<PipelineItemOf<Against<'w>>>) -> Result<()> {
        if self.sync.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        match turn {
            Turn::Same(count) => {
                self.done.unchanged += count;
                (self.watch)(None, &self.done);
                Ok(())
            }
            Turn::Removed(path, count) => self.remove(path, count),
            Turn::Replaces => {
                self.replaces = true;
                Ok(())
            }
            Turn::Stays(path, ino, amend, is_directory) => self.stays(&path, ino, *amend, is_directory),
            Turn::Kept(id, ino) => {
                if let Some((_, kept)) = self.firsts.get_mut(&id) {
                    *kept = Some(ino);
                }
                Ok(())
            }
            Turn::Linked { id, folder, name, there } => self.linked(id, (folder, name), there, pieces),
            Turn::Walk(turn) => self.walked(turn, pieces),
        }
    }
}

/// Whether a file is what a list makes: of the same kind, the same device, the same target, and empty.
fn is_kind(volume: &Volume, known: &Metadata, kind: &Kind) -> volume::Result<bool> {
    Ok(match (known.file_type, kind) {
        (FileType::Regular, Kind::File { size, .. }) => known.size == *size,
        (FileType::Symlink, Kind::Symlink(target)) => volume.read_link(known.ino)? == *target,
        (FileType::CharDevice, Kind::CharDevice(device))
        | (FileType::BlockDevice, Kind::BlockDevice(device)) => known.device == Some(*device),
        (FileType::Directory, Kind::Directory)
        | (FileType::Fifo, Kind::Fifo)
        | (FileType::Socket, Kind::Socket) => true,
        _ => false,
    })
}
