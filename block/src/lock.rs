//! Locks on images between processes, and marks that say who holds them: a command, or the server of a mount.
//!
//! # Locking
//! A writer holds an exclusive `flock` on the file that it writes or is about to replace. `flock` does not tell who
//! holds it, and a reader can only find out about it by taking it. So a writer places marks as well: locks of single
//! bytes beyond the end of any file (`F_OFD_SETLK`), which others can query without taking them.
//!
//! | byte | placed by |
//! |---|---|
//! | [`WRITER`] | each writer, together with `flock` |
//! | some from [`QEMU_USED`] and [`QEMU_UNSHARED`] on | each holder of `flock`, for QEMU, which does not use `flock` |
//! | from [`MOUNTS`] on, by the device number of the mount | the server of a mount, until it exits |
//!
//! A mount disappears from the mount table before its server has written everything. The server's mark stays until
//! `flock` is released, so that another program can wait for the mark ([`UnmountingServer::wait`]) and try again.
//!
//! # Invariants
//! - A lock counts only if the locked file is still at its path: if the file was replaced, the new one is locked.
//! - Marks are hints. On file systems without such locks the answers are less precise; `flock` decides.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions as StdOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::loop_devices;
use crate::mounts::{DeviceNumber, mounts};
use crate::ofd;
use crate::open_error::OpenError;

/// The mark of a writer.
const WRITER: i64 = (1 << 61) - 1;
/// QEMU locks a byte from here on for each permission that it uses (`block/file-posix.c`)...
const QEMU_USED: i64 = 100;
/// ...and one from here on for each permission that it does not share.
const QEMU_UNSHARED: i64 = 200;
/// QEMU's permission to read consistent data.
const QEMU_READ: i64 = 0;
/// QEMU's permission to write.
const QEMU_WRITE: i64 = 1;
/// QEMU's permission to resize.
const QEMU_RESIZE: i64 = 3;
/// How often QEMU's locks are queried. They are shared locks, so it is not possible to wait for them.
const QEMU_POLL: Duration = Duration::from_millis(50);
/// Marks of mounts begin here.
const MOUNTS: i64 = 1 << 61;
/// Marks per device number. Successive mounts use different ones, so that a program that waits for the mark of the
/// previous mount does not wait for the next.
const PER_DEVICE: i64 = 1 << 24;
/// Bits of a minor number.
const MINOR_BITS: u32 = 20;

/// The user of an image.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockHolder {
    /// Another program.
    Program,
    /// QEMU or one of its tools, possibly only for reading.
    Qemu,
    /// A mount by Xebec.
    Mount {
        /// The mount point.
        directory: PathBuf,
    },
    /// The server of a mount by Xebec that was unmounted; it is still writing.
    Unmounting(UnmountingServer),
    /// A mount by the kernel.
    Kernel {
        /// The mount point.
        directory: PathBuf,
    },
}

impl LockHolder {
    /// What to do about it.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::Program => "wait for it to finish; --wait SECONDS does",
            Self::Unmounting(_) => "wait for it to finish",
            Self::Qemu => "shut the virtual machine down, or wait for the tool to end; --wait SECONDS waits",
            Self::Mount { .. } | Self::Kernel { .. } => "unmount it first",
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("another program has it open for writing"),
            Self::Qemu => f.write_str("QEMU has it open"),
            Self::Mount { directory } => write!(f, "it is mounted on {}", directory.display()),
            Self::Unmounting(_) => f.write_str("it was unmounted, but its server is still writing"),
            Self::Kernel { directory } => write!(f, "the kernel has it mounted on {}", directory.display()),
        }
    }
}

/// The server of a mount that was unmounted.
#[derive(Debug)]
pub struct UnmountingServer {
    file: File,
    mark: i64,
}

impl UnmountingServer {
    /// Waits until the server has released the image. Another program may have locked it by then.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn wait(&self) -> io::Result<()> {
        ofd::wait(&self.file, self.mark)
    }
}

/// The mark of a mount's server on its image. It must outlive the lock: open it before the image, and drop it after
/// the last descriptor that holds the lock. If the process is killed, Linux closes its files in reverse order, and may
/// wait in between.
#[derive(Debug)]
pub struct MountMark(File);

impl MountMark {
    /// Opens an image to be marked; `None` if that is not possible.
    pub fn open(image: &Path) -> Option<Self> {
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        StdOptions::new().read(true).write(true).custom_flags(nonblock).open(image).ok().map(Self)
    }

