//! grow, shrink, minimize, trim, label, uuid, features, clone, sync.

use std::os::unix::fs::MetadataExt as _;

use samples::Sample;

use crate::{Scene, stderr, xebec};

const MIB: u64 = 1 << 20;

/// A small new volume with a file.
fn small() -> Scene {
    let scene = Scene::new(Sample::Clean);
    std::fs::remove_file(scene.image()).unwrap();
    scene.xebec("mkfs", &["--size", "64m", "-m", "reflink=0"]).assert().success();
    scene.xebec("mkdir", &["-p", "/etc/deep"]).assert().success();
    scene.xebec("write", &["--text", "hello", "/etc/deep/file"]).assert().success();
    scene
}

impl Scene {
    fn assert_file_intact(&self) {
        assert_eq!(self.output("cat", &["/etc/deep/file"]), "hello\n");
        self.xebec("check", &[]).assert().success();
    }

    fn length(&self) -> u64 {
        std::fs::metadata(self.image()).unwrap().len()
    }
}

#[test]
fn grow_shrink_and_minimize_resize_the_file() {
    let scene = small();
    let grown = scene.json("grow", &["+36m"]);
    assert_eq!(
        (grown["before_bytes"].as_u64(), grown["after_bytes"].as_u64()),
        (Some(64 * MIB), Some(100 * MIB))
    );
    assert_eq!((scene.length(), grown["device_bytes"].as_u64()), (100 * MIB, Some(100 * MIB)));
    scene.assert_file_intact();
    // In several steps: an open volume can grow to 64 times its size.
    assert!(scene.output("grow", &["10g"]).contains(" -> "));
    std::fs::OpenOptions::new().write(true).open(scene.image()).unwrap().set_len(11 << 30).unwrap();
    assert!(scene.output("grow", &["max"]).contains("11"));
    assert!(scene.output("grow", &[]).starts_with("unchanged: "));
    let refused = stderr(&mut scene.xebec("grow", &["1g"]));
    assert!(refused.contains("xebec shrink"), "{refused}");
    scene.assert_file_intact();
    let refused = stderr(&mut scene.xebec("shrink", &["1m"]));
    assert!(refused.contains("minimum size is"), "{refused}");
    let refused = stderr(&mut scene.xebec("shrink", &["20g"]));
    assert!(refused.contains("xebec grow"), "{refused}");
    assert!(scene.output("shrink", &["1g"]).contains(" -> "));
    assert_eq!(scene.length(), 1 << 30);
    scene.assert_file_intact();
    let least = scene.json("minimize", &[]);
    assert_eq!(Some(scene.length()), least["after_bytes"].as_u64());
    assert!(scene.length() < 64 * MIB, "{least}");
    scene.assert_file_intact();
    scene.xebec("shrink", &[]).assert().code(2);
    scene.xebec("grow", &["much"]).assert().code(2);
}

#[test]
fn trim_punches_holes_into_the_file() {
    let scene = small();
    std::fs::write(scene.beside("zeros"), vec![7; 20 << 20]).unwrap();
    let path = scene.beside("zeros").display().to_string();
    scene.xebec("cp", &[&path, "/big"]).assert().success();
    scene.xebec("rm", &["/big"]).assert().success();
    let before = std::fs::metadata(scene.image()).unwrap().blocks() * 512;
    let short = scene.json("trim", &["--minimum", "1g"]);
    assert_eq!((short["free_bytes"].as_u64(), short["trimmed_bytes"].as_u64()), (Some(0), Some(0)));
    assert!(short["short_extents"].as_u64() > Some(0));
    let trimmed = scene.json("trim", &[]);
    assert!(trimmed["free_bytes"].as_u64() > Some(40 * MIB), "{trimmed}");
    let after = std::fs::metadata(scene.image()).unwrap().blocks() * 512;
    assert!(trimmed["trimmed_bytes"].as_u64() == Some(0) || after + 15 * MIB < before, "{trimmed}");
    scene.assert_file_intact();
}

