//! Changes attributes of files of its own. A refused call must not change any of them.

use std::collections::BTreeMap;

use base::Ino;
use model::Rng;
use volume::{SetAttribute, Volume};

use super::{CallResult, RoundState, pause};

/// Files of one actor.
pub const FILES: usize = 6;

/// A file and its expected attributes.
pub type FileAttributes = (Ino, BTreeMap<Vec<u8>, Vec<u8>>);
/// Several files and their expected attributes.
pub type ExpectedAttributes = Vec<FileAttributes>;

/// Runs the actor.
///
/// # Errors
/// A description of a wrong result.
pub fn work(
    state: &RoundState,
    files: &[Ino],
    mut rng: Rng,
    steps: usize,
) -> Result<ExpectedAttributes, String> {
    let mut expected: ExpectedAttributes = files.iter().map(|ino| (*ino, BTreeMap::new())).collect();
    for step in 0..steps {
        if state.is_over() {
            break;
        }
        let n = rng.index(expected.len());
        let (ino, all) = &mut expected[n];
        let name = format!("user.{}", rng.below(12)).into_bytes();
        let result = if rng.one_in(12) {
            // The attributes start in the inode again.
            remove_all(state, *ino, all)?
        } else if rng.one_in(4) {
            let removed = state.volume().remove_attribute(*ino, &name);
            let result = state.classify("removexattr", removed)?.0;
            if result == CallResult::Done {
                all.remove(&name);
            }
            result
        } else {
            let longest = [20, 300, 4000, 60_000][rng.index(4)];
            let length = 1 + rng.index(longest);
            let value = rng.bytes(length);
            let set = state.volume().set_attribute(*ino, &name, &value, SetAttribute::Any);
            let result = state.classify("setxattr", set)?.0;
            if result == CallResult::Done {
                all.insert(name, value);
            }
            result
        };
        match result {
            CallResult::Failed => return Ok(Vec::new()),
            CallResult::Refused | CallResult::Done if result == CallResult::Refused || rng.one_in(10) => {
                let same = compare(state.volume(), &expected[n..=n]);
                same.or_else(|what| if state.fails { Ok(()) } else { Err(format!("step {step}: {what}")) })?;
            }
            CallResult::Refused | CallResult::Done => {}
        }
        pause(&mut rng);
    }
    Ok(if state.fails { Vec::new() } else { expected })
}

/// Removes all attributes of a file, until a call fails.
fn remove_all(
    state: &RoundState,
    ino: Ino,
    all: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<CallResult, String> {
    while let Some((name, _)) = all.first_key_value() {
        let result = state.classify("removexattr", state.volume().remove_attribute(ino, name))?.0;
        if result != CallResult::Done {
            return Ok(result);
        }
        all.pop_first();
    }
    Ok(CallResult::Done)
}

/// Compares all attributes of files.
///
/// # Errors
/// The first difference.
pub fn compare(volume: &Volume, expected: &[FileAttributes]) -> Result<(), String> {
    for (ino, all) in expected {
        let describe = |error: volume::Error| format!("attributes of inode {ino}: {error}");
        let mut names = volume.list_attributes(*ino).map_err(describe)?;
        names.sort();
        if names != all.keys().cloned().collect::<Vec<_>>() {
            return Err(format!("inode {ino} has {} attributes, expected {}", names.len(), all.len()));
        }
        for (name, value) in all {
            if volume.get_attribute(*ino, name).map_err(describe)? != *value {
                return Err(format!("inode {ino}: attribute {} has another value", name.escape_ascii()));
            }
        }
    }
    Ok(())
}
