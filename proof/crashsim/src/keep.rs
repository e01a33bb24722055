//! A wrong state kept in a folder: the device as the crash left it, what was done, and why it is wrong. Threads and
//! their timing are not in a seed, so a kept state is what can be judged again exactly.
//!
//! | file | holds |
//! |---|---|
//! | `state.img` | the device |
//! | `history` | for each thread a line `home ...`, then its steps, one a line |
//! | `why` | what was wrong, for a person |

use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use base::time::Time;
use block::{MemoryDevice, Recording};
use model::{Facts, History, Kind, Step, Times, Tree};

use crate::campaign::Wrong;
use crate::image::Image;
use crate::workload::{Mark, Run};

/// Writes a wrong state into a folder.
///
/// # Errors
/// In words.
pub fn save(folder: &Path, run: &Run, wrong: &Wrong) -> Result<(), String> {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write("state.img", &wrong.image.to_bytes())?;
    write("why", format!("{:?}\n{}\n", wrong.state, wrong.why).as_bytes())?;
    let mut text = String::new();
    for (history, least) in run.histories.iter().zip(&wrong.least) {
        home_line(&mut text, history, *least);
        for step in &history.steps {
            let Step { operation, now, number, done, began, ended, .. } = step;
            let done = if *done { "done" } else { "refused" };
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "{done} {number} {} {} {began} {ended} {operation}", now.seconds, now.nanos);
        }
    }
    write("history", text.as_bytes())
}

fn home_line(text: &mut String, history: &History, least: usize) {
    let Facts { mode, uid, gid, links, times, .. } = &history.facts;
    let _ = write!(text, "home {} {mode} {uid} {gid} {links} {least}", history.number);
    for time in times.iter().flat_map(|t| [t.accessed, t.modified, t.changed, t.born]) {
        let _ = write!(text, " {} {}", time.seconds, time.nanos);
    }
    text.push('\n');
}

/// Reads a kept state back: the device, and a run that has only what it takes to judge it.
///
/// # Errors
/// In words.
pub fn load(folder: &Path) -> Result<(Image, Run), String> {
    let path = |name: &str| folder.join(name);
    let read_error = |name: &str, error: std::io::Error| format!("{}: {error}", path(name).display());
    let bytes = std::fs::read(path("state.img")).map_err(|error| read_error("state.img", error))?;
    let text = std::fs::read_to_string(path("history")).map_err(|error| read_error("history", error))?;
    let device = MemoryDevice::from_bytes(&bytes);
    let image = Image::of_device(&device).map_err(|error| error.to_string())?;
    let (mut threads, mut least): (Vec<(History, Tree)>, Vec<usize>) = Default::default();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: String| format!("{}, line {number}: {what}", path("history").display());
        if let Some(rest) = line.strip_prefix("home ") {
            let (history, length) = read_home(rest).map_err(wrong)?;
            let tree = Tree::new(history.facts.clone(), history.number);
            threads.push((History { first: tree.fingerprint(), ..history }, tree));
            least.push(length);
            continue;
        }
        let (history, tree) = threads.last_mut().ok_or_else(|| wrong("a step before any home".into()))?;
        let mut step = read_step(line).map_err(wrong)?;
        if step.done {
            let done = tree.perform(&step.operation, step.now, step.number);
            done.map_err(|refusal| wrong(format!("the model says {refusal:?}")))?;
        }
        step.print = tree.fingerprint();
        history.steps.push(step);
    }
    let histories: Vec<History> = threads.into_iter().map(|(history, _)| history).collect();
    let times = histories.iter().any(|history| history.facts.times.is_some());
    let run = Run {
        before: image.clone(),
        recording: Recording::default(),
        histories: Arc::new(histories),
        marks: vec![Mark { moment: 0, lengths: least }],
        exactly: false,
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
    let mut facts = Facts {
        kind: Kind::Directory,
        mode: number(&mut words)?,
        uid: number(&mut words)?,
        gid: number(&mut words)?,
        links: number(&mut words)?,
        times: None,
    };
    let least = number(&mut words)?;
    if words.clone().next().is_some() {
        let mut time = || Ok::<_, String>(Time { seconds: number(&mut words)?, nanos: number(&mut words)? });
        facts.times = Some(Times { accessed: time()?, modified: time()?, changed: time()?, born: time()? });
    }
    Ok((History { facts, number: home, first: 0, steps: Vec::new() }, least))
}

fn read_step(line: &str) -> Result<Step, String> {
    let mut words = line.splitn(7, ' ');
    let mut next = || words.next().ok_or_else(|| "a step of too few words".to_owned());
    let done = next()? == "done";
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("`{word}` is no number"));
    let made = number(next()?)?;
    let now = Time { seconds: number(next()?)? as i64, nanos: number(next()?)? as u32 };
    let (began, ended) = (number(next()?)?, number(next()?)?);
    let operation = next()?.parse()?;
    Ok(Step { operation, now, number: made, done, print: 0, began, ended })
}
