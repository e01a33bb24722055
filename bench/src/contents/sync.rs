//! Syncs beside many clean inodes (Chinner, "sync contention").

use std::time::Instant;

use report::record::Target;
use report::record::median;
use xebec::{MemoryBudget, Options};

use super::Scale;
use crate::bench_volume::{BenchVolume, layout, names};
use crate::recorder::{Recorder, Row};

const FILES_PER_DIRECTORY: u32 = 5_000;
const LOG_BYTES: u64 = 64 << 20;
const SYNCS: u32 = 200;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let other = scale.folder.join("contents-other.img");
    let directories = scale.clean_inodes.div_ceil(FILES_PER_DIRECTORY);
    // Inodes may take a quarter of the volume.
    let image_bytes = (u64::from(scale.clean_inodes) * 4096).next_multiple_of(1 << 30) + (2 << 30);
    let options = Options { memory: Some(MemoryBudget::new(14 << 30)), ..Options::default() };
    let volume = BenchVolume::xebec(&other, &layout(1 << 30, LOG_BYTES), options.clone())?;
    let full = BenchVolume::xebec(&scale.image(), &layout(image_bytes, LOG_BYTES), options)?;
    let mut none = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        none.0.push(sync_time(&volume)?);
        none.1.push(sync_time(&full)?);
    }
    let names = names(FILES_PER_DIRECTORY.min(scale.clean_inodes));
    for directory in 0..directories {
        let dir = full.mkdir(&format!("{directory}"))?;
        names.iter().try_for_each(|name| full.create(&dir, name))?;
    }
    full.sync()?;
    let mut many = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        many.0.push(sync_time(&volume)?);
        many.1.push(sync_time(&full)?);
    }
    let count = directories as usize * names.len();
    for (task, ours, other) in [("another", many.0, none.0), ("the same", many.1, none.1)] {
        table.add(Row {
            task: format!("write 4 KiB and sync; {count} clean inodes of {task} volume in memory"),
            unit: "us",
            ours_is: "with these inodes",
            other_is: "without",
            ours,
            other,
            target: Some(Target::RatioAtMost(1.2)),
        });
    }
    full.unmount()?;
    volume.unmount()?;
    let _ = std::fs::remove_file(other);
    Ok(())
}

/// Median time of a write and a sync in microseconds.
fn sync_time(volume: &BenchVolume) -> anyhow::Result<f64> {
    let root = volume.root()?;
    let file = volume.file(&root, "synced", volume.file(&root, "synced", false).is_err())?;
    let mut times = Vec::new();
    for _ in 0..SYNCS {
        let begin = Instant::now();
        file.write(&[1; 4096], 0)?;
        volume.sync()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}
