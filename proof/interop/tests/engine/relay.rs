//! Xebec and the kernel change one volume in turn, each in several threads that are interrupted by a crash, and recover
//! each other's dirty log. For each crash both recoveries must produce the same tree, and the kernel's recovery must
//! match the history of Xebec's operations.
//!
//! One field may differ: when Linux completes an attribute intent in a shortform fork, it sets ctime to the time of the
//! recovery.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::stop;
use base::time::Time;
use crashsim::engine::{Engine, OpenVolume};
use crashsim::{
    CrashState, Image, ImageDevice, RecordedRun, StateBuilder, Target, WorkResult, Workload, states,
    survived, work,
};
use devices::RecordDevice;
use journal::recovery::{Intent, IntentOperation};
use model::Rng;
use model::{
    Generator, NewFile, ObservedTree, OperationMix, Session, StepOutcome, Subject, Ticks, Tolerance,
};

use crate::calls::SystemCalls;
use crate::crashes::log_bytes;
use crate::kernel::{self, Files};
use crate::volumes::{self, Fresh};

/// Mount point and round of the inner test.
const MOUNT: &str = "XEBEC_RELAY_MOUNT";
const ROUND: &str = "XEBEC_RELAY_ROUND";
/// Number of turns of each.
const ROUNDS: u64 = 3;
const THREADS: usize = 2;
/// Maximum operations of each thread.
const STEPS: usize = 500;

/// Writes the manifest after recovery to `$2` with the program `$1`; then runs the inner test in the program `$3` for
/// round `$4`, until the volume is shut down.
const WORK: &str = r#"
"$1" manifest "$mount" > "$2" || exit
XEBEC_RELAY_MOUNT=$mount XEBEC_RELAY_ROUND=$4 "$3" --exact --ignored --nocapture relay::inner || exit
umount "$mount"
"#;

#[test]
fn xebec_and_kernel_recover_each_others_logs() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let relay = |fresh: &Fresh| relay(fresh).err().map(|why| format!("{}: {why}", fresh.engine.shape.name));
    let folder = kernel::scratch();
    let mut metadir = volumes::from_mkfs_xfs(folder.path());
    metadir.retain(|fresh| fresh.engine.shape.name.starts_with("metadir"));
    let volumes = [volumes::crashsim_shapes(), volumes::more_shapes(), metadir]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    let wrong: Vec<String> = kernel::each(&volumes, relay).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn relay(fresh: &Fresh) -> Result<(), String> {
    let engine = &fresh.engine;
    let folder = kernel::scratch();
    let files = |name| Files { judges: fresh.judges.clone(), ..Files::new(folder.path(), name) };
    let (files, copy) = (files("volume"), files("copy"));
    let mut image = fresh.image.clone();
    let mut expected = None;
    for round in 0..ROUNDS {
        let context = |why| format!("round {round}: {why}");
        let crash = xebec_turn(engine, image, expected.as_ref(), round, &copy).map_err(context)?;
        // The kernel's recovery matches a prefix of the history, and Xebec's recovery.
        crash.image.save(&files.image).map_err(|error| error.to_string())?;
        crash.image.save(&copy.image).map_err(|error| error.to_string())?;
        let recovered = kernel_turn(&files, round, folder.path()).map_err(context)?;
        crash.judge(&recovered).map_err(|why| context(format!("the kernel's recovery: {why}")))?;
        let (seen, completed) = recover(engine, crash.image)?;
        compare(&seen, &recovered, &completed)
            .map_err(|why| context(format!("recovery of Xebec's log: {why}")))?;
        // The kernel was interrupted in turn. Its own recovery is what Xebec's recovery must match.
        image = kernel::read(&files.image)?;
        image.save(&copy.image).map_err(|error| error.to_string())?;
        expected = Some(copy.show().map_err(context)?);
        copy.repair().map_err(|why| context(format!("after two recoveries by the kernel: {why}")))?;
    }
    let (device, volume) = open(engine, image)?;
    let seen = ObservedTree::of_subject(&volume, volume.root(), true)?;
    compare(&seen, expected.as_ref().ok_or("no round")?, &attribute_intents(&volume))?;
    engine.unmount(volume)?;
    device.image().save(&files.image).map_err(|error| error.to_string())?;
    files.repair()?;
    compare(&files.show()?, &seen, &BTreeSet::new())
}

