//! A target for archives. The volume must stay valid, and nothing outside the target directory may change.
//!
//! The first byte is the form: an archive as it is (compressed or not), one that the target compresses with gzip, zstd,
//! xz or bzip2, or a layer of an OCI image.

#![expect(clippy::expect_used, reason = "failed expectations are the findings of the target")]

use std::collections::BTreeMap;
use std::io::{Cursor, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use block::{Device, MemoryDevice, OverlayDevice};
use check::{Finding, Observer};
use format::inode::FileType;
use transfer::{Archive, Overrides, Source as _, Writer};
use volume::namespace::listing::Cookie;
use volume::{FileId, MemoryBudget, Metadata, NewFile, NewFileType, OpenOptions, Options, Volume};

use crate::input::Input;

/// Number of forms.
const FORMS: u8 = 6;
/// Size of the volume in bytes: the minimum.
const VOLUME: u64 = 16 << 20;
/// Target directory of archives.
const DIR: &[u8] = b"/dir";
/// Maximum length of a bzip2 stream, which can expand by a factor of a billion.
const BZIP2_MAX: usize = 512;

/// The volume before the import, and its files outside [`DIR`].
struct Template {
    device: Arc<dyn Device>,
    outside: BTreeMap<Vec<u8>, FileState>,
}

/// Metadata and contents of a file.
#[derive(Debug, PartialEq)]
struct FileState {
    metadata: Metadata,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    contents: Vec<u8>,
}

/// Seeds, each with its first byte: archives with all types of members.
pub fn seeds() -> Vec<(u8, Vec<u8>)> {
    use tar::EntryType::{Block, Char, Directory, Fifo, Link, Regular, Symlink};
    let mut members = Vec::new();
    for (kind, path, link, contents) in [
        (Directory, "etc/", "", ""),
        (Regular, "etc/motd", "", "a new one"),
        (Regular, "x/passwd", "", "through a link"),
        (Symlink, "s", "/etc", ""),
        (Regular, "s/deep/file", "", "through its own link"),
        (Link, "usr/hard", "etc/motd", ""),
        (Link, "usr/out", "x/passwd", ""),
        (Char, "null", "", ""),
        (Block, "disk", "", ""),
        (Fifo, "pipe", "", ""),
        (Regular, "etc/.wh.motd", "", ""),
        (Regular, "up/.wh..wh..opq", "", ""),
        (Regular, "usr/lib/.wh..wh..opq", "", ""),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o6755);
        header.set_mtime(1_500_000_000);
        header.set_size(contents.len() as u64);
        members.push((header, path, link, contents));
    }
    let build = |members: &[(tar::Header, &str, &str, &str)], pax: bool| -> std::io::Result<Vec<u8>> {
        let mut builder = tar::Builder::new(Vec::new());
        for (header, path, link, contents) in members {
            if pax {
                let records: [(&str, &[u8]); 3] = [
                    ("SCHILY.xattr.user.name", b"value"),
                    ("mtime", b"1500000000.123456789"),
                    ("SCHILY.acl.access", b"user::rw-,user:1000:r--,group::r--,mask::r--,other::r--"),
                ];
                builder.append_pax_extensions(records)?;
            }
            let mut header = header.clone();
            match link.is_empty() {
                true => builder.append_data(&mut header, path, contents.as_bytes())?,
                false => builder.append_link(&mut header, path, link)?,
            }
        }
        builder.into_inner()
    };
    let all = (0..FORMS).map(|form| (form, build(&members, form % 2 == 1)));
    // Archives with one member mutate faster.
    let each = members.iter().map(|member| (0, build(std::slice::from_ref(member), true)));
    all.chain(each).filter_map(|(form, archive)| Some((form, archive.ok()?))).collect()
}

/// Imports an archive into a directory of a small volume in memory.
pub fn import_archive(data: &[u8]) {
    let mut input = Input::new(data);
    let form = input.u8() % FORMS;
    let rest = input.rest();
    let is_layer = form == FORMS - 1;
    let bytes = match form {
        0 if rest.starts_with(b"BZh") => rest.get(..BZIP2_MAX).unwrap_or(rest).to_vec(),
        0 | 5 => rest.to_vec(),
        form => compress(form, rest),
    };
    let template = template();
    let device: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(&template.device)));
    let volume = open(&device);
    let dir = volume.resolve(DIR, false).expect("the directory");
    let name = Path::new("the archive");
    let archive = match is_layer {
        false => Archive::from_reader(name, Cursor::new(bytes)),
        // A layer is read twice.
        true => {
            let mut file = tempfile::tempfile().expect("an unnamed temporary file");
            file.write_all(&bytes).expect("an unnamed temporary file");
            Archive::from_file(name, file).whiteouts(true)
        }
    };
    let mut writer = Writer::new(&volume, dir, Overrides::default()).skip_unreadable(true);
    let read = archive.read(true, 1, &mut writer);
    match read {
        // Errors at the end, for example of flags, leave a valid volume, too.
        Ok(()) => drop(writer.finish()),
        Err(_) => writer.abort(),
    }
    volume.unmount().expect("a valid volume");
    check_volume(&*device);
    let volume = open(&device);
    let outside = outside(&volume);
    volume.unmount().expect("a valid volume");
    assert_eq!(outside, template.outside, "something outside the directory has changed");
}

