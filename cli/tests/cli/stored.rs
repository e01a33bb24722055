//! Volumes on object storage as a whole: snapshots, clones, images to and from them, their objects. Each on a directory
//! of the host; `remote` repeats [`all`] on a server of S3.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use samples::Sample;
use serde_json::Value;

use crate::{Scene, stderr, xebec};

fn run(words: &[&str]) -> String {
    String::from_utf8(xebec().args(words).assert().success().get_output().stdout.clone()).unwrap()
}

fn json(words: &[&str]) -> Value {
    let document: Value = serde_json::from_str(&run(&[words, &["--json"]].concat())).unwrap();
    assert_eq!((&document["version"], &document["command"]), (&1.into(), &words[0].into()));
    document
}

fn fails(words: &[&str]) -> String {
    xebec().args(words).assert().failure();
    stderr(xebec().args(words))
}

/// A folder, and the start of URLs in it.
fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let root = format!("file://{}", folder.path().display());
    (folder, root)
}

/// Objects in a directory that have at least `bytes`.
fn files(folder: &Path, bytes: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.unwrap();
        let is_object = !entry.file_name().to_string_lossy().starts_with('.');
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path(), bytes)),
            false if is_object && entry.metadata().unwrap().len() >= bytes => found.push(entry.path()),
            false => {}
        }
    }
    found
}

/// The URL is open for changes as long as this lives.
fn hold(url: &str) -> impl Sized + use<> {
    let options = remote::RemoteOptions { writable: true, ..Default::default() };
    remote::RemoteUrl::new(Path::new(url)).unwrap().open(&options).unwrap()
}

/// All of it, below a URL: what a store behind a network must do alike.
pub fn all(root: &str) {
    snapshots(root);
    clones(root);
    created(root);
    images(root);
    cleaned(root);
}

#[test]
fn snapshots_are_made_listed_read_and_removed() {
    snapshots(&folder().1);
}

fn snapshots(root: &str) {
    let url = &format!("{root}/with-snapshots");
    run(&["mkfs", url, "--size", "300m"]);
    run(&["write", url, "/file", "--text", "old"]);
    run(&["snapshot", "create", &format!("{url}@monday")]);
    run(&["write", url, "/file", "--text", "new"]);
    {
        // Also while another program has the volume open.
        let _writer = hold(url);
        assert!(fails(&["write", url, "/file", "--text", "x"]).contains("open for writing"));
        run(&["snapshot", "create", &format!("{url}@tuesday")]);
    }
    let text = |snapshot: &str| run(&["cat", &format!("{url}@{snapshot}:/file")]);
    assert_eq!((text("monday"), text("tuesday")), ("old\n".into(), "new\n".into()));
    let list = run(&["snapshot", "list", url]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.lines().next().unwrap().ends_with("  monday"), "{list}");
    let document = json(&["snapshot", "list", url]);
    assert_eq!(document["snapshots"][1]["name"], "tuesday");
    assert_eq!(document["snapshots"][1]["size"], 300 << 20);
    let again = fails(&["snapshot", "create", &format!("{url}@monday")]);
    assert!(again.contains("there is a snapshot of this name"), "{again}");
    let info = run(&["info", url]);
    assert!(info.contains("snapshot =monday\nsnapshot =tuesday\n") && info.contains("stored   ="), "{info}");
    run(&["snapshot", "remove", &format!("{url}@monday")]);
    assert_eq!(json(&["snapshot", "list", url])["snapshots"].as_array().unwrap().len(), 1);
    let gone = fails(&["snapshot", "remove", &format!("{url}@monday")]);
    assert!(gone.contains("there is no such snapshot"), "{gone}");
    assert!(fails(&["ls", &format!("{url}@monday")]).contains("no such snapshot"));
    let unnamed = fails(&["snapshot", "create", url]);
    assert!(unnamed.contains("URL@NAME"), "{unnamed}");
    run(&["check", url]);
    assert!(json(&["objects", "audit", url])["missing"].as_array().unwrap().is_empty());
}