/// Opens a volume with a dirty log.
fn open(engine: &Engine, image: Image) -> Result<(Arc<ImageDevice>, OpenVolume), String> {
    let device = Arc::new(ImageDevice::new(image));
    let volume = engine.open(device.clone())?;
    match volume.volume().recovered() {
        Some(_) => Ok((device, volume)),
        None => Err("the log was not dirty".into()),
    }
}

/// Returns the tree after recovery, and the [`attribute_intents`].
fn recover(engine: &Engine, image: Image) -> Result<(ObservedTree, BTreeSet<u64>), String> {
    let (_, volume) = open(engine, image)?;
    let seen = ObservedTree::of_subject(&volume, volume.root(), true)?;
    let completed = attribute_intents(&volume);
    engine.unmount(volume)?;
    Ok((seen, completed))
}

/// The files whose attribute intents recovery completed.
fn attribute_intents(volume: &OpenVolume) -> BTreeSet<u64> {
    let unfinished = volume.volume().recovered().into_iter().flat_map(|recovery| &recovery.report.unfinished);
    let file = |intent: &Intent| match &intent.body {
        IntentOperation::Attr(change) => Some(change.ino.get()),
        _ => None,
    };
    unfinished.filter_map(file).collect()
}

/// Compares two trees, except for ctimes of files with an attribute intent.
fn compare(ours: &ObservedTree, theirs: &ObservedTree, completed: &BTreeSet<u64>) -> Result<(), String> {
    let without_ctimes = |tree: &ObservedTree| {
        let mut tree = tree.clone();
        for (_, file) in tree.files.iter_mut().filter(|(number, _)| completed.contains(number)) {
            file.stat.times.iter_mut().for_each(|times| times.changed = times.born);
        }
        tree
    };
    let differences = without_ctimes(ours).differences(&without_ctimes(theirs));
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!("Xebec and the kernel recover different trees:\n{}", differences.join("\n")))
}

/// A crash state of Xebec.
struct XebecCrash {
    run: RecordedRun,
    state: CrashState,
    image: Image,
}

impl XebecCrash {
    fn judge(&self, shown: &ObservedTree) -> Result<(), String> {
        let trees: Vec<ObservedTree> = self.run.homes().iter().map(|home| shown.below(*home)).collect();
        survived(&self.run, &trees, &self.run.required(self.state.moment)).map(drop)
    }
}

/// Xebec recovers the volume to the expected tree, removes most of the kernel's files, runs a workload, and is
/// interrupted. Its recovery is interrupted, too, and the kernel completes that in `copy`.
fn xebec_turn(
    engine: &Engine,
    image: Image,
    expected: Option<&ObservedTree>,
    round: u64,
    copy: &Files,
) -> Result<XebecCrash, String> {
    let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(image.clone()))));
    let volume = engine.open(recorder.clone())?;
    let opened = recorder.len();
    let completed = attribute_intents(&volume);
    if let Some(expected) = expected {
        compare(&ObservedTree::of_subject(&volume, volume.root(), true)?, expected, &completed)?;
        for (name, number) in volume.list(volume.root())? {
            if name.starts_with(b"theirs") {
                remove_most(&volume, (volume.root(), &name), number, &mut Rng::new(round))?;
            }
        }
    }
    let homes = homes(&volume, "ours", round)?;
    volume.sync()?;
    let begun = recorder.len();
    let workload = Workload {
        seed: round + 1,
        threads: homes.len(),
        operations: STEPS,
        mix: OperationMix { sync_in: 40, refused_in: 0, ..OperationMix::MIXED },
        times: true,
        unmount: false,
        tolerance: Tolerance::default(),
    };
    let WorkResult { histories, sync_points } = work(&volume, &homes, &workload, &|| recorder.len())?;
    drop(volume);
    let recording = recorder.take();
    let run = RecordedRun {
        before: image,
        recording,
        histories: Arc::new(histories),
        sync_points,
        exact: false,
        times: true,
    };
    let mut builder = StateBuilder::new(&run.before, &run.recording).tearing_only(log_bytes(&run.before));
    let all = states(&run.recording, 2, round);
    let mut rng = Rng::new(round);
    if let Some(expected) = expected {
        let early: Vec<&CrashState> = all.iter().filter(|state| state.moment <= opened).collect();
        let state = early[rng.below(early.len() as u64) as usize];
        builder.build(state).save(&copy.image).map_err(|error| error.to_string())?;
        let shown = copy.show().map_err(|why| format!("Xebec's recovery, interrupted ({state:?}): {why}"))?;
        compare(expected, &shown, &completed)
            .map_err(|why| format!("Xebec's recovery, interrupted ({state:?}): {why}"))?;
        copy.repair().map_err(|why| format!("Xebec's recovery, interrupted ({state:?}): {why}"))?;
    }
    let late: Vec<&CrashState> = all.iter().filter(|state| state.moment > begun).collect();
    let state = *late[rng.below(late.len() as u64) as usize];
    let image = builder.build(&state);
    Ok(XebecCrash { run, state, image })
}

