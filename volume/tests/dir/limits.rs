//! Ways out of a directory, and what a user must not do or see.

use base::errno::{self, Errno};
use block::{Device as _, Durability};
use xebec_volume::{
    Credentials, Dir, FileId, NewFile, OpenOptions, Rename, Resolve, Scope, SetAttribute, SetMetadata,
};

use crate::{errno_of, for_user, new_device, new_volume, open};

fn beneath() -> Resolve {
    Resolve { scope: Scope::Beneath, ..Resolve::default() }
}
fn in_root() -> Resolve {
    Resolve { scope: Scope::InRoot, ..Resolve::default() }
}

/// `remove_dir_all("..")` removed everything outside of the directory that the path must stay in.
#[test]
fn a_tree_is_not_removed_by_the_name_of_its_parent() {
    for rules in [beneath(), in_root()] {
        let volume = new_volume();
        let root = Dir::root(&volume).unwrap();
        root.create_dir_all("upload/a").unwrap();
        root.create_dir_all("precious/deep").unwrap();
        root.write("secret", "text").unwrap();
        let upload = root.open_dir("upload").unwrap().with_resolve(rules);
        assert_eq!(errno_of(upload.remove_dir_all("..")), errno::ENOTEMPTY);
        assert!(root.try_exists("secret").unwrap(), "a file outside of the scope was removed");
        assert!(root.try_exists("precious/deep").unwrap(), "a file outside of the scope was removed");
    }
}

#[test]
fn a_tree_is_not_removed_by_a_path_that_ends_in_dots() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("upload/a").unwrap();
    root.write("upload/file", "text").unwrap();
    let upload = root.open_dir("upload").unwrap().with_resolve(beneath());
    assert_eq!(errno_of(upload.remove_dir_all("a/..")), errno::ENOTEMPTY);
    assert!(root.try_exists("upload/file").unwrap());
}

/// A user who had a file open could change its owner and mode.
#[test]
fn an_open_file_gives_no_right_to_change_its_metadata() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("su", "program").unwrap();
    let alice = for_user(&root);
    let set = SetMetadata { permissions: Some(0o4777), uid: Some(1000), ..SetMetadata::default() };
    assert_eq!(errno_of(alice.set_metadata("su", &set)), errno::EPERM);
    let file = alice.open_file("su").unwrap();
    assert_eq!(errno_of(file.set_metadata(&set)), errno::EPERM);
}

#[test]
fn a_user_does_not_set_change_times() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("file", "text").unwrap();
    let alice = for_user(&root);
    let time = base::time::Time { seconds: 1, nanos: 0 };
    let set = SetMetadata { changed: Some(time), ..SetMetadata::default() };
    let result = alice.set_metadata("file", &set);
    assert_ne!(root.metadata("file").unwrap().changed, time, "{result:?}");
}

#[test]
fn a_listing_shows_no_metadata_that_the_user_must_not_see() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir("dir").unwrap();
    root.write("dir/file", "text").unwrap();
    root.set_permissions("dir", 0o744).unwrap();
    let alice = for_user(&root);
    assert_eq!(errno_of(alice.metadata("dir/file")), errno::EACCES);
    let entry = alice.read_dir("dir").unwrap().with_metadata().next().unwrap();
    assert!(entry.as_ref().is_err() || entry.as_ref().unwrap().metadata.is_none(), "{entry:?}");
}

#[test]
fn a_file_open_for_nothing_needs_permission_to_read() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("file", vec![1; 100_000]).unwrap();
    root.set_permissions("file", 0o600).unwrap();
    let alice = for_user(&root);
    let file = alice.open_with("file", &OpenOptions::new());
    assert_eq!(errno_of(file), errno::EACCES);
}

#[test]
fn a_file_has_no_parent_in_a_path() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("file", "text").unwrap();
    root.write("other", "text").unwrap();
    assert_eq!(errno_of(root.metadata("file/../other")), errno::ENOTDIR);
    for rules in [beneath(), in_root()] {
        let inside = root.clone().with_resolve(rules);
        assert_eq!(errno_of(inside.metadata("file/../other")), errno::ENOTDIR, "{rules:?}");
    }
}

