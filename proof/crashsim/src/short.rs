//! The campaign of short runs: a few dozen operations, so that a state costs little, on volumes of all shapes with used
//! logs. Most runs wrap around the end of the log.
//!
//! # Locking
//! A mutex around the prepared volumes, held for a lookup or an insertion.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::{NameStyles, OperationMix, Rng, Tolerance};
use volume::{NewFile, NewFileType, Volume};

use crate::campaign::JudgeOptions;
use crate::engine::Engine;
use crate::image::{Image, ImageDevice};
use crate::shape::{SHAPES, Shape};
use crate::target::Target;
use crate::workload::Workload;

/// How much of a volume's log was written before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogUse {
    /// Nothing.
    Fresh,
    /// About all but this number of bytes.
    AllBut(u64),
    /// All of it, and a third of it again.
    SecondLap,
}

/// All variants, used in turn.
const LOG_USES: [LogUse; 6] = [
    LogUse::AllBut(4 << 10),
    LogUse::AllBut(24 << 10),
    LogUse::SecondLap,
    LogUse::AllBut(60 << 10),
    LogUse::Fresh,
    LogUse::AllBut(110 << 10),
];

/// One seed of the campaign.
#[derive(Clone, Debug)]
pub struct ShortRun {
    /// Shape of the volume.
    pub shape: Shape,
    /// Previous use of its log.
    pub log_use: LogUse,
    /// Operations.
    pub workload: Workload,
    /// Selection of states.
    pub options: JudgeOptions,
}

/// Returns the run of a seed.
pub fn short_run(seed: u64) -> ShortRun {
    let mut rng = Rng::stream(seed, 3);
    let shape = &SHAPES[(seed % SHAPES.len() as u64) as usize];
    let log_use = LOG_USES[(seed / SHAPES.len() as u64 % LOG_USES.len() as u64) as usize];
    let sync_in = [5, 12, 25][rng.index(3)];
    let plain = OperationMix { sync_in, reads_in: 0, refused_in: 0, ..OperationMix::MIXED };
    let long = NameStyles { short: 1, long: 6, bytes: 1, same_hash: 2 };
    let mix = match rng.below(4) {
        0 => OperationMix { files_max: 30, files_min: 4, ..plain },
        1 => OperationMix {
            names: long,
            directories_per_mille: 2,
            hot_in: 1,
            files_max: 50,
            files_min: 0,
            open_max: 2,
            ..plain
        },
        2 => OperationMix { directories_per_mille: 500, hot_in: 8, files_max: 40, files_min: 2, ..plain },
        _ => OperationMix { files_max: 12, files_min: 0, open_max: 8, ..plain },
    };
    let threads = [1, 1, 1, 2, 3][rng.index(5)];
    let operations = (50 + rng.index(100)) / threads;
    let (unmount, tolerance) = (rng.one_in(2), Tolerance::default());
    let workload = Workload { seed, threads, operations, mix, times: true, unmount, tolerance };
    // With several threads the journal has its own, too, so that log records are written concurrently.
    let shape = Shape { background: threads > 1 || rng.one_in(2), ..shape.clone() };
    let options = JudgeOptions {
        seed,
        random: 10,
        tears: 6,
        states: 0,
        engine_in: 29,
        nested_in: 17,
        nested: 4,
        workers: 1,
    };
    ShortRun { shape, log_use, workload, options }
}

/// Cache of volumes with used logs.
#[derive(Default)]
pub struct Volumes(Mutex<HashMap<(&'static str, LogUse), Image>>);

/// Unused bytes of log in the volume from which all [`LogUse::AllBut`] are derived.
const BRANCH: u64 = 192 << 10;

impl Volumes {
    /// Returns a volume of a shape.
    ///
    /// # Errors
    /// The volume cannot be formatted or filled.
    pub fn get(&self, shape: &Shape, log_use: LogUse) -> Result<Image, String> {
        if let Some(image) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(shape.name, log_use))
        {
            return Ok(image.clone());
        }
        let engine = Engine { shape: shape.clone() };
        let branch = LogUse::AllBut(BRANCH);
        let image = match log_use {
            LogUse::Fresh => engine.format()?,
            LogUse::AllBut(BRANCH) => fill(&engine, engine.format()?, |log| log - BRANCH)?,
            LogUse::AllBut(left) => fill(&engine, self.get(shape, branch)?, |_| BRANCH - left)?,
            LogUse::SecondLap => fill(&engine, self.get(shape, branch)?, |log| BRANCH + log / 3)?,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((shape.name, log_use), image.clone());
        Ok(image)
    }
}

/// Writes log: the number of bytes is a function of the log's size. The files created for this are removed again.
fn fill(engine: &Engine, image: Image, bytes: impl Fn(u64) -> u64) -> Result<Image, String> {
    let message = |error: volume::Error| format!("filling a log: {error}");
    let device = Arc::new(ImageDevice::new(image));
    let options = volume::Options { background: false, ..engine.options() };
    let volume = Volume::open(device.clone(), options).map_err(message)?;
    let geometry = volume.geometry();
    let wanted = bytes(u64::from(geometry.log_blocks) << geometry.block_log);
    let target = [b't'; 900];
    // Write less per round near the goal, to end within a few KiB of it.
    loop {
        let written = volume.statistics().journal.bytes;
        let left = wanted.saturating_sub(written);
        // Unmounting also writes a record.
        if left < 4 << 10 {
            break;
        }
        let count = (left / (8 << 10)).clamp(1, 30);
        let new = NewFile { file_type: NewFileType::Symlink(&target), ..NewFile::regular() };
        let root = volume.root();
        let name = |n: u64| n.to_string().into_bytes();
        for n in 0..count {
            volume.create(root, &name(n), &new).map_err(message)?;
        }
        volume.sync().map_err(message)?;
        for n in 0..count {
            volume.unlink(root, &name(n)).map_err(message)?;
        }
    }
    volume.unmount().map_err(message)?;
    Ok(device.image())
}
