//! Compares new volumes with those of `mkfs.xfs` 6.13 byte by byte, and judges them by the kernel and `xfs_repair`.
//!
//! | part | subject |
//! |---|---|
//! | `cases` | sizes and options |
//! | `growth` | volumes formatted for growth |
//! | `compare` | comparison of two sparse files, and the bytes that may differ |
//!
//! Both programs run with the same options on a file of the same name. All bytes of both files are compared, including
//! holes, except those in [`compare::VARYING`], which are times or random.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod cases;
mod compare;
mod growth;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;

use interop::built;

const UUID: &str = "uuid=11111111-2222-3333-4444-555555555555";

/// The program, built once.
static XEBEC: LazyLock<Result<PathBuf, String>> = LazyLock::new(built::xebec);

/// The two programs, each with its own folder.
struct Peers {
    scratch: tempfile::TempDir,
    xebec: PathBuf,
}

impl Peers {
    /// Returns `None` and skips the test if one of them is missing.
    fn find() -> Option<Self> {
        needs::met(needs::newer_xfsprogs())?;
        let xebec = needs::met(XEBEC.clone())?;
        let scratch = tempfile::tempdir().unwrap();
        for folder in ["ours", "theirs"] {
            std::fs::create_dir(scratch.path().join(folder)).unwrap();
        }
        Some(Self { scratch, xebec })
    }

    fn ours(&self) -> PathBuf {
        self.scratch.path().join("ours")
    }

    fn theirs(&self) -> PathBuf {
        self.scratch.path().join("theirs")
    }

    /// Runs `xebec mkfs`, which creates the file itself.
    fn make_ours(&self, size: u64, arguments: &[&str]) -> Output {
        remove(&self.ours());
        let mut xebec = needs::own(&self.xebec);
        xebec.current_dir(self.ours()).args(["mkfs", "image", "--size", &size.to_string(), "-m", UUID]);
        xebec.args(arguments).output().unwrap()
    }

    /// Runs `mkfs.xfs`, with the variables of its own tests that lift its lower limits.
    fn make_theirs(&self, size: u64, arguments: &[&str]) -> Output {
        remove(&self.theirs());
        std::fs::File::create(self.theirs().join("image")).unwrap().set_len(size).unwrap();
        let mut mkfs = needs::newer("mkfs.xfs");
        for lifted in ["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"] {
            mkfs.env(lifted, "1");
        }
        mkfs.current_dir(self.theirs()).args(["-m", UUID]).args(arguments).arg("image").output().unwrap()
    }
}

