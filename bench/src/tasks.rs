//! Tasks that several subjects do, with several numbers of threads.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use report::record::{Comparison, Latency, Measurement, Target};

use crate::bench_volume::BenchVolume;
use crate::engine::threads::on_threads;
use crate::recorder::Recorder;
use crate::scale::{Scale, Size};
use crate::subject::Subject;

/// The result of one run.
#[derive(Debug)]
pub struct Run {
    /// The value, in the task's unit.
    pub value: f64,
    /// Durations of calls in nanoseconds, if they were measured.
    pub calls: Option<Histogram<u64>>,
}

impl From<f64> for Run {
    fn from(value: f64) -> Self {
        Self { value, calls: None }
    }
}

/// A task.
pub struct Task<'t> {
    /// What is done, in words.
    pub name: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Whether less is better.
    pub less_is_better: bool,
    /// Numbers of threads.
    pub threads: &'t [u32],
    /// What Xebec must reach beside each peer that is no part of Xebec.
    pub target: Option<Target>,
    /// The run returns an amount, and the value is that amount a second until the volume is unmounted.
    pub until_unmounted: bool,
    /// Does it once on a fresh volume, by so many threads.
    pub run: &'t dyn Fn(&BenchVolume, u32) -> anyhow::Result<Run>,
}

impl<'t> Task<'t> {
    /// A rate by all numbers of threads, which is to be at least that of each peer.
    pub fn rate(
        scale: &'t Scale,
        name: impl Into<String>,
        unit: &'static str,
        run: &'t dyn Fn(&BenchVolume, u32) -> anyhow::Result<Run>,
    ) -> Self {
        Self {
            name: name.into(),
            unit,
            less_is_better: false,
            threads: &scale.threads,
            target: Some(Target::RatioAtLeast(1.0)),
            until_unmounted: false,
            run,
        }
    }

    /// A time in a unit, which is to be at most `ratio_max` of that of each peer.
    pub fn time(
        name: impl Into<String>,
        unit: &'static str,
        threads: &'t [u32],
        ratio_max: f64,
        run: &'t dyn Fn(&BenchVolume, u32) -> anyhow::Result<Run>,
    ) -> Self {
        let target = Some(Target::RatioAtMost(ratio_max));
        Self { name: name.into(), unit, less_is_better: true, threads, target, until_unmounted: false, run }
    }

    /// Measures all subjects in turns. A subject that cannot be measured is noted, and left out; the library must not
    /// fail.
    ///
    /// # Errors
    /// Xebec failed.
    pub fn measure(
        &self,
        scale: &Scale,
        subjects: &[Subject],
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        let mut all: Vec<(Subject, Vec<Vec<Run>>)> = Vec::new();
        for subject in subjects {
            all.push((subject.clone(), self.threads.iter().map(|_| Vec::new()).collect()));
        }
        let warm_ups = u32::from(scale.size == Size::Full);
        for round in 0..scale.rounds + warm_ups {
            let mut failed = Vec::new();
            for (subject, runs) in &mut all {
                recorder.go_on()?;
                match self.round(scale, subject) {
                    Ok(_) if round < warm_ups => {}
                    Ok(round) => runs.iter_mut().zip(round).for_each(|(runs, run)| runs.push(run)),
                    Err(error) if matches!(subject, Subject::Library(_)) => return Err(error),
                    Err(error) => {
                        recorder.note(format!("{}: not measured on {subject}: {error:#}", self.name));
                        failed.push(subject.clone());
                    }
                }
            }
            all.retain(|(subject, _)| !failed.contains(subject));
        }
        self.record(subjects, all, recorder);
        Ok(())
    }

    /// One run for each number of threads, each on a fresh volume.
    fn round(&self, scale: &Scale, subject: &Subject) -> anyhow::Result<Vec<Run>> {
        self.threads.iter().map(|threads| self.run_once(scale, subject, *threads)).collect()
    }

    fn run_once(&self, scale: &Scale, subject: &Subject, threads: u32) -> anyhow::Result<Run> {
        rustix::fs::sync();
        let volume = subject.open(scale, threads).with_context(|| subject.to_string())?;
        let begin = Instant::now();
        let mut run = (self.run)(&volume, threads).with_context(|| format!("{}: {subject}", self.name))?;
        volume.unmount()?;
        if self.until_unmounted {
            run.value /= begin.elapsed().as_secs_f64();
        }
        Ok(run)
    }

