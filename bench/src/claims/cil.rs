//! The committed item list: `fsync` while it is full, and commits while CPUs come and go.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::bench_volume::BenchVolume;
use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::subject::{Subject, Without};
use crate::tasks::{Run, Task, repeat, repeat_timed};

/// Xebec with a list for each CPU and with one, and the kernel, if it is measured.
fn subjects(scale: &Scale) -> Vec<Subject> {
    let mut subjects = vec![Subject::LIBRARY, Subject::Library(Without::Shards)];
    subjects.extend(scale.subjects.contains(&Subject::Kernel).then_some(Subject::Kernel));
    subjects
}

/// Measures `fsync` beside threads that commit all the time.
///
/// # Errors
/// Xebec failed.
pub fn fsync(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let run = |volume: &BenchVolume, _| beside_commits(scale, volume);
    let task = "write 4 KiB and fsync, beside two threads that create and unlink";
    Task { threads: &[1], ..Task::rate(scale, task, "calls/s", &run) }.measure(
        scale,
        &subjects(scale),
        recorder,
    )
}

fn beside_commits(scale: &Scale, volume: &BenchVolume) -> anyhow::Result<Run> {
    let stop = AtomicBool::new(false);
    let commit = |thread: u32| {
        let dir = volume.mkdir(&format!("d{thread}"))?;
        while !stop.load(Relaxed) {
            volume.create(&dir, "file")?;
            volume.unlink(&dir, "file")?;
        }
        anyhow::Ok(())
    };
    let file = volume.file(&volume.root()?, "synced", true)?;
    std::thread::scope(|scope| {
        let others = [0, 1].map(|thread| scope.spawn(move || commit(thread)));
        let run = repeat_timed(1, scale.time(), &|_| Ok(()), &|(), _| {
            file.write(&[1; 4096], 0)?;
            file.sync()
        });
        stop.store(true, Relaxed);
        for other in others {
            other.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        run
    })
}

/// Measures commits of threads that move from CPU to CPU, as when CPUs go off and on line. A reservation that got lost
/// then would shut the volume down.
///
/// # Errors
/// Xebec failed.
pub fn moving(scale: &Scale, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let run = |volume: &BenchVolume, threads| {
        let all = sched_getaffinity(None).context("the CPUs of this thread")?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
        let prepare = |thread| volume.mkdir(&format!("d{thread}"));
        let rate = repeat(threads, scale.time() + Duration::from_millis(50), &prepare, &|dir, count| {
            if count % 32 == 0 {
                let mut one = CpuSet::new();
                cpus.get((count / 32) as usize % cpus.len().max(1)).into_iter().for_each(|cpu| one.set(*cpu));
                sched_setaffinity(None, &one).context("moving a thread")?;
            }
            volume.create(dir, "file")?;
            volume.unlink(dir, "file")
        });
        Ok(rate?.into())
    };
    let task = "create and unlink files by threads that move to another CPU each 32 files";
    Task::rate(scale, task, "files/s", &run).measure(scale, &subjects(scale), recorder)
}
