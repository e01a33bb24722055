//! Xebec and the kernel in turn on one volume: each works in several threads, is cut off in the middle, and leaves a
//! dirty log to the other, which recovers it. Both recoveries of each cut come to the same tree, and the kernel's is
//! judged by the history of what Xebec did, too.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::stop;
use base::time::Time;
use block::RecordDevice;
use crashsim::engine::{Engine, Open};
use crashsim::{Builder, Image, ImageDevice, Run, State, Target, Worked, Workload, states, survived, work};
use model::Rng;
use model::{Aim, Generator, Kind, New, Seen, Session, Stepped, Subject, Ticks, Tolerance};

use crate::calls::Calls;
use crate::crashes::log_bytes;
use crate::kernel::{self, Files};
use crate::volumes::{self, Fresh};

/// What the inner test works on, and which round it is.
const MOUNT: &str = "XEBEC_RELAY_MOUNT";
const ROUND: &str = "XEBEC_RELAY_ROUND";
/// Times that each of the two works on a volume.
const ROUNDS: u64 = 3;
const THREADS: usize = 2;
/// Steps of each thread, if it is not cut off before.
const STEPS: usize = 500;

/// Shows what the kernel recovered, by the program `$1`, in the file `$2`; then works, as the inner test of `$3` does,
/// until the volume is shut down.
const WORK: &str = r#"
"$1" manifest "$mount" > "$2" || exit
XEBEC_RELAY_MOUNT=$mount XEBEC_RELAY_ROUND=$4 "$3" --exact --ignored --nocapture relay::inner || exit
umount "$mount"
"#;

#[test]
fn xebec_and_the_kernel_recover_each_others_logs() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let relay = |fresh: &Fresh| relay(fresh).err().map(|why| format!("{}: {why}", fresh.engine.shape.name));
    let folder = kernel::scratch();
    let mut metadir = volumes::foreign(folder.path());
    metadir.retain(|fresh| fresh.engine.shape.name.starts_with("metadir"));
    let volumes = [volumes::crashed(), volumes::more(), metadir].into_iter().flatten().collect::<Vec<_>>();
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
        let told = |why| format!("round {round}: {why}");
        let cut = xebec_works(engine, image, expected.as_ref(), round, &copy).map_err(told)?;
        // The kernel comes to a prefix of what was done, and to what Xebec would have come to.
        cut.image.save(&files.image).map_err(|error| error.to_string())?;
        cut.image.save(&copy.image).map_err(|error| error.to_string())?;
        let recovered = kernel_works(&files, round, folder.path()).map_err(told)?;
        cut.judge(&recovered).map_err(|why| told(format!("the kernel's recovery: {why}")))?;
        same(&recover(engine, cut.image)?, &recovered)
            .map_err(|why| told(format!("of Xebec's log: {why}")))?;
        // It was cut off in turn. This is what it makes of that itself, and what Xebec must make of it.
        image = kernel::read(&files.image)?;
        image.save(&copy.image).map_err(|error| error.to_string())?;
        expected = Some(copy.show().map_err(told)?);
        copy.repair().map_err(|why| told(format!("after two recoveries by the kernel: {why}")))?;
    }
    let (device, volume) = open(engine, image)?;
    let seen = Seen::of_subject(&volume, volume.root(), true)?;
    same(&seen, expected.as_ref().ok_or("no round")?)?;
    engine.unmount(volume)?;
    device.image().save(&files.image).map_err(|error| error.to_string())?;
    files.repair()?;
    same(&files.show()?, &seen)
}

/// Opens a volume that has a dirty log.
fn open(engine: &Engine, image: Image) -> Result<(Arc<ImageDevice>, Open), String> {
    let device = Arc::new(ImageDevice::new(image));
    let volume = engine.open(device.clone())?;
    match volume.volume().recovered() {
        Some(_) => Ok((device, volume)),
        None => Err("the log was not dirty".into()),
    }
}

fn recover(engine: &Engine, image: Image) -> Result<Seen, String> {
    let (_, volume) = open(engine, image)?;
    let seen = Seen::of_subject(&volume, volume.root(), true)?;
    engine.unmount(volume)?;
    Ok(seen)
}

fn same(ours: &Seen, theirs: &Seen) -> Result<(), String> {
    let differences = ours.differences(theirs);
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!("Xebec and the kernel come to different trees:\n{}", differences.join("\n")))
}

/// What Xebec left when it was cut off.
struct Cut {
    run: Run,
    state: State,
    image: Image,
}

impl Cut {
    fn judge(&self, shown: &Seen) -> Result<(), String> {
        let trees: Vec<Seen> = self.run.homes().iter().map(|home| shown.below(*home)).collect();
        survived(&self.run, &trees, &self.run.least(self.state.moment)).map(drop)
    }
}

