//! Names that are created, removed and renamed; changes that fail.

use base::errno;
use format::inode::FileType;
use xebec_volume::{Credentials, Dir, NewFile, OpenOptions, Rename, WatchEvent};

use super::{cookie, errno_of, expect, id, new_dir, new_volume};

#[test]
fn each_new_name_and_each_removed_one_is_an_event() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let dir = new_dir(&root, "dir");
    let watch = dir.watch().unwrap();
    dir.write("file", "contents").unwrap();
    dir.create_dir("sub").unwrap();
    dir.symlink("file", "symlink").unwrap();
    dir.hard_link("file", &dir, "link").unwrap();
    dir.create_with("fifo", &NewFile { file_type: xebec_volume::NewFileType::Fifo, ..NewFile::regular() })
        .unwrap();
    expect(&watch, &dir, &["+ DIR/file", "+ DIR/sub", "+ DIR/symlink", "+ DIR/link", "+ DIR/fifo"]);
    // Contents and metadata, and names in a subdirectory and in the parent, are no changes of the directory's names.
    dir.write("file", "other contents").unwrap();
    dir.write("sub/below", "").unwrap();
    root.write("beside", "").unwrap();
    expect(&watch, &dir, &[]);
    dir.remove_file("link").unwrap();
    dir.remove_dir_all("sub").unwrap();
    expect(&watch, &dir, &["- DIR/link", "- DIR/sub"]);
    // By inode numbers, as a mount does.
    volume.create(dir.id(), b"by number", &NewFile::regular()).unwrap();
    volume.unlink(dir.id(), b"by number").unwrap();
    expect(&watch, &dir, &["+ DIR/by number", "- DIR/by number"]);
}

#[test]
fn an_event_has_the_directory_and_the_file() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let dir = new_dir(&root, "dir");
    let watch = dir.watch().unwrap();
    dir.create_dir("sub").unwrap();
    let sub = id(&dir, "sub");
    dir.remove_dir("sub").unwrap();
    for event in watch.try_iter() {
        let name = event.name().unwrap();
        assert_eq!((name.dir, name.file), (dir.handle().id(), sub), "{event:?}");
        assert_eq!(name.file_type, Some(FileType::Directory));
    }
}

/// A file with many attributes is created without a name, in several transactions; an unnamed file gets its name later.
#[test]
fn a_file_has_one_event_when_it_gets_its_name() {
    let volume = new_volume();
    let dir = new_dir(&Dir::root(&volume).unwrap(), "dir");
    let watch = dir.watch().unwrap();
    let value = [1; 5000];
    let attributes: &[(&[u8], &[u8])] = &[(b"user.a", &value), (b"user.b", &value), (b"user.c", &value)];
    dir.create_with("file", &NewFile { attributes, ..NewFile::regular() }).unwrap();
    expect(&watch, &dir, &["+ DIR/file"]);
    let file = dir.create_unnamed(OpenOptions::new().write(true)).unwrap();
    expect(&watch, &dir, &[]);
    dir.link_file(&file, "named").unwrap();
    expect(&watch, &dir, &["+ DIR/named"]);
}

#[test]
fn a_rename_in_one_directory_is_two_events_with_one_cookie() {
    let volume = new_volume();
    let dir = new_dir(&Dir::root(&volume).unwrap(), "dir");
    dir.write("a", "").unwrap();
    dir.write("b", "").unwrap();
    let (a, b) = (id(&dir, "a"), id(&dir, "b"));
    let watch = dir.watch().unwrap();
    dir.rename("a", &dir, "c").unwrap();
    dir.rename("c", &dir, "b").unwrap();
    let events: Vec<_> = watch.try_iter().collect();
    let [from, to, again, over] = &events[..] else { panic!("{events:?}") };
    assert_eq!((cookie(from), cookie(again)), (cookie(to), cookie(over)));
    assert_ne!(cookie(from), cookie(again));
    assert!(matches!(from, WatchEvent::MovedFrom { name, .. } if name.name == b"a" && name.file == a));
    assert!(
        matches!(to, WatchEvent::MovedTo { name, replaced: None, .. } if name.name == b"c" && name.file == a)
    );
    let replaces_b = |name: &xebec_volume::WatchedName| name.name == b"b" && name.file == a;
    assert!(
        matches!(over, WatchEvent::MovedTo { name, replaced, .. } if replaces_b(name) && *replaced == Some(b))
    );
}

#[test]
fn both_halves_of_a_rename_between_watched_directories_have_one_cookie() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let (from, to) = (new_dir(&root, "from"), new_dir(&root, "to"));
    let (from_only, to_only) = (from.watch().unwrap(), to.watch().unwrap());
    let both = from.watch().unwrap();
    both.add(&to).unwrap();
    both.add(&to).unwrap(); // watched once
    for name in ["file", "dir"] {
        match name {
            "dir" => from.create_dir(name).unwrap(),
            _ => from.write(name, "").unwrap(),
        }
        from.rename(name, &to, "moved").unwrap();
        let left: Vec<_> = from_only.try_iter().collect();
        let entered: Vec<_> = to_only.try_iter().collect();
        let whole: Vec<_> = both.try_iter().collect();
        let ([created, out], [arrived]) = (&left[..], &entered[..]) else { panic!("{left:?} {entered:?}") };
        assert_eq!(cookie(out), cookie(arrived));
        assert_eq!(whole, [created.clone(), out.clone(), arrived.clone()]);
        assert_eq!(out.name().unwrap().dir, from.handle().id());
        assert_eq!(arrived.name().unwrap().dir, to.handle().id());
        assert_eq!(out.name().unwrap().file, arrived.name().unwrap().file);
        to.remove_dir_all("moved").or_else(|_| to.remove_file("moved")).unwrap();
        for watch in [&to_only, &both] {
            assert_eq!(watch.try_iter().count(), 1);
        }
    }
}

