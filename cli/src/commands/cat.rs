//! `xebec cat`: writes file contents to standard output.

use std::io::{self, Write as _};

use clap::Args;
use read::{FinalSymlink, Inode, Segment, Segments};

use crate::args::Global;
use crate::commands::Show;
use crate::failure::Failure;
use crate::open::{Files, Image};
use crate::output::Stdout;

/// Arguments of `cat`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Holes are written as zeros. Symbolic links are followed.\n\n\
    Examples:\n  xebec cat disk.xfs /etc/motd\n  xebec cat --inode 131 disk.xfs > found.bin\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error.")]
pub struct Arguments {
    #[command(flatten)]
    files: Files,
}

/// Size of a read, in bytes.
const CHUNK: usize = 1 << 20;

impl Show for Arguments {
    fn show(&self, image: &Image, _: &Global) -> anyhow::Result<()> {
        let mut copier = FileCopier { image, out: Stdout::raw(), buffer: Vec::new() };
        for (name, inode) in image.find_files(&self.files, FinalSymlink::Follow) {
            if let Err(error) = copier.file(&inode)? {
                image.messages.fail(Failure::at(&name, error));
            }
        }
        Ok(())
    }
}

/// Copies files to standard output.
struct FileCopier<'c> {
    image: &'c Image,
    out: Stdout,
    buffer: Vec<u8>,
}

impl FileCopier<'_> {
    /// The outer error is of standard output and ends the command; the inner error is of the file.
    fn file(&mut self, inode: &Inode) -> io::Result<Result<(), read::Error>> {
        let segments = match Segments::new(&self.image.volume, &inode.dinode(), 0) {
            Ok(segments) => segments,
            Err(error) => return Ok(Err(error)),
        };
        for segment in segments {
            let copied = match segment {
                Ok(Segment::Data { length, device_offset, .. }) => self.data(device_offset, length)?,
                Ok(Segment::Hole { length, .. }) => self.zeros(length).map(Ok)?,
                Err(error) => Err(error),
            };
            if copied.is_err() {
                return Ok(copied);
            }
        }
        Ok(Ok(()))
    }

    fn data(&mut self, from: u64, length: u64) -> io::Result<Result<(), read::Error>> {
        for (start, size) in chunks(length) {
            self.buffer.resize(size, 0);
            if let Err(error) = self.image.volume.device().read_at(from + start, &mut self.buffer) {
                return Ok(Err(error.into()));
            }
            self.out.write_all(&self.buffer)?;
        }
        Ok(Ok(()))
    }

    fn zeros(&mut self, length: u64) -> io::Result<()> {
        self.buffer.clear();
        for (_, size) in chunks(length) {
            self.buffer.resize(size, 0);
            self.out.write_all(&self.buffer)?;
        }
        Ok(())
    }
}

/// Splits a length into chunks, and returns the start and length of each.
fn chunks(length: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..length.div_ceil(CHUNK as u64)).map(move |n| {
        let start = n * CHUNK as u64;
        (start, (length - start).min(CHUNK as u64) as usize)
    })
}
