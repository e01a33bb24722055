//! Changes the volume.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use base::errno;
use base::pipeline::{PipelineItem, PipelineItemOf, PipelineSink};
use format::inode::FileType;
use read::join;
use volume::{FileId, Metadata, Rename, Volume};

use super::amend::Amend;
use super::compare::{CompareEvent, CompareTask, Comparison, First, Pieces, count};
use super::locked::{Lifted, despite};
use super::{SyncAction, SyncReport, TreeSync, Watch};
use crate::directory;
use crate::directory::host::{Folder, Name};
use crate::item::{Data, Entry, EntryKind, EntryMetadata, Item, Loss, Receiver as _, split};
use crate::tree::Tree;
use crate::writer::{IMPLIED, Writer};
use crate::{Error, Overrides, Result};

/// Maximum number and bytes of files under hidden names; then they are flushed and renamed.
const STAGED: usize = 4096;
const STAGED_BYTES: u64 = 64 << 20;

/// The sink of the comparison.
pub(super) struct Update<'v, 's> {
    volume: &'v Volume,
    tree: Tree<'v>,
    sync: &'s TreeSync<'s>,
    watch: Watch<'s>,
    writer: Writer<'v>,
    /// The next entry replaces an existing file.
    replaces: bool,
    /// The file whose contents are incomplete, under a hidden name.
    coming: Option<Staged>,
    staged: Vec<Staged>,
    staged_bytes: u64,
    /// Hidden names by path.
    hidden: HashMap<Vec<u8>, Vec<u8>>,
    /// Number of hidden names so far.
    hidden_names: u64,
    /// First names of files with hard links, with the inode of the volume if that stays.
    firsts: HashMap<(u64, u64), (Vec<u8>, Option<FileId>)>,
    /// Inodes of the volume that are used for one of these files.
    claimed: HashSet<FileId>,
    /// Metadata of directories, to be set at the end.
    later: BTreeMap<FileId, Amend>,
    /// Those of them in which something was changed.
    touched: HashSet<FileId>,
    /// The directory that was changed last.
    folder: Option<(Vec<u8>, FileId)>,
    /// The last unreadable file.
    broken: Option<(u64, u64)>,
    /// Further contents belong to a skipped file.
    skips: bool,
    done: SyncReport,
}

/// A file under a hidden name.
struct Staged {
    dir: FileId,
    hidden: Vec<u8>,
    path: Vec<u8>,
    bytes: u64,
    /// It replaces an existing file.
    replaces: bool,
}

