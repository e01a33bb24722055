//! Mounts: Xebec, fuse2fs on ext4, the kernel's XFS on a loop device, and a FUSE server that does nothing, the upper
//! limit for FUSE.
//!
//! | module | subject |
//! |---|---|
//! | [`test_mount`] | mounting and unmounting the four |
//! | [`nothing`] | the server that does nothing |
//! | [`calls`] | system calls of one client, and of one client per CPU |
//! | [`programs`] | tar, git, make |
//!
//! They run alternately, each on a fresh image. One run measures all rows.

mod calls;
pub mod nothing;
mod programs;
mod test_mount;

use std::path::PathBuf;

use anyhow::Context;

use crate::record::Target;
use crate::recorder::{Recorder, Row};
use test_mount::{ALL, MountKind, TestMount};

/// Size of the measurement.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Directory of the images.
    pub folder: PathBuf,
    /// Path of `xebec`.
    pub xebec: PathBuf,
    /// Measured runs of each.
    pub rounds: u32,
    /// Size of an image in bytes.
    pub image_bytes: u64,
    /// Files per client.
    pub files: u32,
    /// Size of the large file in bytes.
    pub stream_bytes: u64,
    /// Text files in the repository.
    pub texts: u32,
}

impl From<&crate::scale::Scale> for Scale {
    fn from(scale: &crate::scale::Scale) -> Self {
        Self {
            folder: scale.folder.clone(),
            xebec: scale.xebec.clone(),
            rounds: scale.rounds,
            image_bytes: scale.pick(4 << 30, 2 << 30, 1 << 30),
            files: scale.pick(8_000, 2_000, 200),
            stream_bytes: scale.pick(1 << 30, 256 << 20, 16 << 20),
            texts: scale.pick(4_000, 1_000, 100),
        }
    }
}

/// Results of one of the four: values of each task, in the order of the runs.
#[derive(Debug, Default)]
pub struct Results(Vec<(&'static str, Vec<f64>)>);

impl Results {
    fn add(&mut self, task: &'static str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == task) {
            Some((_, values)) => values.push(value),
            None => self.0.push((task, vec![value])),
        }
    }

    fn of(&self, task: &str) -> Vec<f64> {
        self.0.iter().find(|(known, _)| *known == task).map_or_else(Vec::new, |(_, values)| values.clone())
    }
}

/// A part of the benchmark, on a mount point.
type Part = fn(&Scale, &std::path::Path, &mut Results) -> anyhow::Result<()>;

/// Peers of a row, with the minimum ratio.
type Peers = &'static [(MountKind, Option<f64>)];

/// Task, unit and peers of rows.
type RowSpec = (&'static str, &'static str, Peers);

const CALLS: Peers =
    &[(MountKind::Fuse2fs, Some(2.0)), (MountKind::Nothing, Some(0.7)), (MountKind::Kernel, None)];
const OTHERS: Peers = &[(MountKind::Fuse2fs, None), (MountKind::Nothing, None), (MountKind::Kernel, None)];
const STREAMS: Peers =
    &[(MountKind::Kernel, Some(0.7)), (MountKind::Fuse2fs, None), (MountKind::Nothing, None)];
const PROGRAMS: Peers = &[(MountKind::Fuse2fs, None), (MountKind::Kernel, None)];

/// Calls, which are made by one client and by several.
const OF_CALLS: &[(calls::TaskNames, Peers)] = &[
    (calls::CREATE, CALLS),
    (calls::STAT, CALLS),
    (calls::OPEN, CALLS),
    (calls::WRITE, OTHERS),
    (calls::READ, CALLS),
    (calls::AGAIN, OTHERS),
    (calls::UNLINK, CALLS),
];

const OF_OTHERS: &[RowSpec] = &[
    (calls::STREAM_OUT, "MB/s", STREAMS),
    (calls::STREAM_IN, "MB/s", STREAMS),
    (programs::UNTAR, "s", PROGRAMS),
    (programs::STATUS, "s", PROGRAMS),
    (programs::BUILD, "s", PROGRAMS),
];

/// All rows in the order of the report.
fn rows() -> impl Iterator<Item = RowSpec> {
    let calls = |clients: usize| OF_CALLS.iter().map(move |(task, peers)| (task[clients], "files/s", *peers));
    calls(0).chain(calls(1)).chain(OF_OTHERS.iter().copied())
}

/// Runs all parts.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let parts: [(&str, Part); 4] = [
        ("calls", calls::files),
        ("calls together", calls::together),
        ("stream", calls::stream),
        ("programs", programs::all),
    ];
    programs::prepare(scale)?;
    let mut all = ALL.map(|kind| (kind, Results::default()));
    for round in 0..=scale.rounds {
        // The first run is not counted, unless it is the only one.
        if round == 0 && scale.rounds > 1 {
            all.iter().try_for_each(|(kind, _)| run_once(scale, *kind, &parts, &mut Results::default()))?;
        } else if round > 0 {
            all.iter_mut().try_for_each(|(kind, results)| run_once(scale, *kind, &parts, results))?;
        }
    }
    programs::clear(scale);
    for (task, unit, peers) in rows() {
        for (kind, ratio_min) in peers {
            let of = |kind| all.iter().find(|(known, _)| *known == kind).map(|(_, results)| results.of(task));
            let (ours, other) = (of(MountKind::Xebec).unwrap_or_default(), of(*kind).unwrap_or_default());
            if !ours.is_empty() {
                let target = ratio_min.map(Target::RatioAtLeast);
                let (ours_is, other_is) = (MountKind::Xebec.name(), kind.name());
                table.add(Row { task: (*task).into(), unit, ours_is, other_is, ours, other, target });
            }
        }
    }
    Ok(())
}

fn run_once(
    scale: &Scale,
    kind: MountKind,
    parts: &[(&str, Part)],
    results: &mut Results,
) -> anyhow::Result<()> {
    let mount = TestMount::new(scale, kind)?;
    for (name, part) in parts {
        if kind.stores_files() || *name != "programs" {
            part(scale, mount.directory(), results).with_context(|| format!("{name}: {}", kind.name()))?;
        }
    }
    mount.unmount()
}
