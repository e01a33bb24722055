//! The judgement of one crash state: it recovers, its volume is sound, and its trees are prefixes of what was done.

use std::collections::HashSet;
use std::sync::Arc;

use block::{Device, RecordDevice, Recording};
use model::Seen;

use crate::image::{Image, ImageDevice};
use crate::state::{Builder, states};
use crate::target::Target;
use crate::workload::{Mark, Run};

/// How thoroughly states are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Look at the tree through the engine itself, too, before it is unmounted, and open it as for long work.
    pub through_engine: bool,
    /// Cut the recovery at so many of its own states.
    pub nested: usize,
}

/// What a judged state turned out to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// For each thread, how many of its steps survived.
    pub lengths: Vec<usize>,
    /// Crash states within its recovery that were judged as well.
    pub nested: usize,
}

/// Judges the state `image` of a run, in which `least` steps of each thread must have survived.
///
/// # Errors
/// What is wrong, in words.
pub fn judge<T: Target>(
    target: &T,
    run: &Run,
    image: &Image,
    least: &[usize],
    depth: Depth,
) -> Result<Verdict, String> {
    let recorder = Arc::new(RecordDevice::new(ImageDevice::new(image.clone())));
    let device: Arc<dyn Device> =
        if depth.nested > 0 { recorder.clone() } else { Arc::new(ImageDevice::new(image.clone())) };
    let homes = run.homes();
    let volume = match depth.through_engine {
        true => target.open(device.clone()),
        false => target.recover(device.clone()),
    };
    let volume = volume.map_err(|error| format!("recovery: {error}"))?;
    if depth.through_engine {
        for (thread, home) in homes.iter().enumerate() {
            let seen = Seen::of_subject(&volume, *home, run.times);
            let seen = seen.map_err(|what| format!("after recovery, through the engine: {what}"))?;
            prefix(run, thread, &seen, least[thread])
                .map_err(|what| format!("after recovery, through the engine: {what}"))?;
        }
    }
    target.unmount(volume).map_err(|error| format!("unmount after recovery: {error}"))?;
    let trees = target.judge(device, &homes, run.times).map_err(|what| format!("after recovery: {what}"))?;
    let lengths = survived(run, &trees, least)?;
    let nested = match depth.nested {
        0 => 0,
        most => cut_recovery(target, run, image, recorder.take(), &lengths, most)?,
    };
    Ok(Verdict { lengths, nested })
}

/// How many steps of each thread survived a crash, by the trees that whoever recovered the volume shows.
///
/// # Errors
/// A tree that is no prefix of at least so many steps of its thread, or prefixes that do not go together, in words.
pub fn survived(run: &Run, trees: &[Seen], least: &[usize]) -> Result<Vec<usize>, String> {
    let found = trees.iter().zip(least).enumerate();
    let found = found.map(|(thread, (seen, least))| prefix(run, thread, seen, *least));
    let found: Vec<Survived> = found.collect::<Result<_, _>>()?;
    if !run.exactly {
        in_order(run, &found)?;
    }
    Ok(found.iter().map(|survived| survived.most).collect())
}

/// Prefixes of a history that look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Survived {
    /// The shortest.
    fewest: usize,
    /// The longest.
    most: usize,
}

/// The prefixes of a thread's history that are what is seen.
fn prefix(run: &Run, thread: usize, seen: &Seen, least: usize) -> Result<Survived, String> {
    let history = run.histories.get(thread).ok_or("a thread without a history")?;
    let print = seen.fingerprint();
    // A recovery that was cut must come to the same end the second time.
    let fits = |length: &usize| !run.exactly || history.print_after(least) == history.print_after(*length);
    let fewest = history.prefixes(print, least).find(fits);
    let most = history.prefixes(print, least).filter(fits).last();
    if let (Some(fewest), Some(most)) = (fewest, most) {
        return Ok(Survived { fewest, most });
    }
    let all = history.steps.len();
    if history.tree_though_failed(seen).is_some_and(|tree| Seen::of_tree(&tree).fingerprint() == print) {
        return Ok(Survived { fewest: all, most: all });
    }
    let synced_away = history.prefixes(print, 0).next();
    let (nearest, differences) = history.nearest(seen, least);
    let steps = history.steps.len();
    Err(match synced_away {
        Some(length) => format!(
            "thread {thread}: the tree is as after {length} of {steps} steps, but {least} must have survived"
        ),
        None => {
            let next = history.steps.get(nearest).map(|step| step.operation.to_string()).unwrap_or_default();
            format!(
                "thread {thread}: the tree is as after no prefix of its {steps} steps of at least {least}; nearest \
                 is {nearest} (next: {next}):\n{}",
                differences.join("\n")
            )
        }
    })
}

/// What ended before something began that survived, survived as well, across threads.
fn in_order(run: &Run, found: &[Survived]) -> Result<(), String> {
    for (one, survived) in run.histories.iter().zip(found) {
        // The last step without which the tree would not be this one.
        let last = one.steps.get(..survived.fewest).and_then(|steps| steps.iter().rfind(|step| step.done));
        let Some(last) = last else { continue };
        for (other, (history, found)) in run.histories.iter().zip(found).enumerate() {
            let before = history.steps.iter().rposition(|step| step.done && step.ended < last.began);
            if let Some(lost) = before.filter(|at| *at >= found.most) {
                return Err(format!(
                    "`{}` survived, but not what thread {other} had ended before it began: `{}` and all before it",
                    last.operation, history.steps[lost].operation
                ));
            }
        }
    }
    Ok(())
}

/// Cuts the recovery of a state, and judges what a second recovery makes of that: the same tree.
fn cut_recovery<T: Target>(
    target: &T,
    run: &Run,
    image: &Image,
    recording: Recording,
    lengths: &[usize],
    most: usize,
) -> Result<usize, String> {
    let again = Run {
        before: image.clone(),
        recording,
        histories: run.histories.clone(),
        marks: vec![Mark { moment: 0, lengths: lengths.to_vec() }],
        exactly: true,
        times: run.times,
    };
    let all = states(&again.recording, 1, lengths.iter().sum::<usize>() as u64);
    let mut builder = Builder::new(&again.before, &again.recording);
    let step = all.len().div_ceil(most.max(1)).max(1);
    // Without what is already judged: nothing of the recovery had reached the device.
    let mut known = HashSet::from([0]);
    for state in all.iter().step_by(step) {
        let image = builder.build(state);
        if !known.insert(builder.fingerprint()) {
            continue;
        }
        let verdict = judge(target, &again, &image, lengths, Depth::default());
        verdict.map_err(|what| format!("after a recovery that was cut ({state:?} of it): {what}"))?;
    }
    Ok(known.len() - 1)
}