    /// Marks the image as mounted, if that is possible.
    pub fn place(&self, device: DeviceNumber) {
        let number = i64::from(device.major & 0xfff) << MINOR_BITS | i64::from(device.minor & 0xf_ffff);
        let mark = MOUNTS + number * PER_DEVICE + i64::from(std::process::id()) % PER_DEVICE;
        let _ = ofd::write_lock(&self.0, mark);
    }
}

/// Returns who is writing to an image, as far as a reader can find out.
pub fn find_lock_holder(path: &Path) -> Option<LockHolder> {
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let file = StdOptions::new().read(true).custom_flags(nonblock).open(path).ok()?;
    let kernel = || {
        let directory = loop_devices::writable_mount(&file.metadata().ok()?)?;
        Some(LockHolder::Kernel { directory })
    };
    let program = || ofd::find(&file, WRITER, 1).map(|_| LockHolder::Program);
    // Checked after `program`: writers of Xebec hold this lock, too.
    let qemu = || ofd::find(&file, QEMU_USED + QEMU_WRITE, 1).map(|_| LockHolder::Qemu);
    mount_of(&file).or_else(program).or_else(qemu).or_else(kernel)
}

/// The mount by Xebec that uses a file.
fn mount_of(file: &File) -> Option<LockHolder> {
    let mark = ofd::find(file, MOUNTS, 0)?;
    let number = (mark - MOUNTS) / PER_DEVICE;
    let device = DeviceNumber {
        major: (number >> MINOR_BITS) as u32,
        minor: (number & ((1 << MINOR_BITS) - 1)) as u32,
    };
    match mounts().into_iter().find(|mount| mount.device == device) {
        Some(mount) => Some(LockHolder::Mount { directory: mount.directory }),
        None => Some(LockHolder::Unmounting(UnmountingServer { file: file.try_clone().ok()?, mark })),
    }
}

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Others may read it.
    Shared,
    /// No one else may lock it.
    Exclusive,
}

/// The end of a time to wait.
pub(crate) fn deadline(wait: Option<Duration>) -> Option<Instant> {
    /// As good as forever.
    const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 86_400);
    let now = Instant::now();
    wait.and_then(|wait| now.checked_add(wait.min(MAX_WAIT)))
}

/// Takes the `flock` of an open file, and waits for it until the deadline, if there is one. Returns whether it had to
/// wait.
pub(crate) fn lock(
    file: &File,
    path: &Path,
    mode: LockMode,
    deadline: Option<Instant>,
) -> Result<bool, OpenError> {
    let (nonblocking, blocking) = match mode {
        LockMode::Shared => (FlockOperation::NonBlockingLockShared, FlockOperation::LockShared),
        LockMode::Exclusive => (FlockOperation::NonBlockingLockExclusive, FlockOperation::LockExclusive),
    };
    let failed = |error| OpenError::io(path, error);
    match rustix::fs::flock(file, nonblocking) {
        Ok(()) => return Ok(false),
        Err(Errno::WOULDBLOCK) => {}
        Err(errno) => return Err(OpenError::io(path, errno)),
    }
    if let Some(deadline) = deadline
        && lock_until(file.try_clone().map_err(failed)?, blocking, deadline).map_err(failed)?
    {
        return Ok(true);
    }
    let by = mount_of(file).unwrap_or(LockHolder::Program);
    Err(OpenError::Locked { path: path.to_owned(), by })
}

/// Takes `flock` with a deadline; returns `false` if it has passed. The system has no such call, so another thread
/// waits. If it gets the lock too late, it closes its descriptor, which releases the lock.
fn lock_until(file: File, operation: FlockOperation, deadline: Instant) -> io::Result<bool> {
    let (sender, receiver) = sync_channel(1);
    let wait = move || {
        let locked = rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation));
        // Both descriptors share the lock. This one must not keep it longer than the caller's.
        drop(file);
        let _ = sender.send(locked);
    };
    std::thread::Builder::new().name("xebec-lock".into()).spawn(wait)?;
    match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(locked) => Ok(locked.map(|()| true)?),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(false),
    }
}

/// Use of a file in terms of QEMU's permissions.
struct QemuPermissions {
    used: &'static [i64],
    /// Permissions that no one else may use.
    unshared: &'static [i64],
}

