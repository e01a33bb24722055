//! Copies between the host and volumes. Comparisons with GNU cp are in `proof/interop/tests/commands`.
#![expect(clippy::unwrap_used, reason = "a failing test reports the line")]

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::{Device, Operation};
use devices::{Fault, FaultDevice, When};
use format::inode::FileType;
use rustix::fs::{CWD, Mode, mknodat, setxattr};
use volume::{NewFile, SetMetadata, Volume};
use xebec_transfer::copy::*;
use xebec_transfer::{Cancel, Counts, Error, Excludes, Progress};

mod scene;

use scene::Made;

/// All events of a copy, and its report.
struct Copied {
    events: Vec<CopyEvent>,
    report: CopyReport,
}

impl Copied {
    /// The messages of failed and of skipped files.
    fn messages(&self) -> Vec<String> {
        let message = |event: &CopyEvent| match event {
            CopyEvent::Failed(error) => Some(error.to_string()),
            CopyEvent::Skipped(error) => Some(format!("skipped {error}")),
            _ => None,
        };
        self.events.iter().filter_map(message).collect()
    }

    fn failure(&self) -> &CopyError {
        let failure = self.events.iter().find_map(|event| match event {
            CopyEvent::Failed(error) => Some(error),
            _ => None,
        });
        failure.unwrap()
    }

    #[track_caller]
    fn expect_success(self) -> CopyReport {
        assert!(self.messages().is_empty() && self.report.failed == 0, "{:?}", self.events);
        self.report
    }
}

#[track_caller]
fn copy(copy: &TreeCopy<'_>, sources: &[&str], target: &str) -> Copied {
    let mut events = Vec::new();
    let report = copy.run(sources, target, &mut |event| events.push(event)).unwrap();
    Copied { events, report }
}

fn archive() -> CopyRules {
    CopyRules::archive()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A tree with hard links, a hole, an extended attribute, and each type of file that does not require root.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("deep")).unwrap();
    fs::write(root.join("file"), "contents").unwrap();
    fs::hard_link(root.join("file"), root.join("deep/hard")).unwrap();
    symlink("file", root.join("link")).unwrap();
    mknodat(CWD, root.join("pipe"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 30 << 20).unwrap();
    setxattr(root.join("file"), "user.one", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::set_permissions(root.join("deep"), fs::Permissions::from_mode(0o500)).unwrap();
}

/// Compares a copy on the host with the tree.
#[track_caller]
fn expect_same(tree: &Path, copy: &Path) {
    for name in ["", "file", "deep", "deep/hard", "link", "pipe", "sparse"] {
        let [expected, found] = [tree, copy].map(|root| root.join(name).symlink_metadata().unwrap());
        assert_eq!(found.mode(), expected.mode(), "{name}");
        if !found.is_dir() {
            assert_eq!((found.len(), found.nlink()), (expected.len(), expected.nlink()), "{name}");
        }
        assert_eq!(found.modified().unwrap(), expected.modified().unwrap(), "{name}");
    }
    assert_eq!(fs::read(copy.join("file")).unwrap(), b"contents");
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("file"));
    assert!(copy.join("pipe").symlink_metadata().unwrap().file_type().is_fifo());
    assert_eq!(copy.join("file").metadata().unwrap().ino(), copy.join("deep/hard").metadata().unwrap().ino());
    assert!(fs::read(copy.join("sparse")).unwrap() == fs::read(tree.join("sparse")).unwrap());
    assert!(copy.join("sparse").metadata().unwrap().blocks() < 1000);
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(copy.join("file"), "user.one", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"1");
}

