//! Judges one crash state: it must recover, its volume must be sound, and its trees must match prefixes of the history.

use std::collections::HashSet;
use std::sync::Arc;

use block::Device;
use devices::{RecordDevice, Recording};
use model::ObservedTree;

use crate::image::{Image, ImageDevice};
use crate::state::{StateBuilder, states};
use crate::target::Target;
use crate::workload::{RecordedRun, SyncPoint};

/// How thoroughly states are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Open the volume as for long use, and read the tree through the engine, too.
    pub through_engine: bool,
    /// Number of crash states of the recovery that are judged.
    pub nested: usize,
}

/// Result for a state that is right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Operations that survived, by thread.
    pub lengths: Vec<usize>,
    /// Crash states of its recovery that were judged.
    pub nested: usize,
}

/// Judges the state `image` of a run, in which `required` operations of each thread must have survived.
///
/// # Errors
/// What is wrong.
pub fn judge<T: Target>(
    target: &T,
    run: &RecordedRun,
    image: &Image,
    required: &[usize],
    depth: Depth,
) -> Result<Verdict, String> {
    let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(image.clone()))));
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
            ObservedTree::of_subject(&volume, *home, run.times)
                .and_then(|seen| prefix(run, thread, &seen, required[thread]))
                .map_err(|what| format!("after recovery, through the engine: {what}"))?;
        }
    }
    target.unmount(volume).map_err(|error| format!("unmount after recovery: {error}"))?;
    let trees = target.judge(device, &homes, run.times).map_err(|what| format!("after recovery: {what}"))?;
    let lengths = survived(run, &trees, required)?;
    let nested = match depth.nested {
        0 => 0,
        longest => cut_recovery(target, run, image, recorder.take(), &lengths, longest)?,
    };
    Ok(Verdict { lengths, nested })
}

/// Returns how many operations of each thread survived a crash, from the trees after recovery.
///
/// # Errors
/// A tree that matches no prefix of at least `required` operations of its thread, or prefixes that contradict each
/// other.
pub fn survived(run: &RecordedRun, trees: &[ObservedTree], required: &[usize]) -> Result<Vec<usize>, String> {
    let found = trees.iter().zip(required).enumerate();
    let found = found.map(|(thread, (seen, required))| prefix(run, thread, seen, *required));
    let found: Vec<PrefixRange> = found.collect::<Result<_, _>>()?;
    if !run.exact {
        check_order(run, &found)?;
    }
    Ok(found.iter().map(|survived| survived.longest).collect())
}

/// The prefixes of a history with the same tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PrefixRange {
    /// Length of the shortest.
    shortest: usize,
    /// Length of the longest.
    longest: usize,
}

/// Returns the prefixes of a thread's history that match the observed tree.
fn prefix(
    run: &RecordedRun,
    thread: usize,
    seen: &ObservedTree,
    required: usize,
) -> Result<PrefixRange, String> {
    let history = run.histories.get(thread).ok_or("a thread without a history")?;
    let fingerprint = seen.fingerprint();
    // After a cut recovery, the second one must produce the same tree.
    let fits = |length: &usize| {
        !run.exact || history.fingerprint_after(required) == history.fingerprint_after(*length)
    };
    let shortest = history.prefixes(fingerprint, required).find(fits);
    let longest = history.prefixes(fingerprint, required).filter(fits).last();
    if let (Some(shortest), Some(longest)) = (shortest, longest) {
        return Ok(PrefixRange { shortest, longest });
    }
    let all = history.entries.len();
    if history
        .tree_with_failed_operation(seen)
        .is_some_and(|tree| ObservedTree::of_tree(&tree).fingerprint() == fingerprint)
    {
        return Ok(PrefixRange { shortest: all, longest: all });
    }
    let too_short = history.prefixes(fingerprint, 0).next();
    let (nearest, differences) = history.nearest(seen, required);
    let steps = history.entries.len();
    Err(match too_short {
        Some(length) => format!(
            "thread {thread}: the tree matches the first {length} of {steps} operations, but {required} must have \
             survived"
        ),
        None => {
            let next =
                history.entries.get(nearest).map(|step| step.operation.to_string()).unwrap_or_default();
            format!(
                "thread {thread}: the tree matches no prefix of at least {required} of its {steps} operations; the \
                 nearest has {nearest} (next: {next}):\n{}",
                differences.join("\n")
            )
        }
    })
}

/// Checks across threads that all operations that completed before a surviving one began survived, too.
fn check_order(run: &RecordedRun, found: &[PrefixRange]) -> Result<(), String> {
    for (one, survived) in run.histories.iter().zip(found) {
        // The last operation that the tree needs.
        let last =
            one.entries.get(..survived.shortest).and_then(|steps| steps.iter().rfind(|step| step.succeeded));
        let Some(last) = last else { continue };
        for (other, (history, found)) in run.histories.iter().zip(found).enumerate() {
            let before = history.entries.iter().rposition(|step| step.succeeded && step.ended < last.began);
            if let Some(lost) = before.filter(|at| *at >= found.longest) {
                return Err(format!(
                    "`{}` survived, but thread {other} lost `{}`, which completed before it began",
                    last.operation, history.entries[lost].operation
                ));
            }
        }
    }
    Ok(())
}

/// Simulates power cuts during the recovery of a state: a second recovery must produce the same tree.
fn cut_recovery<T: Target>(
    target: &T,
    run: &RecordedRun,
    image: &Image,
    recording: Recording,
    lengths: &[usize],
    longest: usize,
) -> Result<usize, String> {
    let again = RecordedRun {
        before: image.clone(),
        recording,
        histories: run.histories.clone(),
        sync_points: vec![SyncPoint { moment: 0, lengths: lengths.to_vec() }],
        exact: true,
        times: run.times,
    };
    let all = states(&again.recording, 1, lengths.iter().sum::<usize>() as u64);
    let mut builder = StateBuilder::new(&again.before, &again.recording);
    let step = all.len().div_ceil(longest.max(1)).max(1);
    // The initial state, in which nothing of the recovery reached the device, is already judged.
    let mut known = HashSet::from([0]);
    for state in all.iter().step_by(step) {
        let image = builder.build(state);
        if !known.insert(builder.fingerprint()) {
            continue;
        }
        let verdict = judge(target, &again, &image, lengths, Depth::default());
        verdict.map_err(|what| format!("after a power cut during recovery ({state:?}): {what}"))?;
    }
    Ok(known.len() - 1)
}
