//! Archives that are damaged, cut or none: every one is told, whatever it is compressed by.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io::{Cursor, Write as _};

use model::Rng;
use tar::EntryType;
use xebec_transfer::{Archive, Item, Loss, Receiver, Result, Source as _};

mod scene;

use scene::{archive, member};

/// Keeps what a source gives.
#[derive(Default)]
struct Seen(Vec<String>);

impl Receiver for Seen {
    fn take(&mut self, item: Item) -> Result<()> {
        self.0.push(format!("{item:?}"));
        Ok(())
    }

    fn lose(&mut self, lost: Loss) {
        self.0.push(format!("{lost:?}"));
    }
}

fn read(bytes: Vec<u8>) -> Result<Vec<String>> {
    let mut seen = Seen::default();
    Archive::from_reader("the archive", Cursor::new(bytes)).read(true, 1, &mut seen)?;
    Ok(seen.0)
}

/// Some files, one of them of bytes that cannot be compressed, with the empty records that GNU tar writes behind them.
fn sample() -> Vec<u8> {
    let mut plain = archive(|builder| {
        member(builder, EntryType::Directory, "etc/", "", b"");
        member(builder, EntryType::Regular, "etc/motd", "", &Rng::new(15).bytes(3000));
        member(builder, EntryType::Symlink, "etc/mtab", "/proc/mounts", b"");
    });
    plain.resize(plain.len().next_multiple_of(10240), 0);
    plain
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    xz.write_all(bytes).unwrap();
    xz.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut bzip2 = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
    bzip2.write_all(bytes).unwrap();
    bzip2.finish().unwrap()
}

type Compress = fn(&[u8]) -> Vec<u8>;
const COMPRESSIONS: [(&str, Compress); 4] = [("gzip", gzip), ("zstd", zstd), ("xz", xz), ("bzip2", bzip2)];

/// Reading stopped at the empty blocks that end an archive, before the checksum of the stream was read: of a flipped
/// bit in a file nothing was told. (Header fields without a meaning here, such as gzip's time, are not checked by
/// anybody: then all is as it was.)
#[test]
fn a_flipped_bit_is_told_or_changes_nothing() {
    let plain = sample();
    for (name, compress) in COMPRESSIONS {
        let whole = compress(&plain);
        let expected = read(whole.clone()).unwrap();
        let mut told = 0;
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            match read(damaged) {
                Ok(seen) => assert!(seen == expected, "{name}: byte {at} of {}", whole.len()),
                Err(_) => told += 1,
            }
        }
        assert!(told > whole.len() * 9 / 10, "{name}: {told} of {}", whole.len());
    }
}

/// The same of a missing end.
#[test]
fn a_cut_stream_is_told_wherever_it_is_cut() {
    let plain = sample();
    for (name, compress) in COMPRESSIONS {
        let whole = compress(&plain);
        for length in 1..whole.len() {
            assert!(read(whole[..length].to_vec()).is_err(), "{name}: {length} of {} bytes", whole.len());
        }
    }
}

/// Streams of several members, as `cat a.gz b.gz` makes them, were read as far as the archive's end, too.
#[test]
fn every_part_of_a_stream_is_checked() {
    let plain = sample();
    // The end of the archive lies in the first part: only its empty records are in the second.
    let (front, back) = plain.split_at(plain.len() - 1024);
    for (name, compress) in COMPRESSIONS {
        let parts = [compress(front), compress(back)];
        let whole = parts.concat();
        let expected = read(compress(&plain)).unwrap();
        assert_eq!(read(whole.clone()).unwrap(), expected, "{name}");
        let last = whole.len() - 1;
        assert!(read(whole[..last].to_vec()).is_err(), "{name}: cut");
        let mut damaged = whole.clone();
        damaged[parts[0].len() + parts[1].len() / 2] ^= 1;
        assert!(read(damaged).is_err(), "{name}: damaged");
        assert!(read([&whole[..], b"something else"].concat()).is_err(), "{name}: something behind it");
    }
    // Tapes pad with zeros, which gzip and xz know, and bzip2 passes over.
    for compress in [gzip, xz, bzip2] {
        let padded = [compress(&plain), vec![0; 2048]].concat();
        assert_eq!(read(padded).unwrap(), read(plain.clone()).unwrap());
    }
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0][..], b"cut"].concat();
    assert!(read([zstd(&plain), skipped].concat()).is_err(), "a frame to be skipped is cut");
}

/// A file of zeros or of nothing, as a failed download leaves it, made an empty image.
#[test]
fn nothing_and_zeros_are_no_archives() {
    for length in [0, 1, 511, 512, 1024, 10240, 1 << 20] {
        let zeros = vec![0; length];
        for bytes in [gzip(&zeros), zstd(&zeros), xz(&zeros), bzip2(&zeros), zeros] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains("not a tar archive"), "{length}: {error}");
        }
    }
}

/// One empty block among members, as a bad sector leaves it, ended the archive, and all behind it was missing.
#[test]
fn an_empty_block_within_is_damage() {
    let plain = sample();
    let members = 512 + 512 + 3072 + 512;
    assert!(plain[members - 512..members].iter().any(|byte| *byte != 0) && plain[members..][0] == 0);
    let mut damaged = plain.clone();
    damaged[512..1024].fill(0);
    let error = read(damaged).unwrap_err().to_string();
    assert!(error.contains("single empty block"), "{error}");
    // Writers that leave the end out, or half of it, are many.
    for length in [members, members + 512, members + 1024] {
        assert_eq!(read(plain[..length].to_vec()).unwrap(), read(plain.clone()).unwrap());
    }
}
