//! Names with equal hashes, of files in one directory and of attributes of one file, compared with ordinary names of
//! the same length. Anyone can make such names, so they must not be slow.

use std::time::Instant;

use report::record::Target;
use xebec::{NewFile, Options, SetAttribute, Volume};

use super::Scale;
use crate::bench_volume::{BenchVolume, layout};
use crate::measure::alternate;
use crate::recorder::{Recorder, Row};

/// Maximum number of names in the directory, and of attributes.
const NAMES: u32 = 40_000;
const ATTRIBUTES: u32 = 4_000;
const IMAGE_BYTES: u64 = 4 << 30;
const LOG_BYTES: u64 = 64 << 20;

/// Nanoseconds per creation, lookup and removal.
type Times = [f64; 3];

/// Creates, looks up and removes names on a volume.
type TimedWork = fn(&Volume, &[Vec<u8>]) -> anyhow::Result<Times>;

/// Runs the measurement.
pub fn run(scale: &Scale, table: &mut Recorder<'_>) -> anyhow::Result<()> {
    let tasks = ["create", "look up", "unlink"].map(|task| format!("{task}, all names in one directory"));
    add(scale, table, (NAMES, tasks, Some(Target::RatioAtMost(3.0))), time_files)?;
    let tasks = ["set", "get", "remove"].map(|task| format!("{task} an attribute, all of one file"));
    add(scale, table, (ATTRIBUTES, tasks, None), time_attributes)
}

fn add(
    scale: &Scale,
    table: &mut Recorder<'_>,
    (max, tasks, target): (u32, [String; 3], Option<Target>),
    time: TimedWork,
) -> anyhow::Result<()> {
    let count = scale.files.min(max);
    let run = |names: &[Vec<u8>]| on_fresh_volume(scale, |volume| time(volume, names));
    let (ours, other) = alternate(table, scale.rounds, || run(&colliding(count)), || run(&ordinary(count)))?;
    for (index, task) in tasks.into_iter().enumerate() {
        let column = |times: &[Times]| times.iter().map(|run| run[index]).collect();
        table.add(Row {
            task: format!("{task}, {count} names"),
            unit: "ns",
            ours_is: "all of one hash",
            other_is: "ordinary names",
            ours: column(&ours),
            other: column(&other),
            target,
        });
    }
    Ok(())
}

/// Names of 64 bytes with one hash. The hash rotates by 7 bits per byte, so bytes at a distance of 32 are rotated
/// equally, and equal changes of both cancel each other.
fn colliding(count: u32) -> Vec<Vec<u8>> {
    let name = |number: u32| {
        let mut name = vec![b'a'; 64];
        for bit in (0..32).filter(|bit| number >> bit & 1 == 1) {
            name[bit] ^= 0x10;
            name[bit + 32] ^= 0x10;
        }
        name
    };
    (0..count).map(name).collect()
}

fn ordinary(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("{number:064}").into_bytes()).collect()
}

fn on_fresh_volume<T>(scale: &Scale, work: impl FnOnce(&Volume) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let image = scale.folder.join("engine.img");
    let opened = BenchVolume::xebec(&image, &layout(IMAGE_BYTES, LOG_BYTES), Options::default())?;
    let BenchVolume::Xebec(volume) = &opened else { anyhow::bail!("not a volume of Xebec") };
    let result = work(volume)?;
    opened.unmount()?;
    Ok(result)
}

fn time_files(volume: &Volume, names: &[Vec<u8>]) -> anyhow::Result<Times> {
    let dir = volume.create(volume.root(), b"names", &NewFile::directory())?;
    time_each(
        names,
        |name| Ok(volume.create(dir, name, &NewFile::regular()).map(drop)?),
        |name| Ok(volume.lookup(dir, name).map(drop)?),
        |name| Ok(volume.unlink(dir, name)?),
    )
}

fn time_attributes(volume: &Volume, names: &[Vec<u8>]) -> anyhow::Result<Times> {
    let file = volume.create(volume.root(), b"file", &NewFile::regular())?;
    let names: Vec<Vec<u8>> = names.iter().map(|name| [b"user.", name.as_slice()].concat()).collect();
    time_each(
        &names,
        |name| Ok(volume.set_attribute(file, name, b"a value", SetAttribute::Any)?),
        |name| Ok(volume.get_attribute(file, name).map(drop)?),
        |name| Ok(volume.remove_attribute(file, name)?),
    )
}

/// Times creation in the order of the names, then lookup and removal in two other orders.
fn time_each(
    names: &[Vec<u8>],
    create: impl Fn(&[u8]) -> anyhow::Result<()>,
    look_up: impl Fn(&[u8]) -> anyhow::Result<()>,
    remove: impl Fn(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<Times> {
    // The step is a prime that does not divide the number of names, so that each name occurs once.
    let shuffled = |step: usize| (0..names.len()).map(move |number| &names[number * step % names.len()]);
    let each = |begin: Instant| begin.elapsed().as_nanos() as f64 / names.len() as f64;
    let begin = Instant::now();
    names.iter().try_for_each(|name| create(name))?;
    let created = each(begin);
    let begin = Instant::now();
    shuffled(7919).try_for_each(|name| look_up(name))?;
    let looked_up = each(begin);
    let begin = Instant::now();
    shuffled(7907).try_for_each(|name| remove(name))?;
    Ok([created, looked_up, each(begin)])
}
