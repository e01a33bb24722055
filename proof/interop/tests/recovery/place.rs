//! Recovery to its end. A reader's recovery in memory, and `xebec replay` in place, must show what the kernel shows of
//! the volume after its own; and what is replayed in place must be sound.

use std::path::{Path, PathBuf};
use std::process::Output;

use read::manifest::Record;

use super::images::{Recovered, copy};

/// A copy of an image, with its external log; gone when dropped.
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

/// What the newer `xfs_repair -n` says of a volume that is not sound.
fn repair(image: &Path, log: Option<&Path>) -> Option<String> {
    let mut program = needs::newer("xfs_repair");
    program.args(["-n", "-f", "-o", "force_geometry"]);
    if let Some(log) = log {
        program.arg("-l").arg(log);
    }
    let output = program.arg(image).output().unwrap();
    (!output.status.success()).then(|| text(&output.stdout) + &text(&output.stderr))
}

/// Whether two lines tell the same of a file but for when it was changed last: who finishes an operation on attributes
/// in Linux stamps that.
fn same_but_for_the_change(ours: &str, theirs: &str) -> bool {
    let (ours, theirs) = (Record::from_line(ours).unwrap(), Record::from_line(theirs).unwrap());
    Record { ctime: theirs.ctime.clone(), ..ours } == theirs
}

/// Where a volume's manifest first differs from the kernel's; `stamped`: but for when files were changed.
fn difference(xebec: &Path, image: &Path, kernels: &str, stamped: bool) -> Option<String> {
    let ours = run(xebec, "manifest", image);
    if !ours.status.success() {
        return Some(text(&ours.stderr));
    }
    let ours = text(&ours.stdout);
    if ours == kernels {
        return None;
    }
    let differ =
        |(ours, theirs): &(&str, &str)| ours != theirs && !(stamped && same_but_for_the_change(ours, theirs));
    let pair = ours.lines().zip(kernels.lines()).find(differ);
    if pair.is_none() && stamped && ours.lines().count() == kernels.lines().count() {
        return None;
    }
    let cut = |line: &str| line.chars().take(400).collect::<String>();
    Some(pair.map_or("another number of files".into(), |(ours, theirs)| {
        format!("xebec:  {}\nkernel: {}", cut(ours), cut(theirs))
    }))
}

/// Judges the recovery of one image, to its end.
pub fn complaints(xebec: &Path, image: &Path) -> Vec<String> {
    let name = image.file_stem().unwrap().to_string_lossy().into_owned();
    let kernels = std::fs::read_to_string(image.with_extension("manifest")).unwrap();
    // Only volumes with parent pointers have operations on attributes in their logs.
    let stamped = name.contains("parent") || name.contains("everything");
    let mut complaints = Vec::new();
    let mut tell = |what: &str, why: String| complaints.push(format!("{name}: {what}: {why}"));
    if let Some(why) = difference(xebec, image, &kernels, stamped) {
        tell("in memory", why);
    }
    let check = run(xebec, "check", image);
    if !check.status.success() {
        tell("check in memory", text(&check.stdout));
    }
    let copy = Copied::new(image);
    let replay = run(xebec, "replay", &copy.image());
    let said = text(&replay.stderr);
    println!("{name}: {}", said.trim_end());
    if !replay.status.success() {
        tell("replay", said);
        return complaints;
    }
    if let Some(why) = difference(xebec, &copy.image(), &kernels, stamped) {
        tell("in place", why);
    }
    let log = copy.image().with_extension("log");
    if let Some(why) = repair(&copy.image(), log.exists().then_some(&*log)) {
        // A crash may leave attributes that were never completed, which stay so after the kernel's recovery, too.
        let theirs = Recovered::new(image);
        if repair(&theirs.image, theirs.log.as_deref()).is_none() {
            tell("xfs_repair", why);
        }
    }
    complaints
}
