//! Creates and removes a large directory, and a file that reuses its blocks: metadata becomes data and metadata again,
//! while writes of both are in flight.

use std::sync::Arc;
use std::time::Duration;

use base::thread;
use crashsim::stamped::{SECTOR, sectors};
use model::Rng;
use volume::{FileId, NewFile, SetAttribute};

use super::{CallResult, RoundState, TrackedFile, pause};

/// Maximum size of the file in sectors.
const LONGEST: u64 = 8 << 11;

/// Runs the actor.
///
/// # Errors
/// A description of a wrong result.
pub fn work(
    state: &Arc<RoundState>,
    home: FileId,
    file: &TrackedFile,
    mut rng: Rng,
    steps: usize,
) -> Result<(), String> {
    let mut left = steps;
    while left > 0 && !state.is_over() {
        let max = [30, 150][rng.index(2)];
        let links = 10 + rng.index(max);
        // A link is a small step.
        left = left.saturating_sub(links / 4);
        let mut writer = None;
        let goes_on = grow_and_remove(state, home, (links, &mut writer), &mut rng)?
            && ((writer.is_none() && rng.one_in(2)) || state.require("sync", state.volume().sync())?)
            && take_blocks(state, file, &mut rng)?;
        if let Some(writer) = writer {
            writer.join().map_err(|_| "metadata writeback panicked")??;
        }
        if !goes_on {
            return Ok(());
        }
        pause(&mut rng);
    }
    // Wait for writes in flight.
    thread::sleep(Duration::from_secs(10));
    compare(state, file)
}

/// A thread that runs metadata writeback.
type Writer = thread::JoinHandle<Result<bool, String>>;

/// Creates and removes a directory of hard links with long names; returns `false` if the device failed. `writer` may
/// still write its blocks.
fn grow_and_remove(
    state: &Arc<RoundState>,
    home: FileId,
    (links, writer): (usize, &mut Option<Writer>),
    rng: &mut Rng,
) -> Result<bool, String> {
    let volume = state.volume();
    let (result, dir) = state.classify("mkdir", volume.create(home, b"large", &NewFile::directory()))?;
    let Some(dir) = dir else { return Ok(result != CallResult::Failed) };
    let (_, target) = state.classify("create", volume.create(dir, b"target", &NewFile::regular()))?;
    let mut names = vec![b"target".to_vec()];
    if target.is_none() {
        names.clear();
    }
    if let Some(target) = target {
        let value = vec![7; rng.index(3000)];
        state.classify("setxattr", volume.set_attribute(target, b"user.churn", &value, SetAttribute::Any))?;
        for n in 0..links {
            let name = format!("{n:0200}").into_bytes();
            match state.classify("link", volume.link(target, dir, &name))?.0 {
                CallResult::Done => names.push(name),
                CallResult::Refused => break,
                CallResult::Failed => return Ok(false),
            }
        }
    }
    if rng.one_in(2) && !state.require("sync", volume.sync())? {
        return Ok(false);
    }
    // The directory is removed while its blocks are written back: because the log is idle, or on request.
    match rng.below(4) {
        0 => thread::sleep(Duration::from_secs(25 + rng.below(15))),
        1 | 2 => {
            let state = Arc::clone(state);
            let write = move || state.require("metadata writeback", state.volume().write_back_all());
            *writer =
                Some(thread::spawn("metadata writer", write).map_err(|error| format!("a thread: {error}"))?);
            let longest = [1_000, 100_000, 1_000_000][rng.index(3)];
            thread::sleep(Duration::from_micros(rng.below(longest)));
        }
        _ => {}
    }
    for name in names {
        if !state.require("unlink", volume.unlink(dir, &name))? {
            return Ok(false);
        }
    }
    state.require("rmdir", volume.rmdir(home, b"large"))
}

/// Truncates the file, fills free space with it again, and syncs it; returns `false` if the device failed, and the
/// contents are unknown. The file is compared before: a late write had time to complete.
fn take_blocks(state: &RoundState, file: &TrackedFile, rng: &mut Rng) -> Result<bool, String> {
    compare(state, file)?;
    let describe = |error: volume::Error| format!("opening a file: {error}");
    let open = state.volume().open_file(file.id).map_err(describe)?;
    {
        let mut known = file.known();
        let size = known.size.last();
        (0..size).for_each(|at| known.set(at, 0));
        known.size.set(0);
    }
    if !state.require("truncate", open.set_len(0))? {
        return Ok(false);
    }
    let (mut at, end) = (0, [200, LONGEST / 8, LONGEST][rng.index(3)]);
    while at < end {
        let values: Vec<u64> = state.fresh(128).collect();
        {
            let mut known = file.known();
            (at..).zip(&values).for_each(|(at, value)| known.set(at, *value));
            known.grow(at + 128);
        }
        let wrote = open.write_at(&sectors(values.iter().copied()), at * SECTOR);
        let wrote = match state.classify("write", wrote)? {
            (_, Some(wrote)) => wrote as u64 / SECTOR,
            (CallResult::Failed, None) => return Ok(false),
            (_, None) => 0,
        };
        if wrote < 128 {
            // The rest was not written.
            let mut known = file.known();
            (at + wrote..at + 128).for_each(|at| known.set(at, 0));
            let size = open.len() / SECTOR;
            known.size.set(size);
            break;
        }
        at += 128;
    }
    if state.require("fsync", open.sync_all())? {
        file.known().sync();
    }
    compare(state, file)?;
    Ok(true)
}

/// Compares the file by direct I/O, because the contents of the device matter.
fn compare(state: &RoundState, file: &TrackedFile) -> Result<(), String> {
    let describe = |error: volume::Error| format!("opening a file: {error}");
    let open = volume::OpenOptions::new()
        .read(true)
        .direct(true)
        .open_id(state.volume(), file.id)
        .map_err(describe)?;
    let mut bytes = vec![0; open.len().next_multiple_of(65536) as usize];
    let (_, read) = state.classify("direct read", open.read_at(&mut bytes, 0))?;
    let Some(read) = read else { return Ok(()) };
    let known = file.known();
    for (at, sector) in (0u64..).zip(bytes[..read].chunks_exact(SECTOR as usize)) {
        let mut number = [0; 8];
        number.copy_from_slice(&sector[..8]);
        let found = u64::from_le_bytes(number);
        if found != known.get(at) && !state.fails {
            return Err(format!("sector {at} has {found} on the device, expected {}", known.get(at)));
        }
    }
    Ok(())
}
