//! Compression of a stream, told by its first bytes.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes that are read from a file at once.
const BUFFER: usize = 256 << 10;
/// As many as tell a form.
const MAGIC: usize = 6;

/// The stream as it was before it was compressed.
pub fn unpacked(mut input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::with_capacity(MAGIC);
    input.by_ref().take(MAGIC as u64).read_to_end(&mut magic)?;
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(magic.clone()).chain(input));
    match magic.as_slice() {
        [0x1f, 0x8b, ..] => Ok(buffered(MultiGzDecoder::new(whole))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Ok(buffered(Frames::new(whole)))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Ok(buffered(XzReader::new(whole, true))),
        [b'B', b'Z', b'h', ..] => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it is compressed by bzip2, which is not read: bzcat FILE | xebec ... --from -",
        )),
        _ => Ok(Box::new(whole)),
    }
}

fn buffered(input: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(BufReader::with_capacity(BUFFER, input))
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
