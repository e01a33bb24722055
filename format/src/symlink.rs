//! Symlink targets, inline or in remote blocks. (Format document, "Symbolic Links".)
//!
//! Unlike for attribute values, contiguous blocks have only one header, at their start, and one checksum.

use crate::damage::Damage;
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::remote_block;

/// `XSLM`.
pub const MAGIC: u32 = u32::from_be_bytes(*b"XSLM");
/// Maximum length of a target in bytes.
pub const MAX_TARGET: u32 = 1024;
const NAME: &str = "symlink target";

/// Number of blocks of a target, computed as if each had a header.
pub use crate::attr::remote::block_count;

/// Verifies a contiguous range of blocks, which is all of `bytes`, of a target of `length` bytes. Returns its part of
/// the target, which begins at byte `offset`.
pub fn verify<'a>(
    bytes: &'a [u8],
    geometry: &Geometry,
    at: ForkBlock,
    offset: u32,
    length: u32,
) -> Result<&'a [u8], Damage> {
    remote_block::verify(NAME, MAGIC, bytes, geometry, at, (offset, length))
}

/// Verifies a complete target: 1 to [`MAX_TARGET`] bytes without NUL.
pub fn verify_target(target: &[u8]) -> Result<(), Damage> {
    ensure!(
        (1..=MAX_TARGET as usize).contains(&target.len()),
        NAME,
        "size",
        format_args!("1 to {MAX_TARGET} bytes"),
        target.len()
    );
    ensure!(
        !target.contains(&0),
        NAME,
        "target",
        "a path without NUL",
        format_args!("\"{}\"", target.escape_ascii())
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fixture, fixture, geometry};

    #[test]
    fn a_target_written_by_the_kernel_decodes() {
        let (geometry, Fixture { at, bytes }) = (geometry(), fixture("symlink"));
        let target = verify(&bytes, &geometry, at, 0, 901).unwrap();
        assert_eq!(target, [&[b'x'; 600][..], b"/", &[b'y'; 300]].concat());
        assert_eq!(verify_target(target), Ok(()));
        assert_eq!(verify(&bytes, &geometry, at, 0, 900).unwrap_err().field(), "bytes");
        assert_eq!(verify_target(b"").unwrap_err().field(), "size");
        assert_eq!(verify_target(b"a\0b").unwrap_err().field(), "target");
    }
}
