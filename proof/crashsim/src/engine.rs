//! Xebec as a target: volumes are formatted by its `mkfs`, opened through the façade, and judged by the checker and the
//! reader, which share no code with the engine.
//!
//! # Locking
//! One mutex around the open files.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::Ino;
use block::Device;
use check::{Finding, Observer};
use format::inode::FileType;
use model::{
    Answer, Failure, FileKind, Name, NewFile, ObservedTree, RenameMode, SetAttr, Stat, Subject, Times, clock,
};
use volume::{
    Access, Cookie, FileId, Handle, ImageOptions, MemoryBudget, Metadata, Rename, SetMetadata, Volume,
    open_image_on,
};

use crate::image::{Image, ImageDevice};
use crate::shape::Shape;
use crate::target::Target;

/// Xebec with volumes of one shape.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Shape of the volumes.
    pub shape: Shape,
}

/// An open volume.
pub struct OpenVolume {
    volume: Volume,
    open_inodes: Mutex<HashMap<u64, OpenInode>>,
}

/// An open file.
struct OpenInode {
    handles: Vec<Handle>,
    /// It has never had a name.
    anonymous: bool,
}

/// Findings of the checker.
#[derive(Default)]
struct Findings(Mutex<Vec<String>>);

impl Observer for Findings {
    fn finding(&self, finding: &Finding) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(finding.to_string());
    }
}

/// Checks a volume.
///
/// # Errors
/// The checker's findings, including warnings.
pub fn check(device: &dyn Device) -> Result<(), String> {
    let findings = Findings::default();
    let options = check::Options { threads: 1, findings_per_kind: 10, ..check::Options::default() };
    check::check(device, &options, &findings).map_err(|error| format!("the checker: {error}"))?;
    let findings = findings.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    if findings.is_empty() { Ok(()) } else { Err(format!("the checker finds:\n{}", findings.join("\n"))) }
}

/// Checks and reads a volume as a power cut would leave it now: a read-only open replays its log in memory. The volume
/// may be open at the same time. Unlinked files are left to the next mount.
///
/// # Errors
/// What is wrong with it.
pub fn check_now(image: Image, home: u64) -> Result<ObservedTree, String> {
    let device = Arc::new(ImageDevice::new(image));
    let opened = open_image_on(device, &ImageOptions::new(Access::ReadOnly));
    let opened = opened.map_err(|error| error.to_string())?;
    if opened.log.is_partial() {
        return Err(format!("replayed in part: {:?}", opened.log));
    }
    let findings = Findings::default();
    let options = check::Options { threads: 1, replayed: true, ..check::Options::default() };
    let summary = check::check(&*opened.device, &options, &findings);
    let summary = summary.map_err(|error| format!("the checker: {error}"))?;
    if !summary.is_clean() {
        let findings = findings.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        return Err(format!("the checker finds:\n{}", findings.join("\n")));
    }
    let mut trees = read_trees(opened.device, &[home], true)?;
    trees.pop().ok_or_else(|| "no tree was read".into())
}

/// Reads the trees below some directories of a clean volume with the reader.
///
/// # Errors
/// What cannot be read.
pub fn read_trees(device: Arc<dyn Device>, homes: &[u64], times: bool) -> Result<Vec<ObservedTree>, String> {
    let volume = read::Volume::open(device).map_err(|error| format!("the reader: {error}"))?;
    let tree = |home: &u64| ObservedTree::of_volume(&volume, *home, times);
    homes.iter().map(tree).collect::<Result<_, _>>().map_err(|error| format!("the reader: {error}"))
}

impl Engine {
    /// Returns the options for opening its volumes.
    pub fn options(&self) -> volume::Options {
        volume::Options {
            clock: Arc::new(clock::ThreadClock),
            seed: Some(1),
            cil_shards: self.shape.cil_shards,
            log_buffers: self.shape.log_buffers,
            log_buffer_bytes: Some(self.shape.log_buffer_bytes),
            // Small, so that blocks are evicted and read again.
            memory: Some(MemoryBudget::new(self.shape.memory)),
            background: self.shape.background,
            ..volume::Options::default()
        }
    }
}

