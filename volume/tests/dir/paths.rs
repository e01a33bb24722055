//! Paths, and files that are opened and named by them.

use base::errno;
use block::{Device as _, Durability};
use xebec_volume::{Dir, Error, NewFile, OpenOptions, Resolve, Scope, SetAttribute, SetMetadata};

use crate::{errno_of, for_user, new_device, new_volume, open};

/// `create` ignored the slash at the end of a path and made a regular file; `unlink`, `rename` and `link` took the name
/// of a file with a slash after it.
#[test]
fn a_slash_at_the_end_of_a_path_asks_for_a_directory() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.write("file", "text").unwrap();
    root.create_dir("dir/").unwrap();
    root.symlink("dir", "link").unwrap();
    let create = OpenOptions::new().write(true).create(true).clone();
    assert_eq!(errno_of(create.open(&volume, "/new/")), errno::EISDIR);
    assert_eq!(errno_of(root.open_with("file/", &create)), errno::EISDIR);
    assert_eq!(errno_of(root.open_file("file/")), errno::ENOTDIR);
    assert_eq!(errno_of(root.symlink("target", "new/")), errno::ENOENT);
    assert_eq!(errno_of(root.hard_link("file", &root, "new/")), errno::ENOENT);
    assert_eq!(errno_of(root.hard_link("file/", &root, "new")), errno::ENOTDIR);
    assert_eq!(errno_of(root.rename("file/", &root, "new")), errno::ENOTDIR);
    assert_eq!(errno_of(root.rename("file", &root, "new/")), errno::ENOTDIR);
    assert_eq!(errno_of(root.remove_file("file/")), errno::ENOTDIR);
    assert_eq!(errno_of(root.remove_file("dir/")), errno::EISDIR);
    assert_eq!(errno_of(root.remove_dir("link/")), errno::ENOTDIR);
    assert!(root.metadata("link/").is_ok());
    root.rename("dir/", &root, "moved/").unwrap();
    assert_eq!(errno_of(root.metadata("link/")), errno::ENOENT);
    assert!(!root.try_exists("new").unwrap());
    drop(root);
    volume.unmount().unwrap();
}

/// A file was created only where the path ended: a symbolic link to a name that did not exist was an error.
#[test]
fn a_file_is_created_where_a_symbolic_link_leads() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("a/b").unwrap();
    root.symlink("b/../second", "a/first").unwrap();
    root.symlink("/a/b/file", "a/second").unwrap();
    root.write("a/first", "text").unwrap();
    assert_eq!(root.read("a/b/file").unwrap(), b"text");
    assert_eq!(root.canonicalize("a/first").unwrap(), b"/a/b/file");
    let new = OpenOptions::new().write(true).create_new(true).clone();
    assert_eq!(errno_of(root.open_with("a/first", &new)), errno::EEXIST);
    let no_follow = OpenOptions::new().write(true).create(true).no_follow(true).clone();
    assert_eq!(errno_of(root.open_with("a/first", &no_follow)), errno::ELOOP);
    root.symlink("loop", "loop").unwrap();
    assert_eq!(errno_of(root.create_file("loop")), errno::ELOOP);
    drop(root);
    volume.unmount().unwrap();
}

