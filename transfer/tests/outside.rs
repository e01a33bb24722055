//! Archives that try to leave the directory that they are unpacked into, and members that swallow or change others.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use tar::EntryType;
use volume::{NewFile, Volume};
use xebec_transfer::ImportReport;
use xebec_transfer::{Archive, Loss, Overrides, Source, Writer};

mod scene;

use scene::{Made, archive, member, once, raw};

/// A volume with files outside of the directory `/in` that archives go to.
fn scene(prepare: impl FnOnce(&Volume)) -> Made {
    let made = Made::new();
    made.look(|volume| {
        for dir in ["in/etc", "etc/deep"] {
            volume.create_dir_all(dir.as_bytes(), &NewFile::directory()).unwrap();
        }
        let etc = volume.resolve(b"/etc", true).unwrap();
        for name in ["passwd", "shadow"] {
            volume
                .create(etc, name.as_bytes(), &NewFile { permissions: 0o600, ..NewFile::regular() })
                .unwrap();
        }
        prepare(volume);
    });
    made
}

fn link(volume: &Volume, path: &str, target: &str) {
    let (dir, name) = volume.resolve_parent(path.as_bytes()).unwrap();
    volume.create(dir, name, &NewFile::symlink(target.as_bytes())).unwrap();
}

fn put(made: &Made, source: &dyn Source) -> xebec_transfer::Result<ImportReport> {
    made.look(|volume| {
        let dir = volume.resolve(b"/in", true).unwrap();
        let mut writer = Writer::new(volume, dir, Overrides::default());
        source.read(true, 1, &mut writer)?;
        writer.finish()
    })
}

/// What is outside is as it was: two empty files that nobody else may read, each with one name, and a directory.
#[track_caller]
fn expect_outside_untouched(made: &Made) {
    made.look(|volume| {
        for name in ["/etc/passwd", "/etc/shadow"] {
            let known = volume.metadata(volume.resolve(name.as_bytes(), false).unwrap()).unwrap();
            assert_eq!((known.size, known.permissions, known.nlink), (0, 0o600, 1), "{name}");
        }
        let mut names = Vec::new();
        for dir in ["/", "/etc"] {
            let ino = volume.resolve(dir.as_bytes(), true).unwrap();
            let entries = volume::Dir::open_id(volume, ino).unwrap().entries().unwrap();
            names.extend(entries.map(|entry| String::from_utf8(entry.unwrap().name).unwrap()));
        }
        names.retain(|name| !name.starts_with('.'));
        names.sort_unstable();
        assert_eq!(names, ["deep", "etc", "in", "passwd", "shadow"]);
    });
}

/// A link in the archive, and a file behind it: `tar-in IMAGE ARCHIVE DIR` wrote it outside of DIR. DIR is the root of
/// what the archive names, as for a process in a chroot.
#[test]
fn links_of_an_archive_do_not_lead_out_of_its_directory() {
    for target in ["/etc", "../etc", "etc/../../etc", "../../../etc", "/../etc/.", "inner"] {
        let made = scene(|_| {});
        let bytes = archive(|builder| {
            member(builder, EntryType::Symlink, "inner", "/etc", b"");
            member(builder, EntryType::Symlink, "x", target, b"");
            member(builder, EntryType::Regular, "x/passwd", "", b"planted");
            member(builder, EntryType::Directory, "x/deep", "", b"");
            member(builder, EntryType::Regular, "x/deep/file", "", b"planted");
            member(builder, EntryType::Link, "x/second", "x/passwd", b"");
        });
        put(&made, &once(bytes)).unwrap();
        expect_outside_untouched(&made);
        assert_eq!(made.contents("/in/etc/passwd"), b"planted", "{target}");
        assert_eq!(made.contents("/in/etc/deep/file"), b"planted", "{target}");
        assert_eq!(made.contents("/in/etc/second"), b"planted", "{target}");
    }
}