    /// The claims are about the first subject. Without it there are none: a peer is not compared with others.
    fn record(&self, subjects: &[Subject], all: Vec<(Subject, Vec<Vec<Run>>)>, recorder: &mut Recorder) {
        let has_several = self.threads.len() > 1;
        for (index, threads) in self.threads.iter().enumerate() {
            let threads = has_several.then_some(*threads);
            for (subject, runs) in &all {
                let runs = runs.get(index).map_or(&[][..], Vec::as_slice);
                recorder.measured(Measurement {
                    task: self.name.clone(),
                    subject: subject.to_string(),
                    unit: self.unit.into(),
                    less_is_better: self.less_is_better,
                    threads,
                    runs: runs.iter().map(|run| run.value).collect(),
                    latency: latency(runs),
                });
            }
            let first = subjects.first().filter(|first| all.iter().any(|(subject, _)| subject == *first));
            let Some(ours) = first else { continue };
            for (peer, _) in all.iter().skip(1) {
                recorder.compared(Comparison {
                    task: self.name.clone(),
                    unit: self.unit.into(),
                    threads,
                    subject: ours.to_string(),
                    peer: Some(peer.to_string()),
                    target: self.target.filter(|_| !peer.is_xebec()),
                    paired: None,
                });
            }
        }
        recorder.ended(&self.name);
    }
}

/// Percentiles of the calls of all runs.
fn latency(runs: &[Run]) -> Option<Latency> {
    let mut all = histogram().ok()?;
    for calls in runs.iter().filter_map(|run| run.calls.as_ref()) {
        all.add(calls).ok()?;
    }
    if all.is_empty() {
        return None;
    }
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let at = |percentile| micros(all.value_at_percentile(percentile));
    let buckets = all.iter_log(1000, 1.19);
    let histogram =
        buckets.map(|bucket| (micros(bucket.value_iterated_to() + 1), bucket.count_since_last_iteration()));
    Some(Latency { p50_us: at(50.0), p99_us: at(99.0), p999_us: at(99.9), histogram: histogram.collect() })
}

/// An empty histogram of nanoseconds.
///
/// # Errors
/// Its bounds are impossible.
pub fn histogram() -> anyhow::Result<Histogram<u64>> {
    // Up to a minute; what takes longer counts as that.
    Histogram::new_with_bounds(1, 60_000_000_000, 2).context("a histogram")
}

/// Threads that repeat a call for some time, each with a state of its own. Returns the calls per second of all.
///
/// # Errors
/// Those of the calls.
pub fn repeat<S: Send>(
    threads: u32,
    time: Duration,
    prepare: &(dyn Fn(u32) -> anyhow::Result<S> + Sync),
    call: &(dyn Fn(&mut S, u64) -> anyhow::Result<()> + Sync),
) -> anyhow::Result<f64> {
    Ok(run_for(threads, time, prepare, call, false)?.value)
}

/// Like [`repeat`], and measures each call.
///
/// # Errors
/// Those of the calls.
pub fn repeat_timed<S: Send>(
    threads: u32,
    time: Duration,
    prepare: &(dyn Fn(u32) -> anyhow::Result<S> + Sync),
    call: &(dyn Fn(&mut S, u64) -> anyhow::Result<()> + Sync),
) -> anyhow::Result<Run> {
    run_for(threads, time, prepare, call, true)
}

fn run_for<S: Send>(
    threads: u32,
    time: Duration,
    prepare: &(dyn Fn(u32) -> anyhow::Result<S> + Sync),
    call: &(dyn Fn(&mut S, u64) -> anyhow::Result<()> + Sync),
    is_timed: bool,
) -> anyhow::Result<Run> {
    let states = on_threads(threads, prepare)?;
    let stop = AtomicBool::new(false);
    let work = |mut state: S| {
        let mut calls = histogram()?;
        let begin = Instant::now();
        let mut count = 0;
        while !stop.load(Relaxed) {
            let since = is_timed.then(Instant::now);
            let result = call(&mut state, count);
            if let Some(since) = since {
                calls.saturating_record(since.elapsed().as_nanos() as u64);
            }
            if result.is_err() {
                stop.store(true, Relaxed);
            }
            result?;
            count += 1;
            // Not after each call: reading the clock takes a tenth of the fastest ones.
            if (is_timed || count.is_multiple_of(8)) && begin.elapsed() >= time {
                stop.store(true, Relaxed);
            }
        }
        anyhow::Ok((count as f64 / begin.elapsed().as_secs_f64(), calls))
    };
    let work = &work;
    let ended = std::thread::scope(|scope| {
        let workers: Vec<_> = states.into_iter().map(|state| scope.spawn(move || work(state))).collect();
        let ended = workers.into_iter().map(|worker| worker.join());
        ended
            .map(|ended| ended.map_err(|_| anyhow::anyhow!("a thread panicked"))?)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut run = Run { value: 0.0, calls: is_timed.then(histogram).transpose()? };
    for (rate, calls) in ended {
        run.value += rate;
        if let Some(all) = &mut run.calls {
            all.add(calls).context("a histogram")?;
        }
    }
    Ok(run)
}