/// The tree goes from the host through every pair of ends, and back.
#[test]
fn all_pairs_of_ends_preserve_a_tree() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    tree(&path("tree"));
    let (one, two) = (Made::new(), Made::new());
    // The host: to itself, and to a volume; within the volume, and to another one.
    let host = TreeCopy::new(CopySource::Host, CopyTarget::Host).rules(archive());
    copy(&host, &[text(&path("tree"))], text(&path("copy"))).expect_success();
    expect_same(&path("tree"), &path("copy"));
    one.look(|one| {
        let into = TreeCopy::new(CopySource::Host, one).rules(archive());
        let report = copy(&into, &[text(&path("tree"))], "/in").expect_success();
        assert_eq!((report.files, report.not_preserved), (7, 0));
        // The data in the sparse file is a block of the host.
        assert!((12..1 << 20).contains(&report.bytes), "{report:?}");
        let within = copy(&TreeCopy::new(one, one).rules(archive()), &["/in"], "/within").expect_success();
        assert_eq!((within.files, within.bytes), (7, 0), "blocks are shared");
        two.look(|two| {
            copy(&TreeCopy::new(one, two).rules(archive()), &["/within"], "/across").expect_success();
            copy(&TreeCopy::new(two, CopyTarget::Host).rules(archive()), &["/across"], text(&path("out")))
                .expect_success();
        });
    });
    expect_same(&path("tree"), &path("out"));
    // The reader: to the host, and to a volume.
    let reader = read::Volume::open(one.device()).unwrap();
    let out = TreeCopy::new(&reader, CopyTarget::Host).rules(archive());
    copy(&out, &["/within"], text(&path("read"))).expect_success();
    expect_same(&path("tree"), &path("read"));
    two.look(|two| {
        copy(&TreeCopy::new(&reader, two).rules(archive()), &["/within"], "/read").expect_success();
        copy(&TreeCopy::new(two, CopyTarget::Host).rules(archive()), &["/read"], text(&path("again")))
            .expect_success();
    });
    expect_same(&path("tree"), &path("again"));
    one.judge();
    two.judge();
}

/// Inode numbers of two volumes are equal: a file of one was "the same file" as one of the other.
#[test]
fn files_of_two_volumes_are_never_the_same() {
    let (one, two) = (Made::new(), Made::new());
    for (made, contents) in [(&one, "one"), (&two, "two")] {
        made.look(|volume| put(volume, "/file", contents));
    }
    one.look(|one| {
        two.look(|two| {
            let stat = |volume: &Volume| volume.resolve(b"/file", false).unwrap();
            assert_eq!(stat(one).ino, stat(two).ino);
            copy(&TreeCopy::new(one, two), &["/file"], "/file").expect_success();
            let same = copy(&TreeCopy::new(two, two), &["/file"], "/file");
            assert!(matches!(same.failure().reason, CopyReason::SameFile { .. }), "{:?}", same.events);
        });
    });
    assert_eq!(two.contents("/file"), b"one");
}

/// Creates a file.
fn put(volume: &Volume, path: &str, contents: &str) {
    let mut options = volume::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).open(volume, path.as_bytes()).unwrap();
    assert_eq!(file.write_at(contents.as_bytes(), 0).unwrap(), contents.len());
}

/// Cancels when some bytes were copied.
struct CancelAfter(Cancel, u64);

impl Progress for CancelAfter {
    fn advance(&self, done: Counts) {
        if done.bytes >= self.1 {
            self.0.cancel();
        }
    }
}

const LARGE: u64 = 8 << 20;

/// Files `1` to `3`, of 8 MiB each.
fn large_files(root: &Path) {
    fs::create_dir(root).unwrap();
    for name in 1..=3 {
        fs::write(root.join(name.to_string()), vec![name; LARGE as usize]).unwrap();
    }
}

/// Copies to the host and to a volume, and cancels in the middle of the second file.
#[test]
fn a_cancelled_copy_leaves_no_incomplete_file() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, out) = (folder.path().join("tree"), folder.path().join("out"));
    large_files(&tree);
    let sources = ["1", "2", "3"].map(|name| tree.join(name));
    let sources = [&sources[0], &sources[1], &sources[2]].map(|path| text(path));
    let run = |to: CopyTarget<'_>, target: &str| {
        let cancel = Cancel::default();
        let progress = CancelAfter(cancel.clone(), LARGE + LARGE / 2);
        let copy = TreeCopy::new(CopySource::Host, to).cancel(cancel).progress(&progress);
        let error = copy.run(&sources, target, &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
    };
    fs::create_dir(&out).unwrap();
    run(CopyTarget::Host, text(&out));
    let names: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["1"]);
    assert_eq!(out.join("1").metadata().unwrap().len(), LARGE);
    let made = Made::new();
    made.look(|volume| {
        volume.create(volume.root(), b"out", &NewFile::directory()).unwrap();
        run(volume.into(), "/out");
    });
    assert!(made.has("/out/1") && !made.has("/out/2") && !made.has("/out/3"));
    // A file that is overwritten is completed.
    fs::write(out.join("2"), "old").unwrap();
    run(CopyTarget::Host, text(&out));
    assert!(fs::read(out.join("2")).unwrap() == vec![2; LARGE as usize] && !out.join("3").exists());
    made.judge();
}

