//! What a run would leave if it were killed, and its removal.
//!
//! The first signal ends a run after the current measurement, and everything is dropped. The second one cannot wait for
//! that: [`clean_up`] ends the processes of the measurement, and removes the mounts and directories in this list.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// What is registered, the latest last.
static REGISTERED: Mutex<Vec<(PathBuf, Kind)>> = Mutex::new(Vec::new());
/// Children that this process had when the run began: those of a shell that became this program.
static FOREIGN: OnceLock<Vec<Process>> = OnceLock::new();
/// How often removal is tried: a thread of the measurement may still create files.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A mount point, which is removed with its mount.
    MountPoint,
    /// A directory with its contents.
    Directory,
    /// A directory of the user, which stays.
    Kept,
}

/// An entry of the list. Dropping it says that nothing is left. That waits while the list is cleaned up, so that the
/// process does not end in the middle.
#[derive(Debug)]
pub struct Registered(PathBuf);

/// Begins a run: the children that exist now are not those of a measurement.
pub fn begin() {
    let own = own_id();
    let foreign = processes().into_iter().filter(|process| process.parent == own);
    // A second run of this process finds those of the first one ended.
    let _ = FOREIGN.set(foreign.collect());
}

/// Makes a mount point in a directory. Its name cannot be guessed, so that nobody puts a link there.
///
/// # Errors
/// It cannot be made.
pub fn new_mount_point(parent: &Path) -> std::io::Result<(PathBuf, Registered)> {
    make(parent, Kind::MountPoint)
}

/// Makes a directory in another one.
///
/// # Errors
/// It cannot be made.
pub fn new_directory(parent: &Path) -> std::io::Result<(PathBuf, Registered)> {
    make(parent, Kind::Directory)
}

/// Registers a directory that is kept, for as long as a run uses it.
pub fn kept(path: &Path) -> Registered {
    list().push((path.into(), Kind::Kept));
    Registered(path.into())
}

/// No signal comes between the making of the directory and its registration.
fn make(parent: &Path, kind: Kind) -> std::io::Result<(PathBuf, Registered)> {
    let mut list = list();
    let prefix = format!("xebec-bench-{}-", std::process::id());
    let path = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)?.keep();
    list.push((path.clone(), kind));
    Ok((path.clone(), Registered(path)))
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
    let left = remove_all(&registered, remove);
    std::mem::forget(registered);
    left
}

/// Removes the latest first. A directory with a mount point that could not be removed stays: its removal would remove
/// what is mounted there.
fn remove_all(registered: &[(PathBuf, Kind)], remove: impl Fn(&Path, Kind) -> bool) -> Vec<PathBuf> {
    let mut left: Vec<PathBuf> = Vec::new();
    for (path, kind) in registered.iter().rev() {
        if left.iter().any(|left| left.starts_with(path)) || !remove(path, *kind) {
            left.push(path.clone());
        }
    }
    left
}

fn remove(path: &Path, kind: Kind) -> bool {
    for _ in 0..TRIES {
        let removed = match kind {
            Kind::Kept => return true,
            Kind::MountPoint => {
                // It may not be mounted, or not any more. Those who use it keep it until they exit.
                let _ = fuse::mount::unmount(path, true);
                std::fs::remove_dir(path)
            }
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

/// A process, known by its number and the time of its start: numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    started: u64,
}

impl Process {
    fn is(&self, other: &Self) -> bool {
        (self.id, self.started) == (other.id, other.started)
    }
}

/// Kills the descendants of this process until none is left: one of them, or a thread of the measurement, may start
/// another one meanwhile. A server in the background is none: it ends when it is unmounted.
fn end_children() {
    let foreign = FOREIGN.get().map_or(&[][..], Vec::as_slice);
    for _ in 0..TRIES {
        let descendants = descendants(own_id(), &processes(), foreign);
        if descendants.is_empty() {
            return;
        }
        for child in descendants.iter().filter_map(|child| Pid::from_raw(child.id)) {
            // It may have ended.
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The descendants of a process, without those of the processes to leave out.
fn descendants(of: i32, all: &[Process], without: &[Process]) -> Vec<Process> {
    let mut family: Vec<Process> = Vec::new();
    let mut parents = vec![of];
    // Parents have no order in the list, so a generation after the other.
    while !parents.is_empty() {
        let is_child = |process: &&Process| {
            parents.contains(&process.parent) && !without.iter().any(|other| other.is(process))
        };
        let children: Vec<Process> = all.iter().filter(is_child).copied().collect();
        parents = children.iter().map(|child| child.id).collect();
        family.extend(children);
    }
    family
}

fn own_id() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// All processes but those that have ended, and whose parents did not ask for their status.
fn processes() -> Vec<Process> {
    let process = |entry: std::fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        parse(id, &stat)
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(process).collect()
}

fn parse(id: i32, stat: &str) -> Option<Process> {
    // The name of the program, in parentheses, may have any characters.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // The start has number 22 in proc(5).
    let started = fields.nth(17)?.parse().ok()?;
    (!has_ended).then_some(Process { id, parent, started })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_before_are_not_ended() {
        let process = |id, parent, started| Process { id, parent, started };
        let all = [process(30, 20, 5), process(20, 10, 4), process(11, 10, 1), process(12, 11, 2)];
        let ids = |without: &[Process]| -> Vec<i32> {
            descendants(10, &all, without).iter().map(|process| process.id).collect()
        };
        assert_eq!(ids(&[process(11, 10, 1)]), [20, 30]);
        assert_eq!(ids(&[process(11, 10, 0)]), [20, 11, 30, 12], "a number that is used again");
    }

    #[test]
    fn the_start_of_a_process_is_known() {
        let stat = "7 (a) b) S 5 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse(7, stat), Some(Process { id: 7, parent: 5, started: 4711 }));
        assert_eq!(parse(7, &stat.replace(" S ", " Z ")), None);
        let own = processes().into_iter().find(|process| process.id == own_id());
        assert!(own.is_some_and(|own| own.started > 0));
    }

    #[test]
    fn a_directory_stays_with_what_is_mounted_in_it() {
        let registered = [("/a", Kind::Directory), ("/b", Kind::Directory), ("/a/mnt", Kind::MountPoint)];
        let registered = registered.map(|(path, kind)| (PathBuf::from(path), kind));
        let left = remove_all(&registered, |_, kind| kind != Kind::MountPoint);
        assert_eq!(left, [Path::new("/a/mnt"), Path::new("/a")]);
    }
}