/// Opens a volume read-write as the command line does.
fn open(device: Arc<dyn Device>, options: volume::Options) -> Result<OpenVolume, String> {
    let image = open_image_on(device, &ImageOptions::default()).map_err(|error| error.to_string())?;
    image.open_volume(options).map(OpenVolume::new).map_err(|error| error.to_string())
}

impl Target for Engine {
    type Volume = OpenVolume;

    fn format(&self) -> Result<Image, String> {
        let device = ImageDevice::new(Image::new(self.shape.size));
        mkfs::format(&device, &self.shape.mkfs()).map_err(|error| format!("mkfs: {error}"))?;
        Ok(device.image())
    }

    fn open(&self, device: Arc<dyn Device>) -> Result<OpenVolume, String> {
        open(device, self.options())
    }

    fn recover(&self, device: Arc<dyn Device>) -> Result<OpenVolume, String> {
        let options = volume::Options { background: false, ..self.options() };
        open(device, options)
    }

    fn unmount(&self, volume: OpenVolume) -> Result<(), String> {
        volume.into_volume().unmount().map_err(|error| error.to_string())
    }

    fn judge(
        &self,
        device: Arc<dyn Device>,
        homes: &[u64],
        times: bool,
    ) -> Result<Vec<ObservedTree>, String> {
        check(&*device)?;
        read_trees(device, homes, times)
    }
}

impl OpenVolume {
    /// Wraps a volume that was not opened by [`Target::open`].
    pub fn new(volume: Volume) -> Self {
        Self { volume, open_inodes: Mutex::default() }
    }

    /// Returns the volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Closes all files and returns the volume.
    pub fn into_volume(self) -> Volume {
        self.volume
    }

    fn open_inodes(&self) -> MutexGuard<'_, HashMap<u64, OpenInode>> {
        self.open_inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_handle(&self, handle: Handle, anonymous: bool) {
        let mut open_inodes = self.open_inodes();
        let entry = open_inodes.entry(handle.ino().get());
        entry.or_insert_with(|| OpenInode { handles: Vec::new(), anonymous }).handles.push(handle);
    }
}

fn failure(error: volume::Error) -> Failure {
    Failure { errno: error.errno().get(), message: error.to_string() }
}

fn kind(kind: &FileKind) -> volume::NewFileType<'_> {
    let device = |major: &u32, minor: &u32| volume::DeviceNumber { major: *major, minor: *minor };
    match kind {
        FileKind::File => volume::NewFileType::Regular,
        FileKind::Directory => volume::NewFileType::Directory,
        FileKind::Symlink(target) => volume::NewFileType::Symlink(target),
        FileKind::CharDevice(major, minor) => volume::NewFileType::CharDevice(device(major, minor)),
        FileKind::BlockDevice(major, minor) => volume::NewFileType::BlockDevice(device(major, minor)),
        FileKind::Fifo => volume::NewFileType::Fifo,
        FileKind::Socket => volume::NewFileType::Socket,
    }
}

fn new(new: &NewFile) -> volume::NewFile<'_> {
    volume::NewFile {
        file_type: kind(&new.kind),
        permissions: new.mode,
        uid: new.uid,
        gid: new.gid,
        ..volume::NewFile::regular()
    }
}

/// Returns the type of a file; the target of a symlink is left empty.
fn kind_of(metadata: &Metadata) -> FileKind {
    let (major, minor) = metadata.device.map_or((0, 0), |device| (device.major, device.minor));
    match metadata.file_type {
        FileType::Regular => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink(Vec::new()),
        FileType::CharDevice => FileKind::CharDevice(major, minor),
        FileType::BlockDevice => FileKind::BlockDevice(major, minor),
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
    }
}

impl OpenVolume {
    /// The file that has an inode number now.
    fn id(&self, number: u64) -> Answer<FileId> {
        self.volume.id_of(Ino(number)).map_err(failure)
    }
}

