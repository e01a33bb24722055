//! mkfs: volumes, output, and files that it does not overwrite.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use assert_cmd::Command;
use samples::Sample;

use crate::{Scene, stderr, xebec};

/// `xebec mkfs IMAGE ARGUMENTS...`
fn mkfs(image: &Path, arguments: &[&str]) -> Command {
    let mut command = xebec();
    command.arg("mkfs").arg(image).args(arguments);
    command
}

/// The JSON document of a successful run.
fn document(image: &Path, arguments: &[&str]) -> serde_json::Value {
    let output =
        mkfs(image, &[arguments, &["--json"]].concat()).assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts that `check` finds no errors.
fn assert_clean(image: &Path) {
    xebec().arg("check").arg(image).assert().success();
}

#[test]
fn mkfs_creates_a_file_of_the_given_size() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    let shown = document(&image, &["--size", "32m", "-L", "small", "-b", "size=1024", "-d", "agcount=2"]);
    assert_eq!(image.metadata().unwrap().len(), 32 << 20);
    assert_eq!((shown["label"].as_str(), shown["written"].as_bool()), (Some("small"), Some(true)));
    let geometry = &shown["geometry"];
    assert_eq!(
        (geometry["block_bytes"].as_u64(), geometry["ag_count"].as_u64(), geometry["blocks"].as_u64()),
        (Some(1024), Some(2), Some(32 << 10))
    );
    assert_clean(&image);
    xebec().arg("ls").arg(&image).assert().success().stdout("");
    let info = xebec().args(["info", "--json"]).arg(&image).assert().success().get_output().stdout.clone();
    let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info["geometry"], shown["geometry"]);
}

#[test]
fn for_selects_features_that_readers_support() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    let features = |readers: &str| {
        let shown = document(&image, &["--size", "300m", "-f", "--for", readers]);
        shown["features"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let has = |features: &Vec<String>, names: &[&str]| -> Vec<bool> {
        names.iter().map(|name| features.iter().any(|feature| feature == name)).collect()
    };
    let asked = ["reflink", "sparse", "bigtime", "inobtcount", "rmapbt", "nrext64", "ftype"];
    assert_eq!(has(&features("linux-3.18"), &asked), [false, false, false, false, false, false, true]);
    assert_eq!(has(&features("linux-5.15"), &asked), [true, true, true, true, false, false, true]);
    assert_eq!(has(&features("linux-6.12"), &asked), [true; 7]);
    assert_eq!(has(&features("grub"), &asked), [true, true, true, true, true, false, true]);
    assert_eq!(has(&features("grub-2.02,linux-6.6"), &asked), [true, false, false, true, true, false, true]);
    let readers = |arguments: &[&str]| {
        mkfs(&image, &[&["--size", "300m", "-f"], arguments].concat()).assert().success();
        let shown = xebec().arg("info").arg(&image).output().unwrap().stdout;
        let shown = String::from_utf8(shown).unwrap();
        shown.lines().find_map(|line| line.strip_prefix("readers  =")).unwrap().to_owned()
    };
    assert_eq!(
        readers(&["--for", "linux-5.4"]),
        "Linux from 4.2 (sparse), for writing from 4.9 (reflink); GRUB from 2.04 (sparse)"
    );
    assert_eq!(
        readers(&["-i", "exchange=1", "-n", "parent=1"]),
        "Linux from 6.10 (exchange, parent); GRUB from 2.14 (nrext64, exchange, parent)"
    );
    assert_eq!(
        readers(&["-b", "size=8192", "-i", "nrext64=0"]).split(';').next(),
        Some("Linux from 6.12 (blocks of 8192 bytes)")
    );
}

#[test]
fn for_refuses_unsupported_options() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    let cases: [(&[&str], &str); 5] = [
        (&["--for", "linux-6.6", "-b", "size=16384"], "linux-6.6: does not support blocks of 16384 bytes"),
        (&["--for", "linux-5.4", "-m", "bigtime=1"], "linux-5.4: does not support bigtime"),
        (&["--for", "grub-2.12", "-i", "nrext64=1"], "grub-2.12: does not support nrext64"),
        (&["--for", "linux-2.6"], "reads version 5 of XFS since 3.16"),
        (&["--for", "beos"], "`beos` is no reader"),
    ];
    for (arguments, words) in cases {
        let mut command = mkfs(&image, &[&["--size", "300m"], arguments].concat());
        let message = stderr(&mut command);
        assert!(message.contains(words), "{message}");
        command.assert().code(2);
        assert!(!image.exists());
    }
    // Linux 6.1 supports nrext64, as an experimental feature: it can be enabled explicitly.
    mkfs(&image, &["--size", "300m", "--for", "linux-6.1", "-i", "nrext64=1"]).assert().success();
}