/// A copy that is cancelled before it begins copies nothing.
#[test]
fn nothing_is_copied_after_a_cancellation() {
    let folder = tempfile::tempdir().unwrap();
    let (file, new) = (folder.path().join("file"), folder.path().join("new"));
    fs::write(&file, "contents").unwrap();
    let cancel = Cancel::default();
    cancel.cancel();
    let copy = TreeCopy::new(CopySource::Host, CopyTarget::Host).cancel(cancel);
    let error = copy.run(&[text(&file)], text(&new), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Cancelled) && !new.exists(), "{error}");
}

/// A volume with a file `/file` of 8 MiB whose second half cannot be read, and a file `/good`.
fn half_readable(folder: &Path) -> (Made, Arc<FaultDevice>) {
    let made = Made::new();
    let tree = folder.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![7; LARGE as usize]).unwrap();
    fs::write(tree.join("good"), "good").unwrap();
    made.look(|volume| {
        copy(&TreeCopy::new(CopySource::Host, volume).rules(archive()), &[text(&tree)], "/").expect_success();
    });
    let mut image = vec![0; usize::try_from(made.device().size()).unwrap()];
    made.device().read_at(0, &mut image).unwrap();
    let is_file = |block: &[u8]| block.iter().all(|byte| *byte == 7);
    let start = image.chunks(4096).position(is_file).unwrap() as u64 * 4096;
    let half = start + LARGE / 2;
    let fault = Fault::io_error(Operation::Read, When::Always).within(half..half + 4096);
    let device = Arc::new(FaultDevice::new(made.device(), [fault]));
    (made, device)
}

/// A source that fails in the middle: the part before remains, or nothing, or the old target.
#[test]
fn a_source_that_fails_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_made, device) = half_readable(folder.path());
    let reader = read::Volume::open(device).unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    let sources = ["/tree/file", "/tree/good"];
    // The part that could be read remains in the target, as GNU cp leaves it.
    let copied = copy(&TreeCopy::new(&reader, CopyTarget::Host), &sources, text(&out));
    let failure = copied.failure();
    assert!(failure.is_unreadable() && failure.side == CopySide::Source, "{failure}");
    assert_eq!((&failure.path[..], failure.errno()), (&b"/tree/file"[..], Some(base::errno::EIO)));
    assert!(failure.to_string().starts_with("\"/tree/file\": "), "{failure}");
    assert_eq!((copied.report.failed, copied.report.files), (1, 1));
    let length = out.join("file").metadata().unwrap().len();
    assert!(length > 0 && length <= LARGE / 2, "{length}");
    assert_eq!(fs::read(out.join("good")).unwrap(), b"good");
    // Unreadable files are skipped: a new one is removed, an existing one is kept.
    let skipping = CopyRules { ignore_unreadable: true, ..CopyRules::default() };
    let skip = || TreeCopy::new(&reader, CopyTarget::Host).rules(skipping);
    fs::write(out.join("file"), "old").unwrap();
    let copied = copy(&skip(), &sources, text(&out));
    assert_eq!((copied.report.failed, copied.report.unreadable, copied.report.files), (0, 1, 1));
    assert!(copied.messages()[0].starts_with("skipped "), "{:?}", copied.messages());
    assert_eq!(fs::read(out.join("file")).unwrap(), b"old");
    fs::remove_file(out.join("file")).unwrap();
    assert_eq!(copy(&skip(), &sources, text(&out)).report.unreadable, 1);
    assert!(!out.join("file").exists());
    // A volume as target: the unreadable file is skipped, too.
    let target = Made::new();
    target.look(|volume| {
        let skip = TreeCopy::new(&reader, volume).rules(CopyRules { recursive: true, ..skipping });
        assert_eq!(copy(&skip, &["/tree"], "/").report.unreadable, 1);
    });
    assert!(target.has("/tree/good") && !target.has("/tree/file"));
    target.judge();
}

