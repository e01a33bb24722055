//! The short campaign: runs of a few dozen operations, so that a state costs little, on volumes of all shapes whose log
//! was used before. Most runs cross the end of the log, where its ring begins anew.
//!
//! # Locking
//! A mutex around the volumes that were prepared, held while one is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base::Ino;
use model::{Aim, Rng, Styles, Tolerance};
use volume::{NewFile, NewFileType, Volume};

use crate::campaign::Choice;
use crate::engine::Engine;
use crate::image::{Image, ImageDevice};
use crate::shape::{SHAPES, Shape};
use crate::target::Target;
use crate::workload::Workload;

/// How much of a volume's log was written before a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Used {
    /// Nothing.
    Fresh,
    /// All but so many bytes, or a little less.
    AllBut(u64),
    /// All, and a third once more.
    SecondLap,
}

/// What is tried, in turn.
const USED: [Used; 6] = [
    Used::AllBut(4 << 10),
    Used::AllBut(24 << 10),
    Used::SecondLap,
    Used::AllBut(60 << 10),
    Used::Fresh,
    Used::AllBut(110 << 10),
];

/// One seed of the campaign.
#[derive(Clone, Debug)]
pub struct Short {
    /// The volume's shape.
    pub shape: Shape,
    /// What was done with its log.
    pub used: Used,
    /// What is done.
    pub workload: Workload,
    /// How states are chosen.
    pub choice: Choice,
}

/// What a seed is.
pub fn short(seed: u64) -> Short {
    let mut rng = Rng::part(seed, 3);
    let shape = &SHAPES[(seed % SHAPES.len() as u64) as usize];
    let used = USED[(seed / SHAPES.len() as u64 % USED.len() as u64) as usize];
    let sync_in = [5, 12, 25][rng.index(3)];
    let plain = Aim { sync_in, reads_in: 0, refused_in: 0, ..Aim::MIXED };
    let long = Styles { short: 1, long: 6, bytes: 1, equal: 2 };
    let aim = match rng.below(4) {
        0 => Aim { most: 30, fewest: 4, ..plain },
        1 => Aim { styles: long, directories: 2, hot_in: 1, most: 50, fewest: 0, held: 2, ..plain },
        2 => Aim { directories: 500, hot_in: 8, most: 40, fewest: 2, ..plain },
        _ => Aim { most: 12, fewest: 0, held: 8, ..plain },
    };
    let threads = [1, 1, 1, 2, 3][rng.index(5)];
    let operations = (50 + rng.index(100)) / threads;
    let (unmount, tolerance) = (rng.one_in(2), Tolerance::default());
    let workload = Workload { seed, threads, operations, aim, times: true, unmount, tolerance };
    // With many threads the journal has its own, too: records are written side by side.
    let shape = Shape { background: threads > 1 || rng.one_in(2), ..shape.clone() };
    let choice =
        Choice { seed, random: 10, tears: 6, states: 0, engine_in: 29, nested_in: 17, nested: 4, workers: 1 };
    Short { shape, used, workload, choice }
}

/// Volumes with used logs, each made once.
#[derive(Default)]
pub struct Volumes(Mutex<HashMap<(&'static str, Used), Image>>);

/// Bytes of log that are left where the shares of all [`Used::AllBut`] branch off.
const BRANCH: u64 = 192 << 10;

impl Volumes {
    /// A volume of a shape.
    ///
    /// # Errors
    /// In words.
    pub fn get(&self, shape: &Shape, used: Used) -> Result<Image, String> {
        if let Some(image) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(shape.name, used)) {
            return Ok(image.clone());
        }
        let engine = Engine { shape: shape.clone() };
        let branch = Used::AllBut(BRANCH);
        let image = match used {
            Used::Fresh => engine.format()?,
            Used::AllBut(BRANCH) => fill(&engine, engine.format()?, |log| log - BRANCH)?,
            Used::AllBut(left) => fill(&engine, self.get(shape, branch)?, |_| BRANCH - left)?,
            Used::SecondLap => fill(&engine, self.get(shape, branch)?, |log| BRANCH + log / 3)?,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((shape.name, used), image.clone());
        Ok(image)
    }
}

/// Writes about so many bytes of log, as a function of the log's. What was made for it is gone afterwards.
fn fill(engine: &Engine, image: Image, bytes: impl Fn(u64) -> u64) -> Result<Image, String> {
    let words = |error: volume::Error| format!("filling a log: {error}");
    let device = Arc::new(ImageDevice::new(image));
    let options = volume::Options { background: false, ..engine.options() };
    let volume = Volume::open(device.clone(), options).map_err(words)?;
    let geometry = volume.geometry();
    let wanted = bytes(u64::from(geometry.log_blocks) << geometry.block_log);
    let target = [b't'; 900];
    // The fewer the closer to the goal, so that it is met within a few KiB.
    loop {
        let written = volume.statistics().journal.bytes;
        let left = wanted.saturating_sub(written);
        // Unmounting writes a record, too.
        if left < 4 << 10 {
            break;
        }
        let count = (left / (8 << 10)).clamp(1, 30);
        let new = NewFile { file_type: NewFileType::Symlink(&target), ..NewFile::regular() };
        let root: Ino = volume.root();
        let name = |n: u64| n.to_string().into_bytes();
        for n in 0..count {
            volume.create(root, &name(n), &new).map_err(words)?;
        }
        volume.sync().map_err(words)?;
        for n in 0..count {
            volume.unlink(root, &name(n)).map_err(words)?;
        }
    }
    volume.unmount().map_err(words)?;
    Ok(device.image())
}
