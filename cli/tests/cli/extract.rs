//! Extraction to directories and archives.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use samples::Sample;

use crate::{Scene, stderr};

/// Without root, device nodes cannot be created, which is a failure.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn extract_to_a_directory_preserves_metadata() {
    let scene = Scene::new(Sample::Clean);
    let out = scene.beside("out");
    let result = scene.xebec("extract", &["--to", out.to_str().unwrap()]).output().unwrap();
    let message = String::from_utf8(result.stderr).unwrap();
    if is_root() {
        assert_eq!(result.status.code(), Some(0), "{message}");
    } else {
        assert_eq!(result.status.code(), Some(1), "{message}");
        assert!(message.contains("dev/null: cannot create the device: requires root"), "{message}");
        assert!(message.contains("owners (requires root)"), "{message}");
    }
    let at = |name: &str| out.join(name).symlink_metadata().unwrap();
    assert_eq!(fs::read_link(out.join("home/welcome")).unwrap(), Path::new("../etc/motd"));
    assert_eq!((at("home/welcome").mtime(), at("etc/motd").mtime_nsec()), (-2_147_483_647, 123_456_789));
    assert_eq!(at("home/ada/notes.txt").mode() & 0o7777, 0o664);
    assert!(at("dev/pipe").file_type().is_fifo());
    assert_eq!(at("var/log/messages").ino(), at("var/log/messages.link").ino());
    let sparse = at("home/grace/sparse");
    assert_eq!(sparse.len(), (8 << 20) + 4);
    assert!(sparse.blocks() * 512 < 1 << 20, "the hole was filled: {} blocks", sparse.blocks());
    let messages = fs::read(out.join("home/grace/messages.copy")).unwrap();
    assert!(messages == fs::read(out.join("var/log/messages")).unwrap() && messages.len() == 66_000);
    assert_eq!(fs::read_dir(out.join("usr/share/doc")).unwrap().count(), 300);
    if is_root() {
        assert_eq!((at("home/ada/notes.txt").uid(), at("dev/null").rdev()), (1000, 0x103));
    }
}

