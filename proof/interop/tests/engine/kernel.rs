//! Linux as judge of an image: `xfs_repair -n` of two versions, and the tree on a kernel mount.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use block::{FileDevice, OpenOptions};
use crashsim::Image;
use interop::damage::record::is_chatter;
use model::ObservedTree;
use read::manifest::Record;

/// Mounts the image `$1`, with the external log `$2` unless it is empty, on `$3`; the mount replays a dirty log. Other
/// commands follow.
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

/// Prints the manifest with the program `$1`.
const SHOW: &str = r#"
"$1" manifest "$mount"
status=$?
umount "$mount" || status=1
exit $status
"#;

/// An image, with an external log if there is one.
#[derive(Clone, Debug)]
pub struct Files {
    pub image: PathBuf,
    pub log: Option<PathBuf>,
    /// Mount point.
    pub mount: PathBuf,
    /// The `xfs_repair` programs that judge it.
    pub judges: Vec<PathBuf>,
}

impl Files {
    /// An image `name` in a folder, with an internal log.
    pub fn new(folder: &Path, name: &str) -> Self {
        let mount = folder.join("mnt");
        std::fs::create_dir_all(&mount).unwrap();
        Self { image: folder.join(name), log: None, mount, judges: vec![newer(), needs::path("xfs_repair")] }
    }

    /// Mounts the image with the kernel and runs a script, which must unmount it. `$mount` is the mount point; the
    /// arguments are `$1` and so on. Returns the output.
    ///
    /// # Errors
    /// The messages of the kernel or of the script.
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

    /// Returns the tree on a kernel mount.
    ///
    /// # Errors
    /// The kernel cannot mount or read it.
    pub fn show(&self) -> Result<ObservedTree, String> {
        parse_manifest(&self.mounted(SHOW, &[Path::new(env!("CARGO_BIN_EXE_interop"))])?)
    }

    /// Runs `xfs_repair -n` of all versions.
    ///
    /// # Errors
    /// The findings.
    pub fn repair(&self) -> Result<(), String> {
        self.judges.iter().try_for_each(|judge| self.repair_with(judge))
    }

    /// Runs one `xfs_repair -n`.
    ///
    /// # Errors
    /// The findings.
    pub fn repair_with(&self, judge: &Path) -> Result<(), String> {
        let mut command = needs::own(judge);
        // xfs_repair refuses a volume of one AG, which has no second superblock, without this option.
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
        let findings: Vec<&str> = text.lines().filter(|line| !is_chatter(line)).take(12).collect();
        Err(format!("{} -n exits {:?}: {}", judge.display(), output.status.code(), findings.join("\n")))
    }
}

/// Returns the path of the newer `xfs_repair`.
pub fn newer() -> PathBuf {
    needs::judges().join("xfs_repair")
}

/// Parses a manifest.
///
/// # Errors
/// A line that is not a record.
pub fn parse_manifest(manifest: &str) -> Result<ObservedTree, String> {
    let records: Result<Vec<Record>, _> = manifest.lines().map(Record::from_line).collect();
    ObservedTree::of_records(&records.map_err(|error| error.to_string())?, true)
}

/// Reads an image file.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> Result<Image, String> {
    let file = FileDevice::open(path, &OpenOptions::default()).map_err(|error| error.to_string())?;
    Image::of_device(&file).map_err(|error| error.to_string())
}

/// Creates a temporary folder.
pub fn scratch() -> tempfile::TempDir {
    interop::mounted::scratch().unwrap()
}

/// Runs `work` on each item, in parallel, and returns the results in order.
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
