//! Keeps a failed state in a folder: the contents of the device, the history, and what is wrong. As the timing of
//! threads does not depend on the seed, only a kept state can be judged again exactly.
//!
//! | file | holds |
//! |---|---|
//! | `state.img` | the contents of the device |
//! | `history` | for each thread a line `home ...`, then one line per operation |
//! | `why` | what is wrong |

use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use base::time::Time;
use block::MemoryDevice;
use devices::Recording;
use model::{FileKind, History, HistoryEntry, Stat, Times, Tree};

use crate::campaign::FailedState;
use crate::image::Image;
use crate::workload::{RecordedRun, SyncPoint};

/// Writes a failed state to a folder.
///
/// # Errors
/// The file that cannot be read or written.
pub fn save(folder: &Path, run: &RecordedRun, failed: &FailedState) -> Result<(), String> {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write("state.img", &failed.image.to_bytes())?;
    write("why", format!("{:?}\n{}\n", failed.state, failed.why).as_bytes())?;
    let mut text = String::new();
    for (history, required) in run.histories.iter().zip(&failed.required) {
        home_line(&mut text, history, *required);
        for entry in &history.entries {
            let HistoryEntry { operation, now, number, succeeded, began, ended, .. } = entry;
            let succeeded = if *succeeded { "done" } else { "refused" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{succeeded} {number} {} {} {began} {ended} {operation}",
                now.seconds, now.nanos
            );
        }
    }
    write("history", text.as_bytes())
}

fn home_line(text: &mut String, history: &History, required: usize) {
    let Stat { mode, uid, gid, links, times, .. } = &history.stat;
    let _ = write!(text, "home {} {mode} {uid} {gid} {links} {required}", history.number);
    for time in times.iter().flat_map(|t| [t.accessed, t.modified, t.changed, t.born]) {
        let _ = write!(text, " {} {}", time.seconds, time.nanos);
    }
    text.push('\n');
}

/// Reads a kept state: the contents of the device, and a run with only the parts needed to judge it.
///
/// # Errors
/// The file that cannot be read or written.
pub fn load(folder: &Path) -> Result<(Image, RecordedRun), String> {
    let path = |name: &str| folder.join(name);
    let read_error = |name: &str, error: std::io::Error| format!("{}: {error}", path(name).display());
    let bytes = std::fs::read(path("state.img")).map_err(|error| read_error("state.img", error))?;
    let text = std::fs::read_to_string(path("history")).map_err(|error| read_error("history", error))?;
    let device = MemoryDevice::from_bytes(&bytes);
    let image = Image::of_device(&device).map_err(|error| error.to_string())?;
    let (mut threads, mut required): (Vec<(History, Tree)>, Vec<usize>) = Default::default();
    for (number, line) in (1..).zip(text.lines()) {
        let failed = |what: String| format!("{}, line {number}: {what}", path("history").display());
        if let Some(rest) = line.strip_prefix("home ") {
            let (history, length) = read_home(rest).map_err(failed)?;
            let tree = Tree::new(history.stat.clone(), history.number);
            threads.push((History { first: tree.fingerprint(), ..history }, tree));
            required.push(length);
            continue;
        }
        let (history, tree) =
            threads.last_mut().ok_or_else(|| failed("an operation before any home directory".into()))?;
        let mut entry = read_entry(line).map_err(failed)?;
        if entry.succeeded {
            let succeeded = tree.perform(&entry.operation, entry.now, entry.number);
            succeeded.map_err(|refusal| failed(format!("the model refuses it: {refusal:?}")))?;
        }
        entry.fingerprint = tree.fingerprint();
        history.entries.push(entry);
    }
    let histories: Vec<History> = threads.into_iter().map(|(history, _)| history).collect();
    let times = histories.iter().any(|history| history.stat.times.is_some());
    let run = RecordedRun {
        before: image.clone(),
        recording: Recording::default(),
        histories: Arc::new(histories),
        sync_points: vec![SyncPoint { moment: 0, lengths: required }],
        exact: false,
        times,
    };
    Ok((image, run))
}

fn number<T: FromStr>(words: &mut std::str::SplitWhitespace<'_>) -> Result<T, String> {
    words.next().and_then(|word| word.parse().ok()).ok_or_else(|| "a number is missing".into())
}

fn read_home(rest: &str) -> Result<(History, usize), String> {
    let mut words = rest.split_whitespace();
    let home = number(&mut words)?;
    let mut stat = Stat {
        kind: FileKind::Directory,
        mode: number(&mut words)?,
        uid: number(&mut words)?,
        gid: number(&mut words)?,
        links: number(&mut words)?,
        times: None,
    };
    let required = number(&mut words)?;
    if words.clone().next().is_some() {
        let mut time = || Ok::<_, String>(Time { seconds: number(&mut words)?, nanos: number(&mut words)? });
        stat.times = Some(Times { accessed: time()?, modified: time()?, changed: time()?, born: time()? });
    }
    Ok((History { stat, number: home, first: 0, entries: Vec::new() }, required))
}

fn read_entry(line: &str) -> Result<HistoryEntry, String> {
    let mut words = line.splitn(7, ' ');
    let mut next = || words.next().ok_or_else(|| "a line has too few words".to_owned());
    let succeeded = next()? == "done";
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("`{word}` is not a number"));
    let made = number(next()?)?;
    let now = Time { seconds: number(next()?)? as i64, nanos: number(next()?)? as u32 };
    let (began, ended) = (number(next()?)?, number(next()?)?);
    let operation = next()?.parse()?;
    Ok(HistoryEntry { operation, now, number: made, succeeded, fingerprint: 0, began, ended })
}
