//! Decompression of a stream, detected by its first bytes.
//!
//! # Invariants
//! A compressed stream is read to its end ([`Stream::finish`]): its checksums follow the contents, and an archive ends
//! before its stream.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read, Seek as _};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Size of the read buffer in bytes.
const BUFFER: usize = 256 << 10;
/// Maximum window of a compressed stream in bytes: twice the default of `zstd`, four times that of `xz -9`. Both
/// formats allow 4 GiB and more, and archives may be hostile.
const WINDOW_MAX: u64 = 256 << 20;
/// The limit for xz, as memory in KiB.
const XZ_MEMORY: u32 = (WINDOW_MAX >> 10) as u32 + (4 << 10);
/// Number of bytes that identify a format.
const MAGIC: usize = 6;

/// A source of members.
pub trait Stream: Read + Send {
    /// Skips bytes; returns their number if it is known, which is smaller only at the end.
    ///
    /// # Errors
    /// Errors of the stream.
    fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        io::copy(&mut Read::take(&mut *self, bytes), &mut io::sink())
    }

    /// Reads the rest of the stream, which verifies its checksums.
    ///
    /// # Errors
    /// Errors and damage of the stream.
    fn finish(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink()).map(drop)
    }
}

/// A stream before its format is known.
pub enum Raw {
    /// A file, at its beginning.
    File(File),
    /// A stream that cannot seek.
    Other(Box<dyn Read + Send>),
}

impl Read for Raw {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buf),
            Self::Other(other) => other.read(buf),
        }
    }
}

/// An uncompressed stream.
struct Plain(BufReader<Chain<Cursor<Vec<u8>>, Raw>>);

impl Read for Plain {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Stream for Plain {
    /// Skips within the file, beyond the buffer, without reading.
    fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        let here = self.0.buffer().len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.0.consume(here);
        let rest = bytes - here as u64;
        let (first, raw) = self.0.get_mut().get_mut();
        if rest <= BUFFER as u64 || first.position() < first.get_ref().len() as u64 {
            return Ok(here as u64 + io::copy(&mut self.0.by_ref().take(rest), &mut io::sink())?);
        }
        match raw {
            Raw::File(file) if file.metadata()?.is_file() => {
                let behind = file.metadata()?.len().saturating_sub(file.stream_position()?);
                let by = rest.min(behind);
                file.seek_relative(i64::try_from(by).map_err(|_| io::ErrorKind::InvalidData)?)?;
                Ok(here as u64 + by)
            }
            raw => Ok(here as u64 + io::copy(&mut raw.take(rest), &mut io::sink())?),
        }
    }

    /// The rest of a file is not read. A pipe is read, as its writer may fail otherwise.
    fn finish(&mut self) -> io::Result<()> {
        let (_, raw) = self.0.get_ref().get_ref();
        match raw {
            Raw::File(_) => Ok(()),
            Raw::Other(_) => io::copy(&mut self.0, &mut io::sink()).map(drop),
        }
    }
}

/// A compressed stream.
struct Unpacked<R>(BufReader<R>);

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<R: Read + Send> Stream for Unpacked<R> {}

impl Stream for Box<dyn Stream> {
    fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        (**self).skip(bytes)
    }

    fn finish(&mut self) -> io::Result<()> {
        (**self).finish()
    }
}

/// A stream with its first bytes, which were read to detect the format.
type Whole = BufReader<Chain<Cursor<Vec<u8>>, Raw>>;

/// The decompressed stream.
pub fn unpacked(mut input: Raw) -> io::Result<Box<dyn Stream>> {
    let mut magic = Vec::with_capacity(MAGIC);
    input.by_ref().take(MAGIC as u64).read_to_end(&mut magic)?;
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(magic.clone()).chain(input));
    match magic.as_slice() {
        [0x1f, 0x8b, ..] => Ok(buffered(Members(Some(GzDecoder::new(whole))))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Ok(buffered(Frames::new(whole)))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            Ok(buffered(Xz(XzReader::new_mem_limit(whole, true, XZ_MEMORY))))
        }
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Ok(buffered(Members(Some(BzDecoder::new(whole))))),
        _ => Ok(Box::new(Plain(whole))),
    }
}

