//! Allocating inodes on a volume with one AG and many inodes, after some were freed at random.

use std::time::Instant;

use report::record::Target;
use xebec::{FileId, NewFile, Options, Volume};

use super::Scale;
use crate::bench_volume::{BenchVolume, layout};
use crate::recorder::{Recorder, Row};

/// Files per directory.
const PER_DIRECTORY: u32 = 1000;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let with = experiment(scale, true, scale.inodes)?;
    let freed = scale.inodes / 1000;
    table.add(Row {
        task: format!(
            "create {freed} files after {freed} of {} were freed at random, with the finobt",
            scale.inodes
        ),
        unit: "files/s",
        ours_is: "after the frees",
        other_is: "on a fresh volume",
        ours: vec![with.after],
        other: vec![with.fresh],
        target: Some(Target::RatioAtLeast(1.0 / 1.3)),
    });
    for divisor in [100, 10, 1] {
        let inodes = scale.inodes / divisor;
        let without = experiment(scale, false, inodes)?;
        table.add(Row {
            task: format!("the same without the finobt, among {inodes} inodes"),
            unit: "files/s",
            ours_is: "after the frees",
            other_is: "on a fresh volume",
            ours: vec![without.after],
            other: vec![without.fresh],
            target: None,
        });
    }
    Ok(())
}

struct Rates {
    fresh: f64,
    after: f64,
}

fn experiment(scale: &Scale, finobt: bool, inodes: u32) -> anyhow::Result<Rates> {
    let image = scale.folder.join("finobt.img");
    let bytes = (u64::from(inodes) * 700).max(2 << 30);
    let layout = mkfs::Options {
        ag_count: Some(1),
        finobt,
        inobtcount: finobt,
        max_inode_percent: Some(100),
        ..layout(bytes, 64 << 20)
    };
    let BenchVolume::Xebec(volume) = BenchVolume::xebec(&image, &layout, Options::default())? else {
        anyhow::bail!("not a volume of Xebec")
    };
    let mut dirs = Vec::new();
    for group in 0..inodes / PER_DIRECTORY {
        dirs.push(volume.create(volume.root(), format!("d{group}").as_bytes(), &NewFile::directory())?);
    }
    let new = volume.create(volume.root(), b"new", &NewFile::directory())?;
    let freed = inodes / 1000;
    let begin = Instant::now();
    dirs.iter().try_for_each(|dir| fill(&volume, *dir))?;
    let fresh = f64::from(inodes) / begin.elapsed().as_secs_f64();
    for n in 0..freed {
        // One of each thousand, chosen by a multiplicative hash.
        let number = (u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % PER_DIRECTORY;
        let Some(dir) = dirs.get(n as usize) else { continue };
        volume.unlink(*dir, format!("file{number:06}").as_bytes())?;
    }
    volume.sync()?;
    let begin = Instant::now();
    for n in 0..freed {
        volume.create(new, format!("new{n:06}").as_bytes(), &NewFile::regular())?;
    }
    let after = f64::from(freed) / begin.elapsed().as_secs_f64();
    volume.unmount()?;
    std::fs::remove_file(image)?;
    Ok(Rates { fresh, after })
}

fn fill(volume: &Volume, dir: FileId) -> anyhow::Result<()> {
    for file in 0..PER_DIRECTORY {
        volume.create(dir, format!("file{file:06}").as_bytes(), &NewFile::regular())?;
    }
    Ok(())
}