/// Skips unreadable files, and removes targets: all of them, or those with other names.
fn skipping_and_removing() -> [CopyRules; 2] {
    [
        CopyRules {
            ignore_unreadable: true,
            remove_destination: true,
            recursive: true,
            ..CopyRules::default()
        },
        CopyRules { ignore_unreadable: true, ..archive() },
    ]
}

/// A target that had to be removed was removed before the source was read, and lost if the source was unreadable: by
/// `remove_destination`, and because other names of it had to keep its contents.
#[test]
fn the_target_of_an_unreadable_source_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (made, device) = half_readable(folder.path());
    let reader = read::Volume::open(device.clone()).unwrap();
    let engine = Volume::open(device, volume::Options::default()).unwrap();
    let out = folder.path().join("out");
    fs::create_dir_all(out.join("tree")).unwrap();
    let (file, other) = (out.join("tree/file"), out.join("other"));
    fs::write(&file, "old").unwrap();
    fs::hard_link(&file, &other).unwrap();
    let target = Made::new();
    target.look(|volume| {
        volume.create(volume.root(), b"tree", &NewFile::directory()).unwrap();
        put(volume, "/tree/file", "old");
        volume.link(volume.resolve(b"/tree/file", false).unwrap(), volume.root(), b"other").unwrap();
        for rules in skipping_and_removing() {
            for from in [CopySource::from(&reader), CopySource::from(&engine)] {
                for (to, path) in [(CopyTarget::Host, text(&out)), (volume.into(), "/")] {
                    let copied = copy(&TreeCopy::new(from, to).rules(rules), &["/tree"], path);
                    let CopyReport { failed, unreadable, .. } = copied.report;
                    assert_eq!((failed, unreadable), (0, 1), "{:?}", copied.events);
                }
            }
            // A file of the host.
            let copied = copy(
                &TreeCopy::new(CopySource::Host, volume).rules(rules),
                &["/proc/self/mem"],
                "/tree/file",
            );
            assert_eq!(copied.report.unreadable, 1, "{:?}", copied.events);
        }
    });
    assert_eq!((fs::read(&file).unwrap(), fs::read(&other).unwrap()), (b"old".to_vec(), b"old".to_vec()));
    assert_eq!(file.metadata().unwrap().ino(), other.metadata().unwrap().ino());
    assert_eq!(
        (target.contents("/tree/file"), target.contents("/other")),
        (b"old".to_vec(), b"old".to_vec())
    );
    assert_eq!(target.contents("/tree/good"), b"good");
    target.judge();
    drop(made);
}

/// A source that is refused, or that cannot be opened, costs no target either.
#[test]
fn the_target_of_a_refused_source_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, file) = (folder.path().join("socket"), folder.path().join("file"));
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    fs::write(&file, "old").unwrap();
    let rules = CopyRules { remove_destination: true, ..CopyRules::default() };
    let host = TreeCopy::new(CopySource::Host, CopyTarget::Host).rules(rules);
    let copied = copy(&host, &[text(&socket)], text(&file));
    assert!(matches!(copied.failure().reason, CopyReason::IsSocket), "{:?}", copied.events);
    assert_eq!(fs::read(&file).unwrap(), b"old");
}