#[test]
fn rules_keep_paths_within_a_directory() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("jail/inner").unwrap();
    root.write("secret", "secret").unwrap();
    root.write("jail/secret", "fake").unwrap();
    root.symlink("/secret", "jail/absolute").unwrap();
    root.symlink("../secret", "jail/inner/up").unwrap();
    root.symlink("../../secret", "jail/inner/out").unwrap();
    let with = |scope| {
        let jail = root.open_dir("jail").unwrap();
        jail.with_resolve(Resolve { scope, no_symlinks: false })
    };
    let beneath = with(Scope::Beneath);
    for path in ["/secret", "../secret", "inner/../../secret", "absolute", "inner/out"] {
        assert_eq!(errno_of(beneath.read(path)), errno::EXDEV, "{path}");
        assert_eq!(errno_of(beneath.write(path, "changed")), errno::EXDEV, "{path}");
    }
    assert_eq!(errno_of(beneath.remove_file("../secret")), errno::EXDEV);
    assert_eq!(errno_of(beneath.rename("secret", &beneath, "../stolen")), errno::EXDEV);
    assert_eq!(beneath.read("inner/up").unwrap(), b"fake");
    assert_eq!(beneath.canonicalize("inner/../inner/up").unwrap(), b"secret");
    let in_root = with(Scope::InRoot);
    for path in ["/secret", "../secret", "inner/../../secret", "absolute", "inner/out", "inner/up"] {
        assert_eq!(in_root.read(path).unwrap(), b"fake", "{path}");
        assert_eq!(in_root.canonicalize(path).unwrap(), b"/secret", "{path}");
    }
    let strict = root.clone().with_resolve(Resolve { no_symlinks: true, ..Resolve::default() });
    assert_eq!(errno_of(strict.read("jail/absolute")), errno::ELOOP);
    assert_eq!(strict.read_link("jail/absolute").unwrap(), b"/secret");
    assert_eq!(root.read("secret").unwrap(), b"secret");
    drop((root, beneath, in_root, strict));
    volume.unmount().unwrap();
}

/// A directory that is moved out while a walk is in it leads back the way that the walk came.
#[test]
fn a_directory_that_moves_does_not_lead_out() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("jail/a").unwrap();
    root.write("secret", "secret").unwrap();
    let scope = Scope::Beneath;
    let inside = root.open_dir("jail/a").unwrap().with_resolve(Resolve { scope, no_symlinks: false });
    root.rename("jail/a", &root, "outside").unwrap();
    assert_eq!(errno_of(inside.read("../secret")), errno::EXDEV);
    assert_eq!(inside.canonicalize(".").unwrap(), b".");
    drop((root, inside));
    volume.unmount().unwrap();
}

#[test]
fn an_unnamed_file_gets_a_name_or_is_freed() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let options = OpenOptions::new().read(true).write(true).mode(0o640).clone();
    let file = root.create_unnamed(&options).unwrap();
    file.write_all_at(b"text", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink, 0);
    root.link_file(&file, "name").unwrap();
    assert_eq!((file.metadata().unwrap().nlink, root.read("name").unwrap()), (1, b"text".to_vec()));
    let id = file.handle().id();
    drop(file);
    assert_eq!(volume.open_id(id).unwrap().id(), id);
    // Once it has a name, it is as any other file: removed, it stays removed.
    let file = root.create_unnamed(&options).unwrap();
    root.link_file(&file, "second").unwrap();
    root.remove_file("second").unwrap();
    assert_eq!(errno_of(root.link_file(&file, "third")), errno::ENOENT);
    drop(file);
    root.remove_file("name").unwrap();
    volume.write_back_all().unwrap();
    assert_eq!(errno_of(volume.open_id(id)), errno::ESTALE);
    let far = xebec_volume::FileId { ino: base::Ino(u64::MAX >> 9), generation: 1 };
    assert_eq!(errno_of(volume.open_id(far)), errno::ESTALE);
    drop(root);
    volume.unmount().unwrap();
}

/// The identity of a file that was removed does not lead to the next one with its inode number.
#[test]
fn the_identity_of_a_file_is_not_that_of_the_next_one() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let old = root.create_with("old", &NewFile::regular()).unwrap().id();
    root.remove_file("old").unwrap();
    volume.write_back_all().unwrap();
    let reused = (0..1000).find_map(|n| {
        let id = root.create_with(format!("{n}"), &NewFile::regular()).unwrap().id();
        (id.ino == old.ino).then_some(id)
    });
    assert_ne!(reused.unwrap().generation, old.generation);
    assert_eq!(errno_of(volume.open_id(old)), errno::ESTALE);
    drop(root);
    volume.unmount().unwrap();
}

