//! The model of contents, against a plain list of bytes.

use super::*;

/// Does the same to a list that has all bytes.
fn plain(bytes: &mut Vec<u8>, call: &Call) {
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
        Call::Reserve { what, at, length, keep, .. } => {
            let (at, end) = (at as usize, (at + length) as usize);
            if matches!(what, Reserve::Allocate | Reserve::Zero | Reserve::Unshare)
                && !keep
                && bytes.len() < end
            {
                bytes.resize(end, 0);
            }
            let known = at.min(bytes.len())..end.min(bytes.len());
            match what {
                Reserve::Punch | Reserve::Zero => bytes[known].fill(0),
                Reserve::Collapse => drop(bytes.drain(at..end)),
                Reserve::Insert => drop(bytes.splice(at..at, vec![0; length as usize])),
                Reserve::Allocate | Reserve::Unshare => {}
            }
        }
        Call::Clone { from_at, to_at, length, .. } => {
            let length = if length == 0 { bytes.len() as u64 - from_at } else { length };
            if length == 0 {
                return;
            }
            let piece = bytes[from_at as usize..(from_at + length) as usize].to_vec();
            let end = (to_at + length) as usize;
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[to_at as usize..end].copy_from_slice(&piece);
        }
        _ => {}
    }
}

#[test]
fn contents_are_those_of_a_plain_list() {
    for seed in 0..30 {
        let mut files = Files::new(1, 1024);
        let mut calls = Calls::new(seed, 200_000, true, Some(512));
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
                plain(&mut bytes, &call);
            }
            assert_eq!(files.get(0).size(), bytes.len() as u64, "seed {seed}, call {n}: {call:?}");
        }
        assert_eq!(files.get(0).read(0, u64::MAX), bytes, "seed {seed}");
    }
}

#[test]
fn huge_offsets_take_no_memory() {
    let mut files = Files::new(1, 4096);
    files.apply(&Call::Write { file: 0, at: 1 << 50, length: 3, seed: 1, direct: false });
    files.apply(&Call::SetSize { file: 0, size: i64::MAX as u64 });
    assert!(files.get(0).holds((1 << 50) - 10, (1 << 50) + 10));
    assert!(!files.get(0).holds(1 << 40, (1 << 40) + 4096));
    let far = Call::Reserve { file: 0, what: Reserve::Allocate, at: u64::MAX - 5, length: 4, keep: false };
    assert_eq!(files.apply(&far), Outcome::Refused(27));
}