#[test]
fn existing_files_are_kept_without_overwrite() {
    let scene = Scene::new(Sample::Clean);
    let (out, elsewhere) = (scene.beside("out"), scene.beside("elsewhere"));
    fs::create_dir_all(out.join("log")).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("precious"), "precious").unwrap();
    // Existing links are not followed.
    std::os::unix::fs::symlink(elsewhere.join("precious"), out.join("motd")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, out.join("doc")).unwrap();
    let to = out.to_str().unwrap();
    let refused = stderr(scene.xebec("extract", &["/etc", "--to", to]).arg("-q"));
    assert!(
        refused.contains("motd: cannot create the file: already exists (--overwrite replaces it)"),
        "{refused}"
    );
    assert!(out.join("passwd").exists(), "the others are extracted all the same");
    scene.xebec("extract", &["/etc", "--to", to, "--overwrite"]).assert().success();
    scene.xebec("extract", &["/usr/share", "--to", to, "--overwrite"]).assert().success();
    assert!(out.join("motd").symlink_metadata().unwrap().is_file());
    assert!(out.join("doc").symlink_metadata().unwrap().is_dir());
    assert_eq!(fs::read(elsewhere.join("precious")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

/// Regression: in a set-GID directory, a file of the process's group kept the group of the directory.
#[test]
fn files_do_not_inherit_the_group_of_a_set_gid_directory() {
    if !is_root() {
        return;
    }
    let scene = Scene::new(Sample::Clean);
    let out = scene.beside("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::chown(&out, None, Some(4711)).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o2777)).unwrap();
    scene.xebec("extract", &["--to", out.to_str().unwrap()]).assert().success();
    let group = |name: &str| out.join(name).symlink_metadata().unwrap().gid();
    let names = ["etc", "etc/motd", "home/welcome", "dev/pipe", "dev/null", "var/log/messages", "."];
    assert_eq!(names.map(group), [0; 7]);
    assert_eq!((group("home/ada/notes.txt"), out.metadata().unwrap().mode() & 0o7777), (1000, 0o755));
}

/// Regression: hints were lost silently. If the host's file system does not support them, that is reported.
#[test]
fn extent_size_hints_are_preserved_or_reported() {
    let scene = Scene::new(Sample::Clean);
    scene.xebec("extsize", &["1m", "/home/ada"]).assert().success();
    let out = scene.beside("out");
    let summary =
        scene.xebec("extract", &["/home", "--to", out.to_str().unwrap(), "--json"]).output().unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&summary.stdout).unwrap();
    let lost = summary["not_kept"].as_object().unwrap();
    let told = lost.iter().find(|(what, _)| what.starts_with("extent size hints"));
    let kept = block::fsxattr::get(fs::File::open(out.join("ada")).unwrap()).map(|found| found.extsize);
    match kept {
        Ok(size) if size == 1 << 20 => assert_eq!(told, None),
        other => assert_eq!(told.map(|(_, count)| count.as_u64()), Some(Some(1)), "{other:?}: {lost:?}"),
    }
}

/// Regression: if items of the log could not be replayed, extraction only warned and exited with 0, although any file
/// may lack its newest changes.
#[test]
fn a_partly_replayed_log_is_a_failure() {
    let scene = Scene::new(Sample::Dirty);
    // Inode 153, which the log changes, is damaged; no extracted file is.
    let image = fs::OpenOptions::new().write(true).open(scene.image()).unwrap();
    image.write_all_at(&[0; 2], 0x80 * 512 + 12800).unwrap();
    let (out, archive) = (scene.beside("out"), scene.beside("etc.tar"));
    let mut from = scene.image().as_os_str().to_owned();
    from.push(":/etc");
    let mut copy = crate::xebec();
    copy.args(["cp", "-r"]).arg(from).arg(scene.beside("copy"));
    let commands = [
        scene.xebec("extract", &["/etc", "--to", out.to_str().unwrap()]),
        scene.xebec("extract", &["/etc", "--to", archive.to_str().unwrap()]),
        scene.xebec("tar-out", &["/etc"]),
        copy,
    ];
    for mut command in commands {
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("replayed partially"), "{message}");
    }
    assert!(out.join("passwd").exists() && archive.exists(), "what there is, is there");
}

#[test]
fn a_single_file_is_extracted_into_the_directory() {
    let scene = Scene::new(Sample::Clean);
    let out = scene.beside("out");
    scene.xebec("extract", &["/etc/motd", "--to", out.to_str().unwrap()]).assert().success();
    assert!(fs::read_to_string(out.join("motd")).unwrap().starts_with("Welcome."));
}

#[test]
fn exclude_skips_files_in_directories_and_archives() {
    let scene = Scene::new(Sample::Clean);
    let list = scene.beside("patterns");
    fs::write(&list, "# comment\n/dev/\n/usr\n*.txt\n").unwrap();
    let (out, archive) = (scene.beside("out"), scene.beside("out.tar"));
    let patterns = [
        "--exclude-from",
        list.to_str().unwrap(),
        "--exclude",
        "!notes.txt",
        "--exclude",
        "var/log/messages",
    ];
    let into = |to: &Path| {
        let arguments = [&["--to", to.to_str().unwrap()], &patterns[..]].concat();
        scene.xebec("extract", &arguments).assert().success();
    };
    into(&out);
    into(&archive);
    let stream = scene.xebec("tar-out", &patterns).output().unwrap().stdout;
    assert!(stream == fs::read(&archive).unwrap());
    let mut archive = tar::Archive::new(&stream[..]);
    let members: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|member| member.unwrap().path().unwrap().display().to_string())
        .collect();
    for (path, is_there) in [
        ("etc/motd", true),
        ("home/ada/notes.txt", true),
        ("dev", false),
        ("usr", false),
        ("var/log/messages", false),
        // The first name that is not excluded has the contents.
        ("var/log/messages.link", true),
    ] {
        assert_eq!(out.join(path).symlink_metadata().is_ok(), is_there, "{path}");
        assert_eq!(members.iter().any(|member| member.trim_end_matches('/') == path), is_there, "{path}");
    }
    assert_eq!(out.join("var/log/messages.link").metadata().unwrap().len(), 66_000);
    // Patterns are relative to the extracted directory.
    let log = scene.beside("log");
    scene.xebec("extract", &["/var", "--to", log.to_str().unwrap(), "--exclude", "/log"]).assert().success();
    assert!(!log.join("log").exists());
    let refused = stderr(&mut scene.xebec("tar-out", &["--exclude", "a[b"]));
    assert!(refused.contains("--exclude: `a[b`"), "{refused}");
}

