//! Compares the contents of a file of the host with those of a file in a volume.

use volume::{File, FileId, Volume};

use crate::directory::PIECE;
use crate::directory::host::OpenFile;
use crate::{Error, Result};

/// Compares files of the same size; holes on both sides are skipped.
pub(super) fn are_equal(file: &OpenFile, volume: &Volume, id: FileId, path: &[u8]) -> Result<bool> {
    let failed = || Error::volume(path);
    let there = volume.open_file(id).map_err(failed())?;
    let mut at = 0;
    while let Some(run) = file.next_run(at, PIECE)?.map(|run| run.bytes) {
        if !is_zero(&there, at, run.start).map_err(failed())? {
            return Ok(false);
        }
        let bytes = file.read(run.start, run.end - run.start)?;
        let mut other = vec![0; bytes.len()];
        if there.read_at(&mut other, run.start).map_err(failed())? != bytes.len() || bytes != other {
            return Ok(false);
        }
        at = run.end;
    }
    file.expect_unchanged()?;
    is_zero(&there, at, file.size()).map_err(failed())
}

/// Whether a range of a file in the volume contains only zeros.
fn is_zero(file: &File<'_>, from: u64, to: u64) -> volume::Result<bool> {
    let mut at = from;
    while at < to
        && let Some(data) = file.seek_data(at)?
    {
        at = data.max(at);
        let mut bytes = vec![0; PIECE.min(to.saturating_sub(at)) as usize];
        if file.read_at(&mut bytes, at)? < bytes.len() || bytes.iter().any(|byte| *byte != 0) {
            return Ok(bytes.is_empty());
        }
        at += bytes.len() as u64;
    }
    Ok(true)
}
