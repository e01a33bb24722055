//! What fuzzing once found, and a little noise for every target: both without cargo-fuzz.

use std::path::{Path, PathBuf};

/// The cases: a folder for each target, a file for each case.
fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions")
}

/// Replays every case. A folder that is no target's would be a case that is never run.
#[test]
fn what_was_once_found_stays_mended() {
    for folder in std::fs::read_dir(regressions()).expect("proof/fuzz/regressions") {
        let folder = folder.expect("a folder of cases").path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a target's name");
        for case in std::fs::read_dir(&folder).expect("a folder of cases") {
            let case = case.expect("a case").path();
            let data = std::fs::read(&case).expect("a case");
            eprintln!("{}", case.display());
            assert!(hostile::run(name, &data), "{name} is no target");
        }
    }
}

/// A program for each target, and a target for each program: a target without a program is never fuzzed.
#[test]
fn every_target_has_its_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
    let mut programs: Vec<String> = std::fs::read_dir(folder)
        .expect("proof/fuzz/fuzz_targets")
        .map(|entry| entry.expect("a program").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_string()))
        .collect();
    let mut targets: Vec<&str> = hostile::TARGETS.iter().map(|target| target.name).collect();
    programs.sort();
    targets.sort_unstable();
    assert_eq!(programs, targets);
}

/// Seeded noise of many lengths through every target. It finds what is shallow; fuzzing finds the rest.
#[test]
fn noise_does_no_harm() {
    for target in hostile::TARGETS {
        let mut noise = Noise(0x5eed);
        // Recovery and imports start and stop an engine each time, and have sweeps of their own.
        let rounds = if ["volume_finish", "import_archive"].contains(&target.name) { 200 } else { 2_000 };
        for round in 0..rounds {
            let length = (noise.next() % 1500) as usize;
            // Few set bits in half of the rounds: fields that are mostly zero get further than random ones.
            let sparse = round % 2 == 0;
            let data: Vec<u8> = (0..length).map(|_| noise.byte(sparse)).collect();
            let caught = std::panic::catch_unwind(|| (target.run)(&data));
            assert!(caught.is_ok(), "{} in round {round}, input {data:02x?}", target.name);
        }
    }
}

/// SplitMix64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn byte(&mut self, sparse: bool) -> u8 {
        let bits = self.next();
        if sparse && !bits.is_multiple_of(4) { 0 } else { (bits >> 32) as u8 }
    }
}
