//! The volumes that scenarios take place on: Xebec's own, and such that `mkfs.xfs` made.

use std::path::{Path, PathBuf};

use block::{Device, FileDevice, OpenOptions};
use crashsim::engine::Engine;
use crashsim::shape::{BASE, SHAPES, Shape};
use crashsim::{Image, Target};

use crate::kernel::{self, Files};

/// Shapes beyond those that are crashed, because they are large, or differ in little.
const MORE: [Shape; 8] = [
    Shape { name: "bs64k", block_size: 65536, size: 512 << 20, ..BASE },
    Shape { name: "sector4k", sector_size: Some(4096), size: 48 << 20, ..BASE },
    Shape { name: "dir64k", dir_block_size: Some(65536), size: 64 << 20, ..BASE },
    Shape { name: "inode2k", inode_size: 2048, size: 48 << 20, ..BASE },
    Shape { name: "no-rmapbt", rmapbt: false, reflink: false, ..BASE },
    Shape { name: "no-finobt", finobt: false, ..BASE },
    Shape { name: "no-sparse", sparse: false, size: 32 << 20, ag_count: Some(2), ..BASE },
    Shape {
        name: "log-stripe256k",
        log_stripe: Some(256 << 10),
        log_buffer_bytes: 256 << 10,
        ag_count: Some(2),
        size: 64 << 20,
        ..BASE
    },
];

/// What `mkfs.xfs` 6.13 is told: name, MiB, options.
const FOREIGN: [(&str, u64, &str); 12] = [
    ("defaults", 64, ""),
    ("no-finobt", 64, "-m finobt=0,inobtcount=0"),
    ("no-rmapbt", 64, "-m rmapbt=0,reflink=0"),
    ("no-sparse", 64, "-i sparse=0,nrext64=0"),
    ("bs1k", 64, "-b size=1024 -m bigtime=0"),
    ("crc-only", 64, "-m finobt=0,rmapbt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0,nrext64=0"),
    ("bs16k", 160, "-b size=16384"),
    ("sector4k", 64, "-s size=4096 -n size=16384"),
    ("stripes", 96, "-d su=64k,sw=4 -l su=64k"),
    ("inode1k", 64, "-i size=1024 -n size=8192"),
    ("metadir", 64, "-m metadir=1 -i exchange=1"),
    ("metadir-bs1k", 64, "-m metadir=1 -i exchange=1 -n parent=1 -b size=1024"),
];

/// A volume before anything was done, and how it is opened.
pub struct Fresh {
    pub engine: Engine,
    pub image: Image,
    /// What judges it.
    pub judges: Vec<PathBuf>,
}

impl Fresh {
    /// The older xfs_repair complains of blocks of 64 KiB, whoever makes them: who does so of a fresh volume is no
    /// judge of it.
    fn new(engine: Engine, image: Image, folder: &Path) -> Self {
        let files = Files::new(folder, "fresh");
        image.save(&files.image).unwrap();
        let judges: Vec<PathBuf> =
            files.judges.iter().filter(|judge| files.ask(judge).is_ok()).cloned().collect();
        assert!(judges.contains(&kernel::newer()), "{}: xfs_repair -n complains of it", engine.shape.name);
        Self { engine, image, judges }
    }
}

/// Xebec's own of the shapes that are crashed.
pub fn crashed() -> Vec<Fresh> {
    SHAPES.into_iter().map(own).collect()
}

/// Xebec's own of all other shapes.
pub fn more() -> Vec<Fresh> {
    MORE.into_iter().map(own).collect()
}

fn own(shape: Shape) -> Fresh {
    let engine = Engine { shape };
    let image = engine.format().unwrap_or_else(|why| panic!("{}: {why}", engine.shape.name));
    Fresh::new(engine, image, kernel::scratch().path())
}

/// Those that `mkfs.xfs` makes.
pub fn foreign(folder: &Path) -> Vec<Fresh> {
    let make = |(name, size, options): (&'static str, u64, &str)| {
        let path = folder.join(name);
        make(&path, size << 20, &format!("-d agcount=2 {options}"));
        let device = FileDevice::open(&path, &OpenOptions::default()).unwrap();
        let image = Image::of_device(&device).unwrap();
        // As large as the largest stripe unit here.
        let shape = Shape { name, size: device.size(), log_buffer_bytes: 64 << 10, ..BASE };
        Fresh::new(Engine { shape }, image, folder)
    };
    FOREIGN.into_iter().map(make).collect()
}

/// Makes a volume with `mkfs.xfs` 6.13.
pub fn make(path: &Path, size: u64, options: &str) {
    std::fs::File::create(path).unwrap().set_len(size).unwrap();
    let mut command = needs::newer("mkfs.xfs");
    // It makes volumes below 300 MB only for its own test suite.
    command.envs([("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")]);
    command.args(["-q", "-f"]).args(options.split_whitespace()).arg(path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "mkfs.xfs {options}: {}", String::from_utf8_lossy(&output.stderr));
}