#[test]
fn files_have_no_snapshots() {
    let scene = Scene::new(Sample::Clean);
    let image = scene.image().to_str().unwrap();
    for words in [["snapshot", "list", image], ["objects", "audit", image], ["pull", image, "x"]] {
        xebec().args(words).assert().code(2);
        assert!(fails(&words).contains("for volumes that URLs name"), "{words:?}");
    }
}

#[test]
fn clones_share_objects_and_have_another_uuid() {
    clones(&folder().1);
}

fn clones(root: &str) {
    let [base, copy, second] = ["base", "copy", "second"].map(|name| format!("{root}/{name}"));
    let (base, copy, second) = (&*base, &*copy, &*second);
    run(&["mkfs", base, "--size", "300m"]);
    run(&["write", base, "/file", "--text", "base"]);
    run(&["snapshot", "create", &format!("{base}@s")]);
    let document = json(&["clone", base, copy]);
    assert_eq!((&document["copy"], &document["shared"]), (&copy.into(), &true.into()));
    let uuid = |url: &str| run(&["uuid", url]);
    assert_eq!(uuid(copy).trim(), document["uuid"]);
    assert_ne!(uuid(copy), uuid(base));
    run(&["write", copy, "/file", "--text", "copy"]);
    run(&["write", base, "/file", "--text", "more"]);
    run(&["clone", "--same-uuid", &format!("{base}@s"), second]);
    assert_eq!(uuid(second), uuid(base));
    let text = |url: &str| run(&["cat", &format!("{url}:/file")]);
    assert_eq!([text(base), text(copy), text(second)], ["more\n", "copy\n", "base\n"]);
    [base, copy, second].iter().for_each(|url| drop(run(&["check", url])));
    let info = json(&["info", base]);
    assert_eq!(info["storage"]["clones"][0]["name"], copy);
    let info = json(&["info", copy]);
    assert_eq!(info["storage"]["parents"][0], base);
    assert!(info["storage"]["parent_segments"].as_u64().unwrap() > 0, "{info}");
    assert!(fails(&["clone", base, copy]).contains("there is a volume already"));
    assert_eq!(json(&["info", base])["storage"]["clones"].as_array().unwrap().len(), 2);
    let kept = fails(&["objects", "unpin", base, second]);
    assert!(kept.contains("it exists"), "{kept}");
    // With the head, a clone is gone.
    if let Some(path) = second.strip_prefix("file://") {
        fs::remove_dir_all(path).unwrap();
        run(&["objects", "unpin", base, second]);
        assert_eq!(json(&["info", base])["storage"]["clones"].as_array().unwrap().len(), 1);
    }
    let elsewhere = fails(&["clone", base, "file:///somewhere/else"]);
    assert!(!elsewhere.is_empty());
}

#[test]
fn a_file_and_a_volume_share_nothing() {
    let scene = Scene::new(Sample::Clean);
    let image = scene.image().to_str().unwrap();
    let (_folder, root) = folder();
    let url = &format!("{root}/volume");
    for words in [["clone", image, url], ["clone", url, image]] {
        assert!(fails(&words).contains("copy with pull or push"), "{words:?}");
    }
}

#[test]
fn a_volume_is_created_with_its_contents() {
    created(&folder().1);
}