/// Attributes are a part of the source: the file was overwritten when they were found to be unreadable. A new file is
/// removed, and its other names are not linked to it.
#[test]
fn a_source_with_unreadable_attributes_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let made = Made::new();
    let value = [9; 16 << 10];
    made.look(|volume| {
        put(volume, "/file", "new");
        let id = volume.resolve(b"/file", false).unwrap();
        volume.set_attribute(id, b"user.large", &value, volume::SetAttribute::Any).unwrap();
        volume.link(id, volume.root(), b"second").unwrap();
    });
    let mut image = vec![0; usize::try_from(made.device().size()).unwrap()];
    made.device().read_at(0, &mut image).unwrap();
    let has_value = |block: &[u8]| block.starts_with(b"XARM");
    let start = image.chunks(4096).position(has_value).unwrap() as u64 * 4096;
    let fault = Fault::io_error(Operation::Read, When::Always).within(start..start + 4096);
    let device = Arc::new(FaultDevice::new(made.device(), [fault]));
    let engine = Volume::open(device, volume::Options::default()).unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("file"), "old").unwrap();
    let rules = CopyRules { ignore_unreadable: true, ..archive() };
    let copied =
        copy(&TreeCopy::new(&engine, CopyTarget::Host).rules(rules), &["/file", "/second"], text(&out));
    assert_eq!((copied.report.unreadable, copied.report.failed), (2, 0), "{:?}", copied.events);
    assert_eq!(fs::read(out.join("file")).unwrap(), b"old");
    assert!(!out.join("second").exists());
    let copied =
        copy(&TreeCopy::new(&engine, CopyTarget::Host).rules(rules), &["/second", "/file"], text(&out));
    assert_eq!((copied.report.unreadable, copied.report.failed), (2, 0), "{:?}", copied.events);
    assert_eq!(fs::read(out.join("file")).unwrap(), b"old");
}

/// A file that replaces another one is completed when the copy is cancelled, also if that one was removed first.
#[test]
fn a_cancelled_copy_leaves_a_file_for_each_that_it_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, out) = (folder.path().join("tree"), folder.path().join("out"));
    large_files(&tree);
    fs::create_dir(&out).unwrap();
    fs::write(out.join("2"), "old").unwrap();
    let sources = ["1", "2", "3"].map(|name| tree.join(name));
    let sources = [&sources[0], &sources[1], &sources[2]].map(|path| text(path));
    let cancel = Cancel::default();
    let progress = CancelAfter(cancel.clone(), LARGE + LARGE / 2);
    let rules = CopyRules { remove_destination: true, ..CopyRules::default() };
    let copy = TreeCopy::new(CopySource::Host, CopyTarget::Host).rules(rules);
    let error = copy.cancel(cancel).progress(&progress).run(&sources, text(&out), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert!(fs::read(out.join("2")).unwrap() == vec![2; LARGE as usize] && !out.join("3").exists());
}

/// On the host, `/proc/self/mem` can be opened, and not be read at its start.
#[test]
fn a_host_file_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new");
    let rules = CopyRules { ignore_unreadable: true, ..CopyRules::default() };
    let host = || TreeCopy::new(CopySource::Host, CopyTarget::Host);
    let copied = copy(&host().rules(rules), &["/proc/self/mem"], text(&new));
    assert_eq!(copied.report.unreadable, 1, "{:?}", copied.events);
    assert!(!new.exists());
    let copied = copy(&host(), &["/proc/self/mem"], text(&new));
    let failure = copied.failure();
    assert!(matches!(failure.reason, CopyReason::Host { action: Some("read it"), .. }), "{failure}");
}

#[test]
fn rules_decide_about_existing_files() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::write(&source, "new").unwrap();
    let dated = |time| fs::File::options().write(true).open(&source).unwrap().set_modified(time).unwrap();
    let made = Made::new();
    made.look(|volume| {
        let is_new = |rules: CopyRules| {
            put(volume, "/file", "old");
            let id = volume.resolve(b"/file", false).unwrap();
            let copy_in = TreeCopy::new(CopySource::Host, volume).rules(rules);
            let report = copy(&copy_in, &[text(&source)], "/file").expect_success();
            let now = volume.resolve(b"/file", false).unwrap();
            (report.files == 1, now == id)
        };
        let rules = CopyRules::default;
        assert_eq!(is_new(rules()), (true, true));
        assert_eq!(is_new(CopyRules { no_clobber: true, ..rules() }), (false, true));
        dated(SystemTime::UNIX_EPOCH);
        assert_eq!(is_new(CopyRules { update: true, ..rules() }), (false, true));
        dated(SystemTime::now() + Duration::from_secs(1000));
        assert_eq!(is_new(CopyRules { update: true, ..rules() }), (true, true));
        assert!(!is_new(CopyRules { remove_destination: true, ..rules() }).1);
        // Other names of a target keep their contents if links are preserved.
        put(volume, "/file", "old");
        let id = volume.resolve(b"/file", false).unwrap();
        volume.link(id, volume.root(), b"other").unwrap();
        copy(&TreeCopy::new(CopySource::Host, volume).rules(archive()), &[text(&source)], "/file")
            .expect_success();
    });
    assert_eq!((made.contents("/file"), made.contents("/other")), (b"new".to_vec(), b"old".to_vec()));
}

