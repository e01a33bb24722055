//! Types in public signatures can be named by programs that depend on `xebec` alone.

use xebec::check::Finding;
use xebec::{Compression, Damage, ExtractReport, Extraction, Place, Settings, TransferError, inode_flags};

/// What a finding of a check consists of.
#[expect(dead_code, reason = "compiled only")]
fn parts(finding: &Finding) -> (Place, &Damage) {
    (finding.place, &finding.damage)
}

#[expect(dead_code, reason = "compiled only")]
fn archive(extraction: Extraction<'_>) -> Result<ExtractReport, TransferError> {
    extraction.to_file("disk.tar.gz", Compression::Gzip)
}

#[test]
fn inode_flags_are_bits_of_settings() {
    let settings = Settings { xflags: inode_flags::IMMUTABLE.into(), ..Settings::default() };
    assert_eq!(settings.xflags, 8);
}