#[test]
fn the_path_of_a_file_has_no_slash_at_its_end() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("file", "text").unwrap();
    root.symlink("file", "link").unwrap();
    assert_eq!(errno_of(root.metadata("link/")), errno::ENOTDIR);
    assert_eq!(errno_of(root.canonicalize("link/")), errno::ENOTDIR);
}

fn fill(root: &Dir<'_>) {
    let mut n = 0;
    for size in [1 << 20, 4096usize] {
        loop {
            n += 1;
            if root.write(format!("fill{n}"), vec![7; size]).is_err() {
                break;
            }
        }
    }
    let mut n = 0;
    while root.write(format!("empty{n}"), "").is_ok() {
        n += 1;
    }
    root.volume().sync().unwrap();
    while root.write(format!("empty{n}"), "").is_ok() {
        n += 1;
    }
}

/// On a full volume, blocks were reserved before it was found that the name exists: `ENOSPC`.
#[test]
fn directories_that_exist_are_found_on_a_full_volume() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("a/b").unwrap();
    fill(&root);
    let result = root.create_dir_all("a/b");
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(errno_of(root.create_dir("a/b")), errno::EEXIST);
}

#[test]
fn a_removed_file_gets_no_name_again() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("file", "text").unwrap();
    root.create_dir("tmp").unwrap();
    root.set_permissions("tmp", 0o777).unwrap();
    let alice = for_user(&root);
    let file = alice.open_file("file").unwrap();
    root.remove_file("file").unwrap();
    let result = alice.link_file(&file, "tmp/again");
    assert_eq!(errno_of(result), errno::ENOENT);
}

/// A directory of one volume was changed through another one.
#[test]
fn a_reference_to_a_file_of_another_volume_is_refused() {
    let (one, two) = (new_volume(), new_volume());
    let root = Dir::root(&one).unwrap();
    root.create_dir("dir").unwrap();
    let handle = root.open_dir("dir").unwrap().handle().clone();
    // Other inodes in use in the second volume.
    for n in 0..10 {
        Dir::root(&two).unwrap().create_dir(format!("d{n}")).unwrap();
    }
    let mixed = Dir::from_handle(&two, &handle);
    assert_eq!(errno_of(mixed), errno::EXDEV);
}

#[test]
fn identities_are_not_used_again() {
    let volume = new_volume();
    for ino in [0, 1, 2, 63, 64, 127, 1 << 20, 1 << 32, u64::MAX >> 1, u64::MAX] {
        let id = FileId { ino: base::Ino(ino), generation: 0 };
        assert_eq!(errno_of(volume.open_id(id)), errno::ESTALE, "{ino}");
    }
    let root = Dir::root(&volume).unwrap();
    let mut seen = std::collections::HashMap::new();
    for round in 0..5 {
        root.create_dir("d").unwrap();
        let mut ids = Vec::new();
        for n in 0..200 {
            let id = root.create_with(format!("d/{n}"), &NewFile::regular()).unwrap().id();
            if let Some(before) = seen.insert(id, round) {
                panic!("{id:?} in round {before} and {round}");
            }
            ids.push(id);
        }
        root.remove_dir_all("d").unwrap();
        volume.sync().unwrap();
        for id in ids {
            assert_eq!(errno_of(volume.open_id(id)), errno::ESTALE);
        }
    }
    drop(root);
    volume.unmount().unwrap();
}

#[test]
fn a_write_by_root_removes_capabilities() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap().with_credentials(Credentials::new(0, 0));
    root.write("file", "text").unwrap();
    root.set_attribute("file", "security.capability", b"0123456789", SetAttribute::Any).unwrap();
    OpenOptions::new().write(true).open(&volume, "file").unwrap();
    root.open_with("file", OpenOptions::new().write(true)).unwrap().write_at(b"x", 0).unwrap();
    assert_eq!(errno_of(root.get_attribute("file", "security.capability")), errno::ENODATA);
}

