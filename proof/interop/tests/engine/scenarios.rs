//! Each kind of work on each shape of volume, our own and those of `mkfs.xfs`: after unmount `xfs_repair -n` is silent
//! and the kernel shows what the model has; after a cut in the middle the kernel replays our log to the same tree.

use std::sync::Arc;

use base::time::Time;
use crashsim::engine::{Engine, Open};
use crashsim::shape::{SHAPES, Shape};
use crashsim::{Image, ImageDevice, Target, Workload};
use model::{Aim, Kind, New, Operation, Seen, Session, Stepped, Styles, Subject, Ticks, Tolerance};

use crate::kernel::{self, Files};
use crate::volumes::{self, Fresh};

/// What is done: steps of random operations with an aim.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    aim: Aim,
    threads: usize,
    /// Of each thread.
    steps: usize,
    full: bool,
}

const LONG: Styles = Styles { short: 1, long: 8, bytes: 1, equal: 1 };

const SCENARIOS: [Scenario; 6] = [
    Scenario { name: "mixed", aim: Aim::MIXED, threads: 1, steps: 3000, full: false },
    Scenario { name: "forms", aim: Aim { sync_in: 0, ..Aim::FORMS }, threads: 1, steps: 3000, full: false },
    Scenario { name: "threads", aim: Aim { sync_in: 60, ..Aim::MIXED }, threads: 4, steps: 700, full: false },
    Scenario { name: "inodes", aim: Aim::INODES, threads: 1, steps: 4000, full: false },
    Scenario {
        name: "large",
        aim: Aim { most: 6000, hot_in: 1, directories: 1, sync_in: 0, styles: LONG, ..Aim::FORMS },
        threads: 1,
        steps: 6000,
        full: true,
    },
    Scenario {
        name: "full",
        aim: Aim { most: 100_000, fewest: 50, styles: LONG, ..Aim::MIXED },
        threads: 1,
        steps: 9000,
        full: true,
    },
];

/// What a scenario left.
struct Left {
    /// The trees as they must be, by the numbers of their directories.
    expected: Vec<(u64, Seen)>,
    /// The volume while it is still mounted, with everything synced.
    crashed: Image,
    unmounted: Image,
}

/// Works on a volume.
fn work(fresh: &Fresh, scenario: &Scenario, seed: u64) -> Result<Left, String> {
    let engine = &fresh.engine;
    let device = Arc::new(ImageDevice::new(fresh.image.clone()));
    let volume = engine.open(device.clone())?;
    let homes = homes(&volume, scenario.threads)?;
    let workload = Workload {
        seed,
        threads: homes.len(),
        operations: scenario.steps,
        aim: scenario.aim,
        times: true,
        unmount: false,
        tolerance: Tolerance { no_space: scenario.full, ..Tolerance::default() },
    };
    let worked = crashsim::work(&volume, &homes, &workload, &|| 0)?;
    volume.sync()?;
    let crashed = device.image();
    engine.unmount(volume)?;
    let tree = |history: &model::History| Seen::of_tree(&history.tree(history.steps.len()));
    let expected = homes.into_iter().zip(worked.histories.iter().map(tree)).collect();
    Ok(Left { expected, crashed, unmounted: device.image() })
}

/// A directory for each thread; the root for one alone.
fn homes(volume: &Open, threads: usize) -> Result<Vec<u64>, String> {
    let root = volume.root();
    if threads == 1 {
        return Ok(vec![root]);
    }
    let new = New { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0 };
    let make = |thread| volume.create(root, format!("home {thread}").as_bytes(), &new);
    (0..threads).map(make).collect::<Result<_, _>>().map_err(String::from)
}

/// Has an image judged by the kernel, and by `xfs_repair` after it.
fn judge(files: &Files, image: &Image, expected: &[(u64, Seen)]) -> Result<(), String> {
    image.save(&files.image).map_err(|error| error.to_string())?;
    let shown = files.show()?;
    for (home, expected) in expected {
        let differences = shown.below(*home).differences(expected);
        if !differences.is_empty() {
            return Err(differences.join("\n"));
        }
    }
    files.repair()
}

fn scenario(fresh: &Fresh, scenario: &Scenario, seed: u64) -> Result<(), String> {
    let told = |end: &str, why| format!("{} on {}, {end}: {why}", scenario.name, fresh.engine.shape.name);
    let left = work(fresh, scenario, seed).map_err(|why| told("at work", why))?;
    let folder = kernel::scratch();
    let files = Files { judges: fresh.judges.clone(), ..Files::new(folder.path(), "image") };
    judge(&files, &left.crashed, &left.expected).map_err(|why| told("cut off", why))?;
    left.unmounted.save(&files.image).map_err(|error| error.to_string())?;
    files.repair().map_err(|why| told("unmounted", why))?;
    judge(&files, &left.unmounted, &left.expected).map_err(|why| told("after the kernel", why))
}

/// Runs scenarios on volumes, and tells all that is wrong together.
fn all(volumes: &[Fresh], scenarios: &[Scenario]) {
    let cases: Vec<(&Fresh, &Scenario, u64)> = volumes
        .iter()
        .flat_map(|fresh| scenarios.iter().zip(1..).map(move |(scenario, seed)| (fresh, scenario, seed)))
        .collect();
    let run = |(fresh, what, seed): &(&Fresh, &Scenario, u64)| scenario(fresh, what, *seed).err();
    let wrong: Vec<String> = kernel::each(&cases, run).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn linux_accepts_our_volumes_after_every_scenario() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    all(&volumes::crashed(), &SCENARIOS);
}

#[test]
fn linux_accepts_our_volumes_of_further_shapes() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    all(&volumes::more(), &SCENARIOS[..3]);
}

#[test]
fn linux_accepts_what_we_do_to_its_own_volumes() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let folder = kernel::scratch();
    all(&volumes::foreign(folder.path()), &SCENARIOS[..3]);
}

#[test]
fn linux_lists_a_hundred_thousand_files_of_one_directory() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let engine =
        Engine { shape: Shape { name: "large", size: 256 << 20, ag_count: Some(4), ..SHAPES[0].clone() } };
    let device = Arc::new(ImageDevice::new(engine.format().unwrap()));
    let volume = engine.open(device.clone()).unwrap();
    let ticks = Ticks::default();
    let root = volume.root();
    let mut session = Session::new(&volume, &ticks, root, true).unwrap();
    for n in 0..100_000u32 {
        let new = New { kind: Kind::File, mode: 0o644, uid: 0, gid: 0 };
        let name = format!("file number {n}").into_bytes();
        let id = model::Id(n + 1);
        let create = Operation::Create { dir: model::HOME, name, new, id };
        assert_eq!(session.step(&create, Time { seconds: 1_000_000, nanos: n }), Ok(Stepped::Agreed));
    }
    let expected = Seen::of_tree(session.tree());
    engine.unmount(volume).unwrap();
    let folder = kernel::scratch();
    let files = Files::new(folder.path(), "large");
    judge(&files, &device.image(), &[(root, expected)]).unwrap();
}
