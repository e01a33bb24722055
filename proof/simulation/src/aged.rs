//! Aged volumes: fragmented, nearly full. The engine makes each once per process, in a simulation with a fixed
//! schedule.
//!
//! # Locking
//! One mutex around the volumes, held while one is made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base::errno;
use base::simulation::{self, SchedulingStrategy, SimulationOptions};
use crashsim::engine::Engine;
use crashsim::shape::Shape;
use crashsim::stamped::{SECTOR, Stripes};
use crashsim::{Image, ImageDevice, Target as _};
use volume::{Error, File, FileId, NewFile, Volume};

use crate::scenario::Age;

/// Volumes by shape and age.
#[derive(Default)]
pub struct Volumes(Mutex<HashMap<(&'static str, Age), Image>>);

/// Files that fill a volume. All but the last end up with extents of single blocks.
const FILES: usize = 8;
/// Blocks of the contiguous free extent that every volume has.
const RUN: u64 = 160;

/// Contents of these files.
const BYTE: u8 = 0xa9;

/// Returns file `number`, whose blocks alternate between holes and data, and its contents; `None` if it does not exist.
///
/// # Errors
/// Errors of the volume.
pub fn striped(volume: &Volume, number: usize) -> Result<Option<(FileId, Stripes)>, Error> {
    if number + 1 >= FILES {
        return Ok(None);
    }
    match volume.lookup(volume.root(), name(number).as_bytes()) {
        Ok(id) => {
            let run = u64::from(volume.geometry().block_size) / SECTOR;
            let end = volume.open_file(id)?.len() / SECTOR;
            Ok(Some((id, Stripes { value: u64::from_ne_bytes([BYTE; 8]), run, end })))
        }
        Err(error) if error.errno() == errno::ENOENT => Ok(None),
        Err(error) => Err(error),
    }
}

fn name(number: usize) -> String {
    format!("old{number}")
}

impl Volumes {
    /// Returns a volume, after making it if it is the first.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn get(&self, shape: &Shape, age: Age, fail: fn(&str) -> !) -> Result<Image, String> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(image) = made.get(&(shape.name, age)) {
            return Ok(image.clone());
        }
        let engine = Engine { shape: Shape { background: false, ..shape.clone() } };
        let image = engine.format()?;
        // The layout must not depend on the machine.
        let aged = |left| simulation::run(schedule(fail), || age_volume(&engine, image.clone(), left)).0;
        let image = match age {
            Age::Fresh => image.clone(),
            Age::Fragmented => aged(10)?,
            Age::Full => aged(1000)?,
        };
        made.insert((shape.name, age), image.clone());
        Ok(image)
    }
}

/// The schedule for aging.
fn schedule(fail: fn(&str) -> !) -> SimulationOptions {
    let strategy = SchedulingStrategy::Random { per_mille: 1 };
    SimulationOptions { steps_max: u64::MAX, fail, ..SimulationOptions::new(1, strategy) }
}

/// Fills a volume with files, frees every other block of most of them, and then fills all but `10 / left` of the free
/// space.
fn age_volume(engine: &Engine, image: Image, left: u64) -> Result<Image, String> {
    let describe = |error: Error| format!("aging a volume: {error}");
    let device = Arc::new(ImageDevice::new(image));
    let options = volume::Options { cpus: Some(1), ..engine.options() };
    let volume = Volume::open(device.clone(), options).map_err(describe)?;
    let root = volume.root();
    let block = u64::from(volume.geometry().block_size);
    let share = volume.statistics().blocks_available / FILES as u64 * 98 / 100;
    let mut files = Vec::new();
    for n in 0..FILES {
        let id = volume.create(root, name(n).as_bytes(), &NewFile::regular()).map_err(describe)?;
        let file = volume.open_file(id).map_err(describe)?;
        fill(&file, 0, share * block)?;
        file.sync_all().map_err(describe)?;
        files.push(file);
    }
    // Every other block of the first files; the last one stays whole, so that some free space is contiguous. The second
    // pass fills the btree leaves that the first one split.
    for file in files.iter().take(FILES - 1) {
        for first in [0, 2] {
            let holes = (first..file.len() / block).step_by(4).filter(|hole| Stripes::is_hole(*hole));
            for hole in holes {
                file.punch_hole(hole * block, block).map_err(describe)?;
            }
        }
    }
    volume.sync().map_err(describe)?;
    let free = volume.statistics().blocks_available;
    let rest = volume.create(root, b"rest", &NewFile::regular()).map_err(describe)?;
    let rest = volume.open_file(rest).map_err(describe)?;
    let leave = (free * 10 / left.max(11)).max(120).min(free);
    fill(&rest, 0, (free - leave) * block)?;
    rest.sync_all().map_err(describe)?;
    if let Some(whole) = files.last() {
        // A free extent that is long enough for inode chunks.
        whole.set_len(whole.len().saturating_sub(RUN * block)).map_err(describe)?;
    }
    drop((files, rest));
    volume.unmount().map_err(describe)?;
    Ok(device.image())
}

/// Writes a range until its end, or until the volume is full.
fn fill(file: &File<'_>, start: u64, end: u64) -> Result<(), String> {
    let piece = vec![BYTE; 1 << 16];
    let mut offset = start;
    while offset < end {
        let length = (end - offset).min(piece.len() as u64) as usize;
        match file.write_at(&piece[..length], offset) {
            Ok(wrote) => offset += wrote as u64,
            Err(error) if error.errno() == errno::ENOSPC => return Ok(()),
            Err(error) => return Err(format!("aging a volume: {error}")),
        }
    }
    Ok(())
}
