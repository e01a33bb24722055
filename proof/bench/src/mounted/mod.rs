//! Mounts beside each other: Xebec's, fuse2fs on ext4, the kernel's XFS on a loop device, and a server that does
//! nothing, which is as fast as any server can be.
//!
//! | part | subject |
//! |---|---|
//! | [`places`] | the four |
//! | [`nothing`] | the last of them |
//! | [`calls`] | system calls of one client, and of several at once |
//! | [`programs`] | tar, git, make |
//!
//! All take turns, each on a fresh image; what one turn of each gives are numbers of all rows.

mod calls;
pub mod nothing;
mod places;
mod programs;

use std::path::PathBuf;

use anyhow::Context;

use crate::table::{Row, Table, Target};
use places::{ALL, Kind, Place};

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Where the images are made.
    pub folder: PathBuf,
    /// The program.
    pub xebec: PathBuf,
    /// Measured turns of each.
    pub rounds: u32,
    /// Bytes of an image.
    pub image_bytes: u64,
    /// Files.
    pub files: u32,
    /// Bytes of the large file.
    pub stream_bytes: u64,
    /// Texts in the repository.
    pub texts: u32,
}

impl Scale {
    /// A real measurement, or one that only shows that the harness works.
    pub fn new(folder: PathBuf, xebec: PathBuf, rounds: u32, smoke: bool) -> Self {
        let (image_bytes, files, stream_bytes, texts) =
            if smoke { (1 << 30, 200, 16 << 20, 100) } else { (4 << 30, 8_000, 1 << 30, 4_000) };
        Self { folder, xebec, rounds, image_bytes, files, stream_bytes, texts }
    }
}

/// What was measured of one of the four: values of each task, in the order of the turns.
#[derive(Debug, Default)]
pub struct Seen(Vec<(&'static str, Vec<f64>)>);

impl Seen {
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

/// Parts: by name, and what they do on a mount.
type Part = fn(&Scale, &std::path::Path, &mut Seen) -> anyhow::Result<()>;

/// Beside whom, with what is to be reached.
type Beside = &'static [(Kind, Option<f64>)];

/// A row's task, what its numbers count, and beside whom.
type Wanted = (&'static str, &'static str, Beside);

const CALLS: Beside = &[(Kind::Fuse2fs, Some(2.0)), (Kind::Nothing, Some(0.7)), (Kind::Kernel, None)];
const OTHERS: Beside = &[(Kind::Fuse2fs, None), (Kind::Nothing, None), (Kind::Kernel, None)];
const STREAMS: Beside = &[(Kind::Kernel, Some(0.7)), (Kind::Fuse2fs, None), (Kind::Nothing, None)];
const PROGRAMS: Beside = &[(Kind::Fuse2fs, None), (Kind::Kernel, None)];

/// Tasks by one client and by several.
const OF_CALLS: &[(calls::Task, Beside)] = &[
    (calls::CREATE, CALLS),
    (calls::STAT, CALLS),
    (calls::OPEN, CALLS),
    (calls::WRITE, OTHERS),
    (calls::READ, CALLS),
    (calls::AGAIN, OTHERS),
    (calls::UNLINK, CALLS),
];

const OF_OTHERS: &[Wanted] = &[
    (calls::STREAM_OUT, "MB/s", STREAMS),
    (calls::STREAM_IN, "MB/s", STREAMS),
    (programs::UNTAR, "s", PROGRAMS),
    (programs::STATUS, "s", PROGRAMS),
    (programs::BUILD, "s", PROGRAMS),
];

/// All rows, in the order of the report.
fn rows() -> impl Iterator<Item = Wanted> {
    let calls = |by: usize| OF_CALLS.iter().map(move |(task, beside)| (task[by], "files/s", *beside));
    calls(0).chain(calls(1)).chain(OF_OTHERS.iter().copied())
}

/// Runs the parts that have `only` in their names.
pub fn run(scale: &Scale, only: &str, table: &mut Table) -> anyhow::Result<()> {
    let parts: [(&str, Part); 4] = [
        ("calls", calls::files),
        ("calls together", calls::together),
        ("stream", calls::stream),
        ("programs", programs::all),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|(name, _)| name.contains(only)).collect();
    if parts.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(&scale.folder).with_context(|| scale.folder.display().to_string())?;
    programs::prepare(scale)?;
    let mut all = ALL.map(|kind| (kind, Seen::default()));
    for round in 0..=scale.rounds {
        // The first turn does not count, unless it is the only one.
        if round == 0 && scale.rounds > 1 {
            all.iter().try_for_each(|(kind, _)| turn(scale, *kind, &parts, &mut Seen::default()))?;
        } else if round > 0 {
            all.iter_mut().try_for_each(|(kind, seen)| turn(scale, *kind, &parts, seen))?;
        }
    }
    programs::clear(scale);
    for (task, unit, beside) in rows() {
        for (kind, least) in beside {
            let of = |kind| all.iter().find(|(known, _)| *known == kind).map(|(_, seen)| seen.of(task));
            let (ours, other) = (of(Kind::Xebec).unwrap_or_default(), of(*kind).unwrap_or_default());
            if !ours.is_empty() {
                let target = least.map(Target::RatioAtLeast);
                let (ours_is, other_is) = (Kind::Xebec.is(), kind.is());
                table.add(Row { task: (*task).into(), unit, ours_is, other_is, ours, other, target });
            }
        }
    }
    Ok(())
}

fn turn(scale: &Scale, kind: Kind, parts: &[(&str, Part)], seen: &mut Seen) -> anyhow::Result<()> {
    let place = Place::new(scale, kind)?;
    for (name, part) in parts {
        if kind.keeps() || *name != "programs" {
            part(scale, &place.directory, seen).with_context(|| format!("{name}: {}", kind.is()))?;
        }
    }
    place.unmount()
}
