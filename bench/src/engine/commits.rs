//! Commits that change one inode.

use std::time::Instant;

use report::record::Target;
use xebec::{FileId, NewFile, Options, SetMetadata, Volume};

use super::Scale;
use crate::bench_volume::{BenchVolume, layout};
use crate::recorder::{Recorder, Row};

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let image = scale.folder.join("engine.img");
    let (mut one, mut two, mut one_shard) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        for (values, threads, shards) in
            [(&mut one, 1, None), (&mut two, 2, None), (&mut one_shard, 2, Some(1))]
        {
            let options = Options { cil_shards: shards, ..Options::default() };
            let BenchVolume::Xebec(volume) = BenchVolume::xebec(&image, &layout(2 << 30, 64 << 20), options)?
            else {
                continue;
            };
            values.push(rate(&volume, threads, scale.commits)?);
            volume.unmount()?;
        }
    }
    let row = |task: &str, ours: &Vec<f64>, ours_is, other: &Vec<f64>, other_is, target| Row {
        task: task.into(),
        unit: "commits/s",
        ours_is,
        other_is,
        ours: ours.clone(),
        other: other.clone(),
        target,
    };
    let rate_min = Some(Target::AtLeast(1e6));
    table.add(row("commit a change of one inode, one thread", &one, "Xebec", &Vec::new(), "", rate_min));
    let ratio = Some(Target::RatioAtLeast(1.9));
    table.add(row(
        "commit changes of two inodes, two threads",
        &two,
        "two threads",
        &one,
        "one thread",
        ratio,
    ));
    let task = "the same, with a list per CPU and with one list";
    table.add(row(task, &two, "a shard per CPU", &one_shard, "one shard", None));
    Ok(())
}

fn rate(volume: &Volume, threads: u32, commits: u32) -> anyhow::Result<f64> {
    let mut files = Vec::new();
    for thread in 0..threads {
        let dir = volume.create(volume.root(), format!("d{thread}").as_bytes(), &NewFile::directory())?;
        files.push(volume.create(dir, b"file", &NewFile::regular())?);
    }
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = files.iter().map(|id| scope.spawn(|| touch(volume, *id, commits))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
    })?;
    Ok(f64::from(commits) * f64::from(threads) / begin.elapsed().as_secs_f64())
}

fn touch(volume: &Volume, id: FileId, commits: u32) -> anyhow::Result<()> {
    for n in 0..commits {
        let set = SetMetadata { permissions: Some(0o600 | n as u16 & 0o77), ..SetMetadata::default() };
        volume.set_metadata(id, &set)?;
    }
    Ok(())
}
