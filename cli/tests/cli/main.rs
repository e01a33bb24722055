//! The binary as a user runs it, on the sample volumes: no root, no XFS tools.
//!
//! | part | subject |
//! |---|---|
//! | `acl` | getfacl, setfacl |
//! | `copy` | cp |
//! | `create` | images from directories and archives |
//! | `show` | info, ls, tree, stat, cat, find, manifest |
//! | `dates` | times as GNU touch takes them |
//! | `edit` | mkdir, touch, ln, mv, rm, chmod, chown, mknod, sh, replay |
//! | `extract` | directories and archives |
//! | `faults` | what happens while an image is made: signals, files that cannot be read |
//! | `json` | documents, and errors as objects |
//! | `judge` | check, log, dump |
//! | `globs` | patterns in paths of an image |
//! | `guard` | images that somebody else uses |
//! | `life` | grow, shrink, minimize, trim, label, uuid, features, clone, sync |
//! | `mkfs` | new volumes |
//! | `qcow2` | changes of a volume in a qcow2 image |
//! | `sides` | which side and which option messages name |
//! | `refuse` | what is no image, is damaged, or is used wrongly |
// The helpers of tests say what they expect by panicking too.
#![allow(clippy::unwrap_used)]

mod acl;
mod contents;
mod copy;
mod create;
mod dates;
mod edit;
mod extract;
mod faults;
mod globs;
mod guard;
mod json;
mod judge;
mod life;
mod mkfs;
mod qcow2;
mod refuse;
mod show;
mod sides;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use samples::Sample;
use tempfile::TempDir;

/// A sample image in a directory that goes when the test ends.
pub struct Scene {
    folder: TempDir,
    image: PathBuf,
}

impl Scene {
    /// Unpacks a sample.
    pub fn new(sample: Sample) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("sample.xfs");
        sample.unpack(&image).unwrap();
        Self { folder, image }
    }

    /// A path beside the image.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// `xebec COMMAND IMAGE ARGUMENTS...`, with a fixed environment.
    pub fn xebec(&self, command: &str, arguments: &[&str]) -> Command {
        let mut xebec = xebec();
        xebec.arg(command).arg(&self.image).args(arguments);
        xebec
    }

    /// The byte of the image at which the inode of a file begins.
    pub fn inode_offset(&self, path: &str) -> u64 {
        let sector = self.json("dump", &["inode", path])["place"]["daddr"].as_u64().unwrap();
        let ino = self.json("stat", &[path])["files"][0]["ino"].as_u64().unwrap();
        let image = File::open(&self.image).unwrap();
        // It lies in this sector, or behind its start where inodes share a block.
        let mut slot = [0; 512];
        let mut offsets = (0..8).map(|n| (sector + n) * 512);
        offsets
            .find(|offset| {
                image.read_exact_at(&mut slot, *offset).unwrap();
                slot.starts_with(b"IN") && slot[152..160] == ino.to_be_bytes()
            })
            .unwrap()
    }

    /// Standard output of a command that succeeds; what is not UTF-8 is replaced.
    pub fn output(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.xebec(command, arguments).assert().success().get_output().stdout.clone();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// The JSON document of a command that succeeds.
    pub fn json(&self, command: &str, arguments: &[&str]) -> serde_json::Value {
        let arguments = [arguments, &["--json"]].concat();
        serde_json::from_str(&self.output(command, &arguments)).unwrap()
    }
}

/// The binary, with a fixed environment.
pub fn xebec() -> Command {
    let mut xebec = Command::from_std(needs::own(env!("CARGO_BIN_EXE_xebec")));
    xebec.env("TZ", "UTC").env_remove("NO_COLOR").env_remove("COLUMNS");
    xebec
}

/// What a command wrote to standard error.
pub fn stderr(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stderr).unwrap()
}