#[test]
fn exclude_skips_a_damaged_file() {
    let scene = Scene::new(Sample::Clean);
    let image = fs::OpenOptions::new().write(true).open(scene.image()).unwrap();
    image.write_all_at(&[0; 2], scene.inode_offset("/etc/motd")).unwrap();
    let out = scene.beside("out");
    let arguments = ["/etc", "--to", out.to_str().unwrap(), "--overwrite"];
    scene.xebec("extract", &arguments).assert().code(1);
    scene.xebec("extract", &[&arguments[..], &["--exclude", "motd"]].concat()).assert().success();
    scene.xebec("tar-out", &["/etc"]).assert().code(1);
    scene.xebec("tar-out", &["/etc", "--exclude", "/motd"]).assert().success();
}

#[test]
fn ignore_unreadable_skips_damaged_files() {
    let scene = Scene::new(Sample::Clean);
    let image = fs::OpenOptions::new().write(true).open(scene.image()).unwrap();
    image.write_all_at(&[0; 2], scene.inode_offset("/etc/motd")).unwrap();
    image.write_all_at(&[0; 2], scene.inode_offset("/var/log")).unwrap();
    let (out, copy) = (scene.beside("out"), scene.beside("copy"));
    let arguments = ["--to", out.to_str().unwrap(), "--ignore-unreadable", "--json"];
    let output = scene.xebec("extract", &arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["unreadable"], 2, "{message}");
    assert!(message.contains("2 files could not be read and were skipped"), "{message}");
    let lines = message.lines().filter(|line| line.contains("warning") && line.contains(": skipped")).count();
    assert_eq!(lines, 2, "{message}");
    if is_root() {
        assert_eq!((output.status.code(), &summary["failures"]), (Some(0), &0.into()), "{message}");
    }
    scene.xebec("tar-out", &["--ignore-unreadable"]).assert().success();
    scene.xebec("tar-out", &[]).assert().code(1);
    let mut from = scene.image().as_os_str().to_owned();
    from.push(":/etc");
    crate::xebec().args(["cp", "-r", "--ignore-unreadable"]).arg(&from).arg(&copy).assert().success();
    crate::xebec().args(["cp", "-rT"]).arg(&from).arg(&copy).assert().code(1);
    for (root, etc) in [(&out, "etc"), (&copy, "")] {
        assert!(root.join(etc).join("passwd").exists());
        assert!(!root.join(etc).join("motd").exists());
    }
    assert!(!out.join("var/log").exists());
}

