//! Signals and unreadable sources while an image is created: an old file is kept, no temporary file is left, and the
//! message says what to do.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use model::Rng;
use rustix::process::{Pid, Signal, kill_process};

use crate::xebec;

/// A directory in which an image is created from an archive.
struct CreateTest {
    folder: tempfile::TempDir,
    archive: Vec<u8>,
}

impl CreateTest {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("images")).unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        let mut rng = Rng::new(1);
        for number in 0..300 {
            let length = rng.below(40_000) as usize;
            let contents = rng.bytes(length);
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, format!("{}/{number}", number % 7), &*contents).unwrap();
        }
        Self { folder, archive: builder.into_inner().unwrap() }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("images/made.xfs")
    }

    /// Names in the directory of the image.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("images")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn create(&self, words: &[&str]) -> Child {
        let mut create = needs::own(env!("CARGO_BIN_EXE_xebec"));
        create.arg("create").arg(self.image()).args(["--from", "-", "--quiet"]).args(words);
        create.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Starts `create`, and sends a signal after it has read `bytes` of the archive, and its end if these are all.
    /// Returns the exit code, or the signal that ended it, and its messages.
    fn stop(&self, words: &[&str], bytes: usize, signal: Signal) -> (Result<i32, i32>, String) {
        let mut create = self.create(words);
        let mut input = create.stdin.take().unwrap();
        input.write_all(&self.archive[..bytes]).unwrap();
        if bytes == self.archive.len() {
            drop(input);
        }
        kill_process(Pid::from_child(&create), signal).unwrap();
        let output = create.wait_with_output().unwrap();
        let ended = output.status.code().ok_or_else(|| output.status.signal().unwrap());
        (ended, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn assert_complete(image: &Path) {
    super::xebec().arg("check").arg(image).assert().success();
    let shown = super::xebec().args(["find"]).arg(image).args(["/", "-type", "f"]).output().unwrap();
    assert_eq!(String::from_utf8(shown.stdout).unwrap().lines().count(), 300);
}

#[test]
fn a_killed_create_leaves_no_image_or_a_complete_one() {
    let test = CreateTest::new();
    let mut rng = Rng::new(2);
    for round in 0..24 {
        let all = test.archive.len();
        let bytes = if round % 3 == 0 { all } else { rng.index(all) };
        let words: &[&str] = if round % 2 == 0 { &["--size", "64m"] } else { &[] };
        let (ended, message) = test.stop(words, bytes, Signal::KILL);
        match ended {
            Err(_) if !test.image().exists() => assert!(test.names().is_empty(), "{:?}", test.names()),
            Err(_) | Ok(0) => {
                assert_eq!(test.names(), ["made.xfs"]);
                assert_complete(&test.image());
                fs::remove_file(test.image()).unwrap();
            }
            Ok(code) => panic!("round {round}: {code}: {message}"),
        }
    }
}

#[test]
fn an_interrupted_create_keeps_the_old_file() {
    let test = CreateTest::new();
    let mut rng = Rng::new(3);
    fs::write(test.image(), b"old").unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::INT] {
        let bytes = test.archive.len() / 2 + rng.index(test.archive.len() / 4);
        let (ended, message) = test.stop(&["--size", "64m", "--force"], bytes, signal);
        assert_eq!(ended, Ok(128 + signal.as_raw()), "{message}");
        assert!(message.contains("made.xfs: interrupted, not created"), "{message}");
        assert_eq!(test.names(), ["made.xfs"]);
        assert_eq!(fs::read(test.image()).unwrap(), b"old");
    }
}

/// A command without the capability of root to read any file.
fn without_rights() -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        return Some(needs::own(env!("CARGO_BIN_EXE_xebec")));
    }
    needs::met(needs::tools(&["setpriv"]))?;
    let mut command = needs::command("setpriv");
    command.args(["--bounding-set", "-dac_override,-dac_read_search", env!("CARGO_BIN_EXE_xebec")]);
    Some(command)
}

