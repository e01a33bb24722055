//! The maximum number of links. Creating two billion names would take too long, so `xfs_db` sets the link count.

use std::path::Path;
use std::sync::Arc;

use block::{FileDevice, OpenOptions};
use crashsim::engine::Engine;
use crashsim::shape::SHAPES;
use crashsim::{Image, ImageDevice, Target};
use model::{Failure, FileKind, NewFile, RenameMode, Subject};

use crate::kernel;

const EMLINK: i32 = 31;
/// Maximum number of links on Linux.
const LINKS_MAX: u32 = i32::MAX as u32;

/// Mounts `$1` on `$2`, and tries to add a link to a file, and a subdirectory to a directory in two ways.
const TRY: &str = r#"
mount -t xfs -o loop,nouuid "$1" "$2"
ln "$2/file" "$2/another"
mkdir "$2/dir/another"
mv "$2/other" "$2/dir/"
umount "$2"
"#;

#[test]
fn link_count_has_the_limit_of_linux() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let engine = Engine { shape: SHAPES[0].clone() };
    let device = Arc::new(ImageDevice::new(engine.format().unwrap()));
    let volume = engine.open(device.clone()).unwrap();
    let new = |kind| NewFile { kind, mode: 0o755, uid: 0, gid: 0 };
    let create = |name: &str, kind| volume.create(volume.root(), name.as_bytes(), &new(kind)).unwrap();
    let (file, dir) = (create("file", FileKind::File), create("dir", FileKind::Directory));
    let other = create("other", FileKind::Directory);
    engine.unmount(volume).unwrap();
    let work = kernel::scratch();
    let path = work.path().join("image");
    device.image().save(&path).unwrap();
    for number in [file, dir] {
        set_maximum_links(&path, number);
    }

    let image = Image::of_device(&FileDevice::open(&path, &OpenOptions::default()).unwrap()).unwrap();
    let volume = engine.open(Arc::new(ImageDevice::new(image))).unwrap();
    let root = volume.root();
    let refused = |answer: Result<(), Failure>| answer.unwrap_err().errno;
    assert_eq!(refused(volume.link(file, root, b"another")), EMLINK);
    assert_eq!(refused(volume.create(dir, b"another", &new(FileKind::Directory)).map(drop)), EMLINK);
    assert_eq!(refused(volume.rename((root, b"other"), (dir, b"other"), RenameMode::Replace)), EMLINK);
    assert_eq!(volume.stat(other).unwrap().links, 2);

    let mount = work.path().join("mnt");
    std::fs::create_dir(&mount).unwrap();
    let mut command = needs::script("-u", TRY, "try");
    command.arg(&path).arg(&mount).env("LC_ALL", "C");
    let stderr = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert_eq!(stderr.matches("Too many links").count(), 3, "{stderr}");
}

/// Sets the link count of an inode to the maximum.
fn set_maximum_links(path: &Path, number: u64) {
    let mut command = needs::command("xfs_db");
    command.args(["-x", "-c", &format!("inode {number}"), "-c", &format!("write core.nlinkv2 {LINKS_MAX}")]);
    assert!(command.arg(path).output().unwrap().status.success());
}
