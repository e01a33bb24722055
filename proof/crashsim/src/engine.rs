//! Xebec itself as a target: volumes as its own `mkfs` makes them, opened through the façade, judged by the checker
//! and by the reader, which share no code with it.
//!
//! # Locking
//! One mutex around the files that are held.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::Ino;
use block::Device;
use check::{Finding, Observer};
use format::inode::FileType;
use model::{Answer, Change, Facts, Failure, How, Kind, Name, New, Seen, Subject, Times, clock};
use volume::{Access, Cookie, Handle, ImageOptions, Metadata, Rename, SetMetadata, Volume, open_image_on};

use crate::image::{Image, ImageDevice};
use crate::shape::Shape;
use crate::target::Target;

/// Volumes of one shape.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Which.
    pub shape: Shape,
}

/// An open volume.
pub struct Open {
    volume: Volume,
    held: Mutex<HashMap<u64, Held>>,
}

/// A file that is open.
struct Held {
    handles: Vec<Handle>,
    /// It never had a name.
    anonymous: bool,
}

/// What the checker said.
#[derive(Default)]
struct Findings(Mutex<Vec<String>>);

impl Observer for Findings {
    fn finding(&self, finding: &Finding) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(finding.to_string());
    }
}

/// What the checker finds wrong with a volume, warnings included; nothing with a sound one.
///
/// # Errors
/// The findings, in words.
pub fn check(device: &dyn Device) -> Result<(), String> {
    let findings = Findings::default();
    let options = check::Options { threads: 1, findings_per_kind: 10, ..check::Options::default() };
    check::check(&device, &options, &findings).map_err(|error| format!("the checker: {error}"))?;
    let findings = findings.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    if findings.is_empty() { Ok(()) } else { Err(format!("the checker finds:\n{}", findings.join("\n"))) }
}

/// Takes a volume as a power cut would leave it now, replays its log in memory as a read-only open does, checks it and
/// reads its tree. The volume may be open meanwhile. Files without a name are left to the next mount.
///
/// # Errors
/// What is wrong with it, in words.
pub fn check_now(image: Image, home: u64) -> Result<Seen, String> {
    let device = Arc::new(ImageDevice::new(image));
    let opened = open_image_on(device, &ImageOptions::new(Access::ReadOnly));
    let opened = opened.map_err(|error| error.to_string())?;
    if opened.log.is_partial() {
        return Err(format!("replayed in part: {:?}", opened.log));
    }
    let findings = Findings::default();
    let options = check::Options { threads: 1, replayed: true, ..check::Options::default() };
    let summary = check::check(&opened.device, &options, &findings);
    let summary = summary.map_err(|error| format!("the checker: {error}"))?;
    if !summary.is_clean() {
        let findings = findings.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        return Err(format!("the checker finds:\n{}", findings.join("\n")));
    }
    let mut trees = read_trees(opened.device, &[home], true)?;
    trees.pop().ok_or_else(|| "no tree was read".into())
}

/// What lies below some directories of a clean volume, as the reader reads it.
///
/// # Errors
/// What cannot be read, in words.
pub fn read_trees(device: Arc<dyn Device>, homes: &[u64], times: bool) -> Result<Vec<Seen>, String> {
    let volume = read::Volume::open(device).map_err(|error| format!("the reader: {error}"))?;
    let tree = |home: &u64| Seen::of_volume(&volume, *home, times);
    homes.iter().map(tree).collect::<Result<_, _>>().map_err(|error| format!("the reader: {error}"))
}

impl Engine {
    /// The options that its volumes are opened with.
    pub fn options(&self) -> volume::Options {
        volume::Options {
            clock: Arc::new(clock::ThreadClock),
            seed: Some(1),
            cil_shards: self.shape.cil_shards,
            log_buffers: self.shape.log_buffers,
            log_buffer_bytes: Some(self.shape.log_buffer_bytes),
            // Small, so that blocks are read again.
            buffer_bytes: self.shape.buffer_bytes,
            inodes: self.shape.inodes,
            background: self.shape.background,
            ..volume::Options::default()
        }
    }
}

/// Opens a volume for changes as the command line does.
fn open(device: Arc<dyn Device>, options: volume::Options) -> Result<Open, String> {
    let image = open_image_on(device, &ImageOptions::default()).map_err(|error| error.to_string())?;
    image.open_volume(options).map(Open::new).map_err(|error| error.to_string())
}

impl Target for Engine {
    type Volume = Open;

    fn format(&self) -> Result<Image, String> {
        let device = ImageDevice::new(Image::new(self.shape.size));
        mkfs::format(&device, &self.shape.mkfs()).map_err(|error| format!("mkfs: {error}"))?;
        Ok(device.image())
    }

    fn open(&self, device: Arc<dyn Device>) -> Result<Open, String> {
        open(device, self.options())
    }

    fn recover(&self, device: Arc<dyn Device>) -> Result<Open, String> {
        let options = volume::Options { background: false, ..self.options() };
        open(device, options)
    }

    fn unmount(&self, volume: Open) -> Result<(), String> {
        volume.into_volume().unmount().map_err(|error| error.to_string())
    }

    fn judge(&self, device: Arc<dyn Device>, homes: &[u64], times: bool) -> Result<Vec<Seen>, String> {
        check(&*device)?;
        read_trees(device, homes, times)
    }
}