/// The same with links that were there before, as another archive may have left them.
#[test]
fn links_of_the_volume_do_not_lead_out_either() {
    let made = scene(|volume| {
        link(volume, "/in/x", "/etc");
        link(volume, "/in/loop", "loop");
        link(volume, "/in/nowhere", "/etc/no/such");
        link(volume, "/in/file", "/etc/passwd");
    });
    let file =
        |path: &str| once(archive(|builder| member(builder, EntryType::Regular, path, "", b"planted")));
    put(&made, &file("x/passwd")).unwrap();
    assert_eq!(made.contents("/in/etc/passwd"), b"planted");
    for path in ["loop/file", "nowhere/file"] {
        let error = put(&made, &file(path)).unwrap_err().to_string();
        assert!(error.contains("link"), "{error}");
    }
    // A link at the end of a path is replaced.
    put(&made, &file("file")).unwrap();
    assert_eq!(made.contents("/in/file"), b"planted");
    // A hard link to what is outside.
    let link = archive(|builder| member(builder, EntryType::Link, "mine", "x/shadow", b""));
    put(&made, &once(link)).unwrap_err();
    expect_outside_untouched(&made);
}

/// Whiteouts remove what lower layers have at a path. Where a lower layer has a link there, they emptied its target.
#[test]
fn whiteouts_follow_no_links() {
    let made = scene(|volume| {
        link(volume, "/in/x", "/etc");
        link(volume, "/in/y", "etc");
        let etc = volume.resolve(b"/in/etc", true).unwrap();
        volume.create(etc, b"kept", &NewFile::regular()).unwrap();
    });
    let folder = tempfile::tempdir().unwrap();
    let layer = |members: &[(&str, EntryType)]| {
        let bytes = archive(|builder| {
            members.iter().for_each(|(path, kind)| member(builder, *kind, path, "", b""));
        });
        std::fs::write(folder.path().join("layer"), bytes).unwrap();
        Archive::new(folder.path().join("layer")).whiteouts(true)
    };
    let file = EntryType::Regular;
    let marks = [
        ("x/.wh..wh..opq", file),
        ("x/.wh.passwd", file),
        ("y/.wh..wh..opq", file),
        ("y/.wh.kept", file),
        ("x/deep/.wh..wh..opq", file),
    ];
    put(&made, &layer(&marks)).unwrap();
    expect_outside_untouched(&made);
    assert!(made.has("/in/etc/kept") && made.has("/in/x"));
    // A layer in which the path is a directory replaces the link by it.
    put(&made, &layer(&[("y", EntryType::Directory), ("y/.wh..wh..opq", file), ("y/new", file)])).unwrap();
    assert!(made.has("/in/y/new") && made.has("/in/etc/kept") && !made.has("/in/etc/new"));
    for name in [".wh.", ".wh..", ".wh...", "etc/.wh...", "etc/.wh.."] {
        let error = put(&made, &layer(&[(name, file)])).unwrap_err().to_string();
        assert!(error.contains("whiteout"), "{name}: {error}");
    }
    expect_outside_untouched(&made);
}

/// Some writers give a hard link, or a directory, the size of its file, and no contents. The members behind it were
/// swallowed as its contents.
#[test]
fn members_without_contents_may_have_a_size() {
    const SIZE: usize = 124;
    for (kind, link) in [(b'1', "file"), (b'2', "file"), (b'5', ""), (b'6', "")] {
        let member = |contents: &[u8]| {
            let mut fields = vec![(SIZE, &b"00000002000\0"[..])];
            fields.extend((!link.is_empty()).then_some((157, link.as_bytes())));
            raw(kind, "second", &fields, contents)
        };
        let (file, third) = (raw(b'0', "file", &[], &[7; 1024]), raw(b'0', "third", &[], b"here"));
        let without = [&file[..], &member(b""), &third].concat();
        // POSIX allows contents of a hard link; where they are, they are passed over.
        let with = [&file[..], &member(&[7; 1024]), &third].concat();
        let last = [&file[..], &third, &member(b"")].concat();
        let ended = [&file[..], &third, &member(b""), &[0; 1024]].concat();
        for bytes in [without, with, last, ended] {
            let made = Made::new();
            made.write(&once(bytes), Overrides::default()).unwrap();
            assert_eq!(made.contents("/third"), b"here");
            assert!(made.has("/second") && made.contents("/file") == [7; 1024]);
        }
    }
}

/// A hard link with a size, with contents or without, in an archive with extended headers or without.
fn sized_link(pax: bool, size: usize, contents: &[u8]) -> Vec<u8> {
    const SIZE: usize = 124;
    let size = format!("{size:011o}\0");
    let link = raw(b'1', "second", &[(SIZE, size.as_bytes()), (157, b"first")], contents);
    let extended = raw(b'x', "x", &[], &record("mtime", "1500000000"));
    [if pax { &extended[..] } else { &[] }, &link].concat()
}