impl QemuPermissions {
    /// For a writer.
    const WRITE: Self =
        Self { used: &[QEMU_READ, QEMU_WRITE, QEMU_RESIZE], unshared: &[QEMU_WRITE, QEMU_RESIZE] };

    /// For a program that locks the file without changing it.
    const fn for_lock(mode: LockMode) -> Self {
        let unshared: &[i64] = match mode {
            LockMode::Shared => &[QEMU_WRITE, QEMU_RESIZE],
            LockMode::Exclusive => &[QEMU_READ, QEMU_WRITE, QEMU_RESIZE],
        };
        Self { used: &[QEMU_READ], unshared }
    }

    /// Takes QEMU's locks on a file that is locked by `flock`. Closing the file releases them.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if QEMU uses the file.
    fn lock(&self, file: &File, path: &Path) -> Result<(), OpenError> {
        let bytes = |start: i64, permissions: &'static [i64]| permissions.iter().map(move |n| start + n);
        // Like QEMU: first take the locks, then look for conflicting ones.
        for byte in bytes(QEMU_USED, self.used).chain(bytes(QEMU_UNSHARED, self.unshared)) {
            let _ = ofd::read_lock(file, byte);
        }
        let mut conflicting = bytes(QEMU_UNSHARED, self.used).chain(bytes(QEMU_USED, self.unshared));
        match conflicting.any(|byte| ofd::find(file, byte, 1).is_some()) {
            true => Err(OpenError::Locked { path: path.to_owned(), by: LockHolder::Qemu }),
            false => Ok(()),
        }
    }
}

/// Places the marks of a writer on a file that is locked by `flock`.
///
/// # Errors
/// [`OpenError::Locked`] if QEMU uses the file.
pub(crate) fn mark_writer(file: &File, path: &Path) -> Result<(), OpenError> {
    // A hint for readers.
    let _ = ofd::write_lock(file, WRITER);
    QemuPermissions::WRITE.lock(file, path)
}

/// Closes, and so unlocks, a file that QEMU uses, and returns when it is time to try again.
///
/// # Errors
/// `error`, after the deadline.
pub(crate) fn wait_for_qemu(
    file: File,
    error: OpenError,
    deadline: Option<Instant>,
) -> Result<(), OpenError> {
    drop(file);
    let left = deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_zero() {
        return Err(error);
    }
    std::thread::sleep(left.min(QEMU_POLL));
    Ok(())
}

/// Whether a file is still at its path. It may have been replaced while a program waited for its lock.
pub(crate) fn is_at_path(path: &Path, file: &Metadata) -> bool {
    std::fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
}

/// Opens a file and locks it, in order to read it or to replace it with another file: no one writes to it while it is
/// open, including QEMU and the kernel through a loop device.
///
/// # Errors
/// [`OpenError::Locked`] after `wait`, [`OpenError::Looped`], [`OpenError::Io`].
pub fn open_locked(path: &Path, mode: LockMode, wait: Option<Duration>) -> Result<File, OpenError> {
    let deadline = deadline(wait);
    loop {
        let file = open_for_lock(path, mode).map_err(|error| OpenError::io(path, error))?;
        lock(&file, path, mode, deadline)?;
        let metadata = file.metadata().map_err(|error| OpenError::io(path, error))?;
        if !is_at_path(path, &metadata) {
            continue;
        }
        if let Some(device) = loop_devices::writable_loop_device(&metadata) {
            return Err(OpenError::Looped { path: path.to_owned(), device });
        }
        match QemuPermissions::for_lock(mode).lock(&file, path) {
            Ok(()) => return Ok(file),
            Err(error) => wait_for_qemu(file, error, deadline)?,
        }
    }
}

/// An exclusive lock over NFS needs a descriptor for writing; elsewhere any descriptor will do.
fn open_for_lock(path: &Path, mode: LockMode) -> io::Result<File> {
    let open = |write| {
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        StdOptions::new().read(true).write(write).custom_flags(flags).open(path)
    };
    if mode == LockMode::Exclusive
        && let Ok(file) = open(true)
    {
        return Ok(file);
    }
    open(false)
}

/// Waits for the lock of the writer that has claimed a block device, if there is one. Returns whether it had to wait.
pub(crate) fn wait_for_claim(path: &Path, deadline: Option<Instant>) -> Result<bool, OpenError> {
    let file = File::open(path).map_err(|error| OpenError::io(path, error))?;
    lock(&file, path, LockMode::Exclusive, deadline)
}
