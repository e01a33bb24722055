//! `cp` in all directions, without root and GNU cp. Comparisons with GNU cp are in `proof/interop/tests/commands`.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;

use assert_cmd::Command;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use samples::Sample;

use crate::{Scene, stderr, xebec};

impl Scene {
    fn cp(&self, arguments: &[&str]) -> Command {
        let mut cp = xebec();
        let image = format!("{}:", self.image().display());
        let here = format!("{}/", self.beside("").display());
        let argument = |text: &&str| text.replace("IMAGE:", &image).replace("HERE/", &here);
        cp.arg("cp").args(arguments.iter().map(argument));
        cp
    }

    fn copy(&self, arguments: &[&str]) {
        self.cp(arguments).assert().success();
    }

    fn stat(&self, path: &str) -> serde_json::Value {
        self.json("stat", &[path])["files"][0].clone()
    }
}

/// A tree with all file types that do not require root.
fn tree(scene: &Scene) {
    let tree = scene.beside("tree");
    std::fs::create_dir_all(tree.join("deep")).unwrap();
    std::fs::write(tree.join("file"), b"contents").unwrap();
    std::fs::hard_link(tree.join("file"), tree.join("deep/hard")).unwrap();
    symlink("file", tree.join("link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    mknodat(CWD, tree.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    drop(UnixListener::bind(tree.join("socket")).unwrap());
    std::fs::write(tree.join(" blanks "), b"blanks").unwrap();
}

/// Regression: `cp -a` stored the targets of symbolic links, waited for a writer of a pipe, and created regular files
/// for devices and sockets.
#[test]
fn cp_archive_preserves_all_file_types() {
    let scene = Scene::new(Sample::Clean);
    tree(&scene);
    scene.copy(&["-a", "HERE/tree", "IMAGE:/in"]);
    scene.copy(&["-a", "IMAGE:/in", "IMAGE:/within"]);
    scene.copy(&["-a", "IMAGE:/within", "HERE/out"]);
    for dir in ["/in", "/within"] {
        for (name, kind) in [
            ("link", "symlink"),
            ("dangling", "symlink"),
            ("pipe", "fifo"),
            ("socket", "socket"),
            ("deep", "dir"),
            (" blanks ", "file"),
        ] {
            assert_eq!(scene.stat(&format!("{dir}/{name}"))["type"], kind, "{dir}/{name}");
        }
        let inode = |name: &str| scene.stat(&format!("{dir}/{name}"))["ino"].clone();
        assert_eq!(inode("file"), inode("deep/hard"));
    }
    let out = scene.beside("out");
    assert_eq!(std::fs::read_link(out.join("link")).unwrap().as_os_str().as_bytes(), b"file");
    assert!(out.join("pipe").symlink_metadata().unwrap().file_type().is_fifo());
    assert!(out.join("socket").symlink_metadata().unwrap().file_type().is_socket());
    assert_eq!(std::fs::read(out.join(" blanks ")).unwrap(), b"blanks");
    let (file, source) =
        (out.join("file").metadata().unwrap(), scene.beside("tree/file").metadata().unwrap());
    assert_eq!((file.nlink(), file.mtime(), file.mtime_nsec()), (2, source.mtime(), source.mtime_nsec()));
    scene.xebec("check", &[]).assert().success();
}

/// Without -r, GNU cp reads named pipes and may wait forever for a writer. xebec refuses that, and reading a device of
/// an image.
#[test]
fn cp_refuses_special_files_without_r() {
    let scene = Scene::new(Sample::Clean);
    tree(&scene);
    scene.xebec("mknod", &["/null", "c", "1", "3"]).assert().success();
    for source in ["HERE/tree/pipe", "HERE/tree/socket"] {
        let message = stderr(&mut scene.cp(&[source, "IMAGE:/new"]));
        assert!(message.contains("-r"), "{message}");
    }
    for target in ["IMAGE:/new", "HERE/new"] {
        let message = stderr(&mut scene.cp(&["IMAGE:/null", target]));
        assert!(message.contains("-r"), "{message}");
    }
    // A device of the host is read.
    scene.copy(&["/dev/null", "IMAGE:/empty"]);
    assert_eq!(scene.stat("/empty")["type"], "file");
    scene.copy(&["-r", "IMAGE:/null", "IMAGE:/null2"]);
    assert_eq!(scene.stat("/null2")["rdev"], "1:3");
    if !rustix::process::geteuid().is_root() {
        let message = stderr(&mut scene.cp(&["-r", "IMAGE:/null", "HERE/null"]));
        assert!(message.contains("requires root") && message.contains("device"), "{message}");
    }
}

/// Regression: a tree was copied to the name `..`; trailing blanks of a directory name were removed.
#[test]
fn cp_handles_dot_dot_and_blanks_in_names() {
    let scene = Scene::new(Sample::Clean);
    tree(&scene);
    scene.xebec("mkdir", &["/into", "/ b "]).assert().success();
    let before = scene.output("ls", &["/"]);
    scene.copy(&["-r", "HERE/tree/deep/..", "IMAGE:/into"]);
    scene.copy(&["HERE/tree/ blanks ", "IMAGE:/ b "]);
    assert_eq!(scene.output("cat", &["/ b / blanks "]), "blanks");
    assert_eq!(scene.output("cat", &["/into/deep/hard"]), "contents");
    scene.copy(&["-r", "HERE/tree/.", "IMAGE:/into"]);
    assert_eq!(scene.output("ls", &["/"]), before);
    let message = stderr(&mut scene.cp(&["HERE/tree/file", "IMAGE:/none/"]));
    assert!(message.contains("/none/") && message.contains("no such directory"), "{message}");
    let message = stderr(&mut scene.cp(&["-r", "IMAGE:/into", "IMAGE:/into/deep"]));
    assert!(message.contains("into itself"), "{message}");
    scene.xebec("check", &[]).assert().success();
}

#[test]
fn cp_preserves_holes() {
    let scene = Scene::new(Sample::Clean);
    let file = std::fs::File::create(scene.beside("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 1 << 39).unwrap();
    scene.copy(&["HERE/sparse", "IMAGE:/in"]);
    scene.copy(&["IMAGE:/in", "IMAGE:/within"]);
    scene.copy(&["IMAGE:/within", "HERE/out"]);
    let out = scene.beside("out").metadata().unwrap();
    assert_eq!(out.len(), 1 << 40);
    assert!(out.blocks() < 1000, "{}", out.blocks());
    for path in ["/in", "/within"] {
        let stat = scene.stat(path);
        assert_eq!(stat["size"], 1_u64 << 40);
        assert_eq!(stat["extents"].as_array().map(Vec::len), Some(1), "{stat}");
    }
}

#[test]
fn cp_verbose_prints_each_file() {
    let scene = Scene::new(Sample::Clean);
    tree(&scene);
    let output = scene.cp(&["-v", "HERE/tree/file", "IMAGE:/new"]).output().unwrap();
    let message = String::from_utf8(output.stdout).unwrap();
    assert!(message.contains("tree/file -> ") && message.ends_with("sample.xfs:/new\n"), "{message}");
    let line = format!("cp -vt / {}/file", scene.beside("tree").display());
    let message = scene.output("sh", &["-c", &line]);
    assert!(message.ends_with("tree/file -> /file\n"), "{message}");
}

/// Regression: listxattr with an empty buffer returned 0, and no attribute was copied.
#[test]
fn cp_archive_preserves_extended_attributes() {
    let scene = Scene::new(Sample::Clean);
    let names: Vec<String> = (0..40).map(|n| format!("user.{n:02}")).collect();
    for count in [0, 1, names.len()] {
        let from = scene.beside(&format!("from{count}"));
        std::fs::write(&from, b"contents").unwrap();
        for name in names.iter().take(count) {
            rustix::fs::setxattr(&from, name.as_str(), b"value", rustix::fs::XattrFlags::empty()).unwrap();
        }
        scene.copy(&["-a", &format!("HERE/from{count}"), &format!("IMAGE:/in{count}")]);
        scene.copy(&["-a", &format!("IMAGE:/in{count}"), &format!("IMAGE:/within{count}")]);
        scene.copy(&["-a", &format!("IMAGE:/within{count}"), &format!("HERE/out{count}")]);
        let mut found = vec![0; 1000];
        let length =
            rustix::fs::listxattr(scene.beside(&format!("out{count}")), found.as_mut_slice()).unwrap();
        assert_eq!(found[..length].iter().filter(|byte| **byte == 0).count(), count);
    }
}

#[test]
fn cp_exclude_skips_matching_files() {
    let scene = Scene::new(Sample::Clean);
    tree(&scene);
    let patterns = ["--exclude", "/deep/", "--exclude", "dang*", "--exclude", "pipe"];
    for (from, to) in
        [("HERE/tree", "IMAGE:/in"), ("IMAGE:/in2", "IMAGE:/within"), ("IMAGE:/in2", "HERE/out")]
    {
        scene.copy(&["-a", "-T", "HERE/tree", "IMAGE:/in2"]);
        scene.copy(&[&["-a"], &patterns[..], &[from, to]].concat());
        for (name, is_there) in
            [("file", true), ("deep", false), ("dangling", false), ("pipe", false), ("link", true)]
        {
            let path = format!("{to}/{name}").replace("HERE/", &format!("{}/", scene.beside("").display()));
            let found = match path.strip_prefix("IMAGE:") {
                Some(path) => scene.xebec("stat", &[path]).output().unwrap().status.success(),
                None => std::path::Path::new(&path).symlink_metadata().is_ok(),
            };
            assert_eq!(found, is_there, "{path}");
        }
    }
    // A file operand is matched by its name; patterns are relative to a directory operand.
    scene.copy(&[
        "-r",
        "--exclude",
        "fi*",
        "--exclude",
        "tree",
        "HERE/tree/file",
        "HERE/tree",
        "IMAGE:/home",
    ]);
    scene.xebec("stat", &["/home/file"]).assert().failure();
    assert_eq!(scene.stat("/home/tree/link")["type"], "symlink");
    let line = format!("cp --exclude 'l*' -r {} /session", scene.beside("tree").display());
    scene.xebec("sh", &["-c", &line]).assert().success();
    assert_eq!(scene.stat("/session/file")["type"], "file");
    scene.xebec("stat", &["/session/link"]).assert().failure();
}
