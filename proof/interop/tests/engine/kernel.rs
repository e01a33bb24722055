//! Linux as judge: what both versions of `xfs_repair -n` say of an image, and what the kernel shows of it.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use interop::damage::record;
use model::Seen;
use read::manifest::Record;

/// Mounts the image `$1` on `$2`, which replays its log if it is dirty, and prints its manifest by the program `$3`;
/// `$4` is a log of its own, or empty.
const SHOW: &str = r#"
options=nouuid,noatime
if [ -n "$4" ]; then
    log=$(losetup --find --show "$4") || exit
    trap 'losetup --detach "$log"' EXIT
    options=$options,logdev=$log
fi
if ! mount -t xfs -o "loop,$options" "$1" "$2"; then
    dmesg | grep XFS | tail -n 12
    exit 1
fi
"$3" manifest "$2"
status=$?
umount "$2" || status=1
exit $status
"#;

/// A folder that vanishes, in memory where there is room: a loop mount flushes its file often, which a disk is slow at.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |about| about.f_bavail * about.f_frsize);
    if room > 4 << 30 { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// What the kernel shows of an image; a dirty log is replayed in place. `mount` is an empty folder of the caller's own.
///
/// # Errors
/// That it does not mount it, or cannot read it, with what it says.
pub fn show(image: &Path, log: Option<&Path>, mount: &Path) -> Result<Seen, String> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-uc", SHOW, "show"]).arg(image).arg(mount);
    command.arg(env!("CARGO_BIN_EXE_interop")).arg(log.unwrap_or(Path::new("")));
    let Output { status, stdout, stderr } = command.output().map_err(|error| error.to_string())?;
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if !status.success() {
        let out: Vec<&str> = out.lines().filter(|line| !line.starts_with('{')).collect();
        return Err(format!("the kernel does not mount or read it: {err}{}", out.join("\n")));
    }
    let records: Result<Vec<Record>, _> = out.lines().map(Record::from_line).collect();
    Seen::of_records(&records.map_err(|error| error.to_string())?, true)
}

/// What `xfs_repair -n` of either version complains of; nothing of a sound volume.
///
/// # Errors
/// The complaint.
pub fn repair(image: &Path, log: Option<&Path>) -> Result<(), String> {
    for program in [record::newer().join("xfs_repair"), "/sbin/xfs_repair".into()] {
        let mut command = Command::new(&program);
        // A volume of one AG has no second superblock to compare with; xfs_repair then asks to be told to go on.
        command.args(["-n", "-f", "-o", "force_geometry"]);
        if let Some(log) = log {
            command.arg("-l").arg(log);
        }
        let output = command.arg(image).output().map_err(|error| error.to_string())?;
        if output.status.code() != Some(0) {
            let text = String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout);
            let chatter = |line: &&str| !line.trim_start().starts_with("- ") && !line.starts_with("Phase");
            let said: Vec<&str> = text.lines().filter(chatter).take(12).collect();
            let (program, exit) = (program.display(), output.status.code());
            return Err(format!("{program} -n exits {exit:?}: {}", said.join("\n")));
        }
    }
    Ok(())
}

/// Does something with each item, on all processors; gives the results in order.
pub fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some((at, item)) =
            Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, items.get(at)?)))
        {
            let result = work(item);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
