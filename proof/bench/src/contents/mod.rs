//! Contents and attributes of files beside the kernel's XFS on a loop mount, in one run, by ratio.
//!
//! | part | subject |
//! |---|---|
//! | [`stream`] | a large file, written and read from its begin to its end |
//! | [`cached`] | small pieces of a file that is in memory |
//! | [`small`] | many small files, and the writes that their writeback takes |
//! | [`attributes`] | setting attributes |

mod attributes;
mod cached;
mod small;
mod stream;

use std::path::{Path, PathBuf};

use anyhow::Context;
use xebec::Options;

use crate::measure;
use crate::side::{Side, layout};
use crate::table::{Part, Row, Table, Target};

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Where the images are made.
    pub folder: PathBuf,
    /// Measured turns of each side.
    pub rounds: u32,
    /// Whether the kernel's side is left out.
    pub alone: bool,
    /// Bytes of the large file.
    pub stream_bytes: u64,
    /// Bytes of the file that is in memory.
    pub cached_bytes: u64,
    /// Reads from it.
    pub reads: u32,
    /// Small files in each of the eight directories.
    pub files: u32,
    /// Thousands of files that get an attribute.
    pub attributes: u32,
}

impl Scale {
    /// A real measurement, or one that only shows that the harness works.
    pub fn new(folder: PathBuf, rounds: u32, alone: bool, smoke: bool) -> Self {
        if smoke {
            let (stream_bytes, cached_bytes) = (16 << 20, 4 << 20);
            Self {
                folder,
                rounds: 1,
                alone,
                stream_bytes,
                cached_bytes,
                reads: 1_000,
                files: 100,
                attributes: 1,
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
                files: 10_000,
                attributes: 50,
            }
        }
    }

    fn image(&self) -> PathBuf {
        self.folder.join("contents.img")
    }
}

/// Runs the parts that have `only` in their names.
pub fn run(scale: &Scale, only: &str, table: &mut Table) -> anyhow::Result<()> {
    std::fs::create_dir_all(&scale.folder).with_context(|| scale.folder.display().to_string())?;
    let parts: [(&str, Part<Scale>); 4] = [
        ("stream", stream::run),
        ("cached", cached::run),
        ("small", small::run),
        ("attributes", attributes::run),
    ];
    table.run(scale, &parts, only)?;
    let _ = std::fs::remove_file(scale.image()); // not there where no part ran
    Ok(())
}

const IMAGE_BYTES: u64 = 8 << 30;
const LOG_BYTES: u64 = 64 << 20;

fn ours(image: &Path, options: Options) -> anyhow::Result<Side> {
    Side::xebec(image, &layout(IMAGE_BYTES, LOG_BYTES), options)
}

fn kernels(image: &Path) -> anyhow::Result<Side> {
    Side::kernel(image, &layout(IMAGE_BYTES, LOG_BYTES))
}

/// One row: what a task comes to on a fresh volume of either side, turn by turn. The task ends the volume.
fn beside(
    scale: &Scale,
    (task, unit): (&str, &'static str),
    least: Option<f64>,
    options: &Options,
    work: &dyn Fn(Side) -> anyhow::Result<f64>,
) -> anyhow::Result<Row> {
    let image = scale.image();
    let (ours, other) = measure::beside(
        (scale.rounds, scale.alone),
        || work(ours(&image, options.clone())?),
        || work(kernels(&image)?),
    )?;
    let target = least.map(Target::RatioAtLeast);
    Ok(Row { task: task.into(), unit, ours_is: OURS, other_is: KERNELS, ours, other, target })
}

const OURS: &str = "Xebec, as a library";
const KERNELS: &str = "the kernel's XFS on a loop mount";
