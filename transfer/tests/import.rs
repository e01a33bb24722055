//! Trees that go into a volume in memory, read back through the façade, and judged by the checker.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use base::time::Time;
use tar::{EntryType, Header};
use xebec_transfer::ImportReport;
use xebec_transfer::{Archive, Directory, Entry, EntryKind, Error, Item, Loss, Overrides, Receiver, Source};

mod scene;

use scene::{Made, archive, member, once, raw};

fn sample() -> Vec<u8> {
    archive(|builder| {
        member(builder, EntryType::Directory, "etc/", "", b"");
        member(builder, EntryType::Regular, "etc/motd", "", b"hello");
        let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        member(builder, EntryType::Regular, "not/listed/large", "", &large);
        member(builder, EntryType::Link, "etc/issue", "etc/motd", b"");
        member(builder, EntryType::Symlink, "etc/mtab", "/proc/mounts", b"");
        let name = format!("long/{}/{}", "d".repeat(120), "f".repeat(200));
        member(builder, EntryType::Regular, &name, "", b"long");
    })
}

fn expect_sample(made: &Made, done: &ImportReport) {
    assert_eq!((done.files, done.links, done.bytes), (6, 1, 3_000_009));
    assert_eq!(made.contents("/etc/issue"), b"hello");
    let large = made.contents("/not/listed/large");
    assert!(large.len() == 3_000_000 && large.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8));
    assert_eq!(made.contents(&format!("/long/{}/{}", "d".repeat(120), "f".repeat(200))), b"long");
    made.look(|volume| {
        let known = volume.metadata(volume.resolve(b"/etc/motd", false).unwrap()).unwrap();
        assert_eq!((known.uid, known.gid, known.permissions, known.nlink), (1000, 2000, 0o640, 2));
        assert_eq!(known.modified, Time { seconds: 1_500_000_000, nanos: 0 });
        let etc = volume.metadata(volume.resolve(b"/etc", false).unwrap()).unwrap();
        assert_eq!((etc.permissions, etc.modified.seconds), (0o640, 1_500_000_000));
        let implied = volume.metadata(volume.resolve(b"/not", false).unwrap()).unwrap();
        assert_eq!(implied.permissions, 0o755);
        assert_eq!(volume.read_link(volume.resolve(b"/etc/mtab", false).unwrap()).unwrap(), b"/proc/mounts");
    });
}

#[test]
fn archives_of_every_compression_give_the_same_tree() {
    let plain = sample();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let zstd =
        |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest);
    // Two frames, with one between them that is to be skipped.
    let (front, back) = plain.split_at(1_000_000);
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"???"].concat();
    let frames = [zstd(front), skipped, zstd(back)].concat();
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    xz.write_all(&plain).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&plain).unwrap();
    for bytes in [plain, gzip.finish().unwrap(), frames, xz.finish().unwrap(), bzip2.finish().unwrap()] {
        let made = Made::new();
        let done = made.write(&once(bytes), Overrides::default()).unwrap();
        expect_sample(&made, &done);
    }
}

/// The format lets an archive ask for 4 GiB, and it got them.
#[test]
fn an_archive_does_not_say_how_much_memory_it_takes() {
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(0)).unwrap();
    xz.write_all(&sample()).unwrap();
    let small = xz.finish().unwrap();
    let with_dictionary = |size: u8| {
        // The stream's header is 12 bytes; that of the block says how long it is, and names the filter LZMA2 (0x21),
        // which has one byte: the size, in powers of two and half ones.
        let mut bytes = small.clone();
        assert_eq!(bytes[14..16], [0x21, 1]);
        bytes[16] = size;
        let end = 12 + usize::from(bytes[12]) * 4;
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[12..end]);
        bytes[end..end + 4].copy_from_slice(&crc.sum().to_le_bytes());
        Made::new().write(&once(bytes), Overrides::default())
    };
    assert_eq!(with_dictionary(28).unwrap().files, 6, "64 MiB");
    assert_eq!(with_dictionary(32).unwrap().files, 6, "256 MiB");
    for larger in [33, 34, 40] {
        let error = with_dictionary(larger).unwrap_err();
        assert!(error.to_string().contains("xzcat"), "{error}");
    }
}