fn created(root: &str) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    let bytes: Vec<u8> = (0..5u32 << 20).map(|n| (n / 7 * 13) as u8).collect();
    fs::write(source.join("sub/large"), &bytes).unwrap();
    (0..200).for_each(|n| fs::write(source.join(format!("file{n}")), n.to_string()).unwrap());
    let source = source.to_str().unwrap();
    let url = &format!("{root}/created");
    let document = json(&["create", url, "--from", source, "--free", "20m"]);
    assert_eq!(document["files"], 203);
    run(&["check", url]);
    assert_eq!(run(&["cat", &format!("{url}:/file77")]), "77");
    let info = json(&["info", url]);
    assert_eq!(info["storage"]["writer"], Value::Null);
    assert!(info["usage"]["free_bytes"].as_u64().unwrap() >= 20 << 20, "{info}");
    let back = folder.path().join("back");
    run(&["extract", url, "--to", back.to_str().unwrap()]);
    assert!(fs::read(back.join("sub/large")).unwrap() == bytes);
    let again = fails(&["create", url, "--from", source]);
    assert!(again.contains("there is a volume already"), "{again}");
    // Minimized, with a partition table, from a stream whose size is not known.
    let tar = folder.path().join("tree.tar");
    run(&["extract", url, "--to", tar.to_str().unwrap()]);
    let (small, disk) = (&format!("{root}/small"), &format!("{root}/disk"));
    run(&["create", small, "--from", tar.to_str().unwrap(), "--minimize"]);
    let stream = fs::read(&tar).unwrap();
    xebec().args(["create", disk, "--gpt", "--from", "-"]).write_stdin(stream).assert().success();
    for url in [small, disk] {
        run(&["check", url]);
        assert_eq!(run(&["cat", &format!("{url}:/file77")]), "77");
    }
    assert!(json(&["info", small])["usage"]["size_bytes"].as_u64() < info["usage"]["size_bytes"].as_u64());
}

/// A failure in the middle: the archive is damaged.
#[test]
fn a_failed_creation_leaves_nothing() {
    let (folder, root) = folder();
    let tar = folder.path().join("tree.tar");
    let mut archive = tar::Builder::new(Vec::new());
    for n in 0..300 {
        let mut header = tar::Header::new_gnu();
        header.set_size(40_000);
        header.set_mode(0o644);
        let contents = vec![n as u8; 40_000];
        archive.append_data(&mut header, format!("file{n}"), &contents[..]).unwrap();
    }
    let mut bytes = archive.into_inner().unwrap();
    bytes.truncate(bytes.len() * 3 / 4);
    fs::write(&tar, bytes).unwrap();
    let url = &format!("{root}/volume");
    let failed = fails(&["create", url, "--size", "300m", "--from", tar.to_str().unwrap()]);
    assert!(!failed.contains("could not be removed"), "{failed}");
    assert_eq!(files(&folder.path().join("volume"), 0), Vec::<PathBuf>::new());
    assert!(fails(&["ls", url]).contains("there is no volume"));
    run(&["mkfs", url, "--size", "300m"]);
    for words in [["--force"].as_slice(), &["--format", "qcow2"]] {
        let words = [&["create", url, "--from", "/etc/skel"], words].concat();
        xebec().args(&words).assert().code(2);
    }
}

#[test]
fn images_are_pushed_and_pulled() {
    images(&folder().1);
}

fn images(root: &str) {
    let scene = Scene::new(Sample::Clean);
    let image = scene.image().to_str().unwrap();
    let original = fs::read(image).unwrap();
    let url = &format!("{root}/pushed");
    let document = json(&["push", image, url]);
    assert_eq!(document["size"], original.len());
    assert_eq!(document["resumed"], false);
    assert!(document["written_bytes"].as_u64() < document["size"].as_u64(), "{document}");
    run(&["check", url]);
    let file = scene.beside("pulled");
    let file = file.to_str().unwrap();
    assert_eq!(json(&["pull", url, file])["size"], original.len());
    assert!(fs::read(file).unwrap() == original);
    assert!(fails(&["pull", url, file]).contains("File exists"));
    let refused = fails(&["push", image, url]);
    assert!(refused.contains("it contains an XFS file system (--force"), "{refused}");
    // Differences only, of a volume that has changed meanwhile; also of a snapshot.
    run(&["snapshot", "create", &format!("{url}@first")]);
    run(&["write", url, "/new", "--text", "new"]);
    run(&["pull", "--force", &format!("{url}@first"), file]);
    assert!(fs::read(file).unwrap() == original);
    run(&["pull", "--force", url, file]);
    assert_eq!(run(&["cat", &format!("{file}:/new")]), "new\n");
    let document = json(&["push", "--force", image, url]);
    assert!(document["written_bytes"].as_u64() < Some(2 << 20), "{document}");
    run(&["pull", "--force", url, file]);
    assert!(fs::read(file).unwrap() == original);
    // Another size, and a container.
    let disk = scene.beside("disk.qcow2");
    let disk = disk.to_str().unwrap();
    run(&["create", disk, "--format", "qcow2", "--gpt", "--from", "/etc/skel"]);
    run(&["push", "--force", disk, url]);
    run(&["check", url]);
    run(&["pull", "--force", url, file]);
    assert_eq!(run(&["ls", "-a", &format!("{file}:/")]), run(&["ls", "-a", &format!("{disk}:/")]));
    assert!(
        fs::read_dir(scene.beside(""))
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().ends_with(".partial") })
    );
}

