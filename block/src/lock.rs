//! Locks on images between processes, and marks that tell who holds one: a command, or the server of a mount.
//!
//! # Locking
//! A writer holds `flock` exclusively on what it writes, or is about to replace. That alone says neither who it is nor
//! anything to a reader, who would have to take the lock to learn of it. So a writer places marks as well: locks of
//! single bytes (`F_OFD_SETLK`) that lie behind the end of any file, and that others can ask for without taking them.
//!
//! | byte | placed by |
//! |---|---|
//! | [`WRITER`] | every writer, together with `flock` |
//! | some of [`QEMU_USES`] and [`QEMU_REFUSES`] | everybody who takes `flock`, as QEMU does, which knows no `flock` |
//! | [`MOUNTS`] and behind, by the device number of the mount | the server of a mount, from then on until it ends |
//!
//! A mount is gone from the table of mounts before its server has written what was left. The mark of the server stays
//! until `flock` is released, so whoever comes meanwhile can wait for the mark ([`Ending::wait`]) and ask again.
//!
//! # Invariants
//! - A lock counts only for the file that has the name when it is taken: one that was replaced meanwhile is left.
//! - Marks are hints. Where a file system has no such locks, the answer is less exact, and `flock` decides as ever.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions as StdOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::loops;
use crate::mounts::{DeviceNumber, mounts};
use crate::ofd;
use crate::open_error::OpenError;

/// The mark of a writer.
const WRITER: i64 = (1 << 61) - 1;
/// QEMU locks a byte from here on for each permission that it uses (`block/file-posix.c`)...
const QEMU_USES: i64 = 100;
/// ...and one from here on for each that nobody else may use.
const QEMU_REFUSES: i64 = 200;
/// The permission of QEMU to read what is consistent.
const QEMU_READ: i64 = 0;
/// The permission of QEMU to write.
const QEMU_WRITE: i64 = 1;
/// The permission of QEMU to change the size.
const QEMU_RESIZE: i64 = 3;
/// Between two looks at QEMU's locks. It shares them, so nobody can wait for them without taking them.
const QEMU_POLL: Duration = Duration::from_millis(50);
/// From here on the marks of mounts.
const MOUNTS: i64 = 1 << 61;
/// Marks for one device number: one that is waited for is not the one that the next mount places.
const PER_DEVICE: i64 = 1 << 24;
/// Bits of a minor number.
const MINOR_BITS: u32 = 20;

/// Who has an image.
#[derive(Debug)]
#[non_exhaustive]
pub enum Holder {
    /// Another program.
    Program,
    /// QEMU or one of its tools, of which some only read.
    Qemu,
    /// A mount by Xebec.
    Mount {
        /// The mount point.
        directory: PathBuf,
    },
    /// A mount by Xebec that is gone, and whose server writes what is left.
    Ending(Ending),
    /// A mount by the kernel.
    Kernel {
        /// The mount point.
        directory: PathBuf,
    },
}

impl Holder {
    /// What to do about it.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::Program => "wait for it to finish; --wait SECONDS does",
            Self::Ending(_) => "wait for that",
            Self::Qemu => "shut the virtual machine down, or wait for the tool to end; --wait SECONDS waits",
            Self::Mount { .. } | Self::Kernel { .. } => "unmount it first",
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("another program has it open for writing"),
            Self::Qemu => f.write_str("QEMU has it open"),
            Self::Mount { directory } => write!(f, "it is mounted on {}", directory.display()),
            Self::Ending(_) => f.write_str("it was unmounted, but its server is still writing"),
            Self::Kernel { directory } => write!(f, "the kernel has it mounted on {}", directory.display()),
        }
    }
}

/// The server of a mount that is gone.
#[derive(Debug)]
pub struct Ending {
    file: File,
    mark: i64,
}

impl Ending {
    /// Returns when the server has released the image. Somebody else may have it by then.
    ///
    /// # Errors
    /// What the system reports.
    pub fn wait(&self) -> io::Result<()> {
        ofd::wait(&self.file, self.mark)
    }
}

/// The mark of a mount's server on its image. To be dropped after the last descriptor that holds the lock.
#[derive(Debug)]
pub struct MountMark {
    _file: File,
}

