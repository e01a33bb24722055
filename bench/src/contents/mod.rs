//! File contents and attributes, compared with the kernel's XFS on a loop mount.
//!
//! | part | subject |
//! |---|---|
//! | [`stream`] | sequential write and read of a large file |
//! | [`cached`] | random reads of a cached file |
//! | [`small`] | creating small files, and the writes of their writeback |
//! | [`device`] | writes to the device and their sizes, beside those of the kernel |
//! | [`flushers`] | writeback by several flushers, and by one |
//! | [`attributes`] | setting attributes |
//! | [`reclaim`] | writing more than there is memory, by three policies of reclaim |
//! | [`sync`] | syncs beside many clean inodes |

pub mod attributes;
pub mod cached;
pub mod device;
pub mod flushers;
pub mod reclaim;
pub mod small;
pub mod stream;
pub mod sync;

use std::path::{Path, PathBuf};

use report::record::Target;
use xebec::Options;

use crate::bench_volume::{BenchVolume, layout};
use crate::measure;
use crate::recorder::{Recorder, Row};

/// Size of the measurement.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Directory of the images.
    pub folder: PathBuf,
    /// Measured runs of each volume.
    pub rounds: u32,
    /// Whether to leave out the kernel.
    pub alone: bool,
    /// Size of the large file in bytes.
    pub stream_bytes: u64,
    /// Size of the cached file in bytes.
    pub cached_bytes: u64,
    /// Number of reads from it.
    pub reads: u32,
    /// Number of small files in each of sixteen directories.
    pub files: u32,
    /// Numbers of threads that create small files.
    pub small_threads: &'static [u32],
    /// Number of files that get an attribute, in thousands.
    pub attributes: u32,
    /// Memory for writing more than it, in bytes.
    pub reclaim_bytes: u64,
    /// Size of each file that is written then in bytes.
    pub reclaim_file: u64,
    /// Numbers of threads that write these files.
    pub reclaim_threads: &'static [u32],
    /// Number of clean inodes beside which a volume is synced.
    pub clean_inodes: u32,
}

impl From<&crate::scale::Scale> for Scale {
    fn from(scale: &crate::scale::Scale) -> Self {
        Self {
            folder: scale.folder.clone(),
            rounds: scale.rounds,
            alone: scale.is_without_kernel(),
            stream_bytes: scale.pick(4 << 30, 512 << 20, 16 << 20),
            cached_bytes: scale.pick(128 << 20, 128 << 20, 4 << 20),
            reads: scale.pick(1_000_000, 300_000, 1_000),
            files: scale.pick(5_000, 2_000, 50),
            small_threads: scale.pick(&[1, 2, 4, 16], &[1, 4], &[1, 2]),
            attributes: scale.pick(50, 10, 1),
            reclaim_bytes: scale.pick(256 << 20, 128 << 20, 16 << 20),
            reclaim_file: scale.pick(10 << 20, 10 << 20, 1 << 20),
            reclaim_threads: scale.pick(&[1, 2, 4, 16, 64], &[1, 64], &[2]),
            clean_inodes: scale.pick(scale.inodes.min(5_000_000), 300_000, 1_000),
        }
    }
}

impl Scale {
    fn image(&self) -> PathBuf {
        self.folder.join("contents.img")
    }
}

const IMAGE_BYTES: u64 = 8 << 30;
const LOG_BYTES: u64 = 64 << 20;

fn ours(image: &Path, options: Options) -> anyhow::Result<BenchVolume> {
    BenchVolume::xebec(image, &layout(IMAGE_BYTES, LOG_BYTES), options)
}

fn kernels(image: &Path) -> anyhow::Result<BenchVolume> {
    BenchVolume::kernel(image, &layout(IMAGE_BYTES, LOG_BYTES))
}

/// Runs a workload alternately on fresh volumes of both sides. The workload unmounts the volume.
fn compare(
    scale: &Scale,
    table: &Recorder<'_>,
    (task, unit): (&str, &'static str),
    ratio_min: Option<f64>,
    options: &Options,
    work: &dyn Fn(BenchVolume) -> anyhow::Result<f64>,
) -> anyhow::Result<Row> {
    let image = scale.image();
    let (ours, other) = measure::compare(
        table,
        (scale.rounds, scale.alone),
        || work(ours(&image, options.clone())?),
        || work(kernels(&image)?),
    )?;
    let target = ratio_min.map(Target::RatioAtLeast);
    Ok(Row { task: task.into(), unit, ours_is: OURS, other_is: KERNELS, ours, other, target })
}

const OURS: &str = "Xebec, as a library";
const KERNELS: &str = "the kernel's XFS on a loop mount";
