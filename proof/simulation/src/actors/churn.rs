//! A directory that grows large and vanishes, and a file that takes its blocks: metadata becomes data and metadata
//! again, while writes of both are on their way.

use std::sync::Arc;
use std::time::Duration;

use base::{Ino, thread};
use crashsim::stamped::{SECTOR, sectors};
use model::Rng;
use volume::{NewFile, SetAttribute};

use super::{KnownFile, Stage, Went, rest};

/// Sectors of the file at most.
const LONGEST: u64 = 8 << 11;

/// Works below a directory.
///
/// # Errors
/// In words.
pub fn work(
    stage: &Arc<Stage>,
    home: Ino,
    file: &KnownFile,
    mut rng: Rng,
    steps: usize,
) -> Result<(), String> {
    let mut left = steps;
    while left > 0 && !stage.is_over() {
        let most = [30, 150][rng.index(2)];
        let links = 10 + rng.index(most);
        // A link is a small step.
        left = left.saturating_sub(links / 4);
        let mut writer = None;
        let goes_on = grow_and_remove(stage, home, (links, &mut writer), &mut rng)?
            && ((writer.is_none() && rng.one_in(2)) || stage.must("sync", stage.volume().sync())?)
            && take_blocks(stage, file, &mut rng)?;
        if let Some(writer) = writer {
            writer.join().map_err(|_| "metadata writeback panicked")??;
        }
        if !goes_on {
            return Ok(());
        }
        rest(&mut rng);
    }
    // What is in flight lands.
    thread::sleep(Duration::from_secs(10));
    compare(stage, file)
}

/// Metadata writeback, in a thread of its own.
type Writer = thread::JoinHandle<Result<bool, String>>;

/// A directory of hard links with long names, made and removed; `false` where the device failed. Its writes may be on
/// their way then, by `writer`.
fn grow_and_remove(
    stage: &Arc<Stage>,
    home: Ino,
    (links, writer): (usize, &mut Option<Writer>),
    rng: &mut Rng,
) -> Result<bool, String> {
    let volume = stage.volume();
    let (went, dir) = stage.judge("mkdir", volume.create(home, b"large", &NewFile::directory()))?;
    let Some(dir) = dir else { return Ok(went != Went::Failed) };
    let (_, target) = stage.judge("create", volume.create(dir, b"target", &NewFile::regular()))?;
    let mut names = vec![b"target".to_vec()];
    if target.is_none() {
        names.clear();
    }
    if let Some(target) = target {
        let value = vec![7; rng.index(3000)];
        stage.judge("setxattr", volume.set_attribute(target, b"user.churn", &value, SetAttribute::Any))?;
        for n in 0..links {
            let name = format!("{n:0200}").into_bytes();
            match stage.judge("link", volume.link(target, dir, &name))?.0 {
                Went::Well => names.push(name),
                Went::Refused => break,
                Went::Failed => return Ok(false),
            }
        }
    }
    if rng.one_in(2) && !stage.must("sync", volume.sync())? {
        return Ok(false);
    }
    // Writes of the directory are on their way while it goes: an idle log is written back, or somebody asks for it.
    match rng.below(4) {
        0 => thread::sleep(Duration::from_secs(25 + rng.below(15))),
        1 | 2 => {
            let stage = Arc::clone(stage);
            let write = move || stage.must("metadata writeback", stage.volume().write_back_all());
            *writer =
                Some(thread::spawn("metadata writer", write).map_err(|error| format!("a thread: {error}"))?);
            let longest = [1_000, 100_000, 1_000_000][rng.index(3)];
            thread::sleep(Duration::from_micros(rng.below(longest)));
        }
        _ => {}
    }
    for name in names {
        if !stage.must("unlink", volume.unlink(dir, &name))? {
            return Ok(false);
        }
    }
    stage.must("rmdir", volume.rmdir(home, b"large"))
}

/// Cuts the file of the last turn off, fills what is free with it again, and makes it stable; `false` where the device
/// failed: then it is not known what the file holds. It is compared before it goes: a late write had time to land.
fn take_blocks(stage: &Stage, file: &KnownFile, rng: &mut Rng) -> Result<bool, String> {
    compare(stage, file)?;
    let words = |error: volume::Error| format!("opening a file: {error}");
    let open = stage.volume().open_file(file.ino).map_err(words)?;
    {
        let mut known = file.known();
        let size = known.size.last();
        (0..size).for_each(|at| known.set(at, 0));
        known.size.set(0);
    }
    if !stage.must("truncate", open.set_len(0))? {
        return Ok(false);
    }
    let (mut at, end) = (0, [200, LONGEST / 8, LONGEST][rng.index(3)]);
    while at < end {
        let values: Vec<u64> = stage.fresh(128).collect();
        {
            let mut known = file.known();
            (at..).zip(&values).for_each(|(at, value)| known.set(at, *value));
            known.grow(at + 128);
        }
        let wrote = open.write_at(&sectors(values.iter().copied()), at * SECTOR);
        let wrote = match stage.judge("write", wrote)? {
            (_, Some(wrote)) => wrote as u64 / SECTOR,
            (Went::Failed, None) => return Ok(false),
            (_, None) => 0,
        };
        if wrote < 128 {
            // The rest was never there.
            let mut known = file.known();
            (at + wrote..at + 128).for_each(|at| known.set(at, 0));
            let size = open.len() / SECTOR;
            known.size.set(size);
            break;
        }
        at += 128;
    }
    if stage.must("fsync", open.sync_all())? {
        file.known().sync();
    }
    compare(stage, file)?;
    Ok(true)
}

/// Reads past the cache, as what is on the device counts.
fn compare(stage: &Stage, file: &KnownFile) -> Result<(), String> {
    let words = |error: volume::Error| format!("opening a file: {error}");
    let open = volume::OpenOptions::new()
        .read(true)
        .direct(true)
        .open_ino(stage.volume(), file.ino)
        .map_err(words)?;
    let mut bytes = vec![0; open.len().next_multiple_of(65536) as usize];
    let (_, read) = stage.judge("direct read", open.read_at(&mut bytes, 0))?;
    let Some(read) = read else { return Ok(()) };
    let known = file.known();
    for (at, sector) in (0u64..).zip(bytes[..read].chunks_exact(SECTOR as usize)) {
        let mut number = [0; 8];
        number.copy_from_slice(&sector[..8]);
        let found = u64::from_le_bytes(number);
        if found != known.get(at) && !stage.fails {
            return Err(format!(
                "sector {at} holds {found} on the device, and should hold {}",
                known.get(at)
            ));
        }
    }
    Ok(())
}
