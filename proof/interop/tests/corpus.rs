//! What Xebec shows of each image of the corpus is what the kernel shows of it.
#![expect(clippy::unwrap_used, reason = "a test says what it expects by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, OnceLock};

use interop::built;
use read::manifest::Record;

/// Differences that one image may fill a report with.
const SHOWN: usize = 5;

/// The corpus and the program, made once for all tests here.
fn corpus() -> Result<(PathBuf, PathBuf), String> {
    static READY: OnceLock<Result<(PathBuf, PathBuf), String>> = OnceLock::new();
    let make = || Ok((built::corpus(Path::new(env!("CARGO_TARGET_TMPDIR")))?, built::xebec()?));
    READY.get_or_init(make).clone()
}

/// The images that have a file with the given end beside them, without their ends, sorted.
fn images(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<_> =
        entries.filter(|p| p.extension().is_some_and(|e| e == end)).map(|p| p.with_extension("")).collect();
    images.sort();
    images
}

fn run(xebec: &Path, command: &[&str], image: &Path) -> Output {
    let mut program = needs::own(xebec);
    program.args(command).arg(image.with_extension("xfs"));
    let log = image.with_extension("log");
    if log.exists() {
        program.arg("--log-device").arg(log);
    }
    program.output().unwrap()
}

/// Whether two lines tell the same of a file but for when it was changed last: who finishes an operation on attributes
/// in Linux stamps that.
fn same_but_for_the_change(ours: &str, kernels: &str) -> bool {
    let (ours, kernels) = (Record::from_line(ours).unwrap(), Record::from_line(kernels).unwrap());
    Record { ctime: kernels.ctime.clone(), ..ours } == kernels
}

/// What differs between Xebec's manifest and the kernel's.
fn differences(xebec: &Path, image: &Path) -> Vec<String> {
    let output = run(xebec, &["manifest"], image);
    if !output.status.success() {
        return vec![format!("manifest failed: {}", String::from_utf8_lossy(&output.stderr))];
    }
    let ours = String::from_utf8(output.stdout).unwrap();
    let kernels = std::fs::read_to_string(image.with_extension("manifest")).unwrap();
    if ours == kernels {
        return Vec::new();
    }
    let ours: Vec<_> = ours.lines().collect();
    let kernels: Vec<_> = kernels.lines().collect();
    // Only volumes with parent pointers have operations on attributes in their logs.
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    let stamped = name.contains("parent") || name.contains("everything");
    let same =
        |ours: &str, kernels: &str| ours == kernels || (stamped && same_but_for_the_change(ours, kernels));
    let mut differences = Vec::new();
    if ours.len() != kernels.len() {
        differences.push(format!("{} files, the kernel shows {}", ours.len(), kernels.len()));
    }
    let cut = |line: &str| line.chars().take(600).collect::<String>();
    let pairs = ours.iter().zip(&kernels).filter(|(a, b)| !same(a, b));
    differences.extend(pairs.map(|(a, b)| format!("  xebec:  {}\n  kernel: {}", cut(a), cut(b))));
    differences
}

#[test]
fn the_manifest_is_the_kernels() {
    let Some((folder, xebec)) = needs::met(corpus()) else { return };
    let images = images(&folder, "manifest");
    assert!(images.len() >= 32, "the corpus has {} images only", images.len());
    let queue = Mutex::new(images.iter());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(image) = { queue.lock().unwrap().next() } {
                    let found = differences(&xebec, image);
                    let shown: Vec<_> = found.iter().take(SHOWN).cloned().collect();
                    if !found.is_empty() {
                        let report =
                            format!("{}: {} differ\n{}", image.display(), found.len(), shown.join("\n"));
                        failures.lock().unwrap().push(report);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {} images differ:\n{}",
        failures.len(),
        images.len(),
        failures.join("\n")
    );
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let Some((folder, xebec)) = needs::met(corpus()) else { return };
    let images = images(&folder, "refuse");
    assert!(!images.is_empty());
    for image in images {
        let word = std::fs::read_to_string(image.with_extension("refuse")).unwrap().trim().to_lowercase();
        let output = run(&xebec, &["ls"], &image);
        let says = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert_eq!(output.status.code(), Some(1), "{}: {says}", image.display());
        assert!(says.contains(&word), "{}: no word of {word:?}: {says}", image.display());
    }
}

#[test]
fn check_finds_nothing_in_healthy_volumes() {
    let Some((folder, xebec)) = needs::met(corpus()) else { return };
    for image in images(&folder, "manifest") {
        let name = image.file_name().unwrap().to_string_lossy();
        // A feature bit that only the primary superblock has is damage; xfs_repair refuses the volume for it.
        if name == "unknown-ro-compat" {
            continue;
        }
        let output = run(&xebec, &["check"], &image);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
