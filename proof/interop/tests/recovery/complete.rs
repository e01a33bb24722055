//! Complete recovery. A reader's recovery in memory, and `xebec replay` in place, must give the tree that the kernel
//! shows after its own recovery; and the volume replayed in place must be sound.

use std::path::{Path, PathBuf};
use std::process::Output;

use interop::compare::equal_except_ctime;

use super::images::{Recovered, copy};

/// A copy of an image, with its external log; removed when dropped.
struct Copied {
    folder: tempfile::TempDir,
}

impl Copied {
    fn new(image: &Path) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for extension in ["xfs", "log"] {
            let (from, to) =
                (image.with_extension(extension), folder.path().join(format!("copy.{extension}")));
            if from.exists() {
                copy(&from, &to);
            }
        }
        Self { folder }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("copy.xfs")
    }
}

fn run(xebec: &Path, command: &str, image: &Path) -> Output {
    let mut program = needs::own(xebec);
    program.arg(command).arg(image);
    let log = image.with_extension("log");
    if log.exists() {
        program.arg("--log-device").arg(log);
    }
    program.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the output of the newer `xfs_repair -n` for a damaged volume.
fn repair(image: &Path, log: Option<&Path>) -> Option<String> {
    let mut program = needs::newer("xfs_repair");
    program.args(["-n", "-f", "-o", "force_geometry"]);
    if let Some(log) = log {
        program.arg("-l").arg(log);
    }
    let output = program.arg(image).output().unwrap();
    (!output.status.success()).then(|| text(&output.stdout) + &text(&output.stderr))
}

/// Returns the first difference from the kernel's manifest, without ctime if `ignore_ctime`.
fn difference(xebec: &Path, image: &Path, kernels: &str, ignore_ctime: bool) -> Option<String> {
    let ours = run(xebec, "manifest", image);
    if !ours.status.success() {
        return Some(text(&ours.stderr));
    }
    let ours = text(&ours.stdout);
    if ours == kernels {
        return None;
    }
    let differ = |(ours, theirs): &(&str, &str)| {
        ours != theirs && !(ignore_ctime && equal_except_ctime(ours, theirs).unwrap())
    };
    let pair = ours.lines().zip(kernels.lines()).find(differ);
    if pair.is_none() && ignore_ctime && ours.lines().count() == kernels.lines().count() {
        return None;
    }
    let cut = |line: &str| line.chars().take(400).collect::<String>();
    Some(pair.map_or("different numbers of files".into(), |(ours, theirs)| {
        format!("xebec:  {}\nkernel: {}", cut(ours), cut(theirs))
    }))
}

/// Judges the complete recovery of one image.
pub fn differences(xebec: &Path, image: &Path) -> Vec<String> {
    let name = image.file_stem().unwrap().to_string_lossy().into_owned();
    let kernels = std::fs::read_to_string(image.with_extension("manifest")).unwrap();
    // Only volumes with parent pointers have changes of attributes in their logs.
    let ignore_ctime = name.contains("parent") || name.contains("everything");
    let mut differences = Vec::new();
    let mut report = |what: &str, why: String| differences.push(format!("{name}: {what}: {why}"));
    if let Some(why) = difference(xebec, image, &kernels, ignore_ctime) {
        report("in memory", why);
    }
    let check = run(xebec, "check", image);
    if !check.status.success() {
        report("check in memory", text(&check.stdout));
    }
    let copy = Copied::new(image);
    let replay = run(xebec, "replay", &copy.image());
    let message = text(&replay.stderr);
    println!("{name}: {}", message.trim_end());
    if !replay.status.success() {
        report("replay", message);
        return differences;
    }
    if let Some(why) = difference(xebec, &copy.image(), &kernels, ignore_ctime) {
        report("in place", why);
    }
    let log = copy.image().with_extension("log");
    if let Some(why) = repair(&copy.image(), log.exists().then_some(&*log)) {
        // A crash may leave incomplete attributes, which remain after the kernel's recovery, too.
        let theirs = Recovered::new(image);
        if repair(&theirs.image, theirs.log.as_deref()).is_none() {
            report("xfs_repair", why);
        }
    }
    differences
}