fn written(bytes: &[u8]) -> (Made, xebec_transfer::Result<ImportReport>) {
    let made = Made::new();
    let done = made.write(&once(bytes.to_vec()), Overrides::default());
    (made, done)
}

/// Contents of a hard link that began with 1,024 zero bytes passed for the end of the archive: all members behind it
/// were missing, and nothing was said.
#[test]
fn contents_of_a_hard_link_may_begin_with_zeros() {
    let end = [0; 1024];
    let third = raw(b'0', "third", &[], b"here");
    for (zeros, more) in [(512, 0), (1024, 0), (1024, 1), (1024, 3000), (1536, 5), (10240, 0), (10240, 700)] {
        let contents = [vec![0; zeros], vec![7; more]].concat();
        let first = raw(b'0', "first", &[], &contents);
        for pax in [false, true] {
            let with = sized_link(pax, contents.len(), &contents);
            for bytes in [[&first[..], &with, &third].concat(), [&first[..], &with, &third, &end].concat()] {
                let (made, done) = written(&bytes);
                done.unwrap();
                assert_eq!(made.contents("/third"), b"here", "{zeros} and {more}, pax: {pax}");
                assert_eq!(made.contents("/second"), contents);
            }
            // At the end of the archive, with contents or without: only zeros follow.
            for blanks in [0, 512, 1024, 10240, 100 << 10] {
                let without = sized_link(pax, contents.len(), b"");
                let (made, done) = written(&[&first[..], &third, &without, &vec![0; blanks]].concat());
                done.unwrap();
                assert!(made.contents("/second") == contents && made.has("/third"));
            }
            // What is neither.
            let (_, done) = written(&[&first[..], &with, &[1; 512], &third].concat());
            done.unwrap_err();
            let (_, done) = written(&[&first[..], &with[..with.len() - 512], &third].concat());
            assert!(done.is_err() || zeros + more <= 512, "{zeros} and {more} are cut short");
        }
    }
}

/// Contents of a hard link that were an archive themselves: its members were taken for members of the outer archive,
/// and the end of the inner one ended the outer one. The inner archive is recognized by its first header, with which
/// the file that is linked begins.
#[test]
fn contents_of_a_hard_link_may_be_an_archive() {
    let inner = archive(|builder| member(builder, EntryType::Regular, "inner", "", b"of the inner archive"));
    let cut = &inner[..1024];
    let third = raw(b'0', "third", &[], b"here");
    for contents in [&inner[..], cut, &inner[..512 + 20]] {
        let first = raw(b'0', "first", &[], contents);
        let with = sized_link(true, contents.len(), contents);
        // One more name, to the name that was a link.
        let mut again = raw(b'1', "again", &[(157, b"second")], contents);
        again = [&raw(b'x', "x", &[], &record("mtime", "1500000000"))[..], &again].concat();
        let (made, done) = written(&[&first[..], &with, &again, &third, &[0; 1024]].concat());
        done.unwrap();
        assert_eq!(made.contents("/third"), b"here");
        assert_eq!(made.contents("/again"), contents);
        assert!(!made.has("/inner"));
        // Only extended headers come with contents of links. Elsewhere it may be either.
        let (_, done) = written(&[&first[..], &sized_link(false, contents.len(), contents), &third].concat());
        let error = done.unwrap_err().to_string();
        assert!(error.contains("hard link") && error.contains("second"), "{error}");
        // Without contents, the next header is another one.
        for pax in [false, true] {
            let without = sized_link(pax, contents.len(), b"");
            let (made, done) = written(&[&first[..], &without, &third, &[0; 1024]].concat());
            done.unwrap();
            assert!(made.contents("/third") == b"here" && made.contents("/second") == contents);
        }
    }
}

