//! The estimated size suffices for trees of many shapes.
//!
//! A tree of files of gigabytes failed at the end because the volume was full: it was created with fewer blocks than
//! its files had to reserve. Contents are not written here: blocks are allocated for them, so that terabytes take a
//! moment.

use model::Rng;
use volume::{NewFile, SetAttribute};

use super::*;
use crate::survey::{FileClass, FileEstimate, Survey, attribute_bytes};
use crate::{ImageBuilder, StoredSize};

/// Files of one kind in one directory.
#[derive(Clone, Copy, Debug)]
struct Files {
    count: u64,
    /// Runs of data of each, their bytes, and the bytes of holes between them.
    runs: u64,
    data: u64,
    hole: u64,
    name: usize,
    /// Bytes of the value of an attribute, if each has one.
    attribute: usize,
}

fn shape(rng: &mut Rng) -> Vec<Files> {
    let kinds = 1 + rng.below(3);
    let mut files = |_| {
        let hole = [0, 0, 4096, 60 << 10, 1 << 30][rng.index(5)];
        let data = match rng.below(6) {
            0 => rng.below(3) * 100,
            1 => rng.below(8192),
            2 => rng.below(1 << 20),
            3 => rng.below(100 << 20),
            4 => rng.below(8 << 30),
            _ => rng.below(1 << 38),
        };
        // All of it stays below what the host's file system takes as one file.
        let most = if data > 100 << 20 { 3 } else { 300 };
        let runs = if hole > 0 { 1 + rng.below(most) } else { 1 };
        // Of large ones, a few.
        let most = if data > 1 << 30 { 3 } else { [1, 30, 600][rng.index(3)] };
        let most = if runs > 10 { 20 } else { most };
        let count = 1 + rng.below(most);
        let (name, attribute) = ([8, 40, 240][rng.index(3)], [0, 0, 0, 20, 400, 3000][rng.index(6)]);
        Files { count, runs, data, hole, name, attribute }
    };
    (0..kinds).map(&mut files).collect()
}

impl Files {
    fn size(&self) -> u64 {
        self.runs * self.data + (self.runs - 1) * self.hole
    }

    fn attributes(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let value = (self.attribute > 0).then(|| (b"user.value".to_vec(), vec![7; self.attribute]));
        value.into_iter().collect()
    }

    fn runs(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        let Self { data, hole, .. } = *self;
        (0..self.runs).map(move |n| n * (data + hole)..n * (data + hole) + data).filter(|run| !run.is_empty())
    }

    fn count(&self, survey: &mut Survey) {
        let mut stored = StoredSize::default();
        self.runs().for_each(|run| stored.add(&run));
        let what = FileClass::File { size: self.size(), stored };
        let attributes = attribute_bytes(&self.attributes());
        let seen = FileEstimate { name: self.name, attributes, what, modified: Time::default() };
        (0..self.count).for_each(|_| survey.count(&seen));
        let dir =
            FileEstimate { name: 4, attributes: 0, what: FileClass::Directory, modified: Time::default() };
        survey.count(&dir);
    }

    fn make(&self, volume: &Volume, dir: u64) -> volume::Result<()> {
        let dir = volume.create(volume.root(), format!("d{dir}").as_bytes(), &NewFile::directory())?;
        for n in 0..self.count {
            let name = format!("{n:0width$}", width = self.name);
            let ino = volume.create(dir, name.as_bytes(), &NewFile::regular())?;
            for (name, value) in self.attributes() {
                volume.set_attribute(ino, &name, &value, SetAttribute::Create)?;
            }
            let file = volume.open_file(ino)?;
            self.runs().try_for_each(|run| file.allocate(run.start, run.end - run.start, false))?;
        }
        Ok(())
    }
}

fn fits(block_size: u32, shape: &[Files], seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let builder =
        ImageBuilder::new(&image).format(Options { block_size, ..Options::default() }).reproducible(true);
    let target = Target::open(&image, &builder).unwrap();
    let plans = Plans::new(&builder, &target).unwrap();
    let mut survey = Survey::new(block_size);
    shape.iter().for_each(|files| files.count(&mut survey));
    let (time, estimate) = (Time::default(), survey.estimate());
    let layout = Layout { target: &target, plans: &plans, time, estimate, spare: 0 };
    let NewVolume { volume, .. } = layout.create().unwrap();
    let space = || volume.statistics().blocks_available;
    let before = space();
    for (dir, files) in (0..).zip(shape) {
        let made = files.make(&volume, dir);
        let left = space();
        made.unwrap_or_else(|error| {
            panic!(
                "seed {seed}: {shape:?} with blocks of {block_size}: {error}; {left} of {before} blocks left"
            )
        });
    }
    volume.unmount().unwrap();
}

#[test]
fn the_estimate_suffices() {
    let from = std::env::var("XEBEC_SHAPES_FROM").map_or(1, |from| from.parse().unwrap());
    for seed in from..from + 60 {
        let mut rng = Rng::new(seed);
        let block_size = [1024, 4096, 4096, 4096, 65536][rng.index(5)];
        fits(block_size, &shape(&mut rng), seed);
    }
}

/// Each page of data between holes takes a block of its own, however large blocks are.
#[test]
fn pages_between_holes_are_counted_as_blocks() {
    let files = Files { count: 60, runs: 300, data: 4096, hole: 1 << 20, name: 8, attribute: 0 };
    [4096, 65536].iter().for_each(|block_size| fits(*block_size, &[files], 0));
}
