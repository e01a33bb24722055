//! What a run would leave if it were killed, and its removal.
//!
//! The first signal ends a run after the current measurement, and everything is dropped. The second one cannot wait for
//! that: [`clean_up`] ends the processes of the measurement, and removes the mounts and directories in this list.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// What is registered, the latest last.
static REGISTERED: Mutex<Vec<(PathBuf, Kind)>> = Mutex::new(Vec::new());
/// How often removal is tried: a thread of the measurement may still create files.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A mount point, which is removed with its mount.
    MountPoint,
    /// A directory with its contents.
    Directory,
}

/// An entry of the list. Dropping it says that nothing is left.
#[derive(Debug)]
pub struct Registered(PathBuf);

/// Registers a mount point, before something is mounted there.
pub fn mount_point(path: &Path) -> Registered {
    register(path, Kind::MountPoint)
}

/// Registers a directory.
pub fn directory(path: &Path) -> Registered {
    register(path, Kind::Directory)
}

fn register(path: &Path, kind: Kind) -> Registered {
    list().push((path.into(), kind));
    Registered(path.into())
}

/// While the list is cleaned up, nothing can be registered, and so nothing new is mounted.
fn list() -> MutexGuard<'static, Vec<(PathBuf, Kind)>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Registered {
    fn drop(&mut self) {
        list().retain(|(path, _)| *path != self.0);
    }
}

/// Ends the processes that this one started, and removes what is registered. The caller exits afterwards: the list
/// stays locked. Returns what could not be removed.
pub fn clean_up() -> Vec<PathBuf> {
    let registered = list();
    end_children();
    let left = registered.iter().rev().filter(|(path, kind)| !remove(path, *kind));
    let left = left.map(|(path, _)| path.clone()).collect();
    std::mem::forget(registered);
    left
}

fn remove(path: &Path, kind: Kind) -> bool {
    for _ in 0..TRIES {
        if kind == Kind::MountPoint {
            // It may not be mounted, or not any more. Those who use it keep it until they exit.
            let _ = fuse::mount::unmount(path, true);
        }
        let removed = match kind {
            Kind::MountPoint => std::fs::remove_dir(path),
            Kind::Directory => std::fs::remove_dir_all(path),
        };
        match removed {
            Ok(()) => return true,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return true,
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    false
}

/// Kills the descendants of this process. A server in the background is none: it ends when it is unmounted.
fn end_children() {
    let mut family = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let parents = parents();
    // Parents have no order in the list, so a generation after the other.
    let mut begin = 0;
    while begin < family.len() {
        let generation = family.split_at(begin).1.to_vec();
        begin = family.len();
        let children = parents.iter().filter(|(_, parent)| generation.contains(parent));
        family.extend(children.map(|(child, _)| *child));
    }
    for child in family.iter().skip(1) {
        if let Some(child) = Pid::from_raw(*child) {
            // It may have ended.
            let _ = kill_process(child, Signal::KILL);
        }
    }
}

/// All processes with their parents.
fn parents() -> Vec<(i32, i32)> {
    let parent = |entry: std::fs::DirEntry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name of the program, in parentheses, may have any characters.
        let (_, fields) = stat.rsplit_once(')')?;
        Some((process, fields.split_whitespace().nth(1)?.parse().ok()?))
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(parent).collect()
}
