//! Directories that change while they are read: what comes of it is what was there, or an error that names what
//! changed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that fails says where")]

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use base::stop;
use model::Rng;
use xebec_transfer::{Data, Directory, EntryKind, Error, Item, Loss, Receiver, Result, Source as _};

/// Takes items, and does something before it has taken the file `a`.
struct Meddler<'f> {
    before: Option<Box<dyn FnOnce() + Send + 'f>>,
    seen: Vec<Item>,
}

impl Receiver for Meddler<'_> {
    fn take(&mut self, item: Item) -> Result<()> {
        if let Item::Entry(entry) = &item
            && entry.path == b"a"
            && let Some(before) = self.before.take()
        {
            before();
        }
        self.seen.push(item);
        Ok(())
    }

    fn lose(&mut self, _: Loss) {}
}

/// Reads a directory in which something is done when all of its files were looked at, and none was taken.
fn read<'f>(root: &Path, before: impl FnOnce() + Send + 'f) -> Result<Vec<Item>> {
    fs::write(root.join("a"), b"first").unwrap();
    let mut meddler = Meddler { before: Some(Box::new(before)), seen: Vec::new() };
    Directory::new(root).read(true, 1, &mut meddler).map(|()| meddler.seen)
}

#[track_caller]
fn expect_changed(result: Result<Vec<Item>>, path: &Path) {
    match result {
        Err(Error::Changed { path: named }) => assert_eq!(named, path),
        other => panic!("expected a change of {}: {other:?}", path.display()),
    }
}

/// More than is read ahead of its turn.
const LARGE: u64 = 64 << 20;

#[test]
fn a_file_that_is_cut_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    fs::write(&path, vec![1; LARGE as usize]).unwrap();
    let cut = || fs::File::options().write(true).open(&path).unwrap().set_len(LARGE / 2).unwrap();
    expect_changed(read(folder.path(), cut), &path);
}

#[test]
fn a_file_that_is_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    fs::write(&path, vec![1; LARGE as usize]).unwrap();
    let write = || {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"new", LARGE - 3).unwrap();
        // Whatever the clock of this machine's file system counts in.
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    expect_changed(read(folder.path(), write), &path);
}

/// The time of the contents was put back, as `cp -p` and editors do, and the file was taken for unchanged.
#[test]
fn a_file_that_is_written_and_dated_back_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    fs::write(&path, vec![1; LARGE as usize]).unwrap();
    let before = fs::metadata(&path).unwrap();
    let write = || {
        let file = fs::File::options().write(true).open(&path).unwrap();
        // The clock of this machine's file system may not tell two changes apart.
        while changed(&file.metadata().unwrap()) == changed(&before) {
            file.write_all_at(b"new", LARGE - 3).unwrap();
            file.set_modified(before.modified().unwrap()).unwrap();
        }
        assert_eq!(file.metadata().unwrap().modified().unwrap(), before.modified().unwrap());
    };
    expect_changed(read(folder.path(), write), &path);
}

fn changed(metadata: &fs::Metadata) -> (i64, i64) {
    (metadata.ctime(), metadata.ctime_nsec())
}

#[test]
fn names_of_a_file_that_vanish_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::write(&one, b"here").unwrap();
    fs::hard_link(&one, &two).unwrap();
    let remove = || [&one, &two].into_iter().for_each(|path| fs::remove_file(path).unwrap());
    expect_changed(read(folder.path(), remove), &one);
}

/// The first name was opened a second time, and what was there then was given for the file, under all its names.
#[test]
fn names_of_a_file_never_become_names_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two, other) =
        (folder.path().join("one"), folder.path().join("two"), folder.path().join("other"));
    fs::create_dir(&other).unwrap();
    fs::write(&one, b"one and two").unwrap();
    fs::hard_link(&one, &two).unwrap();
    fs::write(other.join("file"), b"another").unwrap();
    let replace = || fs::rename(other.join("file"), &one).unwrap();
    expect_changed(read(folder.path(), replace), &one);
}

/// Does something random to the tree. A file that is written gets another size than the `written` ones before it: the
/// clock of a file system may not tell two writes apart.
fn meddle(root: &Path, rng: &mut Rng, written: &mut usize) {
    let path = root.join(format!("{}/{}", rng.below(4), rng.below(8)));
    // Most of it fails as often as not: the name exists, or it does not, or is of another kind.
    let _ = match rng.below(8) {
        0 => fs::remove_file(&path),
        1 => fs::create_dir(&path),
        2 => fs::remove_dir(&path),
        3 => std::os::unix::fs::symlink("somewhere", &path),
        4 => rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Socket, 0o600.into(), 0)
            .map_err(std::io::Error::from),
        5 => fs::hard_link(root.join("anchor"), &path),
        6 => fs::rename(&path, root.join(format!("{}/{}", rng.below(4), rng.below(8)))),
        _ => {
            *written += 1;
            fs::write(&path, vec![rng.below(250) as u8 + 1; *written % 3000 + 1])
        }
    };
}

/// While another thread does what it likes to the tree. Files hold one byte repeated, and no zeros.
///
/// The test took the first piece of each file for all of it. A file whose size is known to the system before its blocks
/// are (`st_blocks` is read after `st_size`) is read like one with holes, in pieces that follow its entry.
#[test]
fn nothing_is_made_up_whatever_happens_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    (0..4).for_each(|number| fs::create_dir(root.join(number.to_string())).unwrap());
    fs::write(root.join("anchor"), b"anchor").unwrap();
    stop::scope(|scope| {
        scope.spawn(|stop| {
            let (mut rng, mut written) = (Rng::new(5), 0);
            while !stop.is_set() {
                meddle(root, &mut rng, &mut written);
            }
        });
        for round in 0..300 {
            let mut meddler = Meddler { before: None, seen: Vec::new() };
            match Directory::new(root).read(true, 1 + round % 3, &mut meddler) {
                Ok(()) => expect_whole(&meddler.seen),
                Err(Error::Changed { .. }) => {}
                Err(other) => panic!("round {round}: {other}"),
            }
        }
    });
}

/// Each file has as many bytes as its entry says, in one piece or several, and none that was never written.
fn expect_whole(items: &[Item]) {
    // Hints of shared blocks say nothing of contents.
    let mut items = items.iter().filter(|item| !matches!(item, Item::Shared(_)));
    while let Some(item) = items.next() {
        let Item::Entry(entry) = item else { panic!("it belongs to no file: {item:?}") };
        let EntryKind::File { size, data } = &entry.kind else { continue };
        let mut contents = vec![0; *size as usize];
        let mut piece = data;
        loop {
            let Data { offset, bytes, more } = piece;
            contents[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
            if !more {
                break;
            }
            piece = match items.next() {
                Some(Item::Data(data)) => data,
                other => panic!("a piece of {entry:?} is missing: {other:?}"),
            };
        }
        assert!(!contents.contains(&0), "{entry:?}");
    }
}

/// As such a file is read in a race only, here is one that is always read in pieces.
#[test]
fn a_small_file_with_holes_comes_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::File::create(folder.path().join("holes")).unwrap();
    file.write_all_at(b"end", 1 << 20).unwrap();
    let mut meddler = Meddler { before: None, seen: Vec::new() };
    Directory::new(folder.path()).read(true, 2, &mut meddler).unwrap();
    let is_piece = |item: &&Item| matches!(item, Item::Data(_));
    assert!(meddler.seen.iter().filter(is_piece).count() > 0, "{:?}", meddler.seen);
    let judged = std::panic::catch_unwind(|| expect_whole(&meddler.seen));
    assert!(judged.is_err(), "what was never written is told apart");
}
