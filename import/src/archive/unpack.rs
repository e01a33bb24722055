//! Compression of a stream, told by its first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read, Seek as _};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes that are read from a file at once.
const BUFFER: usize = 256 << 10;
/// Memory for what is compressed by xz, in KiB: four times what `xz -9` needs. Its format allows 4 GiB, and an archive
/// may come from anybody.
const XZ_MEMORY: u32 = 260 << 10;
/// As many as tell a form.
const MAGIC: usize = 6;

/// What members are read from.
pub trait Stream: Read + Send {
    /// Passes over bytes; how many, as far as that shows: fewer only at the end.
    ///
    /// # Errors
    /// What reading meets.
    fn pass_over(&mut self, bytes: u64) -> io::Result<u64> {
        io::copy(&mut Read::take(&mut *self, bytes), &mut io::sink())
    }
}

/// As it came, before it is known what it is.
pub enum Raw {
    /// A file, at its beginning.
    File(File),
    /// What can only be read on.
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

/// What is not compressed.
struct Plain(BufReader<Chain<Cursor<Vec<u8>>, Raw>>);

impl Read for Plain {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Stream for Plain {
    /// What lies in a file behind what is in memory is not read. If the file ends within it, the next read finds that.
    fn pass_over(&mut self, bytes: u64) -> io::Result<u64> {
        let here = self.0.buffer().len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.0.consume(here);
        let rest = bytes - here as u64;
        let (first, raw) = self.0.get_mut().get_mut();
        if rest <= BUFFER as u64 || first.position() < first.get_ref().len() as u64 {
            return Ok(here as u64 + io::copy(&mut self.0.by_ref().take(rest), &mut io::sink())?);
        }
        match raw {
            Raw::File(file) if file.metadata()?.is_file() => {
                let by = i64::try_from(rest).map_err(|_| io::ErrorKind::InvalidData)?;
                file.seek_relative(by)?;
                Ok(bytes)
            }
            raw => Ok(here as u64 + io::copy(&mut raw.take(rest), &mut io::sink())?),
        }
    }
}

/// What was compressed.
struct Unpacked<R>(BufReader<R>);

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<R: Read + Send> Stream for Unpacked<R> {}

impl Stream for Box<dyn Stream> {
    fn pass_over(&mut self, bytes: u64) -> io::Result<u64> {
        (**self).pass_over(bytes)
    }
}

/// The stream as it was before it was compressed.
pub fn unpacked(mut input: Raw) -> io::Result<Box<dyn Stream>> {
    let mut magic = Vec::with_capacity(MAGIC);
    input.by_ref().take(MAGIC as u64).read_to_end(&mut magic)?;
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(magic.clone()).chain(input));
    match magic.as_slice() {
        [0x1f, 0x8b, ..] => Ok(buffered(MultiGzDecoder::new(whole))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Ok(buffered(Frames::new(whole)))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            Ok(buffered(Xz(XzReader::new_mem_limit(whole, true, XZ_MEMORY))))
        }
        [b'B', b'Z', b'h', ..] => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it is compressed by bzip2, which is not read: bzcat FILE | xebec ... --from -",
        )),
        _ => Ok(Box::new(Plain(whole))),
    }
}

fn buffered(input: impl Read + Send + 'static) -> Box<dyn Stream> {
    Box::new(Unpacked(BufReader::with_capacity(BUFFER, input)))
}

/// What was compressed by xz, unless that takes too much memory.
struct Xz<R: Read>(XzReader<R>);

impl<R: Read> Read for Xz<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => io::Error::new(
                io::ErrorKind::OutOfMemory,
                "to unpack it takes more than 256 MiB of memory: if you trust it, xzcat FILE | xebec ... --from -",
            ),
            _ => error,
        })
    }
}

/// Frames of zstd, one behind the other. Those that are to be skipped have no contents.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), within: false }
    }

    /// Begins the next frame; `false` at the end.
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
                    io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(damaged(error)),
            }
        }
    }
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its zstd stream is damaged: {error}"))
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
                self.decoder.decode_blocks(&mut self.source, blocks).map_err(damaged)?;
            }
            let read = self.decoder.read(buf)?;
            if read > 0 {
                return Ok(read);
            }
            let (told, found) =
                (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
            if told.is_some_and(|told| found != Some(told)) {
                return Err(damaged("the checksum of a frame is not that of its contents"));
            }
            self.within = false;
        }
        Ok(0)
    }
}
