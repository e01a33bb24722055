//! What an open volume makes of items.

mod contents;

use std::collections::{BTreeMap, HashMap};

use base::time::Time;
use base::{Ino, errno};
use format::timestamp::Timestamp;
use volume::settings::HINTS;
use volume::{BulkWriter, Dir, File, NewFile, SetAttribute, SetMetadata, Settings, Volume};

use crate::file_id::FileId;
use crate::item::{Alike, Entry, Facts, Item, Kind, Lost, Receiver, split};
use crate::progress::{Cancel, Counts, Progress};
use crate::tree::Tree;
use crate::{Error, Overrides, Result, labels};

/// Bytes of paths of directories whose numbers are kept at hand; of others the path is walked.
const AT_HAND_BYTES: usize = 4 << 20;
/// Bytes of the end of a path by which a message names a file at the end.
const NAMED: usize = 256;
/// What directories that a source does not tell of are made with.
pub(crate) const IMPLIED: u16 = 0o755;
/// Hands something down to files that are made in the directory later, whether their source has it or not.
pub(crate) const HANDED_DOWN: &[u8] = b"system.posix_acl_default";
/// The set-group-ID bit: of a directory it does the same.
pub(crate) const SET_GROUP: u16 = 0o2000;

/// Makes files in an open volume. What has a name already is replaced; a directory stays, and becomes what the source
/// says.
pub struct Writer<'v> {
    volume: &'v Volume,
    tree: Tree<'v>,
    overrides: Overrides,
    /// Directories of late, by path.
    at_hand: HashMap<Vec<u8>, Ino>,
    at_hand_bytes: usize,
    /// What files shall be at last, and directories when all is in them.
    unfinished: Vec<Unfinished>,
    open: Option<Open<'v>>,
    /// Contents that wait to be written together.
    bulk_writer: BulkWriter<'v>,
    /// What comes next may be here already.
    alike: Option<Alike>,
    round: Round,
    /// Of the log, before everything is written home; without limit where that is not wanted.
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
    /// Files of every kind, directories too.
    pub files: u64,
    /// Of these, further names of files.
    pub links: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// What was not kept, and how often.
    pub lost: BTreeMap<Lost, u64>,
    /// What could not be read, and was left out.
    pub unreadable: u64,
}

/// What was done since everything was written home.
#[derive(Default)]
struct Round {
    logged: u64,
    contents: u64,
}

/// Bytes that a round would take of the log: what is changed often is then written once for thousands of files.
const ROUND_LOG_BYTES: u64 = 4 << 20;
/// Bytes of contents of a round.
const ROUND_CONTENTS: u64 = 16 << 20;
/// What making a file logs, about: its inode, its name, and its share of the trees.
const FILE_LOG_BYTES: u64 = 1536;

/// A file whose contents are still coming.
struct Open<'v> {
    ino: Ino,
    path: Vec<u8>,
    size: u64,
    /// Bytes up to which they have come.
    reached: u64,
    times: SetMetadata,
    /// Contents that are not in whole blocks go through the cache.
    cached: Option<File<'v>>,
}

/// A file as it shall be at last.
struct Unfinished {
    id: FileId,
    /// The end of its path, for messages.
    path: Box<[u8]>,
    set: SetMetadata,
    handed_down: Option<Vec<u8>>,
    settings: Settings,
}

impl<'v> Writer<'v> {
    /// Makes everything below the directory `root` of the volume.
    pub fn new(volume: &'v Volume, root: Ino, overrides: Overrides) -> Self {
        Self {
            volume,
            tree: Tree { volume, root },
            overrides,
            at_hand: HashMap::new(),
            at_hand_bytes: 0,
            unfinished: Vec::new(),
            open: None,
            bulk_writer: BulkWriter::new(volume),
            alike: None,
            round: Round::default(),
            round_log_bytes: None,
            done: ImportReport::default(),
            progress: &(),
            cancel: Cancel::default(),
            skip_unreadable: false,
        }
    }

    /// Works in rounds: after some files, or some contents, everything is written home by this thread. So a volume that
    /// was opened without threads of its own never needs any, and what is written where does not depend on how fast
    /// anything is.
    #[must_use]
    pub fn in_rounds(mut self) -> Self {
        let geometry = self.volume.geometry();
        let log_bytes = u64::from(geometry.log_blocks) * u64::from(geometry.block_size);
        self.round_log_bytes = Some(ROUND_LOG_BYTES.min(log_bytes / 16));
        self
    }