fn buffered(input: impl Read + Send + 'static) -> Box<dyn Stream> {
    Box::new(Unpacked(BufReader::with_capacity(BUFFER, input)))
}

/// A decoder of concatenated streams.
trait MemberOf<R>: Read {
    /// The compressed input.
    const FORMAT: &str;

    /// Starts the next stream.
    fn next(source: R) -> Self;

    /// Returns the input after the end of a stream.
    fn into_source(self) -> R;
}

impl<R: BufRead> MemberOf<R> for GzDecoder<R> {
    const FORMAT: &str = "gzip";

    fn next(source: R) -> Self {
        Self::new(source)
    }

    fn into_source(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> MemberOf<R> for BzDecoder<R> {
    const FORMAT: &str = "bzip2";

    fn next(source: R) -> Self {
        Self::new(source)
    }

    fn into_source(self) -> R {
        self.into_inner()
    }
}

/// Concatenated members of gzip or bzip2, optionally followed by zeros (tapes).
struct Members<M>(Option<M>);

impl<M: MemberOf<Whole>> Read for Members<M> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !buf.is_empty()
            && let Some(member) = &mut self.0
        {
            let read = member.read(buf).map_err(|error| damaged(M::FORMAT, error))?;
            if read > 0 {
                return Ok(read);
            }
            self.0 = self.0.take().map(M::into_source).map(next_member).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// What follows a member: another one, or zeros up to the end.
fn next_member<R: BufRead, M: MemberOf<R>>(mut source: R) -> io::Result<Option<M>> {
    let mut are_zeros = false;
    loop {
        let buffer = source.fill_buf()?;
        let zeros = buffer.iter().take_while(|byte| **byte == 0).count();
        match (buffer.get(zeros), buffer.is_empty()) {
            (_, true) => return Ok(None),
            (Some(_), _) if are_zeros || zeros > 0 => {
                return Err(damaged(M::FORMAT, "data after the padding"));
            }
            (Some(_), _) => return Ok(Some(M::next(source))),
            (None, _) => source.consume(zeros),
        }
        are_zeros = true;
    }
}

/// An xz stream, with a memory limit.
struct Xz<R: Read>(XzReader<R>);

impl<R: Read> Read for Xz<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => io::Error::new(
                io::ErrorKind::OutOfMemory,
                "decompression needs more than 256 MiB of memory: if you trust it, xzcat FILE | xebec ... --from -",
            ),
            _ => damaged("xz", error),
        })
    }
}

/// Concatenated zstd frames. Skippable frames have no contents.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Self { source, decoder, within: false }
    }

    /// Starts the next frame; `false` at the end.
    fn begin(&mut self) -> io::Result<bool> {
        use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = length.into();
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(damaged("zstd", "it ends within a skippable frame"));
                    }
                }
                Err(FrameDecoderError::WindowSizeTooBig { requested, .. }) => {
                    return Err(io::Error::new(
                        io::ErrorKind::OutOfMemory,
                        format!(
                            "decompression takes {} MiB of memory (zstd --long), and the limit is 256 MiB: if you \
                             trust it, zstd -dc --long=31 FILE | xebec ... --from -",
                            requested.div_ceil(1 << 20)
                        ),
                    ));
                }
                Err(error) => return Err(damaged("zstd", error)),
            }
        }
    }
}

/// Converts the error of a decoder.
fn damaged(format: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    let error = error.into();
    match error.downcast::<io::Error>() {
        // Errors of the system and interruptions are passed on.
        Ok(error) if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted => *error,
        Ok(error) => damage(format, &error),
        Err(error) => damage(format, &error),
    }
}

fn damage(format: &str, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its {format} stream is damaged: {error}"))
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !buf.is_empty() {
            if !self.within {
                self.within = self.begin()?;
                if !self.within {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder
                    .decode_blocks(&mut self.source, blocks)
                    .map_err(|error| damaged("zstd", error))?;
            }
            let read = self.decoder.read(buf)?;
            if read > 0 {
                return Ok(read);
            }
            let (stored, found) =
                (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
            if stored.is_some_and(|stored| found != Some(stored)) {
                return Err(damaged("zstd", "the checksum of a frame does not match its contents"));
            }
            self.within = false;
        }
        Ok(0)
    }
}
