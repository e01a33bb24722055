//! Changes attributes of files of its own. A refused call must not change any of them.

use std::collections::BTreeMap;

use model::Rng;
use volume::{FileId, SetAttribute, Volume};

use super::{CallResult, RoundState, pause};

/// Files of one actor.
pub const FILES: usize = 6;

/// A file and its expected attributes.
pub type FileAttributes = (FileId, BTreeMap<Vec<u8>, Vec<u8>>);
/// Several files and their expected attributes.
pub type ExpectedAttributes = Vec<FileAttributes>;

/// Runs the actor.
///
/// # Errors
/// A description of a wrong result.
pub fn work(
    state: &RoundState,
    files: &[FileId],
    mut rng: Rng,
    steps: usize,
) -> Result<ExpectedAttributes, String> {
    let mut expected: ExpectedAttributes = files.iter().map(|id| (*id, BTreeMap::new())).collect();
    for step in 0..steps {
        if state.is_over() {
            break;
        }
        let n = rng.index(expected.len());
        let (id, all) = &mut expected[n];
        let name = format!("user.{}", rng.below(12)).into_bytes();
        let result = if rng.one_in(12) {
            // The attributes start in the inode again.
            remove_all(state, *id, all)?
        } else if rng.one_in(4) {
            let removed = state.volume().remove_attribute(*id, &name);
            let result = state.classify("removexattr", removed)?.0;
            if result == CallResult::Done {
                all.remove(&name);
            }
            result
        } else {
            let longest = [20, 300, 4000, 60_000][rng.index(4)];
            let length = 1 + rng.index(longest);
            let value = rng.bytes(length);
            let set = state.volume().set_attribute(*id, &name, &value, SetAttribute::Any);
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
    id: FileId,
    all: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<CallResult, String> {
    while let Some((name, _)) = all.first_key_value() {
        let result = state.classify("removexattr", state.volume().remove_attribute(id, name))?.0;
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
    for (file, all) in expected {
        let id = file.ino;
        let describe = |error: volume::Error| format!("attributes of inode {id}: {error}");
        let mut names = volume.list_attributes(*file).map_err(describe)?;
        names.sort();
        if names != all.keys().cloned().collect::<Vec<_>>() {
            return Err(format!("inode {id} has {} attributes, expected {}", names.len(), all.len()));
        }
        for (name, value) in all {
            if volume.get_attribute(*file, name).map_err(describe)? != *value {
                return Err(format!("inode {id}: attribute {} has another value", name.escape_ascii()));
            }
        }
    }
    Ok(())
}