impl Subject for OpenVolume {
    fn root(&self) -> u64 {
        self.volume.root().ino.get()
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64> {
        self.volume.lookup(self.id(dir)?, name).map(|file| file.ino.get()).map_err(failure)
    }

    fn create(&self, dir: u64, name: &[u8], what: &NewFile) -> Answer<u64> {
        self.volume.create(self.id(dir)?, name, &new(what)).map(|file| file.ino.get()).map_err(failure)
    }

    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Answer<()> {
        let handle = self
            .open_inodes()
            .get(&number)
            .filter(|open_inodes| open_inodes.anonymous)
            .and_then(|open_inodes| open_inodes.handles.first().cloned());
        match handle {
            None => self.volume.link(self.id(number)?, self.id(dir)?, name).map_err(failure),
            Some(handle) => {
                self.volume.link_handle(&handle, self.id(dir)?, name).map_err(failure)?;
                if let Some(open_inodes) = self.open_inodes().get_mut(&number) {
                    open_inodes.anonymous = false;
                }
                Ok(())
            }
        }
    }

    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.volume.unlink(self.id(dir)?, name).map_err(failure)
    }

    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.volume.rmdir(self.id(dir)?, name).map_err(failure)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Answer<()> {
        let mode = match mode {
            RenameMode::Replace => Rename::Replace,
            RenameMode::NoReplace => Rename::NoReplace,
            RenameMode::Exchange => Rename::Exchange,
            RenameMode::Whiteout(_) => Rename::Whiteout,
        };
        self.volume.rename(self.id(from.0)?, from.1, self.id(to.0)?, to.1, mode).map_err(failure)
    }

    fn anonymous(&self, dir: u64, what: &NewFile) -> Answer<u64> {
        let handle = self.volume.create_tmpfile(self.id(dir)?, &new(what)).map_err(failure)?;
        let number = handle.ino().get();
        self.add_handle(handle, true);
        Ok(number)
    }

    fn open(&self, number: u64) -> Answer<()> {
        let handle = self.volume.open_id(self.id(number)?).map_err(failure)?;
        self.add_handle(handle, false);
        Ok(())
    }

    fn close(&self, number: u64) -> Answer<()> {
        let open_inodes = self.open_inodes().remove(&number);
        // Inactivation must not run under our lock.
        drop(open_inodes);
        Ok(())
    }

    fn stat(&self, number: u64) -> Answer<Stat> {
        let metadata = self.volume.metadata(self.id(number)?).map_err(failure)?;
        let mut kind = kind_of(&metadata);
        if let FileKind::Symlink(target) = &mut kind {
            *target = self.volume.read_link(self.id(number)?).map_err(failure)?;
        }
        if kind.size().is_some_and(|size| size != metadata.size) {
            let message = format!("inode {number} has a size of {}", metadata.size);
            return Err(Failure { errno: -1, message });
        }
        let times = Times {
            accessed: metadata.accessed,
            modified: metadata.modified,
            changed: metadata.changed,
            born: metadata.created,
        };
        Ok(Stat {
            kind,
            mode: metadata.permissions,
            uid: metadata.uid,
            gid: metadata.gid,
            links: metadata.nlink,
            times: Some(times),
        })
    }

    fn list(&self, dir: u64) -> Answer<BTreeMap<Name, u64>> {
        let (mut entries, mut twice, mut dots) = (BTreeMap::new(), None, 0);
        let mut give = |entry: volume::DirEntry<'_>| {
            if matches!(entry.name, b"." | b"..") {
                dots += 1;
            } else if entries.insert(entry.name.to_vec(), entry.ino.get()).is_some() {
                twice = Some(entry.name.to_vec());
            }
            true
        };
        self.volume.read_dir(self.id(dir)?, Cookie::default(), &mut give).map_err(failure)?;
        let wrong = |message| Err(Failure { errno: -1, message });
        match twice {
            Some(name) => wrong(format!("directory {dir} lists {} twice", name.escape_ascii())),
            None if dots != 2 => wrong(format!("directory {dir} lists {dots} of `.` and `..`")),
            None => Ok(entries),
        }
    }

    fn set(&self, number: u64, change: &SetAttr) -> Answer<()> {
        let set = SetMetadata {
            permissions: change.mode,
            uid: change.uid,
            gid: change.gid,
            accessed: change.accessed,
            modified: change.modified,
            ..SetMetadata::default()
        };
        self.volume.set_metadata(self.id(number)?, &set).map_err(failure)
    }

    fn sync(&self) -> Answer<()> {
        self.volume.sync().map_err(failure)
    }
}
