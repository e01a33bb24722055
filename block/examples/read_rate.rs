//! Compares the ways of reading one file: `cargo run --release -p xebec-block --example read_rate -- FILE [KIB]`.
//!
//! Reads all of FILE in pieces of KIB (default 32) with 2 threads, in random order, one by one and in batches, with
//! pread and io_uring: buffered with the file in the page cache, buffered without, and with direct I/O. Prints the
//! median of 5 runs in MiB/s.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use xebec_block::{AlignedBuf, Device, FileDevice, Io, OpenOptions, ReadRequest};

const THREADS: usize = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: read_rate FILE [KIB]")?;
    let path = Path::new(&path);
    let piece = std::env::args().nth(2).map_or(Ok(32), |kib| kib.parse::<usize>())? << 10;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:<9} {:<6} {:>6} {:>10}", "cache", "io", "batch", "MiB/s")?;
    for (cache, direct, drop_cache) in
        [("warm", false, false), ("cold", false, true), ("direct", true, false)]
    {
        for batch in [1, 8, 32, 128] {
            for io in [Io::Pread, Io::Uring] {
                let device = FileDevice::open(path, &OpenOptions { direct, io, ..OpenOptions::default() })?;
                let mut rates = (0..5)
                    .map(|_| {
                        if drop_cache {
                            fadvise(File::open(path)?, 0, None, Advice::DontNeed)?;
                        }
                        rate(&device, piece, batch)
                    })
                    .collect::<Result<Vec<f64>, Box<dyn std::error::Error>>>()?;
                rates.sort_by(f64::total_cmp);
                writeln!(
                    out,
                    "{cache:<9} {:<6} {batch:>6} {:>10.0}",
                    format!("{io:?}").to_lowercase(),
                    rates[2]
                )?;
            }
        }
    }
    Ok(())
}

/// Reads the whole device once and returns the rate in MiB/s.
fn rate(device: &FileDevice, piece: usize, batch: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let pieces = device.size() / piece as u64;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64)
            .map(|thread| {
                scope.spawn(move || {
                    // A prime stride visits each piece once, in an order that readahead cannot predict.
                    let offsets = (thread..pieces).step_by(THREADS).map(|i| i * 7919 % pieces * piece as u64);
                    read_all(device, piece, batch, offsets.collect())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread failed")?)
    })?;
    Ok(device.size() as f64 / (1 << 20) as f64 / start.elapsed().as_secs_f64())
}

fn read_all(device: &FileDevice, piece: usize, batch: usize, offsets: Vec<u64>) -> Result<(), &'static str> {
    let mut buffer = AlignedBuf::zeroed(batch * piece);
    for group in offsets.chunks(batch) {
        let bufs = buffer.chunks_mut(piece);
        let mut reads: Vec<_> =
            group.iter().zip(bufs).map(|(&offset, buf)| ReadRequest::new(offset, buf)).collect();
        match reads.as_mut_slice() {
            [one] => device.read_at(one.offset, one.buf),
            many => device.read_many(many),
        }
        .map_err(|_| "a read failed")?;
    }
    Ok(())
}