/// Regression: a read error within a file left a partial file in a directory, and zeros in an archive.
#[test]
fn ignore_unreadable_keeps_no_partial_files() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("disk.qcow2"));
    fs::create_dir(&tree).unwrap();
    let mut rng = model::Rng::new(15);
    for (name, size) in [("first", 12_000_000), ("large", 9_000_000), ("small", 200_000)] {
        fs::write(tree.join(name), rng.bytes(size)).unwrap();
    }
    fs::hard_link(tree.join("large"), tree.join("name")).unwrap();
    crate::xebec()
        .arg("create")
        .arg(&image)
        .args(["--format", "qcow2", "--from"])
        .arg(&tree)
        .assert()
        .success();
    // The end of the image holds the end of the second file and all of the third.
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1_000_000).unwrap();
    let run = |arguments: &[&str], code: i32, unreadable: usize| {
        let mut command = crate::xebec();
        let output = command.args(arguments).current_dir(folder.path()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert_eq!(message.matches(": skipped").count(), unreadable, "{arguments:?}: {message}");
        output.stdout
    };
    let names = |path: &str| {
        let entries = fs::read_dir(folder.path().join(path)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let option = "--ignore-unreadable";
    run(&["extract", "disk.qcow2", "--to", "half"], 1, 0);
    assert_eq!(names("half"), ["first", "large", "name", "small"]);
    run(&["extract", "disk.qcow2", "--to", "out", option], 0, 3);
    assert_eq!(names("out"), ["first"]);
    run(&["cp", "-a", "disk.qcow2:/", "copy", option], 0, 3);
    assert_eq!(names("copy"), ["first"]);
    // An existing file is not truncated for an unreadable source.
    fs::write(folder.path().join("copy/large"), "mine").unwrap();
    run(&["cp", "-rT", "disk.qcow2:/", "copy", option], 0, 3);
    assert_eq!(fs::read(folder.path().join("copy/large")).unwrap(), b"mine");
    run(&["tar-out", "disk.qcow2"], 1, 0);
    let stream = run(&["tar-out", "disk.qcow2", option], 0, 3);
    let mut archive = tar::Archive::new(&stream[..]);
    let members =
        archive.entries().unwrap().map(|member| member.unwrap().path().unwrap().display().to_string());
    assert_eq!(members.collect::<Vec<_>>(), ["./", "first"]);
}

/// Regression: `--to x.tar.gz` created a directory of that name.
#[test]
fn archives_are_compressed_by_their_suffix() {
    let scene = Scene::new(Sample::Clean);
    let plain = scene.xebec("tar-out", &["/usr"]).output().unwrap().stdout;
    for (command, name, magic) in [
        ("extract", "x.tar", &b""[..]),
        ("extract", "x.tar.gz", b"\x1f\x8b"),
        ("tar-out", "y.tgz", b"\x1f\x8b"),
        ("extract", "x.zst", b"\x28\xb5\x2f\xfd"),
        ("tar-out", "x.tar.zst", b"\x28\xb5\x2f\xfd"),
        ("extract", "x.xz", b"\xfd7zXZ"),
        ("extract", "x.tar.bz2", b"BZh9"),
    ] {
        let path = scene.beside(name);
        let to = ["/usr", "--to", path.to_str().unwrap()];
        scene.xebec(command, &to).assert().success();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(magic), "{name}");
        // `create` reads it, verifies it, and gives the same files.
        let image = scene.beside("again.xfs");
        crate::xebec().args(["create", "--force"]).arg(&image).arg("--from").arg(&path).assert().success();
        let again = crate::xebec().arg("tar-out").arg(&image).output().unwrap().stdout;
        assert!(again == plain, "{name}");
        let refused = stderr(&mut scene.xebec(command, &to));
        assert!(refused.contains("--overwrite"), "{refused}");
        scene.xebec(command, &[&to[..], &["--overwrite"]].concat()).assert().success();
        assert!(fs::read(&path).unwrap() == bytes, "{name}: what is written is always the same");
    }
    fs::create_dir(scene.beside("dir.tar.gz")).unwrap();
    scene
        .xebec("extract", &["/etc", "--to", scene.beside("dir.tar.gz").to_str().unwrap()])
        .assert()
        .success();
    assert!(scene.beside("dir.tar.gz/passwd").exists());
    let refused = stderr(scene.xebec("tar-out", &["--to", "x.zip"]).current_dir(scene.beside("")));
    assert!(refused.contains(".tar.gz") && !scene.beside("x.zip").exists(), "{refused}");
    let stream = scene.xebec("extract", &["/usr", "--to", "-"]).output().unwrap().stdout;
    assert!(stream == plain);
}

/// A member of an archive.
#[derive(Debug, Default)]
struct Member {
    kind: Option<tar::EntryType>,
    link: Option<String>,
    records: BTreeMap<String, Vec<u8>>,
    contents: Vec<u8>,
    mode: u32,
    uid: u64,
}

fn members(archive: &[u8]) -> BTreeMap<Vec<u8>, Member> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut member = Member { kind: Some(entry.header().entry_type()), ..Member::default() };
        for record in entry.pax_extensions().unwrap().into_iter().flatten() {
            let record = record.unwrap();
            member.records.insert(record.key().unwrap().into(), record.value_bytes().to_vec());
        }
        member.link = entry.link_name().unwrap().map(|link| link.to_str().unwrap().to_owned());
        (member.mode, member.uid) = (entry.header().mode().unwrap(), entry.header().uid().unwrap());
        entry.read_to_end(&mut member.contents).unwrap();
        let name = member.records.get("GNU.sparse.name").cloned().unwrap_or(entry.path_bytes().into_owned());
        assert!(found.insert(name, member).is_none());
    }
    found
}