#[test]
fn a_rename_into_the_directory_of_a_user_is_checked() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("file", "text").unwrap();
    root.create_dir("dir").unwrap();
    let alice = for_user(&root);
    assert_eq!(errno_of(root.hard_link("file", &alice, "dir/linked")), errno::EACCES);
    assert_eq!(errno_of(root.rename_with("file", &alice, "dir/moved", Rename::Replace)), errno::EACCES);
}

/// Two directories that are each other's parent: the path of a file in them had no beginning, and the call no end.
#[test]
fn directories_in_a_cycle_have_no_path() {
    let device = new_device();
    let volume = open(&device);
    let x = volume.create(volume.root(), b"x", &NewFile::directory()).unwrap();
    let y = volume.create(x, b"y", &NewFile::directory()).unwrap();
    volume.create(y, b"file", &NewFile::regular()).unwrap();
    volume.unmount().unwrap();
    let edit = |ino: base::Ino, change: &dyn Fn(&mut [u8])| {
        let mut sector = [0; 512];
        device.read_at(0, &mut sector).unwrap();
        let geometry = format::superblock::Superblock::parse(&sector).unwrap().geometry;
        let place = inode::cluster::locate(&geometry, ino).unwrap();
        let at = place.cluster.daddr.get() * 512 + u64::from(place.offset);
        let mut slot = vec![0; geometry.inode_size as usize];
        device.read_at(at, &mut slot).unwrap();
        change(&mut slot[176..]);
        format::checksum::store(&mut slot, format::inode::CRC_OFFSET);
        device.write_at(at, &slot, Durability::Buffered).unwrap();
    };
    let put = |bytes: &mut [u8], at: usize, ino: base::Ino| {
        bytes[at..at + 4].copy_from_slice(&(ino.get() as u32).to_be_bytes());
    };
    edit(x.ino, &|fork| put(fork, 2, y.ino));
    edit(y.ino, &|fork| {
        let at = fork.windows(4).position(|bytes| bytes == b"file").unwrap();
        fork[at + 4] = 2; // the type of a directory
        put(fork, at + 5, x.ino);
    });
    let volume = open(&device);
    let root = Dir::root(&volume).unwrap();
    assert_eq!(errno_of(root.canonicalize("x/y")), errno::EFSCORRUPTED);
}

#[test]
fn a_file_of_another_volume_gets_no_name() {
    let (one, two) = (new_volume(), new_volume());
    let root = Dir::root(&one).unwrap();
    for n in 0..10 {
        root.write(format!("file{n}"), "one").unwrap();
    }
    let handle = root.open_file("file9").unwrap().handle();
    let linked = two.link_handle(&handle, two.root(), b"linked");
    eprintln!("{linked:?}; {:?}", two.metadata_at(b"linked", false));
    assert_eq!(errno_of(linked), errno::EXDEV);
}

#[test]
fn a_hard_link_by_a_user_is_checked() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("file", "text").unwrap();
    root.create_dir("dir").unwrap();
    let alice = for_user(&root);
    assert_eq!(errno_of(alice.rename("file", &root, "dir/moved")), errno::EACCES);
    assert_eq!(errno_of(alice.hard_link("file", &root, "dir/linked")), errno::EACCES);
}

/// `remove_dir_all` failed if an entry was removed meanwhile, and left the rest.
#[test]
fn a_tree_that_others_remove_too_is_removed() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    for round in 0..20 {
        root.create_dir("d").unwrap();
        for n in 0..300 {
            root.write(format!("d/{n}"), "").unwrap();
        }
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| root.remove_dir_all("d"));
            for n in (0..300).rev() {
                let _ = root.remove_file(format!("d/{n}"));
            }
            let result = remover.join().unwrap();
            assert!(result.is_ok(), "{round}: {result:?}");
        });
    }
}

#[test]
fn an_open_directory_is_listed_with_permission_to_read() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir("dir").unwrap();
    root.write("dir/file", "text").unwrap();
    root.set_permissions("dir", 0o744).unwrap();
    let alice = for_user(&root);
    assert!(alice.read_dir("dir").is_ok());
    assert_eq!(errno_of(alice.open_dir("dir").unwrap().entries().map(drop)), Errno::new(0));
}