#[test]
fn label_and_uuid_show_and_set() {
    let scene = small();
    assert_eq!(scene.output("label", &[]), "\n");
    assert_eq!(scene.output("label", &["my disk"]), "my disk\n");
    assert_eq!(scene.json("label", &[])["label"], "my disk");
    scene.xebec("label", &["thirteen long"]).assert().code(1);
    let old = scene.output("uuid", &[]);
    let new = scene.output("uuid", &["generate"]);
    assert_ne!(old, new);
    scene.assert_file_intact();
    let json = scene.json("uuid", &[]);
    assert_eq!((json["uuid"].as_str(), json["meta_uuid"].as_str()), (Some(new.trim()), Some(old.trim())));
    assert!(scene.output("features", &[]).contains("meta_uuid"));
    // Changes with the new UUID are valid.
    scene.xebec("touch", &["/new"]).assert().success();
    let other = "01234567-89ab-4def-8123-456789abcdef\n";
    assert_eq!(scene.output("uuid", &[other.trim()]), other);
    assert_eq!(scene.output("uuid", &["restore"]), old);
    assert!(!scene.output("features", &[]).contains("meta_uuid"));
    scene.xebec("uuid", &["none"]).assert().code(2);
    scene.xebec("uuid", &["00000000-0000-0000-0000-000000000000"]).assert().code(1);
    scene.assert_file_intact();
}

#[test]
fn features_adds_each_supported_feature() {
    let scene = Scene::new(Sample::Clean);
    std::fs::remove_file(scene.image()).unwrap();
    let metadata = "reflink=0,inobtcount=0,bigtime=0";
    // The default log is of minimum size; some features need a larger one.
    let options = ["--size", "300m", "-m", metadata, "-i", "nrext64=0", "-l", "size=40m"];
    scene.xebec("mkfs", &options).assert().success();
    scene.xebec("mkdir", &["-p", "/etc/deep"]).assert().success();
    scene.xebec("write", &["--text", "hello", "/etc/deep/file"]).assert().success();
    for feature in ["bigtime", "nrext64", "exchange", "inobtcount", "reflink"] {
        assert!(!scene.output("features", &[]).contains(feature));
        assert!(scene.output("features", &["--add", feature]).contains(feature));
        assert!(stderr(&mut scene.xebec("features", &["--add", feature])).contains("already"));
        scene.assert_file_intact();
    }
    scene.xebec("reflink", &["/etc/deep/file", "/etc/other"]).assert().success();
    scene.xebec("touch", &["-d", "2200-01-01T00:00:00Z", "/etc/late"]).assert().success();
    scene.assert_file_intact();
    scene.xebec("features", &["--add", "rmapbt"]).assert().code(2);
}

#[test]
fn clone_copies_files_and_changes_the_uuid() {
    for sample in Sample::ALL {
        let scene = Scene::new(sample);
        let copy = scene.beside("copy.xfs");
        let named = copy.display().to_string();
        let tree = scene.output("ls", &["-lR", "/"]);
        let before = std::fs::read(scene.image()).unwrap();
        let json = scene.json("clone", &[&named]);
        assert_ne!(json["uuid"].as_str(), Some(scene.output("uuid", &[]).trim()));
        assert_eq!(before, std::fs::read(scene.image()).unwrap());
        let listed = xebec().args(["ls", &named, "-lR", "/"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&listed.stdout), tree);
        xebec().args(["check", &named]).assert().success();
        assert!(stderr(&mut scene.xebec("clone", &[&named])).contains("--force"));
        let itself = scene.image().display().to_string();
        assert!(stderr(&mut scene.xebec("clone", &["--force", &itself])).contains("is the same file"));
        scene.xebec("clone", &["--force", "--same-uuid", "--no-replay", &named]).assert().success();
        assert!(before == std::fs::read(&copy).unwrap(), "it is copied as it lies");
        // Regression: the copy kept a dirty log.
        scene.xebec("clone", &["--force", "--same-uuid", &named]).assert().success();
        let info = xebec().args(["info", "--json", &named]).output().unwrap().stdout;
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&info).unwrap()["log"]["state"], "clean");
        assert_eq!(before == std::fs::read(&copy).unwrap(), sample == Sample::Clean);
        assert_eq!(before, std::fs::read(scene.image()).unwrap());
        let uuid = xebec().args(["uuid", &named]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&uuid.stdout), scene.output("uuid", &[]));
        let left: Vec<_> = std::fs::read_dir(copy.parent().unwrap()).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().contains("unfinished")));
    }
}

