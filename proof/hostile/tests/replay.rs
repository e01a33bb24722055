//! Past findings of fuzzing, and noise for every target, without cargo-fuzz.

use std::path::{Path, PathBuf};

/// Inputs that once failed: a directory per target.
fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions")
}

/// Replays every input. A directory that belongs to no target is an error, because its inputs would never run.
#[test]
fn past_findings_stay_fixed() {
    for folder in std::fs::read_dir(regressions()).expect("proof/fuzz/regressions") {
        let folder = folder.expect("a directory of inputs").path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a target's name");
        for input in std::fs::read_dir(&folder).expect("a directory of inputs") {
            let input = input.expect("an input").path();
            let data = std::fs::read(&input).expect("an input");
            eprintln!("{}", input.display());
            assert!(hostile::run(name, &data), "{name} is not a target");
        }
    }
}

/// Each target has a program, and each program a target: a target without a program is never fuzzed.
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

/// Runs every target with seeded noise of many lengths.
#[test]
fn noise_does_not_panic() {
    for target in hostile::TARGETS {
        let mut noise = Noise(0x5eed);
        // Recovery and imports open a volume each time, and have tests of their own.
        let rounds = if ["volume_finish", "import_archive"].contains(&target.name) { 200 } else { 2_000 };
        for round in 0..rounds {
            let length = (noise.next() % 1500) as usize;
            // Half of the inputs have few set bits: fields with small values pass more checks.
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
