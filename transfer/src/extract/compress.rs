//! Compression of an archive, by the suffix of its name.

use std::io::{self, Write};
use std::path::Path;

use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// Compression of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// gzip, level 6.
    Gzip,
    /// Zstandard, fastest level.
    Zstd,
    /// xz, preset 6.
    Xz,
    /// bzip2, level 9.
    Bzip2,
}

/// Suffixes of names; `.tar` may precede the others.
const SUFFIXES: [(&str, Compression); 11] = [
    ("tar", Compression::None),
    ("gz", Compression::Gzip),
    ("tgz", Compression::Gzip),
    ("zst", Compression::Zstd),
    ("tzst", Compression::Zstd),
    ("xz", Compression::Xz),
    ("txz", Compression::Xz),
    ("bz2", Compression::Bzip2),
    ("tbz2", Compression::Bzip2),
    ("tbz", Compression::Bzip2),
    ("tb2", Compression::Bzip2),
];

impl Compression {
    /// The compression of an archive with this name; `None` if the name has no suffix of an archive.
    pub fn of_name(path: &Path) -> Option<Self> {
        let suffix = path.extension()?.to_str()?;
        SUFFIXES
            .iter()
            .find(|(known, _)| suffix.eq_ignore_ascii_case(known))
            .map(|(_, compression)| *compression)
    }
}

/// A stream that compresses what is written to it.
pub struct Compressed<W: Write>(Encoder<W>);

enum Encoder<W: Write> {
    None(W),
    Gzip(GzEncoder<W>),
    Zstd(Frames<W>),
    Xz(Box<XzWriter<W>>),
    Bzip2(BzEncoder<W>),
}

impl<W: Write> Compressed<W> {
    /// Starts a stream, with the default levels of the programs of these names.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, compression: Compression) -> io::Result<Self> {
        Ok(Self(match compression {
            Compression::None => Encoder::None(out),
            Compression::Gzip => Encoder::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Compression::Zstd => Encoder::Zstd(Frames { out, pending: Vec::with_capacity(FRAME) }),
            Compression::Xz => Encoder::Xz(Box::new(XzWriter::new(out, XzOptions::with_preset(6))?)),
            Compression::Bzip2 => Encoder::Bzip2(BzEncoder::new(out, bzip2::Compression::best())),
        }))
    }

    /// Ends the stream, and returns `out`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Encoder::None(out) => Ok(out),
            Encoder::Gzip(gzip) => gzip.finish(),
            Encoder::Zstd(frames) => frames.finish(),
            Encoder::Xz(xz) => xz.finish(),
            Encoder::Bzip2(bzip2) => bzip2.finish(),
        }
    }
}

impl<W: Write> Write for Compressed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Encoder::None(out) => out.write(bytes),
            Encoder::Gzip(gzip) => gzip.write(bytes),
            Encoder::Zstd(frames) => frames.write(bytes),
            Encoder::Xz(xz) => xz.write(bytes),
            Encoder::Bzip2(bzip2) => bzip2.write(bytes),
        }
    }

    /// Does nothing: flushing would lengthen the stream.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes in a zstd frame: the default window of `zstd`.
const FRAME: usize = 8 << 20;

/// Independent zstd frames: the encoder compresses whole buffers, and an archive is a stream.
struct Frames<W> {
    out: W,
    pending: Vec<u8>,
}

impl<W: Write> Frames<W> {
    fn end_frame(&mut self) -> io::Result<()> {
        self.out.write_all(&compress_to_vec(self.pending.as_slice(), CompressionLevel::Fastest))?;
        self.pending.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.pending.len() == FRAME {
            self.end_frame()?;
        }
        let length = bytes.len().min(FRAME - self.pending.len());
        self.pending.extend_from_slice(bytes.get(..length).unwrap_or_default());
        Ok(length)
    }

    fn finish(mut self) -> io::Result<W> {
        self.end_frame()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_select_the_compression() {
        for (name, expected) in [
            ("a.tar", Some(Compression::None)),
            ("a.tar.gz", Some(Compression::Gzip)),
            ("out/a.TGZ", Some(Compression::Gzip)),
            ("a.zst", Some(Compression::Zstd)),
            ("a.tar.zst", Some(Compression::Zstd)),
            ("a.tar.xz", Some(Compression::Xz)),
            ("a.xz", Some(Compression::Xz)),
            ("a.tar.bz2", Some(Compression::Bzip2)),
            ("a.gz/", Some(Compression::Gzip)),
            (".tar", None),
            ("a", None),
            ("a.zip", None),
            ("tar", None),
        ] {
            assert_eq!(Compression::of_name(Path::new(name)), expected, "{name}");
        }
    }
}
