//! New volumes beside those of `mkfs.xfs` 6.13, byte for byte, and before the kernel and `xfs_repair`.
//!
//! | part | subject |
//! |---|---|
//! | `cases` | sizes and options |
//! | `growth` | volumes that are made to grow |
//! | `compare` | two sparse files, and the bytes in which they may differ |
//!
//! Both are run by the same command line on a file of the same name. Every byte of both files is compared, holes
//! included, but for those that [`compare::VARYING`] names, whose values are times or chance.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by panicking")]

mod cases;
mod compare;
mod growth;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;

use interop::built;

const UUID: &str = "uuid=11111111-2222-3333-4444-555555555555";

/// Built once.
static XEBEC: LazyLock<Result<PathBuf, String>> = LazyLock::new(built::xebec);

/// The two programs, each with a folder of its own.
struct Peers {
    scratch: tempfile::TempDir,
    xebec: PathBuf,
}

impl Peers {
    /// `None` where one of them is missing: the test is skipped.
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

    /// `xebec mkfs`, which makes the file itself.
    fn make_ours(&self, size: u64, arguments: &[&str]) -> Output {
        remove(&self.ours());
        let mut xebec = needs::own(&self.xebec);
        xebec.current_dir(self.ours()).args(["mkfs", "image", "--size", &size.to_string(), "-m", UUID]);
        xebec.args(arguments).output().unwrap()
    }

    /// `mkfs.xfs`, with the variables that lift its lower bounds, as its own tests set them.
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

/// Both make the same of one case, or refuse it; returns what differs.
fn difference(peers: &Peers, size: u64, options: &str) -> Option<String> {
    let arguments: Vec<&str> = options.split_whitespace().collect();
    compared(peers, &peers.make_ours(size, &arguments), &peers.make_theirs(size, &arguments))
}

/// What differs of what both have made.
fn compared(peers: &Peers, ours: &Output, theirs: &Output) -> Option<String> {
    let succeeded = (ours.status.success(), theirs.status.success());
    // Too small for such blocks, or too large for one AG.
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
    // What they say first, notes about rounding, is in each one's own words.
    let printed = |output: &Output| {
        let all = text(&output.stdout);
        all.find("meta-data").and_then(|at| all.get(at..)).unwrap_or_default().to_owned()
    };
    if printed(ours) != printed(theirs) {
        return Some(format!("they print\n{}\n{}", printed(ours), printed(theirs)));
    }
    compare::difference(&peers.ours().join("image"), &peers.theirs().join("image"))
}

fn same(cases: impl IntoIterator<Item = (u64, String)>) {
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
fn every_block_size_and_size_of_volume_is_the_same() {
    same(cases::sizes());
}

#[test]
fn every_option_is_the_same() {
    same(cases::options());
}

#[test]
fn features_in_every_combination_are_the_same() {
    same(cases::features());
}

/// The configuration files of `mkfs.xfs` say what was usual when a Linux with long support came out. They also have it
/// tell a service, by an attribute of the root directory, to leave the volume alone, which is no feature.
#[test]
fn volumes_for_older_kernels_are_the_same() {
    let Some(peers) = Peers::find() else { return };
    let folder = needs::judges().parent().unwrap().join("mkfs");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let version = name.strip_prefix("lts_").unwrap();
        let told = std::fs::read_to_string(&path).unwrap().replace("autofsck=0", "");
        let path = peers.scratch.path().join("features.conf");
        std::fs::write(&path, told).unwrap();
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
fn the_smallest_log_is_the_same() {
    let Some(peers) = Peers::find() else { return };
    let number = |output: &Output, before: &str| {
        let said = text(&output.stderr);
        let (_, rest) = said.split_once(before)?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mut compared = 0;
    for (size, options) in cases::logs() {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let ours = number(&peers.make_ours(size, &arguments), "the kernel asks for ");
        let theirs = number(&peers.make_theirs(size, &arguments), "minimum size is ");
        // Where theirs is content, ours is too.
        assert_eq!(ours, theirs, "{size} {options}");
        compared += u64::from(theirs.is_some());
    }
    assert!(compared > 100, "only {compared} minima were named");
}

#[test]
fn an_external_log_is_the_same() {
    let Some(peers) = Peers::find() else { return };
    let size = 512 << 20;
    for options in
        ["-l logdev=log,size=64m", "-b size=1024 -l logdev=log", "-s size=4096 -l logdev=log,size=20000b"]
    {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let make_log = |folder: &Path| {
            std::fs::File::create(folder.join("log")).unwrap().set_len(100 << 20).unwrap();
        };
        // The folder is emptied by the making of the image, so the logs are made by a wrapper of it.
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

/// `xfs_repair -n` finds nothing wrong, not with the smallest volumes either, which `mkfs.xfs` refuses to make.
#[test]
fn volumes_please_xfs_repair() {
    let Some(peers) = Peers::find() else { return };
    for (size, options) in cases::judged() {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let made = peers.make_ours(size, &arguments);
        assert!(made.status.success(), "{size} {options}: {}", text(&made.stderr));
        repaired(&peers.ours().join("image"), &format!("{size} {options}"));
    }
}

fn repaired(image: &Path, case: &str) {
    let verdict =
        needs::newer("xfs_repair").args(["-n", "-o", "force_geometry"]).arg(image).output().unwrap();
    assert!(verdict.status.success(), "{case}: {}{}", text(&verdict.stdout), text(&verdict.stderr));
}

/// The kernel mounts them, works on them, and leaves them in a state that `xfs_repair -n` likes.
#[test]
fn volumes_please_the_kernel() {
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
        repaired(&peers.ours().join("image"), &format!("{size} {options}, after the kernel"));
    }
}

/// What both refuse.
#[test]
fn what_is_refused_there_is_refused_here() {
    let Some(peers) = Peers::find() else { return };
    let mut failures = Vec::new();
    for (size, options) in cases::refused() {
        let arguments: Vec<&str> = options.split_whitespace().collect();
        let (ours, theirs) = (peers.make_ours(size, &arguments), peers.make_theirs(size, &arguments));
        let said = text(&ours.stderr);
        if theirs.status.success() {
            failures.push(format!("{options}: mkfs.xfs takes it"));
        }
        if ours.status.code() != Some(2) || !said.starts_with("xebec: ") || said.lines().count() != 1 {
            failures.push(format!("{options}: {} {said}", ours.status));
        }
        if peers.ours().join("image").exists() {
            failures.push(format!("{options}: an image is left"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// 1 TB in well under a second, and little of the host's disk.
#[test]
fn a_terabyte_is_sparse_and_instant() {
    let Some(peers) = Peers::find() else { return };
    let made = peers.make_ours(1 << 40, &[]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    use std::os::unix::fs::MetadataExt as _;
    let blocks = peers.ours().join("image").metadata().unwrap().blocks();
    assert!(blocks * 512 < 4 << 20, "{blocks} blocks of 512 bytes are allocated");
}