/// A window of 128 MiB was the most, and a larger one was called damage.
#[test]
fn zstd_may_look_back_as_far_as_xz() {
    let plain = sample_of_one();
    let with_window = |descriptor: u8| {
        // A frame without a checksum and of unknown size, of one block that is not compressed.
        let head = [0x28, 0xb5, 0x2f, 0xfd, 0, descriptor];
        let block = ((plain.len() as u32) << 3 | 1).to_le_bytes();
        Made::new().write(&once([&head, &block[..3], &plain].concat()), Overrides::default())
    };
    // Five bits of exponent above 2^10, and three of eighths: 64, 128 and 256 MiB.
    for descriptor in [16 << 3, 17 << 3, 18 << 3] {
        assert_eq!(with_window(descriptor).unwrap().files, 1);
    }
    for descriptor in [18 << 3 | 1, 19 << 3, 31 << 3] {
        let error = with_window(descriptor).unwrap_err().to_string();
        assert!(error.contains("--long=31") && !error.contains("damaged"), "{error}");
    }
}

fn sample_of_one() -> Vec<u8> {
    archive(|builder| member(builder, EntryType::Regular, "file", "", b"contents"))
}

/// Names of 16 MiB, of which a compressed archive holds thousands, waited between the threads and stood in messages.
#[test]
fn names_without_end_are_refused() {
    let long = vec![b'a'; 1 << 20];
    let pax = |key: &str| {
        let value = [key.as_bytes(), b"=", &long, b"\n"].concat();
        let length = value.len() + 8;
        [format!("{length} ").as_bytes(), &value].concat()
    };
    let file = raw(b'0', "file", &[], b"");
    for front in [
        raw(b'L', "././@LongLink", &[], &long),
        raw(b'K', "././@LongLink", &[], &long),
        raw(b'x', "x", &[], &pax("path")),
        raw(b'x', "x", &[], &pax("linkpath")),
    ] {
        let error = Made::new().write(&once([&front[..], &file].concat()), Overrides::default()).unwrap_err();
        assert!(error.to_string().contains("64 KiB"), "{error}");
    }
}

/// Times became others without a word, and Linux shows other devices for numbers of more bits than it has.
#[test]
fn what_the_volume_cannot_hold_is_told() {
    let times = |value: &[u8]| raw(b'0', "file", &[(MTIME, value)], b"");
    let far = times(b"\x80\0\0\0\0\0\0\x10\0\0\0\0");
    let before = times(b"\xff\xff\xff\xff\xff\xff\xff\xf0\0\0\0\0");
    for (member, lost) in [(far, Some(1)), (before, Some(1)), (times(b"15000000000\0"), None)] {
        let done = Made::new().write(&once(member), Overrides::default()).unwrap();
        assert_eq!(done.lost.get(&Loss::Time).copied(), lost);
    }
    let device = |major: &[u8], minor: &[u8]| {
        let made = Made::new();
        let made = made
            .write(&once(raw(b'3', "dev/here", &[(329, major), (337, minor)], b"")), Overrides::default());
        made.map_err(|error| error.to_string())
    };
    device(b"0007777\0", b"0777777\0").unwrap();
    for (major, minor) in [(b"0010000\0", b"0000000\0"), (b"0000000\0", b"1000000\0")] {
        let error = device(major, minor).unwrap_err();
        assert!(error.contains("dev/here") && error.contains("4096") && error.contains("262144"), "{error}");
    }
}

#[test]
fn cut_or_damaged_archives_are_errors() {
    let whole = sample();
    for length in [1, 511, 700, 1024 + 100, 2_000_000] {
        let error = Made::new().write(&once(whole[..length].to_vec()), Overrides::default()).unwrap_err();
        assert!(matches!(error, Error::Source { .. }), "{length}: {error}");
    }
    let mut damaged = whole.clone();
    damaged[512] ^= 1;
    Made::new().write(&once(damaged), Overrides::default()).unwrap_err();
    let outside = archive(|builder| {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..9].copy_from_slice(b"../escape");
        header.set_size(0);
        header.set_mode(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        builder.append(&header, &b""[..]).unwrap();
    });
    let error = Made::new().write(&once(outside), Overrides::default()).unwrap_err();
    assert!(error.to_string().contains("\"..\""), "{error}");
}

/// Where a header has its numbers, each eight bytes or, of the last, twelve.
const MODE: usize = 100;
const UID: usize = 108;
const MTIME: usize = 136;

#[test]
fn fields_may_be_blank_but_not_damaged() {
    let blank = [(MODE, &b"        "[..]), (UID, b"\0\0\0\0\0\0\0\0"), (MTIME, b"            ")];
    let made = Made::new();
    made.write(&once(raw(b'0', "blank", &blank, b"there")), Overrides::default()).unwrap();
    assert_eq!(made.contents("/blank"), b"there");
    let known = made.look(|volume| volume.metadata(volume.resolve(b"/blank", false).unwrap()).unwrap());
    assert_eq!((known.permissions, known.uid, known.modified), (0, 0, Time::default()));
    for damaged in [(MODE, &b"0o644"[..]), (UID, b"12x"), (MTIME, b"yesterday")] {
        let error = Made::new().write(&once(raw(b'0', "f", &[damaged], b"")), Overrides::default());
        assert!(matches!(error, Err(Error::Source { .. })), "{damaged:?}");
    }
}