impl MountMark {
    /// Marks an image as mounted; `None` where that cannot be.
    pub fn place(image: &Path, device: DeviceNumber) -> Option<Self> {
        let file = StdOptions::new().read(true).write(true).open(image).ok()?;
        let number = i64::from(device.major & 0xfff) << MINOR_BITS | i64::from(device.minor & 0xf_ffff);
        let mark = MOUNTS + number * PER_DEVICE + i64::from(std::process::id()) % PER_DEVICE;
        ofd::place(&file, mark).ok()?;
        Some(Self { _file: file })
    }
}

/// Who writes to an image right now, as a reader can learn.
pub fn writer_of(path: &Path) -> Option<Holder> {
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let file = StdOptions::new().read(true).custom_flags(nonblock).open(path).ok()?;
    let kernel = || loops::mount_over(&file.metadata().ok()?).map(|directory| Holder::Kernel { directory });
    let program = || ofd::find(&file, WRITER, 1).map(|_| Holder::Program);
    // Writers of ours have this lock, too.
    let qemu = || ofd::find(&file, QEMU_USES + QEMU_WRITE, 1).map(|_| Holder::Qemu);
    mount_of(&file).or_else(program).or_else(qemu).or_else(kernel)
}

/// The mount by Xebec that has a file.
fn mount_of(file: &File) -> Option<Holder> {
    let mark = ofd::find(file, MOUNTS, 0)?;
    let number = (mark - MOUNTS) / PER_DEVICE;
    let device = DeviceNumber {
        major: (number >> MINOR_BITS) as u32,
        minor: (number & ((1 << MINOR_BITS) - 1)) as u32,
    };
    match mounts().into_iter().find(|mount| mount.device == device) {
        Some(mount) => Some(Holder::Mount { directory: mount.directory }),
        None => Some(Holder::Ending(Ending { file: file.try_clone().ok()?, mark })),
    }
}

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Nobody else writes to it.
    Readers,
    /// Nobody else locks it.
    Nobody,
}

/// When to give up waiting.
pub(crate) fn deadline(wait: Option<Duration>) -> Option<Instant> {
    /// Longer than anybody waits.
    const LONG: Duration = Duration::from_secs(100 * 365 * 86_400);
    let now = Instant::now();
    wait.and_then(|wait| now.checked_add(wait.min(LONG)))
}

/// Locks an open file. Waits until the deadline, if there is one; whether it had to.
pub(crate) fn take(
    file: &File,
    path: &Path,
    share: Share,
    deadline: Option<Instant>,
) -> Result<bool, OpenError> {
    let (now, blocking) = match share {
        Share::Readers => (FlockOperation::NonBlockingLockShared, FlockOperation::LockShared),
        Share::Nobody => (FlockOperation::NonBlockingLockExclusive, FlockOperation::LockExclusive),
    };
    let failed = |error| OpenError::io(path, error);
    match rustix::fs::flock(file, now) {
        Ok(()) => return Ok(false),
        Err(Errno::WOULDBLOCK) => {}
        Err(errno) => return Err(OpenError::io(path, errno)),
    }
    if let Some(deadline) = deadline
        && wait_until(file.try_clone().map_err(failed)?, blocking, deadline).map_err(failed)?
    {
        return Ok(true);
    }
    let by = mount_of(file).unwrap_or(Holder::Program);
    Err(OpenError::Locked { path: path.to_owned(), by })
}

/// The system has no such call with an end, so another thread waits. Where that comes too late, it closes its
/// descriptor, and with that lets go of the lock.
fn wait_until(file: File, operation: FlockOperation, deadline: Instant) -> io::Result<bool> {
    let (tell, told) = sync_channel(1);
    let wait = move || {
        let locked = rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation));
        // The lock belongs to both descriptors, and must not outlive the caller's.
        drop(file);
        let _ = tell.send(locked);
    };
    std::thread::Builder::new().name("xebec-lock".into()).spawn(wait)?;
    match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(locked) => Ok(locked.map(|()| true)?),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(false),
    }
}

/// What is done with a file, in QEMU's permissions.
struct Permissions {
    used: &'static [i64],
    refused: &'static [i64],
}

