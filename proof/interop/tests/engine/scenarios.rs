//! Each kind of work on each shape of volume, our own and those of `mkfs.xfs`: after unmount `xfs_repair -n` is silent
//! and the kernel shows what the model has; after a cut in the middle the kernel replays our log to the same tree.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base::time::Time;
use block::{Device, FileDevice, OpenOptions};
use crashsim::engine::{Engine, Open};
use crashsim::shape::{SHAPES, Shape};
use crashsim::{Image, ImageDevice, Target};
use interop::damage::record;
use interop::needs;
use model::{
    Aim, Generator, Kind, New, Operation, Seen, Session, Stepped, Styles, Subject, Ticks, Tolerance,
};

use crate::kernel::{self, Files};

/// What is done: steps of random operations with an aim.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    aim: Aim,
    steps: i64,
    full: bool,
}

const LONG: Styles = Styles { short: 1, long: 8, bytes: 1, equal: 1 };

const SCENARIOS: [Scenario; 5] = [
    Scenario { name: "mixed", aim: Aim::MIXED, steps: 3000, full: false },
    Scenario { name: "forms", aim: Aim { sync_in: 0, ..Aim::FORMS }, steps: 3000, full: false },
    Scenario { name: "inodes", aim: Aim::INODES, steps: 4000, full: false },
    Scenario {
        name: "large",
        aim: Aim { most: 6000, hot_in: 1, directories: 1, sync_in: 0, styles: LONG, ..Aim::FORMS },
        steps: 6000,
        full: true,
    },
    Scenario {
        name: "full",
        aim: Aim { most: 100_000, fewest: 50, styles: LONG, ..Aim::MIXED },
        steps: 9000,
        full: true,
    },
];

/// A volume made by `mkfs.xfs` 6.13 with these options, to be worked on.
const FOREIGN: [(&str, &str); 6] = [
    ("defaults", ""),
    ("no-finobt", "-m finobt=0,inobtcount=0"),
    ("no-rmapbt", "-m rmapbt=0,reflink=0"),
    ("no-sparse", "-i sparse=0,nrext64=0"),
    ("bs1k", "-b size=1024 -m bigtime=0"),
    ("crc-only", "-m finobt=0,rmapbt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0,nrext64=0"),
];

/// Works on a volume; gives the tree as it must be, with what the image is while it is still mounted (everything
/// synced), and when it is unmounted.
fn work(engine: &Engine, image: Image, scenario: &Scenario, seed: u64) -> (Seen, Image, Image) {
    let what = format!("{} on {}", scenario.name, engine.shape.name);
    let device = Arc::new(ImageDevice::new(image));
    let volume: Open = engine.open(device.clone()).unwrap_or_else(|why| panic!("{what}: {why}"));
    let ticks = Ticks::default();
    let tolerance = Tolerance { no_space: scenario.full, ..Tolerance::default() };
    let mut session = Session::new(&volume, &ticks, volume.root(), true).unwrap().tolerating(tolerance);
    let mut generator = Generator::new(seed, scenario.aim);
    for step in 0..scenario.steps {
        let operation = generator.next(session.tree());
        match session.step(&operation, Time { seconds: 1_000_000 + step, nanos: 0 }) {
            Ok(Stepped::NoSpace) => generator.shrink(),
            Ok(Stepped::Agreed) => (),
            other => panic!("{what}, seed {seed}, step {step}: {operation}: {other:?}"),
        }
    }
    volume.sync().unwrap();
    let (expected, crashed) = (Seen::of_tree(session.tree()), device.image());
    drop(session);
    engine.unmount(volume).unwrap();
    (expected, crashed, device.image())
}

/// Judges images by the kernel and by xfs_repair; gives complaints.
fn judge(cases: &[(String, Files, Seen)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, files, expected) in cases {
        let seen = files.show();
        let result = seen.and_then(|seen| {
            let differences = seen.differences(expected);
            if differences.is_empty() { files.repair() } else { Err(differences.join("\n")) }
        });
        complaints.extend(result.err().map(|why| format!("{name}, after the kernel: {why}")));
    }
    complaints
}

/// Runs scenarios on a volume and judges both ends of each.
fn all(engine: &Engine, fresh: &Image, scenarios: &[Scenario]) -> Vec<String> {
    let folder = kernel::scratch();
    let (mut cases, mut complaints) = (Vec::new(), Vec::new());
    for (scenario, seed) in scenarios.iter().zip(1..) {
        let (expected, crashed, unmounted) = work(engine, fresh.clone(), scenario, seed);
        for (image, end) in [(crashed, "crashed"), (unmounted, "unmounted")] {
            let name = format!("{}-{}-{end}", scenario.name, engine.shape.name);
            let files = Files::new(folder.path(), &name);
            image.save(&files.image).unwrap();
            if end == "unmounted"
                && let Err(why) = files.repair()
            {
                complaints.push(format!("{name}: {why}"));
            }
            cases.push((name, files, expected.clone()));
        }
    }
    complaints.extend(judge(&cases));
    complaints
}

#[test]
fn linux_accepts_our_volumes_after_every_scenario() {
    if let Err(why) = needs::mounting() {
        return needs::skip("linux_accepts_our_volumes_after_every_scenario", &why);
    }
    let mut complaints = Vec::new();
    for shape in SHAPES {
        let engine = Engine { shape };
        complaints.extend(all(&engine, &engine.format().unwrap(), &SCENARIOS));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn linux_accepts_what_we_do_to_its_own_volumes() {
    if let Err(why) = needs::mounting() {
        return needs::skip("linux_accepts_what_we_do_to_its_own_volumes", &why);
    }
    let folder = kernel::scratch();
    let mut complaints = Vec::new();
    for (name, options) in FOREIGN {
        let path = folder.path().join(name);
        make(&path, options);
        let device = FileDevice::open(&path, &OpenOptions::default()).unwrap();
        let image = Image::of_device(&device).unwrap();
        let shape = Shape { name, size: device.size(), ..SHAPES[0].clone() };
        complaints.extend(all(&Engine { shape }, &image, &SCENARIOS[..3]));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Makes a volume of 64 MiB with `mkfs.xfs` 6.13.
fn make(path: &Path, options: &str) {
    std::fs::File::create(path).unwrap().set_len(64 << 20).unwrap();
    let mut command = Command::new(record::newer().join("mkfs.xfs"));
    // It makes volumes below 300 MB only for its own test suite.
    command.envs([("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")]);
    let status =
        command.args(["-q", "-f", "-d", "agcount=2"]).args(options.split_whitespace()).arg(path).status();
    assert!(status.unwrap().success(), "mkfs.xfs {options}");
}

#[test]
fn linux_lists_a_hundred_thousand_files_of_one_directory() {
    if let Err(why) = needs::mounting() {
        return needs::skip("linux_lists_a_hundred_thousand_files_of_one_directory", &why);
    }
    let engine =
        Engine { shape: Shape { name: "large", size: 256 << 20, ag_count: Some(4), ..SHAPES[0].clone() } };
    let device = Arc::new(ImageDevice::new(engine.format().unwrap()));
    let volume = engine.open(device.clone()).unwrap();
    let ticks = Ticks::default();
    let mut session = Session::new(&volume, &ticks, volume.root(), true).unwrap();
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
    device.image().save(&files.image).unwrap();
    files.repair().unwrap();
    assert_eq!(judge(&[("large".into(), files, expected)]), Vec::<String>::new());
}