#[test]
fn labels_of_archives_are_no_files() {
    let made = Made::new();
    let archive = [raw(b'V', "Backup of Monday", &[], b""), raw(b'0', "file", &[], b"")].concat();
    assert_eq!(made.write(&once(archive), Overrides::default()).unwrap().files, 1);
    assert!(made.has("/file") && !made.has("/Backup of Monday"));
    let continued = raw(b'M', "file", &[], b"the rest");
    let error = Made::new().write(&once(continued), Overrides::default()).unwrap_err();
    assert!(error.to_string().contains("multi-volume"), "{error}");
}

#[test]
fn a_sparse_map_without_end_is_refused_early() {
    let records = b"22 GNU.sparse.major=1\n27 GNU.sparse.realsize=512\n";
    // A number of more digits than any has: it would fill memory before its line ended.
    let archive = [raw(b'x', "x", &[], records), raw(b'0', "sparse", &[], &[b'1'; 8 << 10])].concat();
    let error = Made::new().write(&once(archive), Overrides::default()).unwrap_err();
    assert!(error.to_string().contains("sparse map"), "{error}");
}

#[test]
fn what_goes_wrong_at_the_end_names_its_file() {
    let mut name = b"dir".to_vec();
    name.resize(30, b'r');
    let made = Made::new();
    let list =
        format!("/{} type=dir xattr.system.posix_acl_default=nonsense\n", String::from_utf8(name).unwrap());
    let mut overrides = Overrides::default();
    overrides.add_list(&list).unwrap();
    let error = made.write(&once(raw(b'0', "file", &[], b"")), overrides).unwrap_err();
    assert!(error.to_string().contains("/dirrrr"), "{error}");
}

#[test]
fn layers_take_away_and_replace() {
    let made = Made::new();
    let below = archive(|builder| {
        for path in ["a/old", "a/kept", "b/one", "b/two", "c"] {
            member(builder, EntryType::Regular, path, "", b"below");
        }
    });
    let above = archive(|builder| {
        member(builder, EntryType::Regular, "a/.wh.old", "", b"");
        // What an opaque layer adds stays, wherever the mark stands.
        member(builder, EntryType::Regular, "b/three", "", b"above");
        member(builder, EntryType::Regular, "b/.wh..wh..opq", "", b"");
        member(builder, EntryType::Regular, "c/d", "", b"");
    });
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [("below", below), ("above", above)] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let layer = |name: &str| Archive::new(folder.path().join(name)).whiteouts(true);
    made.write(&layer("below"), Overrides::default()).unwrap();
    // A file that becomes a directory because something lies below it: the layer says so by another entry, or errs.
    let error = made.write(&layer("above"), Overrides::default()).unwrap_err();
    assert!(error.to_string().contains("c"), "{error}");
    assert!(!made.has("/a/old") && made.has("/a/kept"));
    assert!(!made.has("/b/one") && !made.has("/b/two") && made.has("/b/three"));
}

/// Directories get modes, owners and times at last, and were known by their inode numbers alone. A later source frees
/// such a number, a file gets it, and the file became setuid.
#[test]
fn what_a_removed_directory_was_to_get_reaches_nobody() {
    let count = 300;
    let directories: Vec<_> = (0..count)
        .map(|n| raw(b'5', &format!("d{n}"), &[(MODE, b"0006777\0"), (UID, b"0000007\0")], b""))
        .collect();
    let files = (0..count).map(|n| raw(b'0', &format!("f{n}"), &[(MODE, b"0000600\0")], b"secret"));
    // Directories go away by whiteouts, and by files that take their names.
    let whiteouts = (0..count / 2).map(|n| raw(b'0', &format!(".wh.d{n}"), &[], b""));
    let replaced =
        (count / 2..count).map(|n| raw(b'0', &format!("d{n}"), &[(MODE, b"0000600\0")], b"secret"));
    let above: Vec<_> = whiteouts.chain(replaced).chain(files).collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("above"), above.concat()).unwrap();
    let above = Archive::new(folder.path().join("above")).whiteouts(true);
    let made = Made::new();
    made.write_all(&[&once(directories.concat()), &above], Overrides::default()).unwrap();
    made.look(|volume| {
        let names = (0..count).map(|n| format!("/f{n}")).chain((count / 2..count).map(|n| format!("/d{n}")));
        for name in names {
            let known = volume.metadata(volume.resolve(name.as_bytes(), false).unwrap()).unwrap();
            assert_eq!((known.permissions, known.uid), (0o600, 0), "{name}");
        }
    });
}