/// An overwritten file keeps its set-ID bits, and loses its capabilities, as on Linux for root.
#[test]
fn an_overwritten_file_of_a_volume_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::write(&source, "new").unwrap();
    Made::new().look(|volume| {
        put(volume, "/file", "old");
        let id = volume.resolve(b"/file", false).unwrap();
        let capability = b"security.capability";
        let mode = SetMetadata { permissions: Some(0o6755), ..SetMetadata::default() };
        volume.set_metadata(id, &mode).unwrap();
        volume.set_attribute(id, capability, &[1; 20], volume::SetAttribute::Any).unwrap();
        copy(&TreeCopy::new(CopySource::Host, volume), &[text(&source)], "/file").expect_success();
        assert_eq!(volume.metadata(id).unwrap().permissions, 0o6755);
        assert!(volume.get_attribute(id, capability).is_err());
    });
}

#[test]
fn rules_decide_about_links() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("tree");
    tree(&root);
    symlink("tree", folder.path().join("to-tree")).unwrap();
    let made = Made::new();
    made.look(|volume| {
        let kind =
            |path: &str| volume.metadata(volume.resolve(path.as_bytes(), false).unwrap()).unwrap().file_type;
        for (follow, at_top, below) in [
            (Follow::Never, FileType::Symlink, None),
            (Follow::Sources, FileType::Directory, Some(FileType::Symlink)),
            (Follow::Always, FileType::Directory, Some(FileType::Regular)),
        ] {
            let rules = CopyRules { recursive: true, follow, ..CopyRules::default() };
            let target = format!("/{follow:?}");
            let copy_in = TreeCopy::new(CopySource::Host, volume).rules(rules);
            copy(&copy_in, &[text(&folder.path().join("to-tree"))], &target).expect_success();
            assert_eq!(kind(&target), at_top, "{follow:?}");
            if let Some(below) = below {
                assert_eq!(kind(&format!("{target}/link")), below, "{follow:?}");
                let id = |name: &str| volume.resolve(format!("{target}/{name}").as_bytes(), false).unwrap();
                assert_ne!(id("file"), id("deep/hard"), "links are not preserved");
            }
        }
    });
    made.judge();
}

#[test]
fn excluded_files_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("tree");
    tree(&root);
    let made = Made::new();
    made.look(|volume| {
        let excludes = Excludes::new(["/deep/", "spa*"]).unwrap();
        let copy_in = TreeCopy::new(CopySource::Host, volume).rules(archive()).excludes(excludes);
        copy(&copy_in, &[text(&root)], "/").expect_success();
    });
    assert!(made.has("/tree/file") && !made.has("/tree/deep") && !made.has("/tree/sparse"));
}

