//! Compression of an archive, told by its name.

use std::io::{self, Write};
use std::path::Path;

use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

/// Endings of names. With `.tar` before one of them the name is the same to us.
const ENDINGS: [(&str, Compression); 11] = [
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
    /// Of an archive with this name; `None` where it is not that of an archive.
    pub fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?;
        ENDINGS
            .iter()
            .find(|(known, _)| ending.eq_ignore_ascii_case(known))
            .map(|(_, compression)| *compression)
    }
}

/// What is written is compressed on its way.
pub enum Compressed<W: Write> {
    Not(W),
    Gzip(GzEncoder<W>),
    Zstd(Frames<W>),
    Xz(Box<XzWriter<W>>),
    Bzip2(BzEncoder<W>),
}

impl<W: Write> Compressed<W> {
    /// Begins a stream. Levels are those that the programs of these names take unasked.
    pub fn new(out: W, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::Not(out),
            Compression::Gzip => Self::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Compression::Zstd => Self::Zstd(Frames { out, waiting: Vec::with_capacity(FRAME) }),
            Compression::Xz => Self::Xz(Box::new(XzWriter::new(out, XzOptions::with_preset(6))?)),
            Compression::Bzip2 => Self::Bzip2(BzEncoder::new(out, bzip2::Compression::best())),
        })
    }

    /// Ends the stream.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Not(out) => Ok(out),
            Self::Gzip(gzip) => gzip.finish(),
            Self::Zstd(frames) => frames.finish(),
            Self::Xz(xz) => xz.finish(),
            Self::Bzip2(bzip2) => bzip2.finish(),
        }
    }
}

impl<W: Write> Write for Compressed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Not(out) => out.write(bytes),
            Self::Gzip(gzip) => gzip.write(bytes),
            Self::Zstd(frames) => frames.write(bytes),
            Self::Xz(xz) => xz.write(bytes),
            Self::Bzip2(bzip2) => bzip2.write(bytes),
        }
    }

    /// Does nothing: a stream that is cut into pieces is longer.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of a frame of zstd: as far as `zstd` looks back.
const FRAME: usize = 8 << 20;

/// Frames of zstd, each of which is compressed by itself: the encoder asks for what it compresses, and an archive comes
/// when it comes.
pub struct Frames<W> {
    out: W,
    waiting: Vec<u8>,
}

impl<W: Write> Frames<W> {
    fn end_frame(&mut self) -> io::Result<()> {
        self.out.write_all(&compress_to_vec(self.waiting.as_slice(), CompressionLevel::Fastest))?;
        self.waiting.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.waiting.len() == FRAME {
            self.end_frame()?;
        }
        let taken = bytes.len().min(FRAME - self.waiting.len());
        self.waiting.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        Ok(taken)
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
    fn names_tell_what_is_an_archive_and_how_it_is_compressed() {
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
            assert_eq!(Compression::of(Path::new(name)), expected, "{name}");
        }
    }
}
