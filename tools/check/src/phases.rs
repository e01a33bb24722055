//! The phases of a check, one after the other.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use base::AgNumber;
use block::Device;

use crate::ag::{AgCheck, AgTrees};
use crate::counters;
use crate::directory::DirectoryWorker;
use crate::finding::{Findings, Observer};
use crate::inode_map::InodeMap;
use crate::inode_pass::{self, InodeWorker};
use crate::links;
use crate::log_head;
use crate::options::{CheckError, Options, Phase, Summary};
use crate::ownership::store::{ClaimBuffer, ClaimStore, Claims};
use crate::ownership::sweep;
use crate::superblock;
use crate::unlinked;
use crate::volume::Volume;
use crate::work::Crew;

/// Checks a volume, and tells `observer` of every finding.
///
/// # Errors
/// Where there is nothing that can be checked: see [`CheckError`]. Damage is never an error: it is a finding.
pub fn check(
    device: &dyn Device,
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Summary, CheckError> {
    let mut run = Run {
        crew: Crew { threads: options.threads, observer },
        summary: Summary::default(),
        began: Instant::now(),
    };
    let volume = open(device, options)?;
    run.crew.run(
        Phase::Volume,
        volume.geometry.ag_count() as usize,
        || (),
        |(), ag| {
            if ag > 0 {
                superblock::check_copy(&volume, AgNumber(ag as u32));
            }
        },
    );
    run.end(Phase::Volume, &volume)?;

    let store = ClaimStore::new(options.memory_budget);
    let ags = run.check_ags(&volume, &store);
    run.end(Phase::Ags, &volume)?;

    let map = InodeMap::new(&volume.geometry, ags.iter().map(|ag| &ag.inodes).collect());
    run.check_inodes(&volume, &map, &store);
    run.end(Phase::Inodes, &volume)?;

    for (ag, trees) in volume.geometry.ags().zip(&ags) {
        unlinked::check_ag(&volume, ag, trees);
    }
    run.check_names(&volume, &map)?;
    let claims = store.seal().map_err(CheckError::TemporaryFile)?;
    run.summary.spilled_bytes = claims.spilled_bytes();
    run.sweep(&volume, &ags, &claims)?;
    run.end(Phase::Space, &volume)?;
    drop(claims);

    counters::check(&volume, &ags);
    run.check_links(&volume, &ags);
    run.end(Phase::Links, &volume)?;
    run.summary.ags = volume.geometry.ag_count().into();
    Ok(run.summary)
}

fn open<'a>(device: &'a dyn Device, options: &Options<'_>) -> Result<Volume<'a>, CheckError> {
    let findings = Findings::new(options.findings_per_kind);
    let superblock::Chosen { raw, geometry } = superblock::choose(device, &findings)?;
    let mut volume = Volume {
        device,
        geometry,
        raw,
        head: None,
        findings,
        replayed: options.replayed,
        owners_missing: AtomicBool::new(false),
        names_missing: AtomicBool::new(false),
    };
    match log_head::find(device, options.external_log, &volume.geometry, &volume.raw) {
        Ok(head) => volume.head = head,
        Err((place, error)) => {
            volume.error(place, format::Damage::new("log", "contents", "readable bytes", error));
        }
    }
    volume.check_lsn(format::Place::ag(AgNumber(0)), "superblock", volume.raw.lsn.get());
    Ok(volume)
}

/// A check under way.
struct Run<'a> {
    crew: Crew<'a>,
    summary: Summary,
    began: Instant,
}

impl Run<'_> {
    /// Hands over the findings of a phase that is done.
    fn end(&mut self, phase: Phase, volume: &Volume<'_>) -> Result<(), CheckError> {
        if self.crew.observer.is_cancelled() {
            return Err(CheckError::Cancelled);
        }
        volume.findings.hand_over(self.crew.observer, &mut self.summary.findings);
        let now = Instant::now();
        self.summary.phases.push((phase, now - self.began));
        self.began = now;
        Ok(())
    }

    fn check_ags(&self, volume: &Volume<'_>, store: &ClaimStore) -> Vec<AgTrees> {
        let count = volume.geometry.ag_count() as usize;
        let done: Mutex<Vec<(usize, AgTrees)>> = Mutex::new(Vec::with_capacity(count));
        let buffers = self.crew.run(Phase::Ags, count, ClaimBuffer::default, |buffer, ag| {
            let trees = AgCheck::new(volume, AgNumber(ag as u32), store, buffer).run();
            done.lock().unwrap_or_else(PoisonError::into_inner).push((ag, trees));
        });
        buffers.into_iter().for_each(|buffer| store.finish(buffer));
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|(ag, _)| *ag);
        done.into_iter().map(|(_, trees)| trees).collect()
    }

    fn check_inodes(&mut self, volume: &Volume<'_>, map: &InodeMap<'_>, store: &ClaimStore) {
        let units = inode_pass::units(map, volume);
        let workers = self.crew.run(
            Phase::Inodes,
            units.len(),
            || InodeWorker::new(volume, map, store),
            |worker, unit| {
                if let Some(unit) = units.get(unit) {
                    worker.run(*unit);
                }
            },
        );
        for worker in workers {
            self.summary.inodes += worker.tally.inodes;
            self.summary.directories += worker.tally.directories;
            self.summary.extents += worker.tally.extents;
            store.finish(worker.buffer);
        }
    }

    fn check_names(&mut self, volume: &Volume<'_>, map: &InodeMap<'_>) -> Result<(), CheckError> {
        links::count_superblock(volume, map);
        let units = inode_pass::units(map, volume);
        let workers = self.crew.run(
            Phase::Names,
            units.len(),
            || DirectoryWorker::new(volume, map),
            |worker, unit| {
                if let Some(unit) = units.get(unit) {
                    worker.run(*unit);
                }
            },
        );
        let (mut dot_dots, mut links) = (Vec::new(), Vec::new());
        for worker in workers {
            self.summary.entries += worker.names.entries;
            dot_dots.extend(worker.names.dot_dots);
            links.extend(worker.names.links);
        }
        links::check_parents(volume, dot_dots, links);
        self.end(Phase::Names, volume)
    }

    fn check_links(&self, volume: &Volume<'_>, ags: &[AgTrees]) {
        self.crew.run(
            Phase::Links,
            ags.len(),
            || (),
            |(), n| {
                if let Some(trees) = ags.get(n) {
                    let ag = AgNumber(n as u32);
                    links::check_ag(volume, ag, &trees.inodes);
                }
            },
        );
    }

    fn sweep(&self, volume: &Volume<'_>, ags: &[AgTrees], claims: &Claims) -> Result<(), CheckError> {
        let failed = Mutex::new(None);
        self.crew.run(
            Phase::Space,
            ags.len(),
            || (),
            |(), ag| {
                let Some(trees) = ags.get(ag) else { return };
                if let Err(error) = sweep::check_ag(volume, AgNumber(ag as u32), trees, claims) {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            },
        );
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(()), |error| Err(CheckError::TemporaryFile(error)))
    }
}
