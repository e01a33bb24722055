//! Linux as judge: what both versions of `xfs_repair -n` say of an image, and what the kernel shows of it.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use block::{FileDevice, OpenOptions};
use crashsim::Image;
use model::Seen;
use read::manifest::Record;

/// Mounts the image `$1`, with the log on `$2` unless that is empty, on `$3`, which replays a dirty log. What is done
/// there follows.
const MOUNT: &str = r#"
image=$1 log=$2 mount=$3
shift 3
options=nouuid,noatime
if [ -n "$log" ]; then
    device=$(losetup --find --show "$log") || exit
    trap 'losetup --detach "$device"' EXIT
    options=$options,logdev=$device
fi
if ! mount -t xfs -o "loop,$options" "$image" "$mount"; then
    dmesg | grep XFS | tail -n 12
    exit 1
fi
"#;

/// Prints the manifest by the program `$1`.
const SHOW: &str = r#"
"$1" manifest "$mount"
status=$?
umount "$mount" || status=1
exit $status
"#;

/// An image, and what lies on a log device of its own.
#[derive(Clone, Debug)]
pub struct Files {
    pub image: PathBuf,
    pub log: Option<PathBuf>,
    /// An empty folder to mount it on.
    pub mount: PathBuf,
    /// The versions of `xfs_repair` that judge it.
    pub judges: Vec<PathBuf>,
}

impl Files {
    /// An image `name` in a folder, with its log within.
    pub fn new(folder: &Path, name: &str) -> Self {
        let mount = folder.join("mnt");
        std::fs::create_dir_all(&mount).unwrap();
        Self { image: folder.join(name), log: None, mount, judges: vec![newer(), needs::path("xfs_repair")] }
    }

    /// Has the kernel mount it, and a script do something there; `$mount` is where, its arguments are `$1` and so on.
    /// The script unmounts. Gives what it printed.
    ///
    /// # Errors
    /// What the kernel or the script says when it fails.
    pub fn mounted(&self, script: &str, arguments: &[&Path]) -> Result<String, String> {
        let mut command = needs::script("-u", &format!("{MOUNT}{script}"), "judge");
        command.arg(&self.image).arg(self.log.as_deref().unwrap_or(Path::new(""))).arg(&self.mount);
        let output = command.args(arguments).output().map_err(|error| error.to_string())?;
        let Output { status, stdout, stderr } = output;
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        if status.success() {
            return Ok(out.into_owned());
        }
        let out: Vec<&str> = out.lines().filter(|line| !line.starts_with('{')).collect();
        Err(format!("the kernel does not mount or read it: {err}{}", out.join("\n")))
    }

    /// What the kernel shows of it.
    ///
    /// # Errors
    /// That it does not mount it, or cannot read it, with what it says.
    pub fn show(&self) -> Result<Seen, String> {
        seen(&self.mounted(SHOW, &[Path::new(env!("CARGO_BIN_EXE_interop"))])?)
    }

    /// What `xfs_repair -n` of either version complains of; nothing of a sound volume.
    ///
    /// # Errors
    /// The complaint.
    pub fn repair(&self) -> Result<(), String> {
        self.judges.iter().try_for_each(|judge| self.ask(judge))
    }

    /// What one `xfs_repair -n` complains of.
    ///
    /// # Errors
    /// The complaint.
    pub fn ask(&self, judge: &Path) -> Result<(), String> {
        let mut command = needs::own(judge);
        // A volume of one AG has no second superblock to compare with; xfs_repair then asks to be told to go on.
        command.args(["-n", "-f", "-o", "force_geometry"]);
        if let Some(log) = &self.log {
            command.arg("-l").arg(log);
        }
        let output = command.arg(&self.image).output().map_err(|error| error.to_string())?;
        if output.status.code() == Some(0) {
            return Ok(());
        }
        let text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let said: Vec<&str> = text.lines().filter(|line| !is_chatter(line)).take(12).collect();
        Err(format!("{} -n exits {:?}: {}", judge.display(), output.status.code(), said.join("\n")))
    }
}

/// What every `xfs_repair` says.
fn is_chatter(line: &str) -> bool {
    let ordinary =
        ["- ", "Phase", "No modify", "Cannot get host", "Repair may fail", "the image and the host"];
    ordinary.iter().any(|start| line.trim_start().starts_with(start))
}

/// The newer `xfs_repair`.
pub fn newer() -> PathBuf {
    needs::judges().join("xfs_repair")
}

/// What a manifest tells.
///
/// # Errors
/// A line that is none.
pub fn seen(manifest: &str) -> Result<Seen, String> {
    let records: Result<Vec<Record>, _> = manifest.lines().map(Record::from_line).collect();
    Seen::of_records(&records.map_err(|error| error.to_string())?, true)
}

/// The content of an image file.
///
/// # Errors
/// What reading it gives.
pub fn read(path: &Path) -> Result<Image, String> {
    let file = FileDevice::open(path, &OpenOptions::default()).map_err(|error| error.to_string())?;
    Image::of_device(&file).map_err(|error| error.to_string())
}

/// A folder that vanishes.
pub fn scratch() -> tempfile::TempDir {
    interop::mounted::scratch().unwrap()
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
