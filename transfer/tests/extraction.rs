//! Extraction to archives and directories of the host.
#![expect(clippy::unwrap_used, reason = "a failing test reports the line")]

use std::fs;
use std::path::{Path, PathBuf};

use xebec_transfer::{Compression, Counts, Error, Extraction, ImageBuilder, Progress};

/// An image with a directory and a file, in a folder for the targets.
fn image() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("disk.xfs"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "contents").unwrap();
    ImageBuilder::new(&image).from_directory(tree).build().unwrap();
    (folder, image)
}

/// An incomplete archive had a name with the process ID: after a crash, another process with this ID reported that the
/// archive exists, which it did not.
#[test]
fn a_leftover_of_another_process_does_not_matter() {
    let (folder, image) = image();
    let to = folder.path().join("out.tar");
    let leftover = folder.path().join(format!("out.tar.{}.part", std::process::id()));
    fs::write(&leftover, "incomplete").unwrap();
    let report = Extraction::open(&image).unwrap().to_file(&to, Compression::None).unwrap();
    assert_eq!(report.files, 2);
    assert_eq!(fs::read(leftover).unwrap(), b"incomplete");
}

/// Creates a file when the extraction has begun.
struct Intruder<'i>(&'i Path);

impl Progress for Intruder<'_> {
    fn advance(&self, _: Counts) {
        fs::write(self.0, "precious").unwrap();
    }
}

/// A file that another program created while the archive was written was replaced.
#[test]
fn a_file_that_appears_meanwhile_is_kept() {
    let (folder, image) = image();
    let to = folder.path().join("out.tar");
    let extraction = |overwrite| Extraction::open(&image).unwrap().overwrite(overwrite);
    let error = extraction(false).progress(&Intruder(&to)).to_file(&to, Compression::None).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    assert_eq!(fs::read(&to).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "the image, its source and this file");
    extraction(true).to_file(&to, Compression::None).unwrap();
    let archive = tempfile::tempfile().unwrap();
    extraction(false).to_writer(&archive).unwrap();
    assert_eq!(fs::read(&to).unwrap().len() as u64, archive.metadata().unwrap().len());
}

/// A fifo that was to be replaced "already exists", although it may be replaced.
#[test]
fn only_regular_files_are_replaced() {
    let (folder, image) = image();
    let to = folder.path().join("out.tar");
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &to, fifo, mode, 0).unwrap();
    let extraction = |overwrite| Extraction::open(&image).unwrap().overwrite(overwrite);
    let error = extraction(true).to_file(&to, Compression::None).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
    let error = extraction(false).to_file(&to, Compression::None).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error}");
}

/// A stream that cannot be read.
struct Unread;

impl std::io::Read for Unread {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the source was read"))
    }
}

/// A stream was stored, and the start of a block device overwritten, before a missing source was reported.
#[test]
fn missing_sources_are_reported_before_any_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let builder = || ImageBuilder::new(folder.path().join("disk.xfs")).from_reader("stream", Unread);
    for builder in [
        builder().from_directory(&missing),
        builder().from_archive(&missing),
        builder().from_oci(&missing, None),
        builder().from_archive(folder.path()),
    ] {
        let error = builder.build().unwrap_err();
        assert!(!error.to_string().contains("source was read"), "{error}");
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

/// Extraction to a directory raised the limit of open files of the whole process.
#[test]
fn the_limit_of_open_files_is_unchanged() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (folder, image) = image();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: Some(512), maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    Extraction::open(&image).unwrap().to_directory(folder.path().join("out")).unwrap();
    assert_eq!(getrlimit(Resource::Nofile), limit);
}
