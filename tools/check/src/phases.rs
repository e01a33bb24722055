//! The phases of a check, one after the other.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use base::AgNumber;
use block::Device;

use crate::ag::{AgCheck, AgSummary};
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
use crate::slot_file::SlotFile;
use crate::superblock::{self, UsableSuperblock};
use crate::unlinked;
use crate::volume::Volume;
use crate::workers::Workers;

/// The part of the memory budget, as a divisor, of what the inode map keeps in a file.
const SLOTS_PART: usize = 8;

/// Checks a volume and passes every finding to `observer`.
///
/// # Errors
/// The volume could not be checked at all: see [`CheckError`]. Damage is not an error, but a finding.
pub fn check(
    device: &dyn Device,
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Summary, CheckError> {
    let mut checker = Checker {
        workers: Workers { threads: options.threads, observer },
        summary: Summary::default(),
        phase_start: Instant::now(),
    };
    let slots = options.memory_budget / SLOTS_PART;
    let volume = open(device, options, slots)?;
    let copies: Vec<AgNumber> = volume.geometry.ags().skip(1).collect();
    checker.workers.run(Phase::Superblocks, &copies, || (), |(), ag| superblock::check_copy(&volume, *ag));
    checker.finish_phase(Phase::Superblocks, &volume)?;

    let store = ClaimStore::new(options.memory_budget - slots);
    let ags = checker.check_ags(&volume, &store);
    checker.finish_phase(Phase::Ags, &volume)?;

    let map = InodeMap::new(&volume.geometry, ags.iter().map(|ag| &ag.inodes).collect());
    checker.check_inodes(&volume, &map, &store);
    checker.finish_phase(Phase::Inodes, &volume)?;

    ags.iter().for_each(|ag| unlinked::check_ag(&volume, ag, observer));
    checker.check_directories(&volume, &map);
    checker.finish_phase(Phase::Directories, &volume)?;

    let claims = store.finish().map_err(CheckError::TemporaryFile)?;
    checker.summary.spilled_bytes = claims.spilled_bytes();
    checker.check_space(&volume, &ags, &claims)?;
    checker.finish_phase(Phase::Space, &volume)?;
    drop(claims);

    counters::check(&volume, &ags);
    checker.workers.run(Phase::Links, &ags, || (), |(), ag| links::check_ag(&volume, ag));
    checker.finish_phase(Phase::Links, &volume)?;
    checker.summary.spilled_bytes += volume.slots.written_bytes();
    checker.summary.ags = volume.geometry.ag_count().into();
    Ok(checker.summary)
}

/// Finds the superblock. So many bytes are for what the inode map keeps in a file.
fn open<'a>(device: &'a dyn Device, options: &Options<'_>, slots: usize) -> Result<Volume<'a>, CheckError> {
    let findings = Findings::new(options.findings_per_kind);
    let UsableSuperblock { raw, geometry } = superblock::find(device, &findings)?;
    let mut volume = Volume {
        device,
        geometry,
        raw,
        log_head: None,
        findings,
        replayed: options.replayed,
        owners_missing: AtomicBool::new(false),
        names_missing: AtomicBool::new(false),
        slots: Arc::new(SlotFile::new(slots)),
    };
    match log_head::find(device, options.external_log, &volume.geometry, &volume.raw) {
        Ok(head) => volume.log_head = head,
        Err((place, error)) => {
            volume.error(place, format::Damage::new("log", "contents", "readable bytes", error));
        }
    }
    volume.check_lsn(format::Place::ag(AgNumber(0)), "superblock", volume.raw.lsn.get());
    Ok(volume)
}

/// A check in progress.
struct Checker<'a> {
    workers: Workers<'a>,
    summary: Summary,
    phase_start: Instant,
}

impl Checker<'_> {
    /// Reports the findings and records the duration of a phase.
    fn finish_phase(&mut self, phase: Phase, volume: &Volume<'_>) -> Result<(), CheckError> {
        if self.workers.observer.is_cancelled() {
            return Err(CheckError::Cancelled);
        }
        if let Some(error) = volume.slots.take_error() {
            return Err(CheckError::TemporaryFile(error));
        }
        volume.findings.report(self.workers.observer, &mut self.summary.findings);
        let now = Instant::now();
        self.summary.phases.push((phase, now - self.phase_start));
        self.phase_start = now;
        Ok(())
    }

    fn check_ags(&self, volume: &Volume<'_>, store: &ClaimStore) -> Vec<AgSummary> {
        let numbers: Vec<AgNumber> = volume.geometry.ags().collect();
        let new_worker = || (ClaimBuffer::default(), Vec::new());
        let workers = self.workers.run(Phase::Ags, &numbers, new_worker, |(buffer, ags), ag| {
            ags.push(AgCheck::new(volume, *ag, store, buffer).run());
        });
        let mut all = Vec::with_capacity(numbers.len());
        for (buffer, ags) in workers {
            store.add_buffer(buffer);
            all.extend(ags);
        }
        all.sort_unstable_by_key(|ag| ag.number);
        all
    }

    fn check_inodes(&mut self, volume: &Volume<'_>, map: &InodeMap<'_>, store: &ClaimStore) {
        let ranges = inode_pass::chunk_ranges(map, volume);
        let new_worker = || InodeWorker::new(volume, map, store);
        let workers =
            self.workers.run(Phase::Inodes, &ranges, new_worker, |worker, range| worker.run(*range));
        for worker in workers {
            self.summary.inodes += worker.counts.inodes;
            self.summary.directories += worker.counts.directories;
            self.summary.extents += worker.counts.extents;
            store.add_buffer(worker.buffer);
        }
    }

    fn check_directories(&mut self, volume: &Volume<'_>, map: &InodeMap<'_>) {
        links::count_superblock(volume, map);
        let ranges = inode_pass::chunk_ranges(map, volume);
        let new_worker = || DirectoryWorker::new(volume, map);
        let workers =
            self.workers.run(Phase::Directories, &ranges, new_worker, |worker, range| worker.run(*range));
        let (mut dot_dots, mut links) = (Vec::new(), Vec::new());
        for worker in workers {
            self.summary.entries += worker.entries.count;
            dot_dots.extend(worker.entries.dot_dots);
            links.extend(worker.entries.links);
        }
        links::check_parents(volume, dot_dots, links);
    }

    fn check_space(&self, volume: &Volume<'_>, ags: &[AgSummary], claims: &Claims) -> Result<(), CheckError> {
        let failed = Mutex::new(None);
        self.workers.run(
            Phase::Space,
            ags,
            || (),
            |(), ag| {
                if let Err(error) = sweep::check_ag(volume, ag, claims) {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            },
        );
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(()), |error| Err(CheckError::TemporaryFile(error)))
    }
}