/// Creates the directories for the threads of a round.
fn homes(subject: &impl Subject, whose: &str, round: u64) -> Result<Vec<u64>, String> {
    let new = NewFile::directory();
    let make = |thread| {
        let name = format!("{whose} {round} {thread}");
        subject.create(subject.root(), name.as_bytes(), &new)
    };
    (0..THREADS).map(make).collect::<Result<_, _>>().map_err(String::from)
}

/// Removes a tree except for one file in ten and its parents. Returns true if something remains.
fn remove_most(
    volume: &OpenVolume,
    (dir, name): (u64, &[u8]),
    number: u64,
    rng: &mut Rng,
) -> Result<bool, String> {
    if !volume.stat(number)?.kind.is_directory() {
        let stays = rng.one_in(10);
        if !stays {
            volume.unlink(dir, name)?;
        }
        return Ok(stays);
    }
    let mut stays = false;
    for (name, below) in volume.list(number)? {
        stays |= remove_most(volume, (number, &name), below, rng)?;
    }
    if !stays {
        volume.rmdir(dir, name)?;
    }
    Ok(stays)
}

/// The kernel recovers the volume, runs a workload, and is interrupted. Returns the tree after recovery.
fn kernel_turn(files: &Files, round: u64, folder: &Path) -> Result<ObservedTree, String> {
    let (manifest, test) = (folder.join("manifest"), std::env::current_exe().unwrap());
    let round = PathBuf::from(round.to_string());
    files.mounted(WORK, &[Path::new(env!("CARGO_BIN_EXE_interop")), &manifest, &test, &round])?;
    kernel::parse_manifest(&std::fs::read_to_string(&manifest).map_err(|error| error.to_string())?)
}

#[test]
#[ignore = "run by xebec_and_kernel_recover_each_others_logs, on a mounted volume"]
fn inner() {
    let Some(mount) = std::env::var_os(MOUNT).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let calls = SystemCalls::new(&mount);
    let homes = homes(&calls, "theirs", round).unwrap();
    let ticks = Ticks::default();
    // If a thread panics the volume is not shut down; the flag then ends the loops.
    stop::scope(|scope| {
        // Remove Xebec's files until the shutdown.
        scope.spawn(|_| drop(std::fs::remove_dir_all(mount.join(format!("ours {round} 0")))));
        // Each sync ends a checkpoint: an intent with its done item in the same checkpoint is not logged.
        let syncer = scope.spawn(|stop| while !stop.is_set() && calls.sync().is_ok() {});
        let work = |(thread, home): (usize, u64)| {
            let (calls, ticks, mount) = (&calls, &ticks, &mount);
            scope.spawn(move |stop| {
                let mix = OperationMix { sync_in: 60, refused_in: 0, ..OperationMix::MIXED };
                let mut generator = Generator::new(round * 8 + thread as u64, mix);
                let tolerance = Tolerance { io_errors: true, ..Tolerance::default() };
                let session = Session::new(calls, ticks, home, false).unwrap();
                let mut session = session.tolerating(tolerance);
                for step in (0..).take_while(|_| !stop.is_set()) {
                    if thread == 0 && step == STEPS as i64 {
                        shut_down(mount, round);
                    }
                    let operation = generator.next(session.tree());
                    match session.step(&operation, Time { seconds: step, nanos: 0 }).unwrap() {
                        StepOutcome::IoError(_) => break,
                        other => assert_eq!(other, StepOutcome::Agreed),
                    }
                }
            })
        };
        let workers: Vec<_> = homes.into_iter().enumerate().map(work).collect();
        workers.into_iter().chain([syncer]).for_each(|worker| worker.join().unwrap());
    });
}

/// Shuts the file system down, in every second round after a log flush.
fn shut_down(mount: &Path, round: u64) {
    let command_text = if round.is_multiple_of(2) { "shutdown" } else { "shutdown -f" };
    let mut command = needs::command("xfs_io");
    assert!(command.args(["-x", "-c", command_text]).arg(mount).status().unwrap().success());
}