/// Regression: the external log was replayed into the copy and got its UUID, and the source had no log.
#[test]
fn clone_refuses_an_external_log() {
    let scene = Scene::new(Sample::Clean);
    let [disk, log, copy] = ["disk", "log", "copy"].map(|name| scene.beside(name).display().to_string());
    let size = format!("logdev={log},size=20m");
    xebec().args(["mkfs", &disk, "--size", "64m", "-l", &size]).assert().success();
    let before = std::fs::read(&log).unwrap();
    for more in [&[][..], &["--same-uuid"]] {
        let mut clone = xebec();
        clone.args(["clone", "--log-device", &log, &disk, &copy]).args(more).assert().code(1);
        assert!(stderr(&mut clone).contains("external log"), "{more:?}");
    }
    assert!(before == std::fs::read(&log).unwrap() && !std::path::Path::new(&copy).exists());
}

#[test]
fn sync_updates_an_existing_image() {
    let scene = small();
    let tree = scene.beside("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("sub/file"), b"one").unwrap();
    std::fs::write(tree.join("a:b"), b"two").unwrap();
    let sync = |words: &[&str], at: &str| {
        let mut sync = xebec();
        sync.arg("sync").arg(&tree).arg(format!("{}{at}", scene.image().display())).args(words);
        sync
    };
    let output = |words: &[&str], at: &str| {
        String::from_utf8(sync(words, at).assert().success().get_output().stdout.clone()).unwrap()
    };
    let told = output(&["--dry-run", "--no-delete"], "");
    assert!(told.contains("created  sub/file\n") && told.contains("amended  .\n"), "{told}");
    assert!(!told.contains("removed"), "{told}");
    // Into a directory of the image; the rest is kept.
    output(&["--owner", "0:0", "--mode", "u=rwX,go=rX"], ":/etc");
    assert_eq!(scene.output("find", &["/etc"]).lines().count(), 4);
    assert_eq!(scene.output("cat", &["/etc/sub/file"]), "one");
    let json: serde_json::Value =
        serde_json::from_str(&output(&["--json", "--owner", "0:0", "--mode", "u=rwX,go=rX"], ":/etc"))
            .unwrap();
    assert_eq!((json["unchanged"].as_u64(), json["created"].as_u64()), (Some(4), Some(0)), "{json}");
    std::fs::remove_file(tree.join("a:b")).unwrap();
    assert!(output(&["-v"], "").contains("removed  etc\n"));
    assert_eq!(scene.output("find", &["/"]).lines().count(), 3);
    scene.xebec("check", &[]).assert().success();
    // Invalid targets.
    assert!(stderr(&mut sync(&[], ":/sub/file")).contains("not a directory"));
    assert!(stderr(&mut sync(&[], ":/sub/file/below")).contains("below"));
    std::fs::write(tree.join("large"), vec![1; 80 << 20]).unwrap();
    let full = stderr(&mut sync(&[], ""));
    assert!(full.contains("xebec grow"), "{full}");
    scene.xebec("check", &[]).assert().success();
    scene.xebec("grow", &["+100m"]).assert().success();
    output(&[], "");
    assert_eq!(scene.output("find", &["/", "--size", "+1M"]).lines().count(), 1);
}

#[test]
fn sync_creates_the_image_and_directories() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir_all(path("tree/deep")).unwrap();
    std::fs::write(path("tree/deep/file"), b"contents").unwrap();
    std::fs::write(path("tree/left.o"), b"object").unwrap();
    let sync = |target: &str, options: &[&str]| {
        let mut sync = xebec();
        sync.arg("sync").arg(path("tree")).arg(path(target)).args(options);
        sync
    };
    let names = |image: &str| {
        let output = xebec().arg("find").arg(path(image)).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let told = sync("new.xfs:/srv/www", &["-n", "--exclude", "*.o"]).output().unwrap();
    let message = String::from_utf8(told.stdout).unwrap();
    assert!(
        told.status.success() && message.contains("deep/file") && !message.contains("left.o"),
        "{message}"
    );
    assert!(!folder.path().join("new.xfs").exists());
    let made = sync("new.xfs:/srv/www", &["--exclude", "*.o", "--owner", "7:8", "--json"]).output().unwrap();
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!((&made["command"], &made["created"], &made["bytes"]), (&"sync".into(), &3.into(), &8.into()));
    let all = "/\n/srv\n/srv/www\n/srv/www/deep\n/srv/www/deep/file\n";
    assert_eq!(names("new.xfs"), all);
    let again = sync("new.xfs:/srv/www", &["--exclude", "*.o", "--owner", "7:8", "--json"]).output().unwrap();
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        (&again["unchanged"], &again["amended"], &again["created"]),
        (&3.into(), &0.into(), &0.into())
    );
    // A directory in an existing image is created with its parents, but not in a dry run.
    sync("new.xfs:/opt/a", &["-n"]).assert().success();
    assert_eq!(names("new.xfs"), all);
    sync("new.xfs:/opt/a", &[]).assert().success();
    assert!(names("new.xfs").contains("/opt/a/deep/file\n"));
    assert!(stderr(&mut sync("new.xfs:/opt/a/left.o/b", &[])).contains("left.o"));
    sync("other.xfs", &[]).assert().success();
    assert_eq!(names("other.xfs"), "/\n/deep\n/deep/file\n/left.o\n");
    for image in ["new.xfs", "other.xfs"] {
        xebec().arg("check").arg(path(image)).assert().success();
    }
    // A failure leaves no image.
    std::fs::write(path("list"), "no/such uid=1\n").unwrap();
    sync("third.xfs", &["--overrides", &path("list")]).assert().failure();
    assert!(!folder.path().join("third.xfs").exists());
}