    /// Reports progress and messages.
    #[must_use]
    pub fn progress(mut self, progress: &'v dyn Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Fails with [`Error::Cancelled`] after [`Cancel::cancel`].
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Skips unreadable files with a message. By default, they are errors.
    #[must_use]
    pub fn skip_unreadable(mut self, skip: bool) -> Self {
        self.skip_unreadable = skip;
        self
    }

    fn advance(&self) {
        self.progress.advance(Counts { files: self.done.files, bytes: self.done.bytes });
    }

    /// Something failed: nothing is left of the file whose contents were still coming.
    pub fn give_up(mut self) {
        // The first error is told.
        let _ = self.discard();
    }

    /// Gives directories what they could not have while files were made in them. To be called when the sources are at
    /// their end.
    ///
    /// # Errors
    /// What the volume reports.
    pub fn finish(mut self) -> Result<ImportReport> {
        let (made, unknown) = self.overrides.missing();
        if let Some(path) = unknown.first() {
            let why =
                "the list of overrides names it, and the source does not have it: say what to make by type=";
            return Err(Error::bad(path, why));
        }
        for entry in made {
            self.entry(entry)?;
        }
        self.fill()?;
        self.label_root()?;
        for file in std::mem::take(&mut self.unfinished) {
            self.round(FILE_LOG_BYTES, 0)?;
            self.finish_one(&file).map_err(Error::volume(&file.path))?;
        }
        Ok(self.done)
    }

    /// Of a root that no source tells of. What it has stays.
    fn label_root(&self) -> Result<()> {
        let Some(label) = self.overrides.label_of_directory(b"") else { return Ok(()) };
        let set = self.volume.set_attribute(self.tree.root, labels::ATTRIBUTE, label, SetAttribute::Create);
        match set {
            Err(error) if error.errno() == errno::EEXIST => Ok(()),
            set => set.map_err(Error::volume(b"")),
        }
    }

    fn finish_one(&mut self, file: &Unfinished) -> volume::Result<()> {
        let ino = file.id.ino;
        if !file.id.exists(self.volume)? {
            // It was made by one source and removed by the next.
            return Ok(());
        }
        if let Some(list) = &file.handed_down {
            self.volume.set_attribute(ino, HANDED_DOWN, list, SetAttribute::Any)?;
        }
        if file.set != SetMetadata::default() {
            self.volume.set_metadata(ino, &file.set)?;
        }
        self.set_settings(ino, &file.settings)
    }

    /// Adds settings to those that a file has.
    fn set_settings(&mut self, ino: Ino, wanted: &Settings) -> volume::Result<()> {
        if *wanted == Settings::default() {
            return Ok(());
        }
        let mut settings = self.volume.settings(ino)?;
        settings.xflags |= wanted.xflags;
        if wanted.without_hints() != Settings::default() {
            settings.project = wanted.project;
        }
        if wanted.xflags & HINTS != 0 {
            (settings.extsize, settings.cowextsize) = (wanted.extsize, wanted.cowextsize);
        }
        match self.volume.set_settings(ino, &settings) {
            Err(error) if error.errno() == errno::EINVAL => {
                self.lose(Lost::Flags);
                Ok(())
            }
            done => done,
        }
    }

    fn entry(&mut self, mut entry: Entry) -> Result<()> {
        self.overrides.apply(&mut entry);
        let times = [entry.facts.accessed, entry.facts.modified];
        if !times.into_iter().flatten().all(|time| self.can_hold(time)) {
            self.lose(Lost::Time);
        }
        let possible = entry.facts.settings.with_possible_hints(self.volume.geometry());
        if std::mem::replace(&mut entry.facts.settings, possible) != possible {
            self.lose(Lost::ExtentSizeHint);
        }
        let attributes = entry.facts.attributes.iter();
        let logged: usize = attributes.map(|(name, value)| 2 * (name.len() + value.len()) + 512).sum();
        self.round(FILE_LOG_BYTES + logged as u64, 0)?;
        self.make(&entry)?;
        self.done.files += 1;
        if let Kind::File { size: 1.., data } = entry.kind {
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

    /// Ends a round where what comes is too much for it.
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

    /// Names went away: where directories were is known no longer.
    pub(crate) fn forget(&mut self) {
        self.at_hand.clear();
        self.at_hand_bytes = 0;
    }

    /// Writes the contents that wait.
    pub(crate) fn fill(&mut self) -> Result<()> {
        self.bulk_writer.finish().map_err(Error::volume(b""))
    }

    /// Makes a file. Contents that wait hold blocks for their maps, of which they mostly need none.
    fn create(&mut self, dir: Ino, name: &[u8], new: &NewFile<'_>, path: &[u8]) -> Result<Ino> {
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

    fn make_in(&mut self, dir: Ino, name: &[u8], entry: &Entry) -> Result<()> {
        let (path, facts) = (entry.path.as_slice(), &entry.facts);
        let kind = match &entry.kind {
            Kind::File { .. } => volume::NewFileType::Regular,
            Kind::Directory => return self.make_directory(dir, name, entry),
            Kind::Symlink(target) => volume::NewFileType::Symlink(target),
            Kind::Link(target) => {
                let target = self.named(target)?;
                self.volume.link(target, dir, name).map_err(Error::volume(path))?;
                self.done.links += 1;
                return Ok(());
            }
            Kind::CharDevice(device) => volume::NewFileType::CharDevice(*device),
            Kind::BlockDevice(device) => volume::NewFileType::BlockDevice(*device),
            Kind::Fifo => volume::NewFileType::Fifo,
            Kind::Socket => volume::NewFileType::Socket,
        };
        let attributes: Vec<_> = borrowed(facts).collect();
        let new = NewFile { attributes: &attributes, ..of(kind, facts) };
        let ino = self.create(dir, name, &new, path)?;
        let settings = facts.settings;
        if settings.xflags & HINTS != 0 {
            // A file that has contents could not have them any more; and what forbids contents comes last.
            let hints = Settings { xflags: settings.xflags & HINTS, project: 0, ..settings };
            self.round(FILE_LOG_BYTES, 0)?;
            self.set_settings(ino, &hints).map_err(Error::volume(path))?;
        }
        if settings.without_hints() != Settings::default() {
            self.finish_later(ino, path, SetMetadata::default(), settings.without_hints(), facts)?;
        }
        if let Kind::File { size: size @ 1.., .. } = &entry.kind {
            let (path, times) = (path.to_vec(), times(facts));
            self.open = Some(Open { ino, path, size: *size, reached: 0, times, cached: None });
        }
        Ok(())
    }

    fn make_directory(&mut self, dir: Ino, name: &[u8], entry: &Entry) -> Result<()> {
        let (path, facts) = (entry.path.as_slice(), &entry.facts);
        let attributes: Vec<_> = borrowed(facts).filter(|(name, _)| *name != HANDED_DOWN).collect();
        let mut new = NewFile { attributes: &attributes, ..of(volume::NewFileType::Directory, facts) };
        new.permissions &= !SET_GROUP;
        let ino = self.create(dir, name, &new, path)?;
        self.keep_at_hand(path, ino);
        self.finish_directory(ino, path, facts)
    }

    /// A directory that exists becomes what the source says.
    fn adopt(&mut self, ino: Ino, entry: &Entry) -> Result<()> {
        if entry.kind != Kind::Directory {
            return Err(Error::bad(&entry.path, "the root of a volume is a directory"));
        }
        for (name, value) in borrowed(&entry.facts).filter(|(name, _)| *name != HANDED_DOWN) {
            let set = self.volume.set_attribute(ino, name, value, SetAttribute::Any);
            set.map_err(Error::volume(&entry.path))?;
        }
        self.finish_directory(ino, &entry.path, &entry.facts)
    }

    /// The name exists.
    fn make_over(&mut self, dir: Ino, name: &[u8], entry: &Entry) -> Result<()> {
        let failed = || Error::volume(&entry.path);
        let there = self.volume.lookup(dir, name).map_err(failed())?;
        let is_directory = self.is_directory(there).map_err(failed())?;
        if is_directory && entry.kind == Kind::Directory {
            self.keep_at_hand(&entry.path, there);
            return self.adopt(there, entry);
        }
        if let Kind::Link(target) = &entry.kind
            && self.named(target)? == there
        {
            return Ok(());
        }
        self.forget();
        self.volume.remove_all(dir, name).map_err(failed())?;
        self.make_in(dir, name, entry)
    }

    /// Removes what is there. A link on the way is no directory: the path is that of a lower layer's tree.
    fn remove(&mut self, path: &[u8]) -> Result<()> {
        let Some((parent, name)) = split(path) else { return Ok(()) };
        let there = self.tree.literal(parent);
        let gone = there.and_then(|dir| self.volume.remove_all(dir, name));
        self.forget();
        if_there(gone).map_err(Error::volume(path))
    }

    /// Removes what is in a directory, unless that is a link.
    fn empty(&mut self, path: &[u8]) -> Result<()> {
        let dir = self.tree.literal(path);
        self.forget();
        let emptied = dir.and_then(|dir| {
            let mut entries = Dir::open_ino(self.volume, dir)?.entries()?.into_iter();
            entries.try_for_each(|(name, _)| match &*name {
                b"." | b".." => Ok(()),
                name => self.volume.remove_all(dir, name),
            })
        });
        if_there(emptied).map_err(Error::volume(path))
    }

    fn is_directory(&self, ino: Ino) -> volume::Result<bool> {
        Ok(self.volume.metadata(ino)?.file_type == format::inode::FileType::Directory)
    }

    /// What a directory gets when all is in it.
    fn finish_directory(&mut self, ino: Ino, path: &[u8], facts: &Facts) -> Result<()> {
        let set = SetMetadata {
            permissions: Some(facts.permissions),
            uid: Some(facts.uid),
            gid: Some(facts.gid),
            ..times(facts)
        };
        self.finish_later(ino, path, set, facts.settings, facts)
    }

    fn finish_later(
        &mut self,
        ino: Ino,
        path: &[u8],
        set: SetMetadata,
        settings: Settings,
        facts: &Facts,
    ) -> Result<()> {
        let id = FileId::of(self.volume, ino).map_err(Error::volume(path))?;
        let handed_down = facts.attributes.iter().find(|(name, _)| name == HANDED_DOWN);
        let handed_down = handed_down.map(|(_, value)| value.clone());
        // There may be very many directories, as deep as an archive makes them.
        let path = path.get(path.len().saturating_sub(NAMED)..).unwrap_or_default().into();
        self.unfinished.push(Unfinished { id, path, set, handed_down, settings });
        Ok(())
    }

    /// The directory of a path, made with those above it where they are missing.
    fn directory(&mut self, path: &[u8]) -> Result<Ino> {
        self.reach(path, true)
    }

    /// Where a path leads; directories that are missing are made if `make`.
    fn reach(&mut self, path: &[u8], make: bool) -> Result<Ino> {
        let Some((parent, name)) = split(path) else { return Ok(self.tree.root) };
        if let Some(ino) = self.at_hand.get(path) {
            return Ok(*ino);
        }
        let (from, rest) = match self.at_hand.get(parent) {
            Some(ino) => (*ino, name),
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
            false => Err(Error::bad(path, "the archive has no such directory")),
        })?;
        self.keep_at_hand(path, at);
        Ok(at)
    }

    fn keep_at_hand(&mut self, path: &[u8], ino: Ino) {
        /// What an entry takes beside its path.
        const EACH: usize = 64;
        if self.at_hand_bytes >= AT_HAND_BYTES {
            self.forget();
        }
        self.at_hand_bytes += path.len() + EACH;
        self.at_hand.insert(path.to_vec(), ino);
    }

    /// The file that has this path already.
    fn named(&mut self, path: &[u8]) -> Result<Ino> {
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
            Item::Alike(alike) => {
                self.alike = Some(alike);
                Ok(())
            }
            Item::Removed(path) => self.remove(&path),
            Item::Emptied(path) => self.empty(&path),
        }
    }

    fn lose(&mut self, lost: Lost) {
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

/// What is not there needs not be taken away.
fn if_there(removed: volume::Result<()>) -> volume::Result<()> {
    match removed {
        Err(error) if matches!(error.errno(), errno::ENOENT | errno::ENOTDIR) => Ok(()),
        done => done,
    }
}

fn of<'a>(kind: volume::NewFileType<'a>, facts: &Facts) -> NewFile<'a> {
    let (permissions, uid, gid) = (facts.permissions, facts.uid, facts.gid);
    let (accessed, modified) = (facts.accessed, facts.modified);
    NewFile { file_type: kind, permissions, umask: 0, uid, gid, attributes: &[], accessed, modified }
}

fn borrowed(facts: &Facts) -> impl Iterator<Item = (&[u8], &[u8])> {
    facts.attributes.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
}

fn times(facts: &Facts) -> SetMetadata {
    let (accessed, modified): (Option<Time>, Option<Time>) = (facts.accessed, facts.modified);
    SetMetadata { accessed, modified, ..SetMetadata::default() }
}
