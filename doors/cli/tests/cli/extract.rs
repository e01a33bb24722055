//! Files taken out, into directories and archives.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use samples::Sample;

use crate::{Scene, stderr};

/// An ordinary user cannot make devices: that is said, and is a failure. Root can.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_directory_gets_everything_with_its_metadata() {
    let scene = Scene::new(Sample::Clean);
    let out = scene.beside("out");
    let result = scene.xebec("extract", &["--to", out.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(result.stderr).unwrap();
    if is_root() {
        assert_eq!(result.status.code(), Some(0), "{said}");
    } else {
        assert_eq!(result.status.code(), Some(1), "{said}");
        assert!(said.contains("dev/null: cannot make the device: that takes root"), "{said}");
        assert!(said.contains("owners (that takes root)"), "{said}");
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
fn what_exists_is_kept_unless_told_otherwise() {
    let scene = Scene::new(Sample::Clean);
    let (out, elsewhere) = (scene.beside("out"), scene.beside("elsewhere"));
    fs::create_dir_all(out.join("log")).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("precious"), "precious").unwrap();
    // Links that somebody put where files and directories will go lead nowhere.
    std::os::unix::fs::symlink(elsewhere.join("precious"), out.join("motd")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, out.join("doc")).unwrap();
    let to = out.to_str().unwrap();
    let refused = stderr(scene.xebec("extract", &["/etc", "--to", to]).arg("-q"));
    assert!(
        refused.contains("motd: cannot make the file: it exists already (--overwrite replaces it)"),
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

/// A file got the group of the directory that it was made in, where that is set-GID, and kept it if its own was that of
/// the process.
#[test]
fn a_set_gid_directory_does_not_give_its_group() {
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

/// Hints were dropped without a word. Where this file system has none, that is told.
#[test]
fn extent_size_hints_are_kept_or_told() {
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

/// Where items of the log could not be replayed, the newest changes may be missing from any file. Extraction warned and
/// ended with 0.
#[test]
fn a_log_that_is_replayed_in_part_is_a_failure() {
    let scene = Scene::new(Sample::Dirty);
    // Inode 153, which the log changes, is damaged; nothing that is extracted here is.
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
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("replayed in part"), "{said}");
    }
    assert!(out.join("passwd").exists() && archive.exists(), "what there is, is there");
}

#[test]
fn one_file_goes_into_the_directory_under_its_name() {
    let scene = Scene::new(Sample::Clean);
    let out = scene.beside("out");
    scene.xebec("extract", &["/etc/motd", "--to", out.to_str().unwrap()]).assert().success();
    assert!(fs::read_to_string(out.join("motd")).unwrap().starts_with("Welcome."));
}

/// Only `create`, `sync` and `tar-in` could leave files out.
#[test]
fn what_patterns_match_is_left_out_of_directories_and_archives() {
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
        // The first of its names that is not left out has the contents.
        ("var/log/messages.link", true),
    ] {
        assert_eq!(out.join(path).symlink_metadata().is_ok(), is_there, "{path}");
        assert_eq!(members.iter().any(|member| member.trim_end_matches('/') == path), is_there, "{path}");
    }
    assert_eq!(out.join("var/log/messages.link").metadata().unwrap().len(), 66_000);
    // Patterns begin at what is extracted.
    let log = scene.beside("log");
    scene.xebec("extract", &["/var", "--to", log.to_str().unwrap(), "--exclude", "/log"]).assert().success();
    assert!(!log.join("log").exists());
    let refused = stderr(&mut scene.xebec("tar-out", &["--exclude", "a[b"]));
    assert!(refused.contains("--exclude: `a[b`"), "{refused}");
}

/// Somebody who is told of a damaged file wants to extract all but that one.
#[test]
fn a_damaged_file_can_be_left_out() {
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

/// What an archive says of one member.
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
fn an_archive_holds_everything_with_its_metadata() {
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
fn archives_do_not_depend_on_the_number_of_threads() {
    let scene = Scene::new(Sample::Clean);
    let archive =
        |threads: &str| scene.xebec("extract", &["--to", "-", "--threads", threads]).output().unwrap().stdout;
    let one = archive("1");
    assert!(one == archive("2") && one == archive("9"));
}

#[test]
fn an_archive_file_appears_when_it_is_complete() {
    let scene = Scene::new(Sample::Clean);
    let file = scene.beside("sample.tar");
    let to = file.to_str().unwrap();
    let summary = scene.json("extract", &["/usr", "--to", to]);
    assert_eq!((summary["files"].as_u64(), summary["failures"].as_u64()), (Some(303), Some(0)));
    assert!(stderr(&mut scene.xebec("extract", &["/etc", "--to", to])).contains("exists already"));
    scene.xebec("extract", &["/etc", "--to", to, "--overwrite"]).assert().success();
    assert!(members(&fs::read(&file).unwrap()).contains_key(&b"motd"[..]));
    let beside = fs::read_dir(file.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 2, "nothing but the image and the archive");
}
