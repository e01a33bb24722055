//! What a run would leave if it were killed, and its removal.
//!
//! The first signal ends a run after the current measurement, and everything is dropped. The second one cannot wait for
//! that: [`clean_up`] kills the processes of the measurement, and removes the mounts and directories that are
//! registered here.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The mount points and directories that the run uses now, in the order in which they were made.
static REGISTERED: Mutex<Vec<(PathBuf, Kind)>> = Mutex::new(Vec::new());
/// Children that this process had when the run began, as after `sh -c "server & exec xebec bench"`. They are not
/// killed.
static INHERITED: OnceLock<Vec<Process>> = OnceLock::new();
/// Pause between two attempts to kill or to remove something.
const PAUSE: Duration = Duration::from_millis(20);
/// Attempts after which the user is told what keeps the process from ending.
const SILENT_ATTEMPTS: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A mount point, which is removed with its mount.
    MountPoint,
    /// A directory with its contents.
    Directory,
    /// A directory of the user, which stays.
    Kept,
}

/// An entry of the list, which is dropped after the mount or directory was removed. Dropping it blocks while
/// [`clean_up`] runs, so that the main thread cannot end the process in the middle of that.
#[derive(Debug)]
pub struct Registered(PathBuf);

/// Begins a run: the children that exist now are not of a measurement.
pub fn begin() {
    let own = own_id();
    let inherited = processes().into_iter().filter(|process| process.parent == own);
    // Set once: a second run in one process has the same ones.
    let _ = INHERITED.set(inherited.collect());
}

/// Makes a mount point in a directory. Its name cannot be guessed, so that no other user can put a link there first.
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

/// Holds the list, so that no clean-up runs between the making of the directory and its registration.
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

/// Ends the processes that this one started, and removes what is registered. Calls `report` with what could not be
/// removed, and with what takes more than a second. The caller exits afterwards: the list stays locked.
pub fn clean_up(report: impl Fn(&str)) {
    let registered = list();
    end_children(&report);
    for left in remove_all(&registered, |path, kind| remove(path, kind, &report)) {
        report(&format!("{} is left", left.display()));
    }
    std::mem::forget(registered);
}

/// Removes the latest first. A directory that contains a mount point which could not be removed stays: removing it
/// would remove the files of the mounted file system.
fn remove_all(registered: &[(PathBuf, Kind)], remove: impl Fn(&Path, Kind) -> bool) -> Vec<PathBuf> {
    let mut left: Vec<PathBuf> = Vec::new();
    for (path, kind) in registered.iter().rev() {
        if left.iter().any(|left| left.starts_with(path)) || !remove(path, *kind) {
            left.push(path.clone());
        }
    }
    left
}

/// Removes a mount point or directory. Tries again, without a limit, as long as others use it: threads of the
/// measurement still run, and may create files; a program that was killed may complete a mount.
fn remove(path: &Path, kind: Kind, report: impl Fn(&str)) -> bool {
    for attempt in 0.. {
        let removed = match kind {
            Kind::Kept => return true,
            Kind::MountPoint => {
                // Nothing may be mounted there. Programs that use the mount keep it until they exit.
                let _ = fuse::mount::unmount(path, true);
                std::fs::remove_dir(path)
            }
            Kind::Directory => std::fs::remove_dir_all(path),
        };
        match removed {
            Ok(()) => return true,
            Err(error) if error.kind() == ErrorKind::NotFound => return true,
            Err(error) => {
                let is_used = matches!(error.kind(), ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty);
                if !is_used || attempt == SILENT_ATTEMPTS {
                    report(&format!("cannot remove {}: {error}", path.display()));
                }
                if !is_used {
                    return false;
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// A process, identified by its ID and the time of its start: IDs are reused.
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

/// Kills the descendants of this process until none is left: a descendant, or a thread of the measurement, may start
/// another one meanwhile, and a program ends only after its current system call. Servers in the background are not
/// descendants; they end when they are unmounted.
fn end_children(report: impl Fn(&str)) {
    let inherited = INHERITED.get().map_or(&[][..], Vec::as_slice);
    for attempt in 0.. {
        let descendants = descendants(own_id(), &processes(), inherited);
        let Some(first) = descendants.first() else { return };
        if attempt == SILENT_ATTEMPTS {
            report(&format!("process {} has not ended yet", first.id));
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
    // The list is not ordered, so each pass finds one generation. It was not read at one moment: an ID that was reused
    // meanwhile may make a process its own ancestor, so each is taken once.
    while !parents.is_empty() {
        let is_child = |process: &&Process| {
            let is_known = || without.iter().chain(&family).any(|other| other.is(process));
            parents.contains(&process.parent) && process.id != of && !is_known()
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

/// All processes except zombies.
fn processes() -> Vec<Process> {
    let process = |entry: std::fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        parse(id, &stat)
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(process).collect()
}

fn parse(id: i32, stat: &str) -> Option<Process> {
    // The name of the program is in parentheses, and may itself contain some.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // `starttime`, field 22 in proc(5).
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

    /// The list of processes is read while IDs are reused, and may have a cycle, in which the search did not end.
    #[test]
    fn a_cycle_of_parents_is_searched_once() {
        let process = |id, parent| Process { id, parent, started: 0 };
        let all = [process(20, 10), process(30, 20), process(10, 30)];
        let found: Vec<i32> = descendants(10, &all, &[]).iter().map(|process| process.id).collect();
        assert_eq!(found, [20, 30], "the process itself is not its descendant");
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