/// The file that is linked may be one of the volume, of which the archive tells nothing. If the contents of the link
/// are an archive then, the end of that one has more behind it.
#[test]
fn an_archive_in_a_link_to_a_file_of_the_volume_is_refused() {
    let inner = archive(|builder| member(builder, EntryType::Regular, "inner", "", b"of the inner archive"));
    let third = raw(b'0', "third", &[], b"here");
    for pax in [false, true] {
        let made = Made::new();
        let write = |bytes: &[&[u8]]| made.write(&once(bytes.concat()), Overrides::default());
        write(&[&raw(b'0', "first", &[], &inner)]).unwrap();
        let error = write(&[&sized_link(pax, inner.len(), &inner), &third, &[0; 1024]]).unwrap_err();
        assert!(error.to_string().contains("hard link"), "{error}");
        write(&[&sized_link(pax, inner.len(), b""), &third, &[0; 1024]]).unwrap();
        assert!(made.contents("/third") == b"here" && made.contents("/second") == inner);
    }
}

/// A record of an extended header.
fn record(key: &str, value: &str) -> Vec<u8> {
    let length = key.len() + value.len() + 3;
    let digits = (length + 1).to_string().len();
    format!("{} {key}={value}\n", length + digits).into_bytes()
}

fn attributes(records: &[Vec<u8>]) -> (Vec<(String, Vec<u8>)>, ImportReport) {
    let made = Made::new();
    let bytes =
        [raw(b'x', "x", &[], &records.concat()), raw(b'5', "dir", &[(100, b"0000740\0")], b"")].concat();
    let done = made.write(&once(bytes), Overrides::default()).unwrap();
    let found = made.look(|volume| {
        let ino = volume.resolve(b"/dir", false).unwrap();
        let names = volume.list_attributes(ino).unwrap().into_iter();
        let value = |name: Vec<u8>| {
            let value = volume.get_attribute(ino, &name).unwrap();
            (String::from_utf8(name).unwrap(), value)
        };
        names.map(value).collect()
    });
    (found, done)
}

/// GNU tar writes `%` and `=` in names of attributes in hexadecimal, as `=` ends a key; they were kept so.
#[test]
fn names_of_attributes_stay_as_they_are() {
    let records = [
        record("SCHILY.xattr.user.a%3Db", "1"),
        record("SCHILY.xattr.user.100%25", "2"),
        record("SCHILY.xattr.user.%253D", "3"),
        record("SCHILY.xattr.user.%20", "4"),
    ];
    let (mut found, _) = attributes(&records);
    found.sort();
    let expected = [("user.%20", "4"), ("user.%3D", "3"), ("user.100%", "2"), ("user.a=b", "1")];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())));
}

/// Lists as text (`tar --acls`) were counted as lost, even those that say no more than the mode does. Those of numbers
/// are kept; a name stands for nobody here.
#[test]
fn access_lists_in_text_are_kept_where_they_have_numbers() {
    let entry = |tag: u16, bits: u16, id: u32| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = |entries: &[Vec<u8>]| [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    let nobody = u32::MAX;
    let gnu = "user::rwx\nuser:4711:r-x\t#effective:r--\ngroup::r-x\nmask::r--\nother::---\n";
    let bsd = "user::rwx,user:lisa:r-x:4711,group::r-x,mask::r--,other::---";
    let expected = list(&[
        entry(1, 7, nobody),
        entry(2, 5, 4711),
        entry(4, 5, nobody),
        entry(16, 4, nobody),
        entry(32, 0, nobody),
    ]);
    for text in [gnu, bsd] {
        let (found, done) =
            attributes(&[record("SCHILY.acl.access", text), record("SCHILY.acl.default", text)]);
        assert!(done.lost.is_empty(), "{:?}", done.lost);
        let names = ["system.posix_acl_access", "system.posix_acl_default"];
        assert_eq!(found.len(), 2);
        assert!(
            names.iter().all(|name| found.contains(&((*name).to_owned(), expected.clone()))),
            "{found:?}"
        );
    }
    let (found, done) = attributes(&[record("SCHILY.acl.access", "user::rwx\ngroup::r-x\nother::r-x\n")]);
    assert!(found.is_empty() && done.lost.is_empty());
    for unknown in
        ["user::rwx\nuser:lisa:rwx\ngroup::r-x\nmask::rwx\nother::r-x\n", "user::rwx,everything", ""]
    {
        let (found, done) = attributes(&[record("SCHILY.acl.access", unknown)]);
        assert!(found.is_empty());
        assert_eq!(
            done.lost.get(&Loss::AccessList).copied(),
            (!unknown.is_empty()).then_some(1),
            "{unknown}"
        );
    }
}