#[test]
fn a_directory_is_taken_in_with_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("dir/below")).unwrap();
    std::fs::write(path("dir/file"), b"contents").unwrap();
    std::fs::hard_link(path("dir/file"), path("also")).unwrap();
    symlink("dir/file", path("link")).unwrap();
    let sparse = std::fs::File::create(path("sparse")).unwrap();
    sparse.set_len(5 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 3 << 20).unwrap();
    std::fs::set_permissions(path("dir"), std::fs::Permissions::from_mode(0o2710)).unwrap();
    let made = Made::new();
    let done = made.write(&Directory::new(folder.path()), Overrides::default()).unwrap();
    assert_eq!((done.files, done.links), (7, 1));
    assert_eq!(made.contents("/also"), b"contents");
    let bytes = made.contents("/sparse");
    assert_eq!((bytes.len(), &bytes[3 << 20..(3 << 20) + 13]), (5 << 20, &b"in the middle"[..]));
    made.look(|volume| {
        let of = |path: &str| volume.metadata(volume.resolve(path.as_bytes(), false).unwrap()).unwrap();
        assert!(of("/sparse").blocks < 64, "{}", of("/sparse").blocks);
        assert_eq!((of("/dir").permissions, of("/dir/file").nlink), (0o2710, 2));
        let host = path("dir").metadata().unwrap();
        assert_eq!(of("/dir").modified, Time { seconds: host.mtime(), nanos: host.mtime_nsec() as u32 });
    });
    // The same once more over it changes nothing but what is new.
    std::fs::write(path("new"), b"new").unwrap();
    made.write(&Directory::new(folder.path()), Overrides::default()).unwrap();
    assert_eq!(made.contents("/new"), b"new");
    assert_eq!(
        made.look(|volume| volume.metadata(volume.resolve(b"/also", false).unwrap()).unwrap().nlink),
        2
    );
}

/// Names of files, with how much came of each.
#[derive(Default)]
struct Names(Vec<(Vec<u8>, u64)>);

impl Receiver for Names {
    fn take(&mut self, item: Item) -> xebec_transfer::Result<()> {
        match item {
            Item::Entry(Entry { path, kind: EntryKind::File { data, .. }, .. }) => {
                self.0.push((path, data.bytes.len() as u64));
            }
            Item::Data(data) => self.0.last_mut().unwrap().1 += data.bytes.len() as u64,
            _ => {}
        }
        Ok(())
    }

    fn lose(&mut self, _: Loss) {}
}

#[test]
fn files_come_in_order_though_many_threads_read_them() {
    let folder = tempfile::tempdir().unwrap();
    // More than a thread takes at once, by number and by bytes, and some that are read in pieces.
    let mut sizes: Vec<u64> = (0..200).map(|n| n * 2000).collect();
    sizes[77] = 5 << 20;
    sizes[130] = 0;
    let expected: Vec<_> =
        sizes.iter().enumerate().map(|(n, size)| (format!("file {n:03}").into_bytes(), *size)).collect();
    for (n, size) in sizes.iter().enumerate() {
        std::fs::write(folder.path().join(format!("file {n:03}")), vec![1; *size as usize]).unwrap();
    }
    for threads in [1, 2, 7] {
        let mut names = Names::default();
        Directory::new(folder.path()).read(true, threads, &mut names).unwrap();
        assert_eq!(names.0, expected, "{threads} threads");
    }
}

#[test]
fn lists_make_what_the_source_lacks_and_must_say_what() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dev")).unwrap();
    let overrides = |list: &str| {
        let mut overrides = Overrides::default();
        overrides.add_list(list).unwrap();
        overrides
    };
    let made = Made::new();
    let list = "dev/console type=char device=5,1 mode=600 uid=0 gid=5\ndev mode=0711 uid=3\n";
    made.write(&Directory::new(folder.path()), overrides(list)).unwrap();
    made.look(|volume| {
        let of = |path: &str| volume.metadata(volume.resolve(path.as_bytes(), false).unwrap()).unwrap();
        assert_eq!(of("/dev/console").device, Some(volume::DeviceNumber { major: 5, minor: 1 }));
        assert_eq!((of("/dev").permissions, of("/dev").uid), (0o711, 3));
    });
    let error = Made::new().write(&Directory::new(folder.path()), overrides("nothing mode=1\n")).unwrap_err();
    assert!(error.to_string().contains("type="), "{error}");
}

#[test]
fn a_full_volume_says_so() {
    let large = archive(|builder| member(builder, EntryType::Regular, "large", "", &vec![1; 70 << 20]));
    let error = Made::new().write(&once(large), Overrides::default()).unwrap_err();
    assert!(error.is_full() && error.to_string().contains("--size"), "{error}");
}
