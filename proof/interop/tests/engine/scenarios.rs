//! Runs each workload on each shape of volume, formatted by Xebec and by `mkfs.xfs`. After an unmount `xfs_repair -n`
//! must find nothing and the tree on a kernel mount must match the model; after a crash the kernel must replay the log
//! to the same tree.

use std::sync::Arc;

use base::time::Time;
use crashsim::engine::Engine;
use crashsim::shape::{SHAPES, Shape};
use crashsim::{Image, ImageDevice, Target, Workload, create_homes};
use model::{
    FileKind, NameStyles, NewFile, ObservedTree, Operation, OperationMix, Session, StepOutcome, Subject,
    Ticks, Tolerance,
};

use crate::kernel::{self, Files};
use crate::volumes::{self, Fresh};

/// A workload of random operations.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    mix: OperationMix,
    threads: usize,
    /// Operations of each thread.
    steps: usize,
    full: bool,
}

const LONG: NameStyles = NameStyles { short: 1, long: 8, bytes: 1, same_hash: 1 };

const SCENARIOS: [Scenario; 6] = [
    Scenario { name: "mixed", mix: OperationMix::MIXED, threads: 1, steps: 3000, full: false },
    Scenario {
        name: "forms",
        mix: OperationMix { sync_in: 0, ..OperationMix::DIRECTORY_FORMATS },
        threads: 1,
        steps: 3000,
        full: false,
    },
    Scenario {
        name: "threads",
        mix: OperationMix { sync_in: 60, ..OperationMix::MIXED },
        threads: 4,
        steps: 700,
        full: false,
    },
    Scenario { name: "inodes", mix: OperationMix::INODES, threads: 1, steps: 4000, full: false },
    Scenario {
        name: "large",
        mix: OperationMix {
            files_max: 6000,
            hot_in: 1,
            directories_per_mille: 1,
            sync_in: 0,
            names: LONG,
            ..OperationMix::DIRECTORY_FORMATS
        },
        threads: 1,
        steps: 6000,
        full: true,
    },
    Scenario {
        name: "full",
        mix: OperationMix { files_max: 100_000, files_min: 50, names: LONG, ..OperationMix::MIXED },
        threads: 1,
        steps: 9000,
        full: true,
    },
];

/// Result of a scenario.
struct ScenarioResult {
    /// The expected trees, by the inode numbers of their directories.
    expected: Vec<(u64, ObservedTree)>,
    /// The volume while it is mounted, after a sync.
    crashed: Image,
    unmounted: Image,
}

/// Runs a scenario on a volume.
fn work(fresh: &Fresh, scenario: &Scenario, seed: u64) -> Result<ScenarioResult, String> {
    let engine = &fresh.engine;
    let device = Arc::new(ImageDevice::new(fresh.image.clone()));
    let volume = engine.open(device.clone())?;
    let homes = create_homes(&volume, scenario.threads)?;
    let workload = Workload {
        seed,
        threads: homes.len(),
        operations: scenario.steps,
        mix: scenario.mix,
        times: true,
        unmount: false,
        tolerance: Tolerance { no_space: scenario.full, ..Tolerance::default() },
    };
    let worked = crashsim::work(&volume, &homes, &workload, &|| 0)?;
    volume.sync()?;
    let crashed = device.image();
    engine.unmount(volume)?;
    let tree = |history: &model::History| ObservedTree::of_tree(&history.tree(history.entries.len()));
    let expected = homes.into_iter().zip(worked.histories.iter().map(tree)).collect();
    Ok(ScenarioResult { expected, crashed, unmounted: device.image() })
}

/// Judges an image by a kernel mount, and by `xfs_repair` after it.
fn judge(files: &Files, image: &Image, expected: &[(u64, ObservedTree)]) -> Result<(), String> {
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
    let context = |end: &str, why| format!("{} on {}, {end}: {why}", scenario.name, fresh.engine.shape.name);
    let result = work(fresh, scenario, seed).map_err(|why| context("during the run", why))?;
    let folder = kernel::scratch();
    let files = Files { judges: fresh.judges.clone(), ..Files::new(folder.path(), "image") };
    judge(&files, &result.crashed, &result.expected).map_err(|why| context("after a crash", why))?;
    result.unmounted.save(&files.image).map_err(|error| error.to_string())?;
    files.repair().map_err(|why| context("after an unmount", why))?;
    judge(&files, &result.unmounted, &result.expected).map_err(|why| context("after a kernel mount", why))
}

/// Runs scenarios on volumes, and reports all failures together.
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
fn linux_accepts_xebec_volumes_after_every_scenario() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    all(&volumes::crashsim_shapes(), &SCENARIOS);
}

#[test]
fn linux_accepts_xebec_volumes_of_more_shapes() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    all(&volumes::more_shapes(), &SCENARIOS[..3]);
}

#[test]
fn linux_accepts_mkfs_xfs_volumes_changed_by_xebec() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let folder = kernel::scratch();
    all(&volumes::from_mkfs_xfs(folder.path()), &SCENARIOS[..3]);
}

#[test]
fn linux_lists_one_directory_of_a_hundred_thousand_files() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let engine =
        Engine { shape: Shape { name: "large", size: 256 << 20, ag_count: Some(4), ..SHAPES[0].clone() } };
    let device = Arc::new(ImageDevice::new(engine.format().unwrap()));
    let volume = engine.open(device.clone()).unwrap();
    let ticks = Ticks::default();
    let root = volume.root();
    let mut session = Session::new(&volume, &ticks, root, true).unwrap();
    for n in 0..100_000u32 {
        let new = NewFile { kind: FileKind::File, mode: 0o644, uid: 0, gid: 0 };
        let name = format!("file number {n}").into_bytes();
        let id = model::Id(n + 1);
        let create = Operation::Create { dir: model::HOME, name, new, id };
        assert_eq!(session.step(&create, Time { seconds: 1_000_000, nanos: n }), Ok(StepOutcome::Agreed));
    }
    let expected = ObservedTree::of_tree(session.tree());
    engine.unmount(volume).unwrap();
    let folder = kernel::scratch();
    let files = Files::new(folder.path(), "large");
    judge(&files, &device.image(), &[(root, expected)]).unwrap();
}
