//! Tests of the model of contents against a plain vector of bytes.

use super::*;

/// Applies a call to a vector of all bytes.
fn apply_to_vec(bytes: &mut Vec<u8>, call: &Call) {
    match *call {
        Call::Write { at, length, seed, .. } => {
            let end = (at + length) as usize;
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at as usize..end].copy_from_slice(&fill(seed, at, length));
        }
        Call::Append { length, seed, .. } => bytes.extend(fill(seed, bytes.len() as u64, length)),
        Call::SetSize { size, .. } => bytes.resize(size as usize, 0),
        Call::Fallocate { mode, at, length, keep_size, .. } => {
            let (at, end) = (at as usize, (at + length) as usize);
            if matches!(mode, FallocateMode::Allocate | FallocateMode::Zero | FallocateMode::Unshare)
                && !keep_size
                && bytes.len() < end
            {
                bytes.resize(end, 0);
            }
            let known = at.min(bytes.len())..end.min(bytes.len());
            match mode {
                FallocateMode::Punch | FallocateMode::Zero => bytes[known].fill(0),
                FallocateMode::Collapse => drop(bytes.drain(at..end)),
                FallocateMode::Insert => drop(bytes.splice(at..at, vec![0; length as usize])),
                FallocateMode::Allocate | FallocateMode::Unshare => {}
            }
        }
        Call::Clone { from_at, to_at, length, .. } => {
            let length = if length == 0 { bytes.len() as u64 - from_at } else { length };
            if length == 0 {
                return;
            }
            let chunk = bytes[from_at as usize..(from_at + length) as usize].to_vec();
            let end = (to_at + length) as usize;
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[to_at as usize..end].copy_from_slice(&chunk);
        }
        _ => {}
    }
}

#[test]
fn model_matches_a_plain_vector() {
    for seed in 0..30 {
        let mut files = Files::new(1, 1024);
        let mut calls = CallGenerator::new(seed, 200_000, true, Some(512));
        let mut bytes = Vec::new();
        for n in 0..300 {
            let call = calls.next(&files);
            let outcome = files.apply(&call);
            if let Outcome::Read(found) = &outcome {
                let Call::Read { at, length, .. } = call else { unreachable!("only reads read") };
                let end = ((at + length) as usize).min(bytes.len());
                assert_eq!(*found, bytes[(at as usize).min(end)..end], "seed {seed}, call {n}");
            }
            if !matches!(outcome, Outcome::Refused(_)) {
                apply_to_vec(&mut bytes, &call);
            }
            assert_eq!(files.get(0).size(), bytes.len() as u64, "seed {seed}, call {n}: {call:?}");
        }
        assert_eq!(files.get(0).read(0, u64::MAX), bytes, "seed {seed}");
    }
}

#[test]
fn huge_offsets_need_no_memory() {
    let mut files = Files::new(1, 4096);
    files.apply(&Call::Write { file: 0, at: 1 << 50, length: 3, seed: 1, direct: false });
    files.apply(&Call::SetSize { file: 0, size: i64::MAX as u64 });
    assert!(files.get(0).has_data((1 << 50) - 10, (1 << 50) + 10));
    assert!(!files.get(0).has_data(1 << 40, (1 << 40) + 4096));
    let far = Call::Fallocate {
        file: 0,
        mode: FallocateMode::Allocate,
        at: u64::MAX - 5,
        length: 4,
        keep_size: false,
    };
    assert_eq!(files.apply(&far), Outcome::Refused(27));
}