fn compress(form: u8, bytes: &[u8]) -> Vec<u8> {
    const WRITTEN: &str = "memory takes all";
    match form {
        1 => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).and_then(|()| gzip.finish()).expect(WRITTEN)
        }
        2 => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
        3 => {
            let options = lzma_rust2::XzOptions::with_preset(0);
            let mut xz = lzma_rust2::XzWriter::new(Vec::new(), options).expect(WRITTEN);
            xz.write_all(bytes).and_then(|()| xz.finish()).expect(WRITTEN)
        }
        _ => {
            let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            bzip2.write_all(bytes).and_then(|()| bzip2.finish()).expect(WRITTEN)
        }
    }
}

/// Opens a volume without background threads, so that runs are reproducible.
fn open(device: &Arc<dyn Device>) -> Volume {
    let options = Options {
        seed: Some(1),
        background: false,
        cpus: Some(1),
        cil_shards: Some(1),
        memory: Some(MemoryBudget::new(8 << 20)),
        ..Options::default()
    };
    Volume::open(Arc::clone(device), options).expect("a valid volume")
}

fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let device = Arc::new(MemoryDevice::new(VOLUME));
        mkfs::format(&*device, &mkfs::Options::default()).expect("a new volume");
        let device: Arc<dyn Device> = device;
        let volume = open(&device);
        fill(&volume).expect("a tree");
        let outside = outside(&volume);
        volume.unmount().expect("a valid volume");
        check_volume(&*device);
        Template { device, outside }
    })
}

/// Creates files outside the directory, and links to them in the directory, as an earlier archive may have left them.
fn fill(volume: &Volume) -> volume::Result<()> {
    let new = NewFile { permissions: 0o755, ..NewFile::directory() };
    for path in [&b"/etc/deep"[..], b"/dir/etc", b"/dir/usr/lib"] {
        volume.create_dir_all(path, &new)?;
    }
    let files: [(&[u8], &[u8]); 3] =
        [(b"/etc/passwd", b"root"), (b"/etc/deep/file", b"file"), (b"/dir/etc/motd", b"hello")];
    for (path, text) in files {
        let file = OpenOptions::new().write(true).create(true).open(volume, path)?;
        file.write_at(text, 0)?;
    }
    for (path, target) in [
        (&b"/dir/up"[..], &b".."[..]),
        (b"/dir/x", b"/etc"),
        (b"/dir/out", b"../etc/passwd"),
        (b"/dir/loop", b"loop"),
    ] {
        let (dir, name) = volume.resolve_parent(path)?;
        volume.create(
            dir,
            name,
            &NewFile { file_type: NewFileType::Symlink(target), ..NewFile::regular() },
        )?;
    }
    volume.sync()
}

/// All files outside the directory. The directory itself belongs to the archive, whose root is a member.
fn outside(volume: &Volume) -> BTreeMap<Vec<u8>, FileState> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(Vec::new(), volume.root())];
    while let Some((path, id)) = waiting.pop() {
        let state = file_state(volume, id).expect("a file outside the directory");
        if state.metadata.file_type == FileType::Directory {
            let below = |name: &[u8]| [&path, &b"/"[..], name].concat();
            let mut entries = Vec::new();
            volume
                .read_dir(id, Cookie::default(), &mut |entry| {
                    if !matches!(entry.name, b"." | b"..") && below(entry.name) != DIR {
                        entries.push((below(entry.name), entry.ino));
                    }
                    true
                })
                .expect("another directory");
            let known = |(path, ino)| (path, volume.id_of(ino).expect("a file outside the directory"));
            waiting.extend(entries.into_iter().map(known));
        }
        found.insert(path, state);
    }
    found
}

fn file_state(volume: &Volume, id: FileId) -> volume::Result<FileState> {
    let mut metadata = volume.metadata(id)?;
    // Reading a file updates its atime.
    metadata.accessed = base::time::Time::default();
    let names = volume.list_attributes(id)?.into_iter();
    let attributes = names
        .map(|name| volume.get_attribute(id, &name).map(|value| (name, value)))
        .collect::<volume::Result<_>>()?;
    let contents = match metadata.file_type {
        FileType::Symlink => volume.read_link(id)?,
        FileType::Regular => {
            let file = volume.open_file(id)?;
            let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or(usize::MAX)];
            file.read_at(&mut bytes, 0)?;
            bytes
        }
        _ => Vec::new(),
    };
    Ok(FileState { metadata, attributes, contents })
}

/// Findings of the checker.
#[derive(Default)]
struct Findings(Mutex<Vec<String>>);

impl Observer for Findings {
    fn finding(&self, finding: &Finding) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(finding.to_string());
    }
}

fn check_volume(device: &dyn Device) {
    let findings = Findings::default();
    let options = check::Options { threads: 1, ..check::Options::default() };
    check::check(device, &options, &findings).expect("a volume that can be checked");
    let findings = findings.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
