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
use report::record::Target;

use crate::peers;
use crate::recorder::{Recorder, Row};
use test_mount::{ALL, MountKind, TestMount};

/// Size of the measurement.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Directory of the images.
    pub folder: PathBuf,
    /// Path of `xebec`.
    pub xebec: PathBuf,
    /// Whether the kernel can mount XFS, or why not.
    pub kernel: Result<(), String>,
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
            kernel: scale.kernel.clone(),
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
    let has_programs =
        table.has_peer("programs on mounts", false, peers::installed(&["tar", "git", "make", "cc"]));
    let mut kinds = Vec::new();
    for kind in ALL {
        let ready = match kind {
            MountKind::Xebec | MountKind::Nothing => Ok(()),
            MountKind::Fuse2fs => peers::installed(&["fuse2fs", "mke2fs"]),
            MountKind::Kernel => scale.kernel.clone(),
        };
        kinds.extend(table.has_peer(kind.name(), false, ready).then_some(kind));
    }
    if has_programs {
        programs::prepare(scale)?;
    }
    let mut all: Vec<_> = kinds.iter().map(|kind| (*kind, Results::default())).collect();
    let run_once = |kind, results: &mut Results| run_once(scale, kind, has_programs, results);
    for round in 0..=scale.rounds {
        table.go_on()?;
        // The first run is not counted, unless it is the only one.
        if round == 0 && scale.rounds > 1 {
            all.iter().try_for_each(|(kind, _)| run_once(*kind, &mut Results::default()))?;
        } else if round > 0 {
            all.iter_mut().try_for_each(|(kind, results)| run_once(*kind, results))?;
        }
    }
    programs::clear(scale);
    report(&all, table);
    Ok(())
}

/// Adds the rows of the peers that were measured.
fn report(all: &[(MountKind, Results)], table: &mut Recorder<'_>) {
    for (task, unit, peers) in rows() {
        for (kind, ratio_min) in peers {
            let of = |kind| all.iter().find(|(known, _)| *known == kind).map(|(_, results)| results.of(task));
            let (ours, other) = (of(MountKind::Xebec).unwrap_or_default(), of(*kind).unwrap_or_default());
            if !ours.is_empty() {
                let target = ratio_min.filter(|_| !other.is_empty()).map(Target::RatioAtLeast);
                let (ours_is, other_is) = (MountKind::Xebec.name(), kind.name());
                table.add(Row { task: (*task).into(), unit, ours_is, other_is, ours, other, target });
            }
        }
    }
}

/// All parts on a fresh mount.
fn run_once(scale: &Scale, kind: MountKind, has_programs: bool, results: &mut Results) -> anyhow::Result<()> {
    // Writeback of the run before must not run in the time of this one.
    rustix::fs::sync();
    let mut mount = TestMount::new(scale, kind)?;
    let mut part = |mount: &TestMount, name: &str, part: Part| {
        part(scale, mount.directory(), results).with_context(|| format!("{name}: {}", kind.name()))
    };
    part(&mount, "calls", calls::files)?;
    part(&mount, "calls together", calls::together)?;
    part(&mount, "write a large file", calls::stream_out)?;
    // So that neither the kernel nor the server has it in memory.
    if kind.stores_files() {
        mount = mount.again(scale)?;
    }
    part(&mount, "read a large file", calls::stream_in)?;
    if has_programs && kind.stores_files() {
        part(&mount, "programs", programs::all)?;
    }
    mount.unmount()
}