/// The program is killed while it copies.
#[test]
fn what_was_interrupted_is_continued() {
    let (folder, root) = folder();
    let (image, file) = (folder.path().join("image"), folder.path().join("file"));
    let (image, file) = (image.to_str().unwrap(), file.to_str().unwrap());
    run(&["mkfs", image, "--size", "400m"]);
    let bytes: Vec<u8> =
        (0..200u32 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let source = folder.path().join("source");
    fs::write(&source, bytes).unwrap();
    run(&["cp", source.to_str().unwrap(), &format!("{image}:/large")]);
    let url = &format!("{root}/volume");
    let signal_when = |words: &[&str], signal: Signal, is_time: &dyn Fn() -> bool| {
        let mut child = needs::own(env!("CARGO_BIN_EXE_xebec")).args(words).spawn().unwrap();
        while !is_time() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let _ = rustix::process::kill_process(Pid::from_child(&child), signal);
        child.wait().unwrap()
    };
    let kill_when = |words: &[&str], is_time: &dyn Fn() -> bool| signal_when(words, Signal::KILL, is_time);
    let segments = || {
        let log = folder.path().join("volume/log");
        let epochs = fs::read_dir(log).into_iter().flatten();
        epochs.flat_map(|epoch| fs::read_dir(epoch.unwrap().path()).unwrap()).count()
    };
    let status = kill_when(&["push", image, url, "--threads", "1"], &|| segments() >= 4);
    assert!(!status.success(), "it was too fast to be killed");
    assert!(!fails(&["ls", url]).is_empty(), "there is no file system");
    let in_use = fails(&["push", image, url]);
    assert!(in_use.contains("--take-over"), "{in_use}");
    let before = segments();
    let interrupted =
        signal_when(&["push", "--take-over", image, url, "--threads", "1"], Signal::INT, &|| {
            segments() > before
        });
    assert_eq!(interrupted.code(), Some(130));
    // It was closed.
    let document = json(&["push", image, url]);
    assert_eq!(document["resumed"], true);
    assert!(document["written_bytes"].as_u64() < document["read_bytes"].as_u64(), "{document}");
    run(&["check", url]);
    let partial = folder.path().join("file.partial");
    let allocated = || {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(&partial).map_or(0, |file| file.blocks() * 512)
    };
    let status = kill_when(&["pull", url, file, "--threads", "1"], &|| allocated() > 60 << 20);
    assert!(!status.success(), "it was too fast to be killed");
    assert!(partial.exists() && !Path::new(file).exists());
    let document = json(&["pull", url, file]);
    assert_eq!(document["resumed"], true);
    assert!(fs::read(file).unwrap() == fs::read(image).unwrap());
    assert!(!partial.exists());
}

#[test]
fn objects_are_audited_and_cleaned() {
    let (folder, root) = folder();
    cleaned(&root);
    let url = &format!("{root}/used");
    let path = folder.path().join("used");
    fs::create_dir_all(path.join("map/0000000000000001")).unwrap();
    fs::write(path.join("map/0000000000000001/0000000000000002"), "orphan").unwrap();
    let audit = json(&["objects", "audit", url]);
    assert_eq!((audit["orphans"].as_array().unwrap().len(), &audit["orphan_bytes"]), (1, &6.into()));
    run(&["objects", "collect", url]);
    assert!(json(&["objects", "audit", url])["orphans"].as_array().unwrap().is_empty());
    // A segment that is needed.
    fs::remove_file(&files(&path.join("log"), 20 << 10)[0]).unwrap();
    xebec().args(["objects", "audit", url]).assert().code(1);
    assert!(fails(&["objects", "audit", url]).contains("is needed, and missing"));
}

fn cleaned(root: &str) {
    let url = &format!("{root}/used");
    run(&["mkfs", url, "--size", "300m"]);
    let folder = tempfile::tempdir().unwrap();
    for round in 0..4u32 {
        let file = folder.path().join("file");
        let bytes: Vec<u8> =
            (0..1u32 << 20).flat_map(|n| (n ^ round).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        fs::write(&file, bytes).unwrap();
        run(&["cp", file.to_str().unwrap(), &format!("{url}:/file")]);
        run(&["write", url, &format!("/kept{round}"), "--text", "kept"]);
    }
    let before = json(&["info", url]);
    let live = |info: &Value| {
        let count = |key: &str| info["storage"][key].as_u64().unwrap();
        count("live_blocks") * 100 / count("blocks")
    };
    let document = json(&["objects", "clean", url]);
    assert!(document["requests"]["puts"].as_u64().unwrap() > 0, "{document}");
    let after = json(&["info", url]);
    assert!(live(&after) >= 60 && live(&after) >= live(&before), "{before} {after}");
    run(&["check", url]);
    (0..4).for_each(|round| assert_eq!(run(&["cat", &format!("{url}:/kept{round}")]), "kept\n"));
    let audit = json(&["objects", "audit", url]);
    assert!(
        audit["missing"].as_array().unwrap().is_empty() && audit["orphans"].as_array().unwrap().is_empty()
    );
    run(&["objects", "collect", url]);
    let text = run(&["objects", "audit", url]);
    assert!(text.contains("missing  =0"), "{text}");
    let _writer = hold(url);
    assert!(fails(&["objects", "clean", url]).contains("open for writing"));
}

/// What has no meaning for Ceph says what has.
#[test]
fn ceph_has_its_own_commands() {
    let url = "rbd://pool/image?key=hidden";
    for (words, advice) in [
        (["objects", "audit", url].as_slice(), "ceph pg scrub"),
        (&["objects", "clean", url], "rbd sparsify"),
        (&["clone", url, "rbd://pool/copy"], "xebec snapshot create"),
        (&["clone", url, "s3://bucket/copy"], "xebec pull"),
    ] {
        let message = fails(words);
        assert!(message.contains(advice) && !message.contains("hidden"), "{words:?}: {message}");
    }
}

/// What was read once comes from the local disk: the objects can be gone.
#[test]
fn a_cache_on_the_local_disk_is_used() {
    let (folder, root) = folder();
    let (url, tree, cache) =
        (format!("{root}/volume"), folder.path().join("tree"), folder.path().join("cache"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![7; 100_000]).unwrap();
    run(&["create", &url, "--from", tree.to_str().unwrap()]);
    let option = format!("{},64m", cache.display());
    let read = || fs::read(folder.path().join("copy")).unwrap();
    let (from, to) = (format!("{url}:/file"), folder.path().join("copy"));
    let copy = ["cp", "--cache", &option, &from, to.to_str().unwrap()];
    run(&copy);
    assert_eq!(read(), vec![7; 100_000]);
    fs::remove_dir_all(folder.path().join("volume/log")).unwrap();
    fs::remove_file(folder.path().join("copy")).unwrap();
    run(&copy);
    assert_eq!(read(), vec![7; 100_000]);
    fs::remove_dir_all(&cache).unwrap();
    fails(&copy);
    for (wrong, says) in
        [(",64m", "names no directory"), ("/dev/null/x,64m", "cannot be used"), ("x,many", "size")]
    {
        assert!(fails(&["ls", "--cache", wrong, &url]).contains(says), "{wrong}");
    }
}