#[test]
fn existing_data_is_overwritten_only_with_force() {
    let scene = Scene::new(Sample::Clean);
    let before = std::fs::read(scene.image()).unwrap();
    for arguments in [&[][..], &["--size", "16m"], &["-N"]] {
        let mut command = scene.xebec("mkfs", arguments);
        let message = stderr(&mut command);
        assert!(
            message.contains("sample.xfs contains ") && message.contains("XFS") && message.contains("-f"),
            "{message}"
        );
        command.assert().code(1).stdout("");
    }
    assert_eq!(std::fs::read(scene.image()).unwrap(), before, "the old volume is untouched");
    scene.xebec("mkfs", &["-f", "-q"]).assert().success().stdout("");
    assert_clean(scene.image());
    assert_eq!(scene.output("ls", &[]), "", "nothing of the old tree is left");
    // Other file systems are recognized, too: the magic of ext4 is at offset 1080.
    let disk = scene.beside("disk");
    let file = File::create(&disk).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    let message = stderr(&mut mkfs(&disk, &[]));
    assert!(message.contains("ext") && message.contains("-f"), "{message}");
    mkfs(&disk, &["-f"]).assert().success();
    assert_clean(&disk);
}

#[test]
fn a_file_is_truncated_only_with_force() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    assert!(stderr(&mut mkfs(&image, &["--size", "32m"])).contains("would be truncated"));
    mkfs(&image, &["--size", "32m"]).assert().code(2);
    assert_eq!(image.metadata().unwrap().len(), 64 << 20);
    mkfs(&image, &["--size", "32m", "-f"]).assert().success();
    assert_eq!(image.metadata().unwrap().len(), 32 << 20);
    mkfs(&image, &["--size", "48m", "-f"]).assert().success();
    assert_eq!(image.metadata().unwrap().len(), 48 << 20);
    assert_clean(&image);
}

#[test]
fn dry_run_shows_the_geometry_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    let options = ["--size", "100m", "--seed", "dry", "-d", "agcount=3"];
    let shown = |more: &[&str]| {
        let output = mkfs(&image, &[&options, more].concat()).assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    };
    let planned = shown(&["-N"]);
    let document = document(&image, &[&options[..], &["-N"]].concat());
    assert_eq!(document["written"].as_bool(), Some(false));
    assert_eq!(document["geometry"]["ag_count"].as_u64(), Some(3));
    assert!(!image.exists(), "a file was made");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was left");
    assert_eq!(planned, shown(&[]));
    assert!(planned.starts_with("meta-data=") && image.exists(), "{planned}");
    // An existing file is not changed.
    let other = folder.path().join("other");
    std::fs::write(&other, vec![0xa5; 16 << 20]).unwrap();
    mkfs(&other, &["-N", "-f"]).assert().success();
    assert!(std::fs::read(&other).unwrap().iter().all(|byte| *byte == 0xa5));
}