#[test]
fn extract_to_an_archive_preserves_metadata() {
    let scene = Scene::new(Sample::Clean);
    let archive = scene.xebec("extract", &["--to", "-"]).assert().success().get_output().stdout.clone();
    assert_eq!(archive.len() % 10240, 0);
    let members = members(&archive);
    let at = |name: &str| &members[name.as_bytes()];
    assert_eq!(members.len() + 1, scene.output("find", &["-print0"]).split('\0').count());
    assert_eq!(at("etc/motd").records["mtime"], b"13574606400.123456789");
    assert_eq!(at("etc/motd").contents, b"Welcome. This volume was read without the kernel.\n");
    assert_eq!(at("home/welcome").link.as_deref(), Some("../etc/motd"));
    assert_eq!(at("home/welcome").records["mtime"], b"-2147483647.000000000");
    let notes = at("home/ada/notes.txt");
    assert_eq!((notes.mode, notes.uid), (0o664, 1000));
    assert_eq!(notes.records["SCHILY.xattr.user.origin"], b"written by hand");
    assert!(notes.records.contains_key("SCHILY.xattr.system.posix_acl_access"));
    let names = ["var/log/messages", "var/log/messages.link"].map(at);
    let links: Vec<_> = names.iter().filter(|m| m.kind == Some(tar::EntryType::Link)).collect();
    assert_eq!(links.len(), 1);
    let sparse = at("home/grace/sparse");
    assert_eq!(sparse.records["GNU.sparse.realsize"], b"8388612");
    assert!(sparse.contents.starts_with(b"2\n0\n4096\n8388608\n4\n"));
    assert!(sparse.contents.ends_with(b"tail") && sparse.contents.len() == 512 + 4096 + 4);
    assert_eq!(at("dev/null").kind, Some(tar::EntryType::Char));
    assert!(members.contains_key(&b"home/grace/caf\xe9"[..]));
    assert!(members.contains_key(&b"./"[..]) && members.contains_key(&b"usr/share/doc/"[..]));
}

#[test]
fn archives_are_independent_of_the_number_of_threads() {
    let scene = Scene::new(Sample::Clean);
    let archive =
        |threads: &str| scene.xebec("extract", &["--to", "-", "--threads", threads]).output().unwrap().stdout;
    let one = archive("1");
    assert!(one == archive("2") && one == archive("9"));
}

#[test]
fn an_archive_file_is_replaced_atomically() {
    let scene = Scene::new(Sample::Clean);
    let file = scene.beside("sample.tar");
    let to = file.to_str().unwrap();
    let summary = scene.json("extract", &["/usr", "--to", to]);
    assert_eq!((summary["files"].as_u64(), summary["failures"].as_u64()), (Some(303), Some(0)));
    assert!(stderr(&mut scene.xebec("extract", &["/etc", "--to", to])).contains("already exists"));
    scene.xebec("extract", &["/etc", "--to", to, "--overwrite"]).assert().success();
    assert!(members(&fs::read(&file).unwrap()).contains_key(&b"motd"[..]));
    let beside = fs::read_dir(file.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 2, "nothing but the image and the archive");
}

/// The error of a target that cannot be created began with its path twice.
#[test]
fn target_that_cannot_be_created_is_named_once() {
    let scene = Scene::new(Sample::Clean);
    for target in ["missing/out", "missing/out.tar"] {
        let out = scene.beside(target);
        let result = scene.xebec("extract", &["--to", out.to_str().unwrap()]).output().unwrap();
        assert_eq!(result.status.code(), Some(1));
        let message = String::from_utf8(result.stderr).unwrap();
        assert_eq!(message.matches("missing/out").count(), 1, "{message}");
    }
}

/// With `--overwrite` the archive replaced the image that it was extracted from.
#[test]
fn an_archive_does_not_replace_its_own_image() {
    let scene = Scene::new(Sample::Clean);
    let image = scene.beside("disk.tar");
    fs::copy(scene.image(), &image).unwrap();
    let before = fs::read(&image).unwrap();
    let mut extract = crate::xebec();
    extract.arg("extract").arg(&image).arg("--to").arg(&image).arg("--overwrite");
    assert!(stderr(&mut extract).contains("would replace the image"));
    assert!(fs::read(&image).unwrap() == before);
}