#[test]
fn a_copy_shares_blocks_keeps_holes_and_refuses_itself() {
    let [first, second] = [new_volume(), new_volume()];
    let (from, to) = (Dir::root(&first).unwrap(), Dir::root(&second).unwrap());
    let file = from.create_file("sparse").unwrap();
    file.write_all_at(&[7; 5000], 1 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    drop(file);
    from.set_permissions("sparse", 0o4711).unwrap();
    for (dir, name) in [(&from, "copy"), (&to, "copy")] {
        dir.write(name, vec![1; 8 << 20]).unwrap();
        assert_eq!(from.copy("sparse", dir, name).unwrap(), 3 << 20);
        let copy = dir.open_file(name).unwrap();
        assert_eq!(copy.read_all().unwrap(), from.read("sparse").unwrap());
        assert_eq!(copy.seek_data(0).unwrap(), Some(1 << 20));
        assert_eq!(copy.metadata().unwrap().permissions, 0o4711);
    }
    from.symlink("sparse", "link").unwrap();
    assert_eq!(errno_of(from.copy("sparse", &from, "link")), errno::EINVAL);
    assert_eq!(from.metadata("sparse").unwrap().size, 3 << 20);
    assert_eq!(errno_of(from.rename("sparse", &to, "moved")), errno::EXDEV);
    assert_eq!(errno_of(from.hard_link("sparse", &to, "linked")), errno::EXDEV);
    drop((from, to));
    for volume in [first, second] {
        volume.unmount().unwrap();
    }
}

/// More entries than are read at once, with some removed while the directory is listed.
#[test]
fn a_listing_has_each_entry_once() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir("dir").unwrap();
    let dir = root.open_dir("dir").unwrap();
    for n in 0..1000_u32 {
        dir.write(format!("{n}"), vec![0; n as usize]).unwrap();
    }
    let mut seen = vec![false; 1000];
    for entry in dir.entries().unwrap().with_metadata() {
        let entry = entry.unwrap();
        let n: usize = std::str::from_utf8(&entry.name).unwrap().parse().unwrap();
        assert!(!std::mem::replace(&mut seen[n], true), "{n} twice");
        assert_eq!(entry.metadata.unwrap().size, n as u64);
        dir.remove_file(&entry.name).unwrap();
    }
    assert!(seen.into_iter().all(|seen| seen));
    assert_eq!(dir.entries().unwrap().count(), 0);
    let known = dir.stat_many(["1", ".", "/dir"]);
    assert_eq!(errno_of(known.into_iter().next().unwrap()), errno::ENOENT);
    root.remove_dir("dir").unwrap();
    assert_eq!(errno_of(dir.write("new", "text")), errno::ENOENT);
    drop((root, dir));
    volume.unmount().unwrap();
}

/// Paths that are resolved together give what each of them gives alone: in any order, with names in memory or not, with
/// symbolic links, and where a directory is a file.
#[test]
fn paths_resolved_together_give_what_each_gives_alone() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    for dir in ["a/b/c", "a/b/d", "e"] {
        root.create_dir_all(dir).unwrap();
        for n in 0..5 {
            root.write(format!("{dir}/{n}"), vec![0; n]).unwrap();
        }
    }
    root.symlink("a/b", "link").unwrap();
    let mut paths: Vec<String> = Vec::new();
    for dir in
        ["a/b/c", "/a/b/c", "a//b/d/", "a/./b/d", "a/b/../b/c", "e", "link/c", "link", "e/1", "missing", ""]
    {
        paths.push(dir.into());
        paths.extend(["0", "4", "missing", "../e", "1/x", ""].map(|name| format!("{dir}/{name}")));
        paths.push(format!("{dir}/{}", "x".repeat(300)));
    }
    paths.push("a/".repeat(3000));
    let alone = |path: &String| format!("{:?}", root.symlink_metadata(path).map_err(|error| error.errno()));
    let expect_equal = |paths: &[String]| {
        let together = root.stat_many(paths.iter());
        assert_eq!(together.len(), paths.len());
        for (path, together) in paths.iter().zip(together) {
            assert_eq!(format!("{:?}", together.map_err(|error| error.errno())), alone(path), "{path}");
        }
    };
    for step in [1, 7, 40, 11] {
        let order: Vec<_> = (0..paths.len()).map(|n| paths[n * step % paths.len()].clone()).collect();
        expect_equal(&order);
        root.remove_file("a/b/c/4").unwrap();
        root.write("a/b/c/4", "again").unwrap();
        root.rename("a/b/c", &root, "e/c").unwrap();
        expect_equal(&order);
        root.rename("e/c", &root, "a/b/c").unwrap();
    }
    drop(root);
    volume.unmount().unwrap();
}

