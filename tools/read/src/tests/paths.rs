//! Path resolution, with symlinks that must not lead out of the volume.

use base::errno;

use super::volume::{FILE, ROOT, VolumeBuilder};
use crate::{FinalSymlink, resolve};

/// `/a/file` and various symlinks.
fn tree() -> VolumeBuilder {
    let builder = VolumeBuilder::new();
    builder.shortform(
        ROOT,
        ROOT,
        &[(b"a", 2, 65), (b"abs", 7, 67), (b"out", 7, 68), (b"x", 7, 69), (b"y", 7, 70), (b"slash", 7, 71)],
    );
    builder.shortform(65, ROOT, &[(b"file", 1, 66), (b"up", 7, 72), (b"gone", 7, 73)]);
    builder.inode(66, FILE, (2, 0, 0), &[], None);
    builder.symlink(67, b"/a/file");
    builder.symlink(68, b"../../../a//./up");
    builder.symlink(69, b"y");
    builder.symlink(70, b"x");
    builder.symlink(71, b"a/");
    builder.symlink(72, b"..");
    builder.symlink(73, b"nothing");
    builder
}

fn ino(path: &str, last: FinalSymlink) -> Result<u64, errno::Errno> {
    resolve(&tree().volume(), path.as_bytes(), last)
        .map(|inode| inode.ino().get())
        .map_err(|error| error.errno())
}

#[test]
fn paths_are_resolved_as_in_a_chroot() {
    for (path, expected) in [
        ("", Ok(ROOT)),
        ("/", Ok(ROOT)),
        ("a/file", Ok(66)),
        ("//a/./file", Ok(66)),
        ("/../..", Ok(ROOT)),
        ("a/..", Ok(ROOT)),
        ("abs", Ok(66)),
        ("out", Ok(ROOT)),
        ("out/abs", Ok(66)),
        ("slash/file", Ok(66)),
        ("slash", Ok(65)),
        ("a/up/a/up/abs", Ok(66)),
        ("a/gone", Err(errno::ENOENT)),
        ("nothing", Err(errno::ENOENT)),
        ("a/file/", Err(errno::ENOTDIR)),
        ("a/file/..", Err(errno::ENOTDIR)),
        ("abs/", Err(errno::ENOTDIR)),
        ("x", Err(errno::ELOOP)),
        ("x/deeper", Err(errno::ELOOP)),
    ] {
        assert_eq!(ino(path, FinalSymlink::Follow), expected, "{path}");
    }
    let long = "n".repeat(256);
    assert_eq!(ino(&long, FinalSymlink::Follow), Err(errno::ENAMETOOLONG));
    assert_eq!(ino(&"a/../".repeat(1000), FinalSymlink::Follow), Err(errno::ENAMETOOLONG));
}

#[test]
fn the_last_symlink_can_be_returned_itself() {
    for (path, expected) in [
        ("abs", Ok(67)),
        ("x", Ok(69)),
        ("a/gone", Ok(73)),
        ("slash/up", Ok(72)),
        ("slash/", Ok(65)),
        ("a/up/abs", Ok(67)),
        ("a/gone/", Err(errno::ENOENT)),
    ] {
        assert_eq!(ino(path, FinalSymlink::Keep), expected, "{path}");
    }
}

#[test]
fn an_error_names_the_path() {
    let error = resolve(&tree().volume(), b"a/nobody", FinalSymlink::Follow).unwrap_err();
    assert_eq!(error.to_string(), "a/nobody: no such file or directory");
}