#[test]
fn statistics_are_printed_with_verbose_or_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (tree, image) = (path("tree"), path("image"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(path("tree/file"), "contents").unwrap();
    let run = |arguments: &[&str]| {
        let output = xebec().args(arguments).assert().success().get_output().clone();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    for arguments in [
        &["create", &image, "--from", &tree][..],
        &["extract", &image, "--to", &path("out")],
        &["extract", &image, "--to", &path("out.tar.gz")],
        &["sync", &tree, &image],
        &["trim", &image],
        &["cp", &image, &path("tree/file"), "/other"],
        &["tar-in", &image, &path("out.tar.gz")],
        &["clone", &image, &path("copy")],
    ] {
        assert_eq!(run(arguments), (String::new(), String::new()), "{arguments:?}");
    }
    let (shown, told) = run(&["create", "-v", &image, "--from", &tree, "-f"]);
    assert!(shown.is_empty() && told.contains("2 files, 8 bytes in "), "{told}");
    let told = run(&["extract", "-v", &image, "--to", &path("again")]).1;
    assert!(told.contains("2 files, 8 bytes in "), "{told}");
    let (shown, told) = run(&["sync", "-v", &tree, &image]);
    assert!(
        shown.is_empty() && told.contains("0 created, 0 replaced, 0 amended, 0 removed, 2 unchanged"),
        "{told}"
    );
    assert!(run(&["trim", "-v", &image]).0.contains("; the file takes "));
    // JSON documents always contain them.
    for arguments in [&["sync", "--json", &tree, &image][..], &["trim", "--json", &image]] {
        let (shown, told) = run(arguments);
        assert!(
            told.is_empty() && serde_json::from_str::<serde_json::Value>(&shown).is_ok(),
            "{shown} {told}"
        );
    }
}