impl<'v, 's> Update<'v, 's> {
    pub fn new(volume: &'v Volume, root: FileId, sync: &'s TreeSync<'s>, watch: Watch<'s>) -> Self {
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

    /// Completes the synchronization.
    pub fn finish(mut self) -> Result<SyncReport> {
        let mut existing = HashSet::new();
        let listed =
            self.sync.overrides.missing().and_then(|entries| {
                entries.into_iter().try_for_each(|entry| self.listed(entry, &mut existing))
            });
        if let Err(error) = listed {
            self.abort();
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

    /// Ends after an error: complete files get their names, and incomplete ones are removed.
    pub fn abort(mut self) {
        // The first error is reported.
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

    fn report(&mut self, action: SyncAction, path: &[u8], count: u64) {
        *match action {
            SyncAction::Created => &mut self.done.created,
            SyncAction::Replaced => &mut self.done.replaced,
            SyncAction::Amended => &mut self.done.amended,
            SyncAction::Removed => &mut self.done.removed,
        } += count;
        (self.watch)(Some((action, path)), &self.done);
    }

    /// Prepares the directory of a path for a change: its times are restored at the end.
    fn touch(&mut self, path: &[u8]) -> Result<FileId> {
        let parent = split(path).map_or(&b""[..], |(parent, _)| parent);
        if let Some((last, id)) = &self.folder
            && last == parent
        {
            return Ok(*id);
        }
        let failed = || Error::volume(parent);
        let id = self.tree.literal(parent).map_err(failed())?;
        let known = self.volume.metadata(id).map_err(failed())?;
        let id = known.id();
        if self.touched.insert(id) {
            let amend = self.later.remove(&id).unwrap_or_else(|| Amend::keeping_times(&known));
            self.later.insert(id, amend.open_up(self.volume, &known).map_err(failed())?);
        }
        self.folder = Some((parent.to_vec(), id));
        Ok(id)
    }

    fn remove(&mut self, path: Vec<u8>, count: u64) -> Result<()> {
        self.report(SyncAction::Removed, &path, count);
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

    fn stays(&mut self, path: &[u8], id: FileId, amend: Amend, is_directory: bool) -> Result<()> {
        self.report(SyncAction::Amended, path, 1);
        if self.sync.dry_run {
            return Ok(());
        }
        if is_directory {
            self.later.insert(id, amend);
            return Ok(());
        }
        amend.apply(self.volume, id).map_err(Error::volume(path))
    }

    /// Creates a file of a list of overrides. Paths that exist by now are added to `existing`, even if they are
    /// unchanged.
    fn listed(&mut self, mut entry: Entry, existing: &mut HashSet<Vec<u8>>) -> Result<()> {
        self.implied(&entry.path, existing)?;
        existing.insert(entry.path.clone());
        let path = entry.path.as_slice();
        let Some(id) = self.named(path)? else { return self.entry(entry) };
        let there = self.volume.stat_uncached(id.ino).map_err(Error::volume(path))?;
        let known = &there.metadata;
        let is_directory = known.file_type == FileType::Directory;
        if !is_kind(self.volume, known, &entry.kind).map_err(Error::volume(path))? {
            if is_directory || entry.kind == EntryKind::Directory {
                let names = count(self.volume, id).map_err(Error::volume(path))?;
                self.remove(path.to_vec(), names)?;
            } else {
                self.replaces = true;
            }
            return self.entry(entry);
        }
        self.sync.overrides.apply(&mut entry);
        let path = entry.path.as_slice();
        let amend = Amend::of(self.volume, &there, &entry.metadata, false).map_err(Error::volume(path))?;
        let is_same = amend.is_empty();
        let amend = match self.later.remove(&known.id()) {
            Some(before) => amend.instead_of(before),
            None if is_same => amend,
            None if is_directory => amend.with_times_of(known),
            None => amend,
        };
        if is_same {
            self.done.unchanged += 1;
            if !amend.is_empty() {
                self.later.insert(known.id(), amend);
            }
            return Ok(());
        }
        self.stays(path, id, amend, is_directory)
    }

    /// Creates the parent directories of a path that neither the source nor the list has.
    fn implied(&mut self, path: &[u8], existing: &mut HashSet<Vec<u8>>) -> Result<()> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for above in slashes.filter_map(|(at, _)| path.get(..at)) {
            if !existing.insert(above.to_vec()) {
                continue;
            }
            if let Some(there) = self.named(above)? {
                let known = self.volume.metadata(there).map_err(Error::volume(above))?;
                if known.file_type == FileType::Directory {
                    continue;
                }
                // A symlink would lead elsewhere.
                self.remove(above.to_vec(), 1)?;
            }
            let metadata = EntryMetadata { permissions: IMPLIED, ..EntryMetadata::default() };
            self.entry(Entry { path: above.to_vec(), kind: EntryKind::Directory, metadata })?;
        }
        Ok(())
    }

    /// Looks up a path; `None` if it does not exist.
    fn named(&self, path: &[u8]) -> Result<Option<FileId>> {
        match self.tree.literal(path) {
            Ok(id) => Ok(Some(id)),
            Err(error) if matches!(error.errno(), errno::ENOENT | errno::ENOTDIR) => Ok(None),
            Err(error) => Err(Error::volume(path)(error)),
        }
    }

    fn entry(&mut self, mut entry: Entry) -> Result<()> {
        self.sync.overrides.apply(&mut entry);
        let replaces = std::mem::take(&mut self.replaces);
        self.report(if replaces { SyncAction::Replaced } else { SyncAction::Created }, &entry.path, 1);
        if self.sync.dry_run {
            return Ok(());
        }
        let dir = self.touch(&entry.path)?;
        if let EntryKind::Link(target) = &mut entry.kind
            && let Some(hidden) = self.hidden.get(target)
        {
            target.clone_from(hidden);
        }
        let (size, more) = match &entry.kind {
            EntryKind::File { size, data } => {
                self.done.bytes += data.bytes.len() as u64;
                (*size, *size > 0 && data.more)
            }
            _ => (0, false),
        };
        let mut lifted = Lifted::new(self.volume);
        if let EntryKind::Link(target) = &entry.kind {
            // A new name changes the file's ctime.
            if let Some(id) = self.named(target)? {
                lifted.lift(id).map_err(Error::volume(target))?;
            }
        }
        let path = entry.path.clone();
        let taken = self.take_entry(dir, entry, (replaces, size, more));
        lifted.set_again().map_err(Error::volume(&path))?;
        taken
    }

    fn take_entry(
        &mut self,
        dir: FileId,
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

    /// Returns an unused name.
    fn hide(&mut self, dir: FileId) -> volume::Result<Vec<u8>> {
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

    /// Completes a file except for its name.
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

    /// Flushes the files under hidden names, and gives them their names.
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
            // An existing file may have other names, and a new name may be one of a file that stays.
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
        there: Option<FileId>,
        pieces: &mut Pieces,
    ) -> Result<()> {
        let path = join(&folder.path, &name.bytes);
        let Some((first, kept)) = self.firsts.get(&id) else {
            let may_stay = there.is_some_and(|id| self.claimed.insert(id));
            self.firsts.insert(id, (path, None));
            pieces.push(PipelineItem::Task(CompareTask::First(folder, name, First { id, there, may_stay })));
            return Ok(());
        };
        if there.is_some() && there == *kept {
            self.done.unchanged += 1;
            return Ok(());
        }
        self.replaces = there.is_some();
        let kind = EntryKind::Link(first.clone());
        self.entry(Entry { path, kind, metadata: EntryMetadata::default() })
    }

    fn walked(&mut self, event: directory::WalkEvent, pieces: &mut Pieces) -> Result<()> {
        match event {
            directory::WalkEvent::Items(items) => items.into_iter().try_for_each(|item| match item {
                Item::Data(_) if self.skips => Ok(()),
                Item::Entry(entry) => {
                    self.skips = false;
                    self.entry(entry)
                }
                Item::Data(data) => self.data(data),
                Item::Removed(_) | Item::Emptied(_) | Item::Shared(_) => Ok(()),
            }),
            directory::WalkEvent::Shared(..) if self.skips => Ok(()),
            directory::WalkEvent::Shared(_, data, _) => self.data(data),
            directory::WalkEvent::Lost(lost) => {
                self.lose(lost);
                Ok(())
            }
            directory::WalkEvent::Linked { id, folder, name, .. } => {
                self.linked(id, (folder, name), None, pieces)
            }
            directory::WalkEvent::Failed(error, id) => self.failed(&error, id).unwrap_or(Err(error)),
        }
    }

    /// Skips an unreadable file if that is enabled: the volume keeps its version. `None` otherwise.
    fn failed(&mut self, error: &Error, id: Option<(u64, u64)>) -> Option<Result<()>> {
        if !self.sync.skip_unreadable || !error.is_unreadable() {
            return None;
        }
        // Several pieces of one file may fail.
        if !(self.skips && id.is_some() && id == self.broken) {
            self.sync.progress.notice(&error.notice());
            self.done.unreadable += 1;
        }
        if let Some(id) = id {
            // The next name becomes the first.
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

    fn lose(&mut self, lost: Loss) {
        *self.done.lost.entry(lost).or_default() += 1;
    }
}

impl<'w> PipelineSink<Comparison<'w>> for Update<'_, '_> {
    type Error = Error;

    fn take(&mut self, event: CompareEvent, pieces: &mut Vec<PipelineItemOf<Comparison<'w>>>) -> Result<()> {
        self.sync.cancel.check()?;
        match event {
            CompareEvent::Same(count) => {
                self.done.unchanged += count;
                (self.watch)(None, &self.done);
                Ok(())
            }
            CompareEvent::Removed(path, count) => self.remove(path, count),
            CompareEvent::Replaces => {
                self.replaces = true;
                Ok(())
            }
            CompareEvent::Stays(path, id, amend, is_directory) => self.stays(&path, id, *amend, is_directory),
            CompareEvent::Kept(id, file) => {
                if let Some((_, kept)) = self.firsts.get_mut(&id) {
                    *kept = Some(file);
                }
                Ok(())
            }
            CompareEvent::Linked { id, folder, name, there } => {
                self.linked(id, (folder, name), there, pieces)
            }
            CompareEvent::Walk(event) => self.walked(event, pieces),
        }
    }
}

/// Whether a file is as in the list: the same type, device and target, and empty.
fn is_kind(volume: &Volume, known: &Metadata, kind: &EntryKind) -> volume::Result<bool> {
    Ok(match (known.file_type, kind) {
        (FileType::Regular, EntryKind::File { size, .. }) => known.size == *size,
        (FileType::Symlink, EntryKind::Symlink(target)) => volume.read_link(known.id())? == *target,
        (FileType::CharDevice, EntryKind::CharDevice(device))
        | (FileType::BlockDevice, EntryKind::BlockDevice(device)) => known.device == Some(*device),
        (FileType::Directory, EntryKind::Directory)
        | (FileType::Fifo, EntryKind::Fifo)
        | (FileType::Socket, EntryKind::Socket) => true,
        _ => false,
    })
}
