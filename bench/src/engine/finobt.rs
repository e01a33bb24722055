//! Allocating inodes on a volume with one AG and many inodes, after some were freed at random.

use std::time::Instant;

use report::record::Target;
use xebec::{FileId, NewFile, Options, Volume};

use super::Scale;
use crate::bench_volume::{BenchVolume, layout};
use crate::recorder::{Recorder, Row};

/// Files per directory.
const PER_DIRECTORY: u32 = 1000;
/// The most files that are freed before a measurement.
const FREED_MAX: u32 = 10_000;
/// Turns in which files are created and written back.
const TURNS: u32 = 5;

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
    let files = freed_each_turn(scale.inodes);
    for (until, of) in [("created", 0), ("written back", 1)] {
        let times = |turns: &[[f64; 2]]| turns.iter().map(|turn| turn[of]).collect();
        table.add(Row {
            task: format!(
                "{files} files after as many of {} were freed, until they are {until}",
                scale.inodes
            ),
            unit: "ms",
            ours_is: "after the frees",
            other_is: "on a fresh volume",
            ours: times(&with.after_ms),
            other: times(&with.fresh_ms),
            target: Some(Target::RatioAtMost(1.2)),
        });
    }
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

#[derive(Default)]
struct Figures {
    /// Files created each second while the volume was filled, and after one of a thousand was freed.
    fresh: f64,
    after: f64,
    /// Milliseconds until files are created, and until they are written back, in turns.
    fresh_ms: Vec<[f64; 2]>,
    after_ms: Vec<[f64; 2]>,
}

/// Number of files that are freed in each turn, and created again, on a volume with so many inodes.
fn freed_each_turn(inodes: u32) -> u32 {
    (inodes / 50).min(FREED_MAX)
}

fn experiment(scale: &Scale, finobt: bool, inodes: u32) -> anyhow::Result<Figures> {
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
    let mut figures = Figures::default();
    let begin = Instant::now();
    dirs.iter().try_for_each(|dir| create(&volume, *dir, "file", PER_DIRECTORY))?;
    figures.fresh = f64::from(inodes) / begin.elapsed().as_secs_f64();
    let freed = inodes / 1000;
    free(&volume, &dirs, freed, 0)?;
    volume.sync()?;
    let begin = Instant::now();
    create(&volume, new, "new", freed)?;
    figures.after = f64::from(freed) / begin.elapsed().as_secs_f64();
    if finobt {
        let files = freed_each_turn(inodes);
        for turn in 1..=TURNS {
            free(&volume, &dirs, files, turn)?;
            figures.after_ms.push(create_and_write_back(&volume, files, turn)?);
            let image = scale.folder.join("fresh.img");
            if let BenchVolume::Xebec(volume) = BenchVolume::xebec(&image, &layout, Options::default())? {
                figures.fresh_ms.push(create_and_write_back(&volume, files, turn)?);
                volume.unmount()?;
            }
            std::fs::remove_file(image)?;
        }
    }
    volume.unmount()?;
    std::fs::remove_file(image)?;
    Ok(figures)
}

/// Removes `count` files at places chosen by a multiplicative hash, one of each stretch of equal length. The files of
/// each turn differ.
fn free(volume: &Volume, dirs: &[FileId], count: u32, turn: u32) -> anyhow::Result<()> {
    let stretch = dirs.len() as u32 * PER_DIRECTORY / count.max(1);
    for n in 0..count {
        let hash = (u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32;
        let file = n * stretch + hash % (stretch / 10) * 10 + turn;
        let Some(dir) = dirs.get((file / PER_DIRECTORY) as usize) else { continue };
        volume.unlink(*dir, format!("file{:06}", file % PER_DIRECTORY).as_bytes())?;
    }
    Ok(())
}

fn create(volume: &Volume, dir: FileId, prefix: &str, files: u32) -> anyhow::Result<()> {
    for file in 0..files {
        volume.create(dir, format!("{prefix}{file:06}").as_bytes(), &NewFile::regular())?;
    }
    Ok(())
}

/// Creates files in a new directory and writes them back. Returns the milliseconds until they are created, and until
/// they are written back.
fn create_and_write_back(volume: &Volume, files: u32, turn: u32) -> anyhow::Result<[f64; 2]> {
    let dir = volume.create(volume.root(), format!("turn{turn}").as_bytes(), &NewFile::directory())?;
    volume.write_back_all()?;
    let begin = Instant::now();
    let milliseconds = || begin.elapsed().as_secs_f64() * 1e3;
    create(volume, dir, "new", files)?;
    let created = milliseconds();
    volume.write_back_all()?;
    Ok([created, milliseconds()])
}
