//! Xebec must show each image of the corpus as the kernel does.
#![expect(clippy::unwrap_used, reason = "a failed test panics, also in helper functions")]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, OnceLock};

use interop::built;
use interop::compare::equal_except_ctime;

/// Maximum number of reported differences per image.
const DIFFERENCES_MAX: usize = 5;

/// Returns the corpus and the program, built once for all tests here.
fn corpus() -> Result<(PathBuf, PathBuf), String> {
    static READY: OnceLock<Result<(PathBuf, PathBuf), String>> = OnceLock::new();
    let make = || Ok((built::corpus(Path::new(env!("CARGO_TARGET_TMPDIR")))?, built::xebec()?));
    READY.get_or_init(make).clone()
}

/// Returns the images that have a file with the given extension next to them, without extension, sorted.
fn images(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut images: Vec<_> = entries
        .filter(|p| p.extension().is_some_and(|e| e == extension))
        .map(|p| p.with_extension(""))
        .collect();
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

/// Returns the differences between Xebec's and the kernel's manifest.
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
    // Only volumes with parent pointers have changes of attributes in their logs.
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    let ignore_ctime = name.contains("parent") || name.contains("everything");
    let same = |ours: &str, kernels: &str| {
        ours == kernels || (ignore_ctime && equal_except_ctime(ours, kernels).unwrap())
    };
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
fn manifest_matches_the_kernels() {
    let Some((folder, xebec)) = needs::met(corpus()) else { return };
    let images = images(&folder, "manifest");
    assert!(images.len() >= 32, "the corpus has only {} images", images.len());
    let queue = Mutex::new(images.iter());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(image) = { queue.lock().unwrap().next() } {
                    let found = differences(&xebec, image);
                    let shown: Vec<_> = found.iter().take(DIFFERENCES_MAX).cloned().collect();
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
fn unsupported_features_are_refused_by_name() {
    let Some((folder, xebec)) = needs::met(corpus()) else { return };
    let images = images(&folder, "refuse");
    assert!(!images.is_empty());
    for image in images {
        let word = std::fs::read_to_string(image.with_extension("refuse")).unwrap().trim().to_lowercase();
        let output = run(&xebec, &["ls"], &image);
        let stderr = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert_eq!(output.status.code(), Some(1), "{}: {stderr}", image.display());
        assert!(stderr.contains(&word), "{}: does not mention {word:?}: {stderr}", image.display());
    }
}

#[test]
fn check_finds_nothing_in_healthy_volumes() {
    let Some((folder, xebec)) = needs::met(corpus()) else { return };
    for image in images(&folder, "manifest") {
        let name = image.file_name().unwrap().to_string_lossy();
        // A feature bit that only the primary superblock has is damage; xfs_repair refuses this volume.
        if name == "unknown-ro-compat" {
            continue;
        }
        let output = run(&xebec, &["check"], &image);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
