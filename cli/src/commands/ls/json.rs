//! Listings for programs.

use super::text::Line;
use crate::facts::Facts;
use crate::walk::join;

/// Appends one element per line; files that cannot be read are left out, as standard error has named them.
pub fn push<'l>(out: &mut Vec<u8>, directory: Option<&[u8]>, lines: impl Iterator<Item = Line<'l>>) {
    for line in lines {
        let Some(metadata) = &line.row.metadata else { continue };
        let path = directory.map_or_else(|| line.name.to_vec(), |directory| join(directory, line.name));
        Facts::new(&path, metadata, line.row.target.as_deref()).push(out);
    }
}