impl Permissions {
    /// Of who changes the file.
    const CHANGE: Self =
        Self { used: &[QEMU_READ, QEMU_WRITE, QEMU_RESIZE], refused: &[QEMU_WRITE, QEMU_RESIZE] };

    /// Of who has the file to itself or with other readers, and does not change it.
    const fn of(share: Share) -> Self {
        let refused: &[i64] = match share {
            Share::Readers => &[QEMU_WRITE, QEMU_RESIZE],
            Share::Nobody => &[QEMU_READ, QEMU_WRITE, QEMU_RESIZE],
        };
        Self { used: &[QEMU_READ], refused }
    }

    /// Takes QEMU's locks on a file that is locked by `flock`, as long as the file is open.
    ///
    /// # Errors
    /// [`OpenError::Locked`] where QEMU has it.
    fn take(&self, file: &File, path: &Path) -> Result<(), OpenError> {
        let bytes = |from: i64, permissions: &'static [i64]| permissions.iter().map(move |n| from + n);
        // First the locks, then the look at those of others, as both sides do it.
        for byte in bytes(QEMU_USES, self.used).chain(bytes(QEMU_REFUSES, self.refused)) {
            let _ = ofd::share(file, byte);
        }
        let mut others = bytes(QEMU_REFUSES, self.used).chain(bytes(QEMU_USES, self.refused));
        match others.any(|byte| ofd::find(file, byte, 1).is_some()) {
            true => Err(OpenError::Locked { path: path.to_owned(), by: Holder::Qemu }),
            false => Ok(()),
        }
    }
}

/// Marks a file that is locked for writing.
///
/// # Errors
/// [`OpenError::Locked`] where QEMU has it.
pub(crate) fn mark_writer(file: &File, path: &Path) -> Result<(), OpenError> {
    // A hint for readers.
    let _ = ofd::place(file, WRITER);
    Permissions::CHANGE.take(file, path)
}

/// QEMU has a file: closes and so unlocks it, and returns when it is time to try once more.
///
/// # Errors
/// The refusal, when the deadline is over.
pub(crate) fn wait_for_qemu(
    file: File,
    refused: OpenError,
    deadline: Option<Instant>,
) -> Result<(), OpenError> {
    drop(file);
    let left = deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_zero() {
        return Err(refused);
    }
    std::thread::sleep(left.min(QEMU_POLL));
    Ok(())
}

/// Whether a path still leads to a file. What was waited for may have been replaced.
pub(crate) fn is_still(path: &Path, file: &Metadata) -> bool {
    std::fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
}

/// Opens what has this name, and locks it: nobody writes to it as long as the file is open, the kernel through a loop
/// device and QEMU included. It is to be read, or to be replaced by another file.
///
/// # Errors
/// [`OpenError::Locked`] after `wait`, [`OpenError::Looped`], [`OpenError::Io`].
pub fn open_locked(path: &Path, share: Share, wait: Option<Duration>) -> Result<File, OpenError> {
    let deadline = deadline(wait);
    loop {
        let file = open_to_lock(path, share).map_err(|error| OpenError::io(path, error))?;
        take(&file, path, share, deadline)?;
        let metadata = file.metadata().map_err(|error| OpenError::io(path, error))?;
        if !is_still(path, &metadata) {
            continue;
        }
        if let Some(device) = loops::writer_over(&metadata) {
            return Err(OpenError::Looped { path: path.to_owned(), device });
        }
        match Permissions::of(share).take(&file, path) {
            Ok(()) => return Ok(file),
            Err(refused) => wait_for_qemu(file, refused, deadline)?,
        }
    }
}

/// Over NFS a lock against everybody takes a descriptor for writing; elsewhere any does.
fn open_to_lock(path: &Path, share: Share) -> io::Result<File> {
    let open = |write| {
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        StdOptions::new().read(true).write(write).custom_flags(flags).open(path)
    };
    if share == Share::Nobody
        && let Ok(file) = open(true)
    {
        return Ok(file);
    }
    open(false)
}

/// A block device that cannot be claimed: waits for the lock of a writer, if one has it; whether that took time.
pub(crate) fn wait_for_claim(path: &Path, deadline: Option<Instant>) -> Result<bool, OpenError> {
    let file = File::open(path).map_err(|error| OpenError::io(path, error))?;
    take(&file, path, Share::Nobody, deadline)
}
