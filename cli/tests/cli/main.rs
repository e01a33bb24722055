//! The binary as a user runs it, on the sample volumes: no root, no XFS tools.
//!
//! | file | subject |
//! |---|---|
//! | `acl` | getfacl, setfacl |
//! | `check` | check, log, dump |
//! | `contents` | write, truncate, fallocate, reflink |
//! | `copy` | cp |
//! | `create` | images from directories and archives |
//! | `dates` | dates of `touch -d`, compared with GNU touch |
//! | `diff` | diff |
//! | `edit` | mkdir, touch, ln, mv, rm, chmod, chown, mknod, sh, replay |
//! | `errors` | files that are not images, damage, usage errors |
//! | `extract` | extraction to directories and archives |
//! | `faults` | signals and unreadable files while an image is created |
//! | `globs` | patterns in paths of an image |
//! | `json` | JSON documents and messages |
//! | `life` | grow, shrink, minimize, trim, label, uuid, features, clone, sync |
//! | `locks` | images that another program uses |
//! | `map` | map |
//! | `messages` | texts of error messages |
//! | `mkfs` | new volumes |
//! | `qcow2` | changes of volumes in qcow2 images |
//! | `remote` | volumes that URLs name |
//! | `show` | info, ls, tree, stat, cat, find, manifest |
//! | `stored` | snapshots, clones, images and objects of volumes on object storage |
//! | `usage` | du, df |
// Helpers outside of test functions unwrap, too.
#![allow(clippy::unwrap_used)]

mod acl;
mod bench;
mod check;
mod contents;
mod copy;
mod create;
mod dates;
mod diff;
mod edit;
mod errors;
mod extract;
mod faults;
mod globs;
mod json;
mod life;
mod locks;
mod map;
mod messages;
mod mkfs;
mod qcow2;
mod remote;
mod show;
mod stored;
mod usage;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use samples::Sample;
use tempfile::TempDir;

/// A sample image in a temporary directory.
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

    /// A path in the directory of the image.
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

    /// Byte offset of the inode of a file in the image.
    pub fn inode_offset(&self, path: &str) -> u64 {
        let sector = self.json("dump", &["inode", path])["place"]["daddr"].as_u64().unwrap();
        let ino = self.json("stat", &[path])["files"][0]["ino"].as_u64().unwrap();
        let image = File::open(&self.image).unwrap();
        // The inode is in this sector, or in one of the next if inodes share a block.
        let mut slot = [0; 512];
        let mut offsets = (0..8).map(|n| (sector + n) * 512);
        offsets
            .find(|offset| {
                image.read_exact_at(&mut slot, *offset).unwrap();
                slot.starts_with(b"IN") && slot[152..160] == ino.to_be_bytes()
            })
            .unwrap()
    }

    /// Standard output of a command that succeeds; invalid UTF-8 is replaced.
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

/// Standard error of a command.
pub fn stderr(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stderr).unwrap()
}
