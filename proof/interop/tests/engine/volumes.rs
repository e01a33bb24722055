//! Fresh volumes for scenarios, formatted by Xebec and by `mkfs.xfs`.

use std::path::{Path, PathBuf};

use block::{Device, FileDevice, OpenOptions};
use crashsim::engine::Engine;
use crashsim::shape::{BASE, SHAPES, Shape};
use crashsim::{Image, Target};

use crate::kernel::{self, Files};

/// More shapes than those of the crash simulator, as they are large or differ little.
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

/// Volumes of `mkfs.xfs` 6.13: name, size in MiB, options.
const MKFS_XFS: [(&str, u64, &str); 12] = [
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

/// A fresh volume, and how to open it.
pub struct Fresh {
    pub engine: Engine,
    pub image: Image,
    /// The `xfs_repair` programs that judge it.
    pub judges: Vec<PathBuf>,
}

impl Fresh {
    /// Excludes an `xfs_repair` that reports findings in the fresh volume: the older one does so for all volumes with
    /// 64 KiB blocks.
    fn new(engine: Engine, image: Image, folder: &Path) -> Self {
        let files = Files::new(folder, "fresh");
        image.save(&files.image).unwrap();
        let judges: Vec<PathBuf> =
            files.judges.iter().filter(|judge| files.repair_with(judge).is_ok()).cloned().collect();
        assert!(judges.contains(&kernel::newer()), "{}: xfs_repair -n reports findings", engine.shape.name);
        Self { engine, image, judges }
    }
}

/// Formats volumes of the crash simulator's shapes with Xebec.
pub fn crashsim_shapes() -> Vec<Fresh> {
    SHAPES.into_iter().map(format).collect()
}

/// Formats volumes of the other shapes with Xebec.
pub fn more_shapes() -> Vec<Fresh> {
    MORE.into_iter().map(format).collect()
}

fn format(shape: Shape) -> Fresh {
    let engine = Engine { shape };
    let image = engine.format().unwrap_or_else(|why| panic!("{}: {why}", engine.shape.name));
    Fresh::new(engine, image, kernel::scratch().path())
}

/// Formats volumes with `mkfs.xfs`.
pub fn from_mkfs_xfs(folder: &Path) -> Vec<Fresh> {
    let make = |(name, size, options): (&'static str, u64, &str)| {
        let path = folder.join(name);
        make(&path, size << 20, &format!("-d agcount=2 {options}"));
        let device = FileDevice::open(&path, &OpenOptions::default()).unwrap();
        let image = Image::of_device(&device).unwrap();
        // The largest log stripe unit of these volumes.
        let shape = Shape { name, size: device.size(), log_buffer_bytes: 64 << 10, ..BASE };
        Fresh::new(Engine { shape }, image, folder)
    };
    MKFS_XFS.into_iter().map(make).collect()
}

/// Formats a volume with `mkfs.xfs` 6.13.
pub fn make(path: &Path, size: u64, options: &str) {
    std::fs::File::create(path).unwrap().set_len(size).unwrap();
    let mut command = needs::newer("mkfs.xfs");
    // mkfs.xfs refuses volumes below 300 MB outside of its test suite.
    command.envs([("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")]);
    command.args(["-q", "-f"]).args(options.split_whitespace()).arg(path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "mkfs.xfs {options}: {}", String::from_utf8_lossy(&output.stderr));
}
