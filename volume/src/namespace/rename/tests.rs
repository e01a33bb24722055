//! Renames that other tests do not reach.

use std::sync::Arc;

use block::MemoryDevice;

use super::*;
use crate::Options;

fn volume(parent: bool) -> Volume {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    mkfs::format(&*device, &mkfs::Options { parent, ..mkfs::Options::default() }).unwrap();
    Volume::open(device, Options::default()).unwrap()
}

/// An exchange of a file with a directory gave the file's directory one more, however many it had: its link count
/// went past what Linux reads.
#[test]
fn an_exchange_leaves_no_directory_with_too_many_links() {
    let volume = volume(false);
    let full = volume.create(volume.root(), b"full", &NewFile::directory()).unwrap();
    let file = volume.create(full, b"file", &NewFile::regular()).unwrap();
    let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
    let set_links = |nlink| {
        let change = volume.begin(volume.reservations.inode).unwrap();
        let inode = volume.inode(full).unwrap();
        let mut state = inode.lock();
        state.set_nlink(nlink);
        change.commit(&mut [&mut state]).unwrap();
    };
    set_links(MAX_LINKS);
    let root = volume.root();
    for names in [[(full, &b"file"[..]), (root, b"dir")], [(root, b"dir"), (full, b"file")]] {
        let [(from, from_name), (to, to_name)] = names;
        let refused = volume.rename(from, from_name, to, to_name, Rename::Exchange).unwrap_err();
        assert_eq!(refused.errno(), errno::EMLINK);
        assert_eq!(volume.lookup(full, b"file").unwrap(), file);
    }
    set_links(MAX_LINKS - 1);
    volume.rename(root, b"dir", full, b"file", Rename::Exchange).unwrap();
    assert_eq!(volume.lookup(full, b"file").unwrap(), dir);
    assert_eq!(volume.metadata(full).unwrap().nlink, MAX_LINKS);
}

/// On a volume with parent pointers, a new name that cannot be one was found out after the pointer of the old one
/// had gone: the volume was shut down.
#[test]
fn a_name_that_cannot_be_one_is_refused_before_anything_changes() {
    for parents in [false, true] {
        let volume = volume(parents);
        let root = volume.root();
        volume.create(root, b"file", &NewFile::regular()).unwrap();
        for (name, errno) in
            [(&b"a/b"[..], errno::EINVAL), (b"", errno::EINVAL), (&[b'x'; 256], errno::ENAMETOOLONG)]
        {
            for how in [Rename::Replace, Rename::NoReplace, Rename::Whiteout] {
                let refused = volume.rename(root, b"file", root, name, how).unwrap_err();
                assert_eq!(refused.errno(), errno, "{how:?} {}", name.escape_ascii());
            }
        }
        volume.rename(root, b"file", root, b"other", Rename::Replace).unwrap();
        volume.unmount().unwrap();
    }
}
