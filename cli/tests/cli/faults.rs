//! What happens while an image is made: it is killed or interrupted, or its source cannot be read. Then the name has
//! what it had before, nothing lies beside it, and the message says what to do.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use model::Rng;
use rustix::process::{Pid, Signal, kill_process};

use crate::xebec;

/// A folder in which an image is made, of an archive beside it.
struct Making {
    folder: tempfile::TempDir,
    archive: Vec<u8>,
}

impl Making {
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

    /// Names beside the image.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("images")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn create(&self, words: &[&str]) -> Child {
        let mut create = needs::own(env!("CARGO_BIN_EXE_xebec"));
        create.arg("create").arg(self.image()).args(["--from", "-", "--quiet"]).args(words);
        create.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Begins, and sends a signal when so many bytes of the archive were taken: at the end when that is all of them.
    /// Gives the exit code, or the signal that it died of, and what it said.
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

fn assert_whole(image: &Path) {
    super::xebec().arg("check").arg(image).assert().success();
    let shown = super::xebec().args(["find"]).arg(image).args(["/", "-type", "f"]).output().unwrap();
    assert_eq!(String::from_utf8(shown.stdout).unwrap().lines().count(), 300);
}

/// Wherever it is killed, and also when it is done nearly, or already.
#[test]
fn what_is_killed_leaves_nothing_or_all() {
    let making = Making::new();
    let mut rng = Rng::new(2);
    for round in 0..24 {
        let all = making.archive.len();
        let bytes = if round % 3 == 0 { all } else { rng.index(all) };
        let words: &[&str] = if round % 2 == 0 { &["--size", "64m"] } else { &[] };
        let (ended, said) = making.stop(words, bytes, Signal::KILL);
        match ended {
            Err(_) if !making.image().exists() => assert!(making.names().is_empty(), "{:?}", making.names()),
            Err(_) | Ok(0) => {
                assert_eq!(making.names(), ["made.xfs"]);
                assert_whole(&making.image());
                fs::remove_file(making.image()).unwrap();
            }
            Ok(code) => panic!("round {round}: {code}: {said}"),
        }
    }
}

#[test]
fn what_is_interrupted_says_so_and_leaves_what_there_was() {
    let making = Making::new();
    let mut rng = Rng::new(3);
    fs::write(making.image(), b"old").unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::INT] {
        let bytes = making.archive.len() / 2 + rng.index(making.archive.len() / 4);
        let (ended, said) = making.stop(&["--size", "64m", "--force"], bytes, signal);
        assert_eq!(ended, Ok(128 + signal.as_raw()), "{said}");
        assert!(said.contains("made.xfs: interrupted, not created"), "{said}");
        assert_eq!(making.names(), ["made.xfs"]);
        assert_eq!(fs::read(making.image()).unwrap(), b"old");
    }
}

/// A command without the right to read what its owner has forbidden, which root has.
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
fn what_cannot_be_read_is_named() {
    let making = Making::new();
    let tree = making.folder.path().join("tree");
    fs::create_dir_all(tree.join("etc/private")).unwrap();
    fs::write(tree.join("etc/motd"), b"read me").unwrap();
    fs::write(tree.join("etc/shadow"), b"do not read me").unwrap();
    let read_at = fs::metadata(tree.join("etc/motd")).unwrap().atime();
    for (path, doing) in [("etc/shadow", "open it"), ("etc/private", "open it")] {
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o000)).unwrap();
        let Some(mut create) = without_rights() else { return };
        let output = create.arg("create").arg(making.image()).arg("--from").arg(&tree).output().unwrap();
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o755)).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let (path, doing) = (format!("{path}\""), format!("cannot {doing}: Permission denied"));
        assert!(said.contains(&path) && said.contains(&doing) && said.contains("run it as a user"), "{said}");
        assert!(making.names().is_empty());
    }
    assert_eq!(fs::metadata(tree.join("etc/motd")).unwrap().atime(), read_at);
}

/// One file that nobody may read ended everything.
#[test]
fn what_cannot_be_read_can_be_left_out() {
    let making = Making::new();
    let tree = making.folder.path().join("tree");
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
    let image = making.image().display().to_string();
    let tree_path = tree.display().to_string();
    let run = |arguments: &[&str], unreadable: usize| {
        forbid(0o000);
        let Some(mut command) = without_rights() else { return false };
        let output = command.args(arguments).arg("--ignore-unreadable").output().unwrap();
        forbid(0o755);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said.matches(": skipped").count(), unreadable, "{said}");
        assert!(said.contains(&format!("{unreadable} files could not be read and were skipped")), "{said}");
        assert!(said.contains("shadow") && said.contains("private"), "{said}");
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
    // What the volume has of it stays.
    xebec().args(["sync", &tree_path, &image]).assert().success();
    fs::write(tree.join("shadow"), "changed").unwrap();
    fs::write(tree.join("motd"), "changed").unwrap();
    // What is equal by its size and its times needs not be read.
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

/// `tar-in` left what had come of a file when the archive broke off.
#[test]
fn nothing_is_left_of_a_member_that_breaks_off() {
    let making = Making::new();
    let image = &making.image();
    xebec().args(["mkfs", "--size", "64m"]).arg(image).assert().success();
    let mut builder = tar::Builder::new(Vec::new());
    for (name, size) in [("first", 3), ("large", 3_000_000), ("last", 3)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &vec![b'x'; size as usize][..]).unwrap();
    }
    let archive = making.folder.path().join("cut.tar");
    fs::write(&archive, &builder.into_inner().unwrap()[..2_500_000]).unwrap();
    let names = |options: &[&str], code: i32| {
        let mut command = xebec();
        let output = command.arg("tar-in").arg(image).arg(&archive).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("cut.tar") && said.contains("skipped") == (code == 0), "{said}");
        String::from_utf8(xebec().arg("find").arg(image).output().unwrap().stdout).unwrap()
    };
    assert_eq!(names(&[], 1), "/\n/first\n");
    assert_eq!(names(&["--ignore-unreadable"], 0), "/\n/first\n");
    xebec().arg("check").arg(image).assert().success();
}