#[test]
fn seed_and_source_date_epoch_are_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |name: &str, seed: &str, time: &str| {
        let image = folder.path().join(name);
        let mut command = mkfs(&image, &["--size", "16m", "--seed", seed, "-q"]);
        command.env("SOURCE_DATE_EPOCH", time).assert().success();
        std::fs::read(&image).unwrap()
    };
    let first = bytes("first", "mine", "1700000000");
    assert!(first == bytes("second", "mine", "1700000000"), "equal options gave other bytes");
    assert!(first != bytes("third", "yours", "1700000000"), "the seed does not count");
    assert!(first != bytes("fourth", "mine", "1700000001"), "the time does not count");
    let mut stat = xebec();
    stat.arg("stat").arg(folder.path().join("first")).args(["/", "--json"]);
    let root = stat.assert().success().get_output().stdout.clone();
    let root = String::from_utf8(root).unwrap();
    assert!(root.contains(r#""btime": "1700000000.000000000""#), "{root}");
    let image = folder.path().join("fifth");
    let mut command = mkfs(&image, &["--size", "16m"]);
    command.env("SOURCE_DATE_EPOCH", "noon").assert().code(1);
    assert!(!image.exists());
}

#[test]
fn populate_copies_a_directory() {
    let scene = Scene::new(Sample::Clean);
    let (source, image) = (scene.beside("source"), scene.beside("made.xfs"));
    std::fs::create_dir_all(source.join("dir")).unwrap();
    std::fs::write(source.join("dir/file"), vec![7; 100_000]).unwrap();
    let source = source.to_str().unwrap();
    mkfs(&image, &["--size", "64m", "-q", "-p", source]).assert().success();
    assert_clean(&image);
    let shown = xebec().arg("cat").arg(&image).arg("/dir/file").assert().success();
    assert!(shown.get_output().stdout == vec![7; 100_000]);
    let other = scene.beside("other.xfs");
    let file = format!("{source}/dir/file");
    mkfs(&other, &["--size", "64m", "-p", &file]).assert().code(2);
    assert!(!other.exists());
}

#[test]
fn refused_options_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    let cases: [(&[&str], &str); 9] = [
        (&[], "--size"),
        (&["--size", "1m"], "16 MiB"),
        (&["--size", "64m", "-b", "size=3000"], "power of two"),
        (&["--size", "64m", "-d", "agcount=64"], "too small"),
        (&["--size", "64m", "-d", "colour=red"], "agcount"),
        (&["--size", "64m", "-m", "crc=0"], "crc=1"),
        (&["--size", "64m", "-r", "size=1m"], "realtime"),
        (&["--size", "64m", "-L", "thirteen_long"], "12 bytes"),
        (&["--size", "64m", "-l", "size=8b"], "-l size"),
    ];
    for (arguments, part) in cases {
        let mut command = mkfs(&image, arguments);
        let message = stderr(&mut command);
        assert!(
            message.starts_with("xebec: ") && message.lines().count() == 1 && message.contains(part),
            "{message}"
        );
        command.assert().code(2).stdout("");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{arguments:?}");
    }
}

/// Without --grow-to, a small volume that grows to a terabyte has thousands of AGs and a small log.
#[test]
fn grow_to_sizes_ags_and_log_for_the_later_size() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    let numbers = |shown: &serde_json::Value| {
        ["ag_blocks", "ag_count", "blocks"].map(|key| shown["geometry"][key].as_u64().unwrap())
    };
    for (size, grown, options) in [
        ("300m", "1g", ""),
        ("1g", "3g", "-d su=64k,sw=5"),
        ("5g", "12g", "-b size=1024"),
        ("300g", "1t", "-L data"),
    ] {
        let options: Vec<_> = options.split_whitespace().collect();
        let later = document(&image, &[&["-N", "-f", "--size", grown], &options[..]].concat());
        let made = document(&image, &[&["-f", "--size", size, "--grow-to", grown], &options[..]].concat());
        assert_clean(&image);
        assert_eq!(made["geometry"]["log_blocks"], later["geometry"]["log_blocks"], "{size} to {grown}");
        xebec().arg("grow").arg(&image).arg(grown).assert().success();
        assert_clean(&image);
        let info =
            xebec().args(["info", "--json"]).arg(&image).assert().success().get_output().stdout.clone();
        assert_eq!(numbers(&serde_json::from_slice(&info).unwrap()), numbers(&later), "{size} to {grown}");
    }
    // A volume too small for an AG of that size has two AGs, the first as large as possible.
    let made = document(&image, &["-f", "--size", "100m", "--grow-to", "1t"]);
    assert_eq!(numbers(&made), [84 << 8, 2, 100 << 8]);
    assert_clean(&image);
}

#[test]
fn grow_to_refuses_impossible_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    for (arguments, problem) in [
        (&["--size", "1g", "--grow-to", "512m"][..], "less than the size of the volume, 1073741824"),
        (&["--size", "31m", "--grow-to", "1g"], "at least 33554432 bytes (32 MiB)"),
        (&["--size", "1g", "--grow-to", "2g", "-d", "agcount=4"], "conflicts with -d agcount and -d agsize"),
        (&["--size", "1g", "--grow-to", "2g", "-d", "agsize=64m"], "conflicts with -d agcount and -d agsize"),
    ] {
        let message = text(&mkfs(&image, arguments).assert().code(2).get_output().stderr);
        assert!(
            message.starts_with("xebec: ") && message.contains("--grow-to: ") && message.contains(problem),
            "{message}"
        );
        assert!(!image.exists());
    }
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let create = |grown: &str| {
        let mut create = xebec();
        create.arg("create").arg(&image).arg("--from").arg(&source).args(["--grow-to", grown]).assert()
    };
    let message = text(&create("10m").code(2).get_output().stderr);
    assert!(message.contains("--grow-to: 10485760 bytes are too few: it begins with 33554432"), "{message}");
    create("10g").success();
    assert_clean(&image);
}