#[test]
fn one_half_of_a_rename_is_reported_where_only_one_directory_is_watched() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let dir = new_dir(&root, "dir");
    let watch = dir.watch().unwrap();
    root.write("in", "").unwrap();
    root.rename("in", &dir, "in").unwrap();
    dir.rename("in", &root, "out").unwrap();
    expect(&watch, &dir, &["to DIR/in", "from DIR/in"]);
}

#[test]
fn an_exchange_is_one_event_for_each_name() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let (one, other) = (new_dir(&root, "one"), new_dir(&root, "other"));
    one.write("file", "").unwrap();
    other.create_dir("sub").unwrap();
    let (file, sub) = (id(&one, "file"), id(&other, "sub"));
    let watch = one.watch().unwrap();
    let of_other = other.watch().unwrap();
    watch.add(&other).unwrap();
    one.rename_with("file", &other, "sub", Rename::Exchange).unwrap();
    let events: Vec<_> = watch.try_iter().collect();
    let [first, second] = &events[..] else { panic!("{events:?}") };
    assert_eq!(cookie(first), cookie(second));
    assert_eq!(first.name().map(|name| (&name.name[..], name.file)), Some((&b"file"[..], sub)));
    assert_eq!(second.name().map(|name| (&name.name[..], name.file)), Some((&b"sub"[..], file)));
    expect(&of_other, &other, &["exchanged DIR/sub"]);
    one.rename_with("file", &one, "file", Rename::Exchange).unwrap(); // the same file: nothing changes
    one.write("second", "").unwrap();
    one.rename_with("file", &one, "second", Rename::Exchange).unwrap();
    expect(&watch, &one, &["+ DIR/second", "exchanged DIR/file", "exchanged DIR/second"]);
}

#[test]
fn a_whiteout_is_created_where_a_name_was() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let dir = new_dir(&root, "dir");
    dir.write("file", "").unwrap();
    let watch = dir.watch().unwrap();
    dir.rename_with("file", &dir, "moved", Rename::Whiteout).unwrap();
    expect(&watch, &dir, &["from DIR/file", "to DIR/moved", "+ DIR/file"]);
    dir.rename_with("moved", &root, "out", Rename::Whiteout).unwrap();
    expect(&watch, &dir, &["from DIR/moved", "+ DIR/moved"]);
}

#[test]
fn a_change_that_fails_has_no_event() {
    let volume = new_volume();
    let root = Dir::root(&volume).unwrap();
    let dir = new_dir(&root, "dir");
    dir.write("file", "").unwrap();
    dir.hard_link("file", &dir, "link").unwrap();
    dir.create_dir_all("full/below").unwrap();
    dir.create_dir("empty").unwrap();
    let watch = dir.watch().unwrap();
    let user = dir.clone().with_credentials(Credentials::new(1000, 1000));
    let long = "n".repeat(256);
    for (result, expected) in [
        (dir.create_dir("file"), errno::EEXIST),
        (dir.hard_link("file", &dir, "link"), errno::EEXIST),
        (dir.hard_link("full", &dir, "hard"), errno::EPERM),
        (dir.remove_file("absent"), errno::ENOENT),
        (dir.remove_file("full"), errno::EISDIR),
        (dir.remove_dir("full"), errno::ENOTEMPTY),
        (dir.remove_dir("file"), errno::ENOTDIR),
        (dir.rename("absent", &dir, "new"), errno::ENOENT),
        (dir.rename("file", &dir, "full"), errno::EISDIR),
        (dir.rename("empty", &dir, "full"), errno::EEXIST),
        (dir.rename("full", &dir, "full/below/x"), errno::EINVAL),
        (dir.rename_with("file", &dir, "link", Rename::NoReplace), errno::EEXIST),
        (dir.rename_with("file", &dir, "absent", Rename::Exchange), errno::ENOENT),
        (dir.rename("file", &dir, &long), errno::ENAMETOOLONG),
        (dir.symlink("target", &long), errno::ENAMETOOLONG),
        (user.create_dir("denied"), errno::EACCES),
        (user.remove_file("file"), errno::EACCES),
        (user.rename("file", &user, "denied"), errno::EACCES),
    ] {
        assert_eq!(errno_of(result), expected);
    }
    // Both names are of one file: nothing happens.
    dir.rename("file", &dir, "link").unwrap();
    expect(&watch, &dir, &[]);
    volume.shut_down();
    assert!(dir.create_dir("after").is_err());
    assert!(dir.remove_file("file").is_err());
    expect(&watch, &dir, &[]);
}
