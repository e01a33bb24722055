//! info, ls, tree, stat, cat, find, manifest.

use std::process::Stdio;

use samples::Sample;

use crate::{Scene, stderr};

#[test]
fn info_has_the_format_of_xfs_info() {
    let scene = Scene::new(Sample::Clean);
    let text = scene.output("info", &[]);
    assert!(text.starts_with("meta-data="), "{text}");
    for line in [
        " isize=512    agcount=4, agsize=4096 blks\n",
        "         =                       reflink=1    bigtime=1 inobtcount=1 nrext64=",
        "data     =                       bsize=4096   blocks=16384, imaxpct=25\n",
        "log      =internal log           bsize=4096   blocks=",
        "realtime =none                   extsz=4096   blocks=0, rtextents=0\n",
        "label    =sample\n",
        "log      =clean\n",
        "readers  =Linux from 5.10 (bigtime, inobtcount); GRUB from 2.06 (bigtime)\n",
        "writing  =yes\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let json = scene.json("info", &[]);
    assert_eq!((json["version"].as_u64(), json["label"].as_str()), (Some(1), Some("sample")));
    assert_eq!(json["log"]["state"], "clean");
    assert_eq!(json["readers"][0]["writes"]["since"], "5.10");
    assert_eq!(json["writing"]["supported"], true);
    let usage = &json["usage"];
    let bytes = |key: &str| usage[key].as_u64().unwrap();
    assert_eq!(bytes("used_bytes") + bytes("free_bytes"), bytes("size_bytes"));
}

#[test]
fn a_dirty_log_is_replayed_in_memory() {
    let scene = Scene::new(Sample::Dirty);
    let before = std::fs::read(scene.image()).unwrap();
    assert!(scene.output("ls", &["/etc"]).contains("motd.old"));
    assert!(scene.output("ls", &["--no-replay", "/etc"]).contains("motd\n"));
    assert!(stderr(&mut scene.xebec("info", &[])).contains("replayed in memory; the image is untouched"));
    assert_eq!(stderr(&mut scene.xebec("info", &["-q"])), "");
    assert_eq!(scene.json("info", &[])["log"]["state"], "replayed");
    assert_eq!(scene.json("info", &["--no-replay"])["log"]["state"], "ignored");
    assert!(before == std::fs::read(scene.image()).unwrap(), "the image was changed");
}

#[test]
fn ls_has_the_format_of_gnu_ls() {
    let scene = Scene::new(Sample::Clean);
    assert_eq!(scene.output("ls", &[]), "dev\netc\nhome\nusr\nvar\n");
    let long = scene.output("ls", &["-l", "--time-style=long-iso", "/etc", "/home/welcome", "/dev"]);
    let expected = [
        "lrwxrwxrwx 1 root root 11 1901-12-13 20:45 /home/welcome -> ../etc/motd\n\n/dev:\ntotal 0\n",
        "crw-r--r-- 1 root root 1, 3 ",
        "prw-r--r-- 1 root root    0 ",
        "\n/etc:\ntotal 12\n",
        "-rw-r--r-- 1 root root  50 2400-02-29 12:00 motd\n",
    ];
    for line in expected {
        assert!(long.contains(line), "{line:?} is not in\n{long}");
    }
    assert!(scene.output("ls", &["-ln", "/home"]).contains("drwxr-xr-x+ 2 1000 1000 "));
    assert!(scene.output("ls", &["-a", "/etc"]).starts_with(".\n..\n"));
}

#[test]
fn recursive_ls_is_independent_of_the_number_of_threads() {
    let scene = Scene::new(Sample::Clean);
    let one = scene.xebec("ls", &["-liRa", "--threads", "1"]).assert().success().get_output().stdout.clone();
    for threads in ["2", "7"] {
        let many = scene.xebec("ls", &["-liRa", "--threads", threads]).output().unwrap().stdout;
        assert!(one == many, "{threads} threads give another order");
    }
}

#[test]
fn ls_writes_raw_names_and_hexadecimal_names_in_json() {
    let scene = Scene::new(Sample::Clean);
    let raw = scene.xebec("ls", &["/home/grace"]).output().unwrap().stdout;
    assert!(raw.starts_with(b"caf\xe9\nmessages.copy\nsparse\ntwo\nlines\n"));
    let json = scene.json("ls", &["/home/grace"]);
    let entries = json["entries"].as_array().unwrap();
    assert_eq!(entries[0]["path_hex"], "2f686f6d652f67726163652f636166e9");
    assert_eq!(entries[3]["path"], "/home/grace/two\nlines");
}

#[test]
fn stat_shows_metadata() {
    let scene = Scene::new(Sample::Clean);
    let text = scene.output("stat", &["-v", "/home/ada/notes.txt"]);
    for part in [
        "  File: /home/ada/notes.txt\n  Size: 6 ",
        "Access: (0664/-rw-rw-r--)  Uid: ( 1000/     ada)   Gid: ( 1000/     ada)\n",
        " Birth: ",
        " Xattr: user.origin (15 bytes) written by hand\n",
        "Extent: blocks 0 to 0 at AG ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let json = scene.json("stat", &["/etc/motd"]);
    assert_eq!(json["files"][0]["mtime"], "13574606400.123456789");
}

#[test]
fn cat_follows_links_and_accepts_inode_numbers() {
    let scene = Scene::new(Sample::Clean);
    assert_eq!(
        scene.output("cat", &["/home/welcome"]),
        "Welcome. This volume was read without the kernel.\n"
    );
    let ino = scene.json("stat", &["/etc/motd"])["files"][0]["ino"].to_string();
    assert_eq!(scene.output("cat", &["--inode", &ino]), scene.output("cat", &["/etc/motd"]));
    let sparse = scene.output("cat", &["/home/grace/sparse"]);
    assert_eq!(sparse.len(), (8 << 20) + 4);
    assert!(sparse.starts_with("head\0") && sparse.ends_with("\0tail"));
}

#[test]
fn find_evaluates_tests() {
    let scene = Scene::new(Sample::Clean);
    assert_eq!(scene.output("find", &["-name", "mess*", "-type", "f"]).lines().count(), 3);
    assert_eq!(scene.output("find", &["/home", "--size", "+1M"]), "/home/grace/sparse\n");
    assert_eq!(scene.output("find", &["/etc", "-print0", "-maxdepth", "0"]), "/etc\0");
    assert_eq!(scene.output("find", &["/usr", "-iname", "CHAPTER-1??.TXT"]).lines().count(), 100);
}

#[test]
fn tree_shows_and_counts_files() {
    let scene = Scene::new(Sample::Clean);
    let text = scene.output("tree", &["/home", "--color", "never"]);
    assert!(text.starts_with("/home\n├── ada\n│\u{a0}\u{a0} └── notes.txt\n├── grace\n"), "{text}");
    assert!(text.ends_with("└── welcome -> ../etc/motd\n\n2 directories, 6 files\n"), "{text}");
    let json = scene.json("tree", &["/home"]);
    assert_eq!(json["tree"][0]["contents"][0]["contents"][0]["name"], "notes.txt");
    assert_eq!((json["directories"].as_u64(), json["files"].as_u64()), (Some(2), Some(6)));
}

#[test]
fn manifest_is_sorted_by_path() {
    let scene = Scene::new(Sample::Clean);
    let text = scene.output("manifest", &[]);
    let paths: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|record| record["path"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(paths[0], ".");
    assert!(paths[1..].is_sorted());
    assert_eq!(text.lines().count(), scene.output("find", &["-print0"]).matches('\0').count());
}

#[test]
fn a_closed_pipe_ends_the_command_silently() {
    let scene = Scene::new(Sample::Clean);
    let mut child = needs::own(env!("CARGO_BIN_EXE_xebec"))
        .args(["cat".as_ref(), scene.image().as_os_str(), "/home/grace/sparse".as_ref()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
}