/// Writes by a user remove set-ID bits, whichever call writes.
#[test]
fn a_file_open_for_a_user_loses_privileges_when_it_is_written() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let user = for_user(&root);
    root.write("file", vec![1; 8192]).unwrap();
    root.set_attribute("file", "security.capability", b"value", SetAttribute::Any).unwrap();
    assert!(user.open_file("file").is_ok());
    root.set_permissions("file", 0o666).unwrap();
    let file = user.open_with("file", OpenOptions::new().read(true).write(true)).unwrap();
    type Change = fn(&xebec_volume::File<'_>) -> Result<(), Error>;
    let changes: [(&str, Change); 5] = [
        ("write", |file| file.write_all_at(b"x", 0)),
        ("append", |file| file.append(b"x").map(drop)),
        ("set_len", |file| file.set_len(4096)),
        ("punch", |file| file.punch_hole(0, 4096)),
        ("clone", |file| file.clone_range(file, 0, 8192, 4096)),
    ];
    for (name, change) in changes {
        root.set_permissions("file", 0o6777).unwrap();
        change(&file).unwrap();
        assert_eq!(root.metadata("file").unwrap().permissions, 0o777, "{name}");
    }
    assert_eq!(errno_of(root.get_attribute("file", "security.capability")), errno::ENODATA);
    drop((file, user, root));
    volume.unmount().unwrap();
}

#[test]
fn a_tree_is_removed_only_as_far_as_the_user_may() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("tree/mine/deep").unwrap();
    root.create_dir_all("tree/theirs").unwrap();
    root.write("tree/theirs/file", "text").unwrap();
    let owned = SetMetadata { uid: Some(1000), ..SetMetadata::default() };
    for path in ["tree", "tree/mine", "tree/mine/deep"] {
        root.set_metadata(path, &owned).unwrap();
    }
    root.set_permissions("/", 0o777).unwrap();
    let user = for_user(&root);
    assert_eq!(errno_of(user.remove_dir_all("tree")), errno::EACCES);
    assert!(root.try_exists("tree/theirs/file").unwrap());
    assert_eq!(errno_of(root.remove_dir_all("tree/theirs/file")), errno::ENOTDIR);
    root.remove_dir_all("tree").unwrap();
    assert!(!root.try_exists("tree").unwrap());
    drop((root, user));
    volume.unmount().unwrap();
}

/// Entries of a batch were lost if the directory could not be read to the end of it.
#[test]
fn entries_before_damage_are_listed() {
    let device = new_device();
    let volume = open(&device);
    let root = Dir::root(&volume).unwrap();
    for n in 0..400 {
        root.create_with(format!("a name that fills the blocks of the directory {n}"), &NewFile::regular())
            .unwrap();
    }
    drop(root);
    volume.unmount().unwrap();
    // The data block of the directory that was written last on the device.
    let mut block = vec![0; 4096];
    let last = (0..(64 << 20) / 4096).rev().map(|block| block * 4096).find(|at| {
        device.read_at(*at, &mut block).unwrap();
        block.starts_with(b"XDD3")
    });
    block[100] ^= 1;
    device.write_at(last.unwrap(), &block, Durability::Buffered).unwrap();
    let volume = open(&device);
    let listed: Vec<_> = Dir::root(&volume).unwrap().entries().unwrap().collect();
    let before = listed.iter().take_while(|entry| entry.is_ok()).count();
    assert!(before > 128 && before % 128 != 0, "{before}");
    assert_eq!((before + 1, listed.last().unwrap().is_err()), (listed.len(), true));
}
