//! Tests of the simulator on a subject that is simple enough to be right, and on variants of it with one fault.
//!
//! The subject keeps its tree in memory and appends each change to its device as a record with a checksum. Opening it
//! replays all records before the first incomplete one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use base::time::Time;
use block::{Device, Durability};
use model::memory::MemorySubject;
use model::{
    Answer, Failure, Name, NewFile, ObservedTree, Operation, OperationMix, RenameMode, SetAttr, Stat,
    Subject, Tolerance,
};

use crate::*;

/// The fault of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A sync does not flush the device.
    SyncDoesNothing,
    /// Replay skips incomplete records instead of stopping.
    GapsAreSkipped,
    /// Recovery also overwrites the last complete record.
    RecoveryForgets,
}

struct Appender {
    fault: Fault,
}

struct OpenVolume {
    tree: MemorySubject,
    device: Arc<dyn Device>,
    fault: Fault,
}

const SIZE: u64 = 1 << 20;
const RECORD: u64 = 64;
const WIDTH: usize = 2048;

/// Encodes a record: length, checksum, text.
fn encode(operation: &Operation, now: Time, number: u64) -> Vec<u8> {
    let text = format!("{} {} {number} {operation}", now.seconds, now.nanos);
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(checksum(text.as_bytes()).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(RECORD as usize), 0);
    bytes
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn decode(device: &dyn Device, at: u64) -> Option<(u64, Operation, Time, u64)> {
    let mut head = [0; 16];
    device.read_at(at, &mut head).ok()?;
    let length = u64::from_le_bytes(head[..8].try_into().ok()?);
    let mut text = vec![0; usize::try_from(length).ok().filter(|length| (1..WIDTH).contains(length))?];
    device.read_at(at + 16, &mut text).ok()?;
    if checksum(&text).to_le_bytes() != head[8..] {
        return None;
    }
    let text = String::from_utf8(text).ok()?;
    let mut words = text.splitn(4, ' ');
    let now = Time { seconds: words.next()?.parse().ok()?, nanos: words.next()?.parse().ok()? };
    let number = words.next()?.parse().ok()?;
    Some(((16 + length).next_multiple_of(RECORD), words.next()?.parse().ok()?, now, number))
}

/// Replays the records. Returns the tree and the end of the last record.
fn replay(device: &dyn Device, fault: Fault) -> (MemorySubject, u64) {
    let (tree, mut at) = (MemorySubject::new(), 0);
    loop {
        if let Some((length, operation, now, number)) = decode(device, at) {
            // Refused only if a gap was skipped.
            let _ = tree.replay(&operation, now, number);
            at += length;
        } else if fault == Fault::GapsAreSkipped && at < SIZE - WIDTH as u64 {
            at += RECORD;
        } else {
            return (tree, at);
        }
    }
}

impl Target for Appender {
    type Volume = OpenVolume;

    fn format(&self) -> Result<Image, String> {
        Ok(Image::new(SIZE))
    }

    fn open(&self, device: Arc<dyn Device>) -> Result<OpenVolume, String> {
        let (tree, mut end) = replay(&*device, self.fault);
        if self.fault == Fault::GapsAreSkipped {
            end = (0..SIZE / RECORD)
                .rfind(|n| decode(&*device, n * RECORD).is_some())
                .map_or(0, |n| n * RECORD);
            end += decode(&*device, end).map_or(0, |(length, ..)| length);
        } else {
            // Stale records after the end must not be replayed when new records reach them.
            let zeros = vec![0; (SIZE - end).min(1 << 16) as usize];
            let zeros_at =
                if self.fault == Fault::RecoveryForgets { end.saturating_sub(RECORD) } else { end };
            device.write_at(zeros_at, &zeros, Durability::Buffered).map_err(|error| error.to_string())?;
            device.flush().map_err(|error| error.to_string())?;
        }
        let end = AtomicU64::new(end);
        let weak: Weak<dyn Device> = Arc::downgrade(&device);
        let tree = tree.with_hook(Box::new(move |operation, now, number| {
            let failure = |message: &str| Failure { errno: 5, message: message.into() };
            let record = encode(operation, now, number);
            let at = end.fetch_add(record.len() as u64, SeqCst);
            let device = weak.upgrade().ok_or_else(|| failure("closed"))?;
            device.write_at(at, &record, Durability::Buffered).map_err(|error| failure(&error.to_string()))
        }));
        Ok(OpenVolume { tree, device, fault: self.fault })
    }

    fn unmount(&self, volume: OpenVolume) -> Result<(), String> {
        volume.device.flush().map_err(|error| error.to_string())
    }

    fn judge(
        &self,
        device: Arc<dyn Device>,
        homes: &[u64],
        times: bool,
    ) -> Result<Vec<ObservedTree>, String> {
        let (tree, _) = replay(&*device, self.fault);
        homes.iter().map(|home| ObservedTree::of_subject(&tree, *home, times)).collect()
    }
}

impl Subject for OpenVolume {
    fn root(&self) -> u64 {
        self.tree.root()
    }
    fn lookup(&self, dir: u64, name: &[u8]) -> Answer<u64> {
        self.tree.lookup(dir, name)
    }
    fn create(&self, dir: u64, name: &[u8], new: &NewFile) -> Answer<u64> {
        self.tree.create(dir, name, new)
    }
    fn link(&self, number: u64, dir: u64, name: &[u8]) -> Answer<()> {
        self.tree.link(number, dir, name)
    }
    fn unlink(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.tree.unlink(dir, name)
    }
    fn rmdir(&self, dir: u64, name: &[u8]) -> Answer<()> {
        self.tree.rmdir(dir, name)
    }
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Answer<()> {
        self.tree.rename(from, to, mode)
    }
    fn anonymous(&self, dir: u64, new: &NewFile) -> Answer<u64> {
        self.tree.anonymous(dir, new)
    }
    fn open(&self, number: u64) -> Answer<()> {
        self.tree.open(number)
    }
    fn close(&self, number: u64) -> Answer<()> {
        self.tree.close(number)
    }
    fn stat(&self, number: u64) -> Answer<Stat> {
        self.tree.stat(number)
    }
    fn list(&self, dir: u64) -> Answer<std::collections::BTreeMap<Name, u64>> {
        self.tree.list(dir)
    }
    fn set(&self, number: u64, change: &SetAttr) -> Answer<()> {
        self.tree.set(number, change)
    }
    fn sync(&self) -> Answer<()> {
        if self.fault == Fault::SyncDoesNothing {
            return Ok(());
        }
        self.device.flush().map_err(|error| Failure { errno: 5, message: error.to_string() })
    }
}

fn workload(seed: u64, threads: usize) -> Workload {
    let mix = OperationMix { sync_in: 10, ..OperationMix::MIXED };
    let tolerance = Tolerance::default();
    Workload { seed, threads, operations: 60, mix, times: true, unmount: seed.is_multiple_of(2), tolerance }
}

fn options(seed: u64) -> JudgeOptions {
    JudgeOptions { seed, random: 3, tears: 1, states: 0, engine_in: 5, nested_in: 10, nested: 5, workers: 2 }
}

fn campaign(fault: Fault, threads: usize) -> (Counts, Option<Box<FailedState>>) {
    let target = Appender { fault };
    let mut counts = Counts::default();
    for seed in 0..4 {
        let run = run(&target, &workload(seed, threads)).unwrap();
        match judge_run(&target, &run, &options(seed)) {
            Ok(more) => counts += more,
            Err(failed) => return (counts, Some(failed)),
        }
    }
    (counts, None)
}

#[test]
fn correct_subject_passes_in_every_state() {
    for threads in [1, 3] {
        let (counts, failed) = campaign(Fault::None, threads);
        assert_eq!(failed.map(|failed| failed.why), None);
        assert!(counts.states > 500 && counts.nested > 20 && counts.more_than_synced > 20, "{counts:?}");
        assert!(counts.less_than_done > 100 && counts.syncs > 8, "{counts:?}");
    }
}

#[test]
fn every_fault_is_found() {
    let why = |fault, threads| campaign(fault, threads).1.map(|failed| failed.why).unwrap_or_default();
    for threads in [1, 2] {
        let lost = why(Fault::SyncDoesNothing, threads);
        assert!(lost.contains("must have survived"), "{lost}");
        let gap = why(Fault::GapsAreSkipped, threads);
        assert!(gap.contains("no prefix") || gap.contains("survived, but thread"), "{gap}");
        let forgets = why(Fault::RecoveryForgets, threads);
        assert!(!forgets.is_empty());
    }
}

#[test]
fn kept_state_gets_the_same_verdict() {
    let target = Appender { fault: Fault::SyncDoesNothing };
    let run = run(&target, &workload(1, 2)).unwrap();
    let failed = judge_run(&target, &run, &options(1)).map(|_| ()).unwrap_err();
    let folder = std::env::temp_dir().join(format!("crashsim-kept-{}", std::process::id()));
    keep::save(&folder, &run, &failed).unwrap();
    let (image, again) = keep::load(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(*again.histories, *run.histories);
    let verdict = judge(&target, &again, &image, &again.required(0), Depth::default());
    assert_eq!(verdict.unwrap_err(), failed.why);
}
