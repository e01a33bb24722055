//! Images that another program uses: they are not changed or replaced, and read with a warning.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use block::{FileDevice, OpenOptions, find_lock_holder};
use samples::Sample;

use crate::{Scene, stderr, xebec};

const WRITER: &str = "another program has it open for writing";

fn writer(path: &Path) -> FileDevice {
    FileDevice::open(path, &OpenOptions { writable: true, ..OpenOptions::default() }).unwrap()
}

/// Closes the file of a writer, and waits until its locks are released. A process that another test is starting has a
/// copy of all open descriptors between `fork` and `exec`, and each copy keeps the locks.
fn release(writer: FileDevice, path: &Path) {
    drop(writer);
    while find_lock_holder(path).is_some() {
        std::thread::yield_now();
    }
}

/// Regression: `create --force` and `clone --force` did not lock the target: a mounted image was replaced, and later
/// writes were lost.
#[test]
fn a_locked_image_is_not_changed_or_replaced() {
    let scene = Scene::new(Sample::Clean);
    let image = scene.image().to_owned();
    let named = image.display().to_string();
    let (other, tree, tar) = (scene.beside("other"), scene.beside("tree"), scene.beside("held.tar"));
    std::fs::copy(&image, &other).unwrap();
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(&tar, b"somebody's").unwrap();
    let [other, tree, archive] = [&other, &tree, &tar].map(|path| path.display().to_string());
    let before = std::fs::read(&image).unwrap();
    let (writer_of_image, _writer_of_tar) = (writer(&image), writer(&tar));
    for words in [
        &["create", "--force", &named, "--from", &tree][..],
        &["create", "--force", "--format", "qcow2", &named, "--from", &tree],
        &["clone", "--force", &other, &named],
        &["clone", &named, "copy"],
        &["mkfs", "--force", &named],
        &["mkfs", "--force", "--size", "100m", &named],
        &["sync", &tree, &named],
        &["touch", &named, "/new"],
        &["grow", &named, "+10m"],
        &["replay", &named],
        &["extract", &other, "--to", &archive, "--overwrite"],
    ] {
        let message = stderr(&mut xebec_in(&tree, words));
        assert!(message.contains(WRITER), "{words:?}: {message}");
        xebec_in(&tree, words).assert().code(1);
    }
    assert!(before == std::fs::read(&image).unwrap() && std::fs::read(&tar).unwrap() == b"somebody's");
    assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 0);
    release(writer_of_image, &image);
    xebec_in(&tree, &["clone", "--force", &other, &named]).assert().success();
    for format in ["raw", "qcow2"] {
        let words = ["create", "--force", "--format", format, &named, "--from", &tree];
        xebec_in(&tree, &words).assert().success();
    }
}

fn xebec_in(folder: &str, words: &[&str]) -> assert_cmd::Command {
    let mut command = xebec();
    command.current_dir(folder).args(words);
    command
}

/// As root, `create --force /dev/null` would replace the device. The test uses a directory and a FIFO.
#[test]
fn force_replaces_only_regular_files() {
    let scene = Scene::new(Sample::Clean);
    let fifo = scene.beside("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let (fifo, folder) = (fifo.display().to_string(), scene.beside("").display().to_string());
    for target in [&fifo, &folder] {
        let clone = stderr(&mut scene.xebec("clone", &["--force", target]));
        let create = stderr(xebec().args(["create", "--force", target, "--from", &folder]));
        assert!(
            clone.contains("not a regular file") && create.contains("not a regular file"),
            "{clone}{create}"
        );
    }
    assert!(!std::fs::metadata(fifo).unwrap().is_file());
}

/// Regression: the file was truncated before the layout was refused.
#[test]
fn a_refused_mkfs_does_not_change_the_file() {
    let scene = Scene::new(Sample::Clean);
    let before = std::fs::read(scene.image()).unwrap();
    for words in [
        &["--size", "8m"][..],
        &["--size", "20m", "-L", "a label that is too long"],
        &["--size", "100m", "-d", "agcount=100"],
        &["--size", "300m", "--for", "linux-5.4", "-n", "parent=1"],
        &["-p", "/there/is/no/such/directory"],
    ] {
        let output = scene.xebec("mkfs", words).arg("-f").assert().failure().get_output().clone();
        assert!(before == std::fs::read(scene.image()).unwrap(), "{words:?}: {output:?}");
    }
    scene.xebec("mkfs", &["-f", "--size", "20m"]).assert().success();
    assert_eq!(std::fs::metadata(scene.image()).unwrap().len(), 20 << 20);
}

#[test]
fn readers_warn_of_a_writer() {
    let scene = Scene::new(Sample::Clean);
    let names = scene.output("ls", &["/"]);
    assert_eq!(stderr(&mut scene.xebec("ls", &["/"])), "");
    let held = writer(scene.image());
    let warned = stderr(&mut scene.xebec("ls", &["/"]));
    assert!(warned.contains("warning") && warned.contains(WRITER) && warned.lines().count() == 1, "{warned}");
    assert_eq!(scene.output("ls", &["/"]), names);
    for command in ["info", "check", "log", "label"] {
        // The warning is not in the document.
        assert_eq!(scene.json(command, &[])["version"], 1, "{command}");
        let warned = stderr(&mut scene.xebec(command, &["--quiet"]));
        assert_eq!(warned.matches(WRITER).count(), 1, "{command}: {warned}");
    }
    release(held, scene.image());
    assert_eq!(stderr(&mut scene.xebec("ls", &["/"])), "");
}

/// Regression: `extract --overwrite` did not wait.
#[test]
fn wait_option_waits_for_the_lock() {
    let scene = Scene::new(Sample::Clean);
    let image = scene.image().display().to_string();
    let archive = scene.beside("old.tar");
    std::fs::write(&archive, "old").unwrap();
    let to = archive.display().to_string();
    wait_for_lock(scene.image(), &["touch", &image, "/new"]);
    assert!(scene.output("ls", &["/"]).contains("new"));
    wait_for_lock(&archive, &["extract", &image, "--to", &to, "--overwrite"]);
    assert!(std::fs::read(&archive).unwrap().len() > 1024);
}

/// Runs a command that waits for the lock of a file, and releases the lock.
fn wait_for_lock(path: &Path, words: &[&str]) {
    let held = writer(path);
    let message = stderr(xebec().args(words).args(["--wait", "0"]));
    assert!(message.contains(WRITER), "{words:?}: {message}");
    let mut command = needs::own(env!("CARGO_BIN_EXE_xebec"));
    command.args(words).args(["--wait", "1000000"]).stderr(Stdio::piped());
    let mut waiting = command.spawn().unwrap();
    // Until it waits for the lock; it must not exit.
    let waits = || {
        let ino = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
        let mut locks = String::new();
        File::open("/proc/locks").and_then(|mut file| file.read_to_string(&mut locks)).unwrap();
        locks.lines().any(|line| line.contains("->") && line.contains(&format!(":{ino} ")))
    };
    while !waits() {
        assert!(waiting.try_wait().unwrap().is_none(), "{words:?}: it did not wait");
        std::thread::yield_now();
    }
    drop(held);
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}