fn remove(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs both on one case, which they may both refuse; returns the difference.
fn difference(peers: &Peers, size: u64, options: &str) -> Option<String> {
    let arguments: Vec<&str> = options.split_whitespace().collect();
    compared(peers, &peers.make_ours(size, &arguments), &peers.make_theirs(size, &arguments))
}

/// Returns the difference of two results.
fn compared(peers: &Peers, ours: &Output, theirs: &Output) -> Option<String> {
    let succeeded = (ours.status.success(), theirs.status.success());
    // The volume is too small for such blocks, or too large for one AG.
    if succeeded == (false, false) {
        return None;
    }
    if succeeded != (true, true) {
        return Some(format!(
            "one of them failed: {succeeded:?}\n{}\n{}",
            text(&ours.stderr),
            text(&theirs.stderr).lines().take(2).collect::<Vec<_>>().join("\n")
        ));
    }
    // Messages about rounding, which come first, have different wording.
    let printed = |output: &Output| {
        let all = text(&output.stdout);
        all.find("meta-data").and_then(|at| all.get(at..)).unwrap_or_default().to_owned()
    };
    if printed(ours) != printed(theirs) {
        return Some(format!("the output differs:\n{}\n{}", printed(ours), printed(theirs)));
    }
    compare::difference(&peers.ours().join("image"), &peers.theirs().join("image"))
}

fn assert_same(cases: impl IntoIterator<Item = (u64, String)>) {
    let Some(peers) = Peers::find() else { return };
    let mut failures = Vec::new();
    let mut count = 0;
    for (size, options) in cases {
        count += 1;
        if let Some(difference) = difference(&peers, size, &options) {
            failures.push(format!("{size} {options}: {difference}"));
        }
    }
    assert!(count > 0);
    assert!(failures.is_empty(), "{} of {count} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn all_block_and_volume_sizes_match_mkfs_xfs() {
    assert_same(cases::sizes());
}

#[test]
fn all_options_match_mkfs_xfs() {
    assert_same(cases::options());
}

#[test]
fn feature_combinations_match_mkfs_xfs() {
    assert_same(cases::features());
}

/// The configuration files of `mkfs.xfs` select the features of each longterm release of Linux. They also set an
/// attribute of the root directory that tells a service not to check the volume; this is not a feature.
#[test]
fn volumes_for_older_kernels_match_mkfs_xfs() {
    let Some(peers) = Peers::find() else { return };
    let folder = needs::judges().parent().unwrap().join("mkfs");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let version = name.strip_prefix("lts_").unwrap();
        let configuration = std::fs::read_to_string(&path).unwrap().replace("autofsck=0", "");
        let path = peers.scratch.path().join("features.conf");
        std::fs::write(&path, configuration).unwrap();
        for size in [320 << 20, 3 << 30] {
            let ours = peers.make_ours(size, &["--for", &format!("linux-{version}")]);
            let theirs = peers.make_theirs(size, &["-c", &format!("options={}", path.display())]);
            assert_eq!(compared(&peers, &ours, &theirs), None, "Linux {version}");
            count += 1;
        }
    }
    assert!(count >= 14, "{count} cases");
}

#[test]
fn minimum_log_size_matches_mkfs_xfs() {
    let Some(peers) = Peers::find() else { return };
    let number = |output: &Output, before: &str| {
        let message = text(&output.stderr);
        let (_, rest) = message.split_once(before)?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mut compared = 0;
    for (size, options) in cases::logs() {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let ours = number(&peers.make_ours(size, &arguments), "the minimum for this volume is ");
        let theirs = number(&peers.make_theirs(size, &arguments), "minimum size is ");
        // Both are `None` if the size is accepted.
        assert_eq!(ours, theirs, "{size} {options}");
        compared += u64::from(theirs.is_some());
    }
    assert!(compared > 100, "only {compared} minima were compared");
}

#[test]
fn external_logs_match_mkfs_xfs() {
    let Some(peers) = Peers::find() else { return };
    let size = 512 << 20;
    for options in
        ["-l logdev=log,size=64m", "-b size=1024 -l logdev=log", "-s size=4096 -l logdev=log,size=20000b"]
    {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let make_log = |folder: &Path| {
            std::fs::File::create(folder.join("log")).unwrap().set_len(100 << 20).unwrap();
        };
        // Formatting empties the folder, so the log is created afterwards.
        let ours = {
            remove(&peers.ours());
            make_log(&peers.ours());
            let mut xebec = needs::own(&peers.xebec);
            xebec.current_dir(peers.ours()).args(["mkfs", "image", "--size", &size.to_string(), "-m", UUID]);
            xebec.args(&arguments).output().unwrap()
        };
        let theirs = {
            remove(&peers.theirs());
            make_log(&peers.theirs());
            std::fs::File::create(peers.theirs().join("image")).unwrap().set_len(size).unwrap();
            let mut mkfs = needs::newer("mkfs.xfs");
            mkfs.current_dir(peers.theirs()).args(["-m", UUID]).args(&arguments).arg("image");
            mkfs.output().unwrap()
        };
        assert!(ours.status.success() && theirs.status.success(), "{options}: {ours:?} {theirs:?}");
        for file in ["image", "log"] {
            let difference = compare::difference(&peers.ours().join(file), &peers.theirs().join(file));
            assert_eq!(difference, None, "{options}: {file}");
        }
    }
}

/// `xfs_repair -n` accepts all volumes, including small ones that `mkfs.xfs` refuses to format.
#[test]
fn xfs_repair_accepts_volumes() {
    let Some(peers) = Peers::find() else { return };
    for (size, options) in cases::judged() {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let made = peers.make_ours(size, &arguments);
        assert!(made.status.success(), "{size} {options}: {}", text(&made.stderr));
        assert_sound(&peers.ours().join("image"), &format!("{size} {options}"));
    }
}

fn assert_sound(image: &Path, case: &str) {
    let verdict =
        needs::newer("xfs_repair").args(["-n", "-o", "force_geometry"]).arg(image).output().unwrap();
    assert!(verdict.status.success(), "{case}: {}{}", text(&verdict.stdout), text(&verdict.stderr));
}

/// The kernel mounts and changes all volumes, and `xfs_repair -n` accepts them afterwards.
#[test]
fn kernel_accepts_volumes() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let Some(peers) = Peers::find() else { return };
    let point = peers.scratch.path().join("mnt");
    std::fs::create_dir(&point).unwrap();
    for (size, options) in cases::judged() {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let made = peers.make_ours(size, &arguments);
        assert!(made.status.success(), "{size} {options}: {}", text(&made.stderr));
        let script = "mount -o loop,nouuid image \"$1\"; mkdir \"$1\"/d; (cd \"$1\"/d; seq 1 500 | xargs touch); \
                      head -c 1M /dev/zero > \"$1\"/f; rm -r \"$1\"/d; umount \"$1\"";
        let mut shell = needs::script("-eu", script, "kernel");
        let worked = shell.arg(&point).current_dir(peers.ours()).output().unwrap();
        assert!(worked.status.success(), "{size} {options}: {}", text(&worked.stderr));
        assert_sound(&peers.ours().join("image"), &format!("{size} {options}, after the kernel"));
    }
}

#[test]
fn invalid_options_are_refused() {
    let Some(peers) = Peers::find() else { return };
    let mut failures = Vec::new();
    for (size, options) in cases::refused() {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let (ours, theirs) = (peers.make_ours(size, &arguments), peers.make_theirs(size, &arguments));
        let message = text(&ours.stderr);
        if theirs.status.success() {
            failures.push(format!("{options}: mkfs.xfs accepts it"));
        }
        if ours.status.code() != Some(2) || !message.starts_with("xebec: ") || message.lines().count() != 1 {
            failures.push(format!("{options}: {} {message}", ours.status));
        }
        if peers.ours().join("image").exists() {
            failures.push(format!("{options}: an image is left"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A volume of 1 TiB uses little space on the host.
#[test]
fn tebibyte_image_is_sparse() {
    let Some(peers) = Peers::find() else { return };
    let made = peers.make_ours(1 << 40, &[]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    use std::os::unix::fs::MetadataExt as _;
    let blocks = peers.ours().join("image").metadata().unwrap().blocks();
    assert!(blocks * 512 < 4 << 20, "{blocks} blocks of 512 bytes are allocated");
}