#[test]
fn create_names_an_unreadable_file() {
    let test = CreateTest::new();
    let tree = test.folder.path().join("tree");
    fs::create_dir_all(tree.join("etc/private")).unwrap();
    fs::write(tree.join("etc/motd"), b"read me").unwrap();
    fs::write(tree.join("etc/shadow"), b"do not read me").unwrap();
    let read_at = fs::metadata(tree.join("etc/motd")).unwrap().atime();
    for (path, doing) in [("etc/shadow", "open it"), ("etc/private", "open it")] {
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o000)).unwrap();
        let Some(mut create) = without_rights() else { return };
        let output = create.arg("create").arg(test.image()).arg("--from").arg(&tree).output().unwrap();
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o755)).unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        let (path, doing) = (format!("{path}\""), format!("cannot {doing}: Permission denied"));
        assert!(
            message.contains(&path) && message.contains(&doing) && message.contains("run this as a user"),
            "{message}"
        );
        assert!(test.names().is_empty());
    }
    assert_eq!(fs::metadata(tree.join("etc/motd")).unwrap().atime(), read_at);
}

#[test]
fn ignore_unreadable_skips_files_of_the_host() {
    let test = CreateTest::new();
    let tree = test.folder.path().join("tree");
    fs::create_dir_all(tree.join("private")).unwrap();
    for name in ["motd", "private/key", "shadow", "twice"] {
        fs::write(tree.join(name), name).unwrap();
    }
    fs::hard_link(tree.join("twice"), tree.join("again")).unwrap();
    let forbid = |mode| {
        for path in ["shadow", "private", "twice"] {
            fs::set_permissions(tree.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let image = test.image().display().to_string();
    let tree_path = tree.display().to_string();
    let run = |arguments: &[&str], unreadable: usize| {
        forbid(0o000);
        let Some(mut command) = without_rights() else { return false };
        let output = command.args(arguments).arg("--ignore-unreadable").output().unwrap();
        forbid(0o755);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{message}");
        assert_eq!(message.matches(": skipped").count(), unreadable, "{message}");
        assert!(
            message.contains(&format!("{unreadable} files could not be read and were skipped")),
            "{message}"
        );
        assert!(message.contains("shadow") && message.contains("private"), "{message}");
        true
    };
    let names = || {
        let output = xebec().arg("find").arg(&image).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    if !run(&["create", &image, "--from", &tree_path], 4) {
        return;
    }
    assert_eq!(names(), "/\n/motd\n");
    // Copies of unreadable files in the volume are kept.
    xebec().args(["sync", &tree_path, &image]).assert().success();
    fs::write(tree.join("shadow"), "changed").unwrap();
    fs::write(tree.join("motd"), "changed").unwrap();
    // Files of the same size and times are not read.
    run(&["sync", &tree_path, &image], 2);
    let cat = |path: &str| xebec().arg("cat").arg(&image).arg(path).output().unwrap().stdout;
    assert_eq!(
        ["/motd", "/shadow", "/private/key", "/again"]
            .map(cat)
            .map(|bytes| String::from_utf8(bytes).unwrap()),
        ["changed", "shadow", "private/key", "twice"]
    );
    run(&["cp", "-rT", &tree_path, &format!("{image}:/")], 4);
    assert_eq!(cat("/shadow"), b"shadow");
    run(&["cp", "-r", &tree_path, &format!("{image}:/new")], 4);
    let shown = names();
    assert_eq!(shown.matches("/new").count(), 2, "{shown}");
    xebec().arg("check").arg(&image).assert().success();
}

/// Regression: `tar-in` kept the part of a file before the end of a truncated archive.
#[test]
fn tar_in_keeps_no_part_of_a_truncated_member() {
    let test = CreateTest::new();
    let image = &test.image();
    xebec().args(["mkfs", "--size", "64m"]).arg(image).assert().success();
    let mut builder = tar::Builder::new(Vec::new());
    for (name, size) in [("first", 3), ("large", 3_000_000), ("last", 3)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &vec![b'x'; size as usize][..]).unwrap();
    }
    let archive = test.folder.path().join("cut.tar");
    fs::write(&archive, &builder.into_inner().unwrap()[..2_500_000]).unwrap();
    let names = |options: &[&str], code: i32| {
        let mut command = xebec();
        let output = command.arg("tar-in").arg(image).arg(&archive).args(options).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains("cut.tar") && message.contains("skipped") == (code == 0), "{message}");
        String::from_utf8(xebec().arg("find").arg(image).output().unwrap().stdout).unwrap()
    };
    assert_eq!(names(&[], 1), "/\n/first\n");
    assert_eq!(names(&["--ignore-unreadable"], 0), "/\n/first\n");
    xebec().arg("check").arg(image).assert().success();
}
