//! Files that are not images, damaged images, and usage errors: one line each.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;

use samples::Sample;

use crate::{Scene, stderr, xebec};

/// Asserts that a message is one line that begins with the program's name and contains all `parts`.
fn assert_line(message: &str, parts: &[&str]) {
    assert!(message.starts_with("xebec: ") && message.lines().count() == 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn files_that_are_not_xfs_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let stderr_of = |path: &std::path::Path| stderr(xebec().arg("info").arg(path));
    assert_line(&stderr_of(&path), &["disk: cannot open", "No such file"]);
    assert_line(&stderr_of(folder.path()), &["directory"]);
    let file = File::create(&path).unwrap();
    assert_line(
        &stderr_of(&path),
        &["disk: this is ", "not an XFS file system", "(the file has no contents"],
    );
    file.set_len(1 << 20).unwrap();
    assert_line(&stderr_of(&path), &["not an XFS file system"]);
    file.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    assert_line(&stderr_of(&path), &["not an XFS file system (only XFS can be read here)"]);
    xebec().arg("ls").arg(&path).assert().code(1).stdout("");
}

#[test]
fn truncated_images_and_damaged_superblocks_are_refused() {
    let scene = Scene::new(Sample::Clean);
    let image = OpenOptions::new().write(true).open(scene.image()).unwrap();
    image.set_len(32 << 20).unwrap();
    assert_line(
        &stderr(&mut scene.xebec("ls", &[])),
        &["sample.xfs: the image is cut short: the volume needs 67108864 bytes"],
    );
    // features_incompat is at offset 216. The checksum is wrong, too, and is reported first.
    image.write_all_at(&[0x40], 216).unwrap();
    assert_line(&stderr(&mut scene.xebec("ls", &[])), &["superblock"]);
}

#[test]
fn damage_is_reported_with_its_location_and_the_rest_is_shown() {
    let scene = Scene::new(Sample::Clean);
    let ino = scene.json("stat", &["/etc/motd"])["files"][0]["ino"].as_u64().unwrap();
    let image = OpenOptions::new().write(true).open(scene.image()).unwrap();
    let offset = scene.inode_offset("/etc/motd");
    image.write_all_at(b"?", offset + 60).unwrap();
    let output = scene.xebec("ls", &["-l", "/etc"]).assert().code(1).get_output().clone();
    let (text, message) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_line(&message, &["sample.xfs: /etc/motd: ", &format!("inode {ino}"), "run \"xebec check\""]);
    assert!(text.contains("-????????? ") && text.contains(" passwd\n"), "{text}");
    let out = scene.beside("out");
    scene.xebec("extract", &["/etc", "--to", out.to_str().unwrap(), "-q"]).assert().code(1);
    assert!(out.join("passwd").exists() && !out.join("motd").exists());
}

/// The environment variable is read before the command.
#[test]
fn memory_of_the_environment_is_a_size() {
    let scene = Scene::new(Sample::Clean);
    for small in ["16m", "0x1000000", ""] {
        scene.xebec("mkdir", &[&format!("/made-{small}")]).env("XEBEC_MEMORY", small).assert().success();
    }
    let mut refused = scene.xebec("ls", &[]);
    let refused = refused.env("XEBEC_MEMORY", "much").assert().code(2);
    let message = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert_line(&message, &["XEBEC_MEMORY", "`much` is not a size"]);
}

#[test]
fn usage_errors_have_exit_code_2() {
    let scene = Scene::new(Sample::Clean);
    xebec().assert().code(2);
    xebec().args(["ls"]).assert().code(2);
    scene.xebec("ls", &["--time-style", "yesterday"]).assert().code(2);
    scene.xebec("cat", &[]).assert().code(2);
    scene.xebec("stat", &["/no/such/file"]).assert().code(1);
    assert_line(&stderr(&mut scene.xebec("cat", &["/etc"])), &["/etc: ", "is a directory"]);
    assert_line(
        &stderr(&mut scene.xebec("info", &["--log-device", "log"])),
        &["sample.xfs: the volume's log is internal"],
    );
}

#[test]
fn partitions_and_offsets_are_opened() {
    let scene = Scene::new(Sample::Clean);
    let volume = std::fs::read(scene.image()).unwrap();
    let disk = scene.beside("disk");
    let file = File::create(&disk).unwrap();
    file.set_len((1 << 20) + volume.len() as u64).unwrap();
    file.write_all_at(&volume, 1 << 20).unwrap();
    // An MBR with one partition of type Linux from sector 2048.
    let sectors = (volume.len() / 512) as u32;
    let mut entry = [0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0];
    entry[12..].copy_from_slice(&sectors.to_le_bytes());
    file.write_all_at(&entry, 446).unwrap();
    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
    for arguments in [&[][..], &["--partition", "1"], &["--offset", "1m"]] {
        let mut command = xebec();
        command.arg("ls").arg(&disk).args(arguments).assert().success().stdout("dev\netc\nhome\nusr\nvar\n");
    }
    xebec().arg("ls").arg(&disk).args(["--partition", "2"]).assert().code(1);
}

#[test]
fn every_command_has_help_with_examples() {
    let commands = [
        "info",
        "ls",
        "tree",
        "stat",
        "cat",
        "find",
        "extract",
        "check",
        "log",
        "dump",
        "mkfs",
        "manifest",
        "completions",
        "man",
    ];
    for command in commands {
        let output = xebec().args([command, "--help"]).assert().success().get_output().stdout.clone();
        let help = String::from_utf8(output).unwrap();
        assert!(help.contains("Example"), "{help}");
    }
    xebec().args(["completions", "bash"]).assert().success();
    let page = xebec().args(["man", "extract"]).assert().success().get_output().stdout.clone();
    assert!(String::from_utf8(page).unwrap().contains(".TH"));
    let folder = tempfile::tempdir().unwrap();
    xebec().args(["man", "--to"]).arg(folder.path()).assert().success();
    assert!(folder.path().join("xebec-extract.1").exists());
}