/// Xebec recovers what the kernel left, to the tree that is expected, removes most of what the kernel made, works, and
/// is cut off. Its recovery is cut, too, and the kernel finishes it in `copy`.
fn xebec_works(
    engine: &Engine,
    image: Image,
    expected: Option<&Seen>,
    round: u64,
    copy: &Files,
) -> Result<Cut, String> {
    let recorder = Arc::new(RecordDevice::new(ImageDevice::new(image.clone())));
    let volume = engine.open(recorder.clone())?;
    let opened = recorder.len();
    if let Some(expected) = expected {
        same(&Seen::of_subject(&volume, volume.root(), true)?, expected)?;
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
        aim: Aim { sync_in: 40, refused_in: 0, ..Aim::MIXED },
        times: true,
        unmount: false,
        tolerance: Tolerance::default(),
    };
    let Worked { histories, marks } = work(&volume, &homes, &workload, &|| recorder.len())?;
    drop(volume);
    let recording = recorder.take();
    let run =
        Run { before: image, recording, histories: Arc::new(histories), marks, exactly: false, times: true };
    let mut builder = Builder::new(&run.before, &run.recording).tearing_only(log_bytes(&run.before));
    let all = states(&run.recording, 2, round);
    let mut rng = Rng::new(round);
    if let Some(expected) = expected {
        let early: Vec<&State> = all.iter().filter(|state| state.moment <= opened).collect();
        let state = early[rng.below(early.len() as u64) as usize];
        builder.build(state).save(&copy.image).map_err(|error| error.to_string())?;
        let shown = copy.show().map_err(|why| format!("Xebec's recovery was cut ({state:?}): {why}"))?;
        same(expected, &shown).map_err(|why| format!("Xebec's recovery was cut ({state:?}): {why}"))?;
        copy.repair().map_err(|why| format!("Xebec's recovery was cut ({state:?}): {why}"))?;
    }
    let late: Vec<&State> = all.iter().filter(|state| state.moment > begun).collect();
    let state = *late[rng.below(late.len() as u64) as usize];
    let image = builder.build(&state);
    Ok(Cut { run, state, image })
}

/// Directories for the threads of a round.
fn homes(subject: &impl Subject, whose: &str, round: u64) -> Result<Vec<u64>, String> {
    let new = New { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0 };
    let make = |thread| {
        let name = format!("{whose} {round} {thread}");
        subject.create(subject.root(), name.as_bytes(), &new)
    };
    (0..THREADS).map(make).collect::<Result<_, _>>().map_err(String::from)
}

/// Removes a tree, but for one file in ten and the directories above it.
fn remove_most(volume: &Open, (dir, name): (u64, &[u8]), number: u64, rng: &mut Rng) -> Result<bool, String> {
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

/// The kernel recovers what Xebec left; gives what it shows. Then it works, and is cut off.
fn kernel_works(files: &Files, round: u64, folder: &Path) -> Result<Seen, String> {
    let (manifest, test) = (folder.join("manifest"), std::env::current_exe().unwrap());
    let round = PathBuf::from(round.to_string());
    files.mounted(WORK, &[Path::new(env!("CARGO_BIN_EXE_interop")), &manifest, &test, &round])?;
    kernel::seen(&std::fs::read_to_string(&manifest).map_err(|error| error.to_string())?)
}

#[test]
#[ignore = "run by xebec_and_the_kernel_recover_each_others_logs, on a mounted volume"]
fn inner() {
    let Some(mount) = std::env::var_os(MOUNT).map(PathBuf::from) else { return };
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let calls = Calls::new(&mount);
    let homes = homes(&calls, "theirs", round).unwrap();
    let ticks = Ticks::default();
    // After a panic the volume is never shut down: the flag ends the loops then.
    stop::scope(|scope| {
        // Removes what Xebec made, as far as it comes.
        scope.spawn(|_| drop(std::fs::remove_dir_all(mount.join(format!("ours {round} 0")))));
        // Each sync ends a checkpoint: an intent that is done within one checkpoint never reaches the log.
        let syncer = scope.spawn(|stop| while !stop.is_set() && calls.sync().is_ok() {});
        let work = |(thread, home): (usize, u64)| {
            let (calls, ticks, mount) = (&calls, &ticks, &mount);
            scope.spawn(move |stop| {
                let aim = Aim { sync_in: 60, refused_in: 0, ..Aim::MIXED };
                let mut generator = Generator::new(round * 8 + thread as u64, aim);
                let tolerance = Tolerance { io_errors: true, ..Tolerance::default() };
                let session = Session::new(calls, ticks, home, false).unwrap();
                let mut session = session.tolerating(tolerance);
                for step in (0..).take_while(|_| !stop.is_set()) {
                    if thread == 0 && step == STEPS as i64 {
                        shut_down(mount, round);
                    }
                    let operation = generator.next(session.tree());
                    match session.step(&operation, Time { seconds: step, nanos: 0 }).unwrap() {
                        Stepped::Broken(_) => break,
                        other => assert_eq!(other, Stepped::Agreed),
                    }
                }
            })
        };
        let workers: Vec<_> = homes.into_iter().enumerate().map(work).collect();
        workers.into_iter().chain([syncer]).for_each(|worker| worker.join().unwrap());
    });
}

/// Stops the file system where it is; every second time it writes its log first.
fn shut_down(mount: &Path, round: u64) {
    let how = if round.is_multiple_of(2) { "shutdown" } else { "shutdown -f" };
    let mut command = needs::command("xfs_io");
    assert!(command.args(["-x", "-c", how]).arg(mount).status().unwrap().success());
}