impl Open {
    /// A volume that was opened by other means than [`Target::open`].
    pub fn new(volume: Volume) -> Self {
        Self { volume, held: Mutex::default() }
    }

    /// The volume itself.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume alone: what was held open is closed.
    pub fn into_volume(self) -> Volume {
        self.volume
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, handle: Handle, anonymous: bool) {
        let mut held = self.held();
        let entry = held.entry(handle.ino().get());
        entry.or_insert_with(|| Held { handles: Vec::new(), anonymous }).handles.push(handle);
    }
}

fn failure(error: volume::Error) -> Failure {
    Failure { errno: error.errno().get(), message: error.to_string() }
}

fn kind(kind: &Kind) -> volume::NewFileType<'_> {
    let device = |major: &u32, minor: &u32| volume::DeviceNumber { major: *major, minor: *minor };
    match kind {
        Kind::File => volume::NewFileType::Regular,
        Kind::Directory => volume::NewFileType::Directory,
        Kind::Symlink(target) => volume::NewFileType::Symlink(target),
        Kind::CharDevice(major, minor) => volume::NewFileType::CharDevice(device(major, minor)),
        Kind::BlockDevice(major, minor) => volume::NewFileType::BlockDevice(device(major, minor)),
        Kind::Fifo => volume::NewFileType::Fifo,
        Kind::Socket => volume::NewFileType::Socket,
    }
}

fn new(new: &New) -> volume::NewFile<'_> {
    volume::NewFile {
        file_type: kind(&new.kind),
        permissions: new.mode,
        uid: new.uid,
        gid: new.gid,
        ..volume::NewFile::regular()
    }
}

/// The kind of a file of which the target, if it is a symlink, is still to be read.
fn kind_of(metadata: &Metadata) -> Kind {
    let (major, minor) = metadata.device.map_or((0, 0), |device| (device.major, device.minor));
    match metadata.file_type {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink(Vec::new()),
        FileType::CharDevice => Kind::CharDevice(major, minor),
        FileType::BlockDevice => Kind::BlockDevice(major, minor),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    }
}

impl Subject for Open {
    fn root(&self) -> u64 {
        self.volume.root().get()
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64> {
        self.volume.lookup(Ino(dir), name).map(Ino::get).map_err(failure)
    }

    fn create(&self, dir: u64, name: &[u8], what: &New) -> Answer<u64> {
        self.volume.create(Ino(dir), name, &new(what)).map(Ino::get).map_err(failure)
    }

    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Answer<()> {
        let handle = self
            .held()
            .get(&number)
            .filter(|held| held.anonymous)
            .and_then(|held| held.handles.first().cloned());
        match handle {
            None => self.volume.link(Ino(number), Ino(dir), name).map_err(failure),
            Some(handle) => {
                self.volume.link_handle(&handle, Ino(dir), name).map_err(failure)?;
                if let Some(held) = self.held().get_mut(&number) {
                    held.anonymous = false;
                }
                Ok(())
            }
        }
    }

    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.volume.unlink(Ino(dir), name).map_err(failure)
    }

    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.volume.rmdir(Ino(dir), name).map_err(failure)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), how: How) -> Answer<()> {
        let how = match how {
            How::Replace => Rename::Replace,
            How::NoReplace => Rename::NoReplace,
            How::Exchange => Rename::Exchange,
            How::Whiteout(_) => Rename::Whiteout,
        };
        self.volume.rename(Ino(from.0), from.1, Ino(to.0), to.1, how).map_err(failure)
    }

    fn anonymous(&self, dir: u64, what: &New) -> Answer<u64> {
        let handle = self.volume.create_tmpfile(Ino(dir), &new(what)).map_err(failure)?;
        let number = handle.ino().get();
        self.keep(handle, true);
        Ok(number)
    }

    fn hold(&self, number: u64) -> Answer<()> {
        let handle = self.volume.open_ino(Ino(number)).map_err(failure)?;
        self.keep(handle, false);
        Ok(())
    }

    fn release(&self, number: u64) -> Answer<()> {
        let held = self.held().remove(&number);
        // What it frees is freed without our lock.
        drop(held);
        Ok(())
    }

    fn stat(&self, number: u64) -> Answer<Facts> {
        let metadata = self.volume.metadata(Ino(number)).map_err(failure)?;
        let mut kind = kind_of(&metadata);
        if let Kind::Symlink(target) = &mut kind {
            *target = self.volume.read_link(Ino(number)).map_err(failure)?;
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
        Ok(Facts {
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
        self.volume.read_dir(Ino(dir), Cookie::default(), &mut give).map_err(failure)?;
        let wrong = |message| Err(Failure { errno: -1, message });
        match twice {
            Some(name) => wrong(format!("directory {dir} lists {} twice", name.escape_ascii())),
            None if dots != 2 => wrong(format!("directory {dir} lists {dots} of `.` and `..`")),
            None => Ok(entries),
        }
    }

    fn set(&self, number: u64, change: &Change) -> Answer<()> {
        let set = SetMetadata {
            permissions: change.mode,
            uid: change.uid,
            gid: change.gid,
            accessed: change.accessed,
            modified: change.modified,
            ..SetMetadata::default()
        };
        self.volume.set_metadata(Ino(number), &set).map_err(failure)
    }

    fn sync(&self) -> Answer<()> {
        self.volume.sync().map_err(failure)
    }
}