/// Where sources go to, and what is refused before anything is copied.
#[test]
fn targets_are_chosen_as_cp_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a", "b"] {
        fs::write(path(name), name).unwrap();
    }
    let (a, b) = (path("a"), path("b"));
    let (one, both) = ([text(&a)], [text(&a), text(&b)]);
    let made = Made::new();
    made.look(|volume| {
        volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
        let copy_in = |into| TreeCopy::new(CopySource::Host, volume).into_target(into);
        copy(&copy_in(CopyInto::IfDirectory), &both, "/dir").expect_success();
        copy(&copy_in(CopyInto::IfDirectory), &one, "/new").expect_success();
        copy(&copy_in(CopyInto::Always), &one, "/dir").expect_success();
        let refused = |into, sources: &[&str], target: &str| {
            let error = copy_in(into).run(sources, target, &mut |event| panic!("{event:?}")).unwrap_err();
            let checked = copy_in(into).check_target(sources.len(), target).unwrap_err();
            assert_eq!(error.to_string(), checked.to_string());
            let Error::Copy(error) = error else { panic!("{error}") };
            assert_eq!((error.side, error.path), (CopySide::Target, target.as_bytes().to_vec()));
            error.reason
        };
        assert!(matches!(refused(CopyInto::Never, &both, "/dir"), CopyReason::SeveralSources));
        assert!(matches!(refused(CopyInto::IfDirectory, &both, "/new"), CopyReason::TargetNotDirectory));
        assert!(matches!(refused(CopyInto::IfDirectory, &both, "/none"), CopyReason::TargetMissing));
        assert!(matches!(refused(CopyInto::Always, &one, "/new"), CopyReason::TargetNotDirectory));
        let directory = copy(&copy_in(CopyInto::Never), &one, "/dir");
        assert!(matches!(directory.failure().reason, CopyReason::OverwritesDirectory { .. }));
        let missing = copy(&copy_in(CopyInto::IfDirectory), &["/none/at/all"], "/dir");
        assert!(matches!(missing.failure().reason, CopyReason::NotFound));
        assert_eq!(missing.failure().errno(), None);
        let nowhere = copy(&copy_in(CopyInto::IfDirectory), &one, "/none/x");
        let failure = nowhere.failure();
        assert!(matches!(failure.reason, CopyReason::NoParent), "{failure}");
        assert_eq!(failure.target.as_deref(), Some(&b"/none/x"[..]));
        // Two sources with one name.
        let collision = copy(&copy_in(CopyInto::Always), &[one[0], one[0]], "/dir");
        assert!(collision.report.failed == 0, "it existed before: {:?}", collision.events);
        volume.create(volume.root(), b"empty", &NewFile::directory()).unwrap();
        let collision = copy(&copy_in(CopyInto::Always), &[one[0], one[0]], "/empty");
        assert!(matches!(collision.failure().reason, CopyReason::JustCreated { .. }));
        let none: [&str; 0] = [];
        assert_eq!(copy(&copy_in(CopyInto::Never), &none, "/dir").expect_success(), CopyReport::default());
    });
    for file in ["/dir/a", "/dir/b", "/new"] {
        assert!(made.has(file), "{file}");
    }
    assert_eq!(made.contents("/new"), b"a");
    made.judge();
}

/// Not recursive: directories, sockets and pipes are refused. The library does not name options of a program.
#[test]
fn files_without_contents_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("tree");
    tree(&root);
    drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap());
    let made = Made::new();
    made.look(|volume| {
        copy(&TreeCopy::new(CopySource::Host, volume).rules(archive()), &[text(&root)], "/").expect_success();
        let into = TreeCopy::new(CopySource::Host, volume);
        let within = TreeCopy::new(volume, volume);
        let refused = |by: &TreeCopy<'_>, source: &str| {
            let copied = copy(by, &[source], "/x");
            let message = copied.messages().concat();
            assert!(!message.contains(" -"), "{message}");
            format!("{:?}", copied.failure().reason)
        };
        for (name, reason) in [("", "IsDirectory"), ("/pipe", "IsNamedPipe"), ("/socket", "IsSocket")] {
            assert_eq!(refused(&into, &format!("{}{name}", text(&root))), reason);
        }
        for (name, reason) in [("", "IsDirectory"), ("/pipe", "NoContents"), ("/socket", "NoContents")] {
            assert_eq!(refused(&within, &format!("/tree{name}")), reason);
        }
    });
}

/// Makes the source shorter as soon as a part of it was copied.
struct Shorten<'s>(&'s Path);

impl Progress for Shorten<'_> {
    fn advance(&self, _: Counts) {
        fs::File::options().write(true).open(self.0).unwrap().set_len(SHORTENED).unwrap();
    }
}

const SHORTENED: u64 = 3 << 20;

/// The copy of a file with holes that became shorter had zeros up to the old end.
#[test]
fn a_source_that_becomes_shorter_gives_a_short_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    fs::write(&source, vec![7; 2 << 20]).unwrap();
    fs::File::options().write(true).open(&source).unwrap().set_len(LARGE).unwrap();
    let copied = copy(
        &TreeCopy::new(CopySource::Host, CopyTarget::Host).progress(&Shorten(&source)),
        &[text(&source)],
        text(&target),
    );
    copied.expect_success();
    assert_eq!(target.metadata().unwrap().len(), SHORTENED);
}
