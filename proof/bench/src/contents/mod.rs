//! File contents and attributes, compared with the kernel's XFS on a loop mount.
//!
//! | part | subject |
//! |---|---|
//! | [`stream`] | sequential write and read of a large file |
//! | [`cached`] | random reads of a cached file |
//! | [`small`] | creating small files, and the writes of their writeback |
//! | [`flushers`] | writeback by several flushers, and by one |
//! | [`attributes`] | setting attributes |
//! | [`reclaim`] | writing more than there is memory, by three policies of reclaim |
//! | [`sync`] | syncs beside many clean inodes |

mod attributes;
mod cached;
mod flushers;
mod reclaim;
mod small;
mod stream;
mod sync;

use std::path::{Path, PathBuf};

use anyhow::Context;
use xebec::Options;

use crate::bench_volume::{BenchVolume, layout};
use crate::measure;
use crate::table::{Experiment, Row, Table, Target};

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

impl Scale {
    /// The sizes of a measurement, or of a smoke test of the harness.
    pub fn new(folder: PathBuf, (rounds, inodes): (u32, u32), alone: bool, smoke: bool) -> Self {
        if smoke {
            let (stream_bytes, cached_bytes) = (16 << 20, 4 << 20);
            Self {
                folder,
                rounds: 1,
                alone,
                stream_bytes,
                cached_bytes,
                reads: 1_000,
                files: 50,
                small_threads: &[1, 2],
                attributes: 1,
                reclaim_bytes: 16 << 20,
                reclaim_file: 1 << 20,
                reclaim_threads: &[2],
                clean_inodes: 1_000,
            }
        } else {
            let (stream_bytes, cached_bytes) = (4 << 30, 128 << 20);
            Self {
                folder,
                rounds,
                alone,
                stream_bytes,
                cached_bytes,
                reads: 1_000_000,
                files: 5_000,
                small_threads: &[1, 2, 4, 16],
                attributes: 50,
                reclaim_bytes: 256 << 20,
                reclaim_file: 10 << 20,
                reclaim_threads: &[1, 2, 4, 16, 64],
                clean_inodes: inodes.min(5_000_000),
            }
        }
    }

    fn image(&self) -> PathBuf {
        self.folder.join("contents.img")
    }
}

/// Runs the parts whose names contain `only`.
pub fn run(scale: &Scale, only: &str, table: &mut Table) -> anyhow::Result<()> {
    std::fs::create_dir_all(&scale.folder).with_context(|| scale.folder.display().to_string())?;
    let parts: [(&str, Experiment<Scale>); 7] = [
        ("stream", stream::run),
        ("cached", cached::run),
        ("small", small::run),
        ("flushers", flushers::run),
        ("attributes", attributes::run),
        ("reclaim", reclaim::run),
        ("sync", sync::run),
    ];
    table.run(scale, &parts, only)?;
    let _ = std::fs::remove_file(scale.image()); // it does not exist if no part ran
    Ok(())
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
    (task, unit): (&str, &'static str),
    ratio_min: Option<f64>,
    options: &Options,
    work: &dyn Fn(BenchVolume) -> anyhow::Result<f64>,
) -> anyhow::Result<Row> {
    let image = scale.image();
    let (ours, other) = measure::compare(
        (scale.rounds, scale.alone),
        || work(ours(&image, options.clone())?),
        || work(kernels(&image)?),
    )?;
    let target = ratio_min.map(Target::RatioAtLeast);
    Ok(Row { task: task.into(), unit, ours_is: OURS, other_is: KERNELS, ours, other, target })
}

const OURS: &str = "Xebec, as a library";
const KERNELS: &str = "the kernel's XFS on a loop mount";
