//! Sizes and options. A case is the size of the volume in bytes and the options.

pub type Case = (u64, String);

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

const BLOCK_SIZES: [u64; 7] = [1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// Returns all block sizes, with volume sizes at and next to each limit of the default geometry.
pub fn sizes() -> Vec<Case> {
    let sizes = [
        16 * MIB,
        17 * MIB + 12288,
        32 * MIB,
        64 * MIB,
        65 * MIB + 4096,
        128 * MIB,
        300 * MIB - 65536,
        300 * MIB,
        GIB,
        GIB + 65536,
        10 * GIB,
        TIB - 65536,
        TIB,
        4 * TIB - 65536,
        4 * TIB,
        5 * TIB + 17 * MIB,
    ];
    let mut cases = Vec::new();
    for block_size in BLOCK_SIZES {
        // Minimum size for the log with large blocks.
        let least = match block_size {
            0..=4096 => 16 * MIB,
            8192 => 128 * MIB,
            16384 => 300 * MIB,
            32768 => 300 * MIB,
            _ => GIB,
        };
        let fitting = sizes.iter().filter(|size| **size >= least);
        cases.extend(fitting.map(|size| (*size, format!("-b size={block_size}"))));
    }
    cases
}

const OPTIONS: &[&str] = &[
    "-s size=4096",
    "-s size=1024",
    "-s size=2048 -b size=2048",
    "-s size=4096 -b size=16384",
    "-s size=512 -b size=65536",
    "-i size=1024",
    "-i size=2048",
    "-i size=2048 -b size=65536",
    "-i perblock=4",
    "-i maxpct=50",
    "-i maxpct=0",
    "-i sparse=0 -b size=1024",
    "-i sparse=0 -b size=16384",
    "-n size=8192",
    "-n size=65536",
    "-n size=65536 -b size=1024",
    "-n version=ci",
    "-L label",
    "-L twelve_bytes",
    "-K",
    "-d agcount=1",
    "-d agcount=2",
    "-d agcount=3",
    "-d agcount=5",
    "-d agcount=16",
    "-d agsize=17m",
    "-d agsize=20000b",
    "-d agsize=64m",
    "-d size=400m",
    "-d size=102401b",
    "-d noalign",
    "-d su=64k,sw=4",
    "-d su=64k,sw=1",
    "-d su=1m,sw=1",
    "-d su=1m,sw=3",
    "-d su=512k,sw=4",
    "-d su=256k,sw=2",
    "-d su=4k,sw=8",
    "-d su=12k,sw=3",
    "-d sunit=8,swidth=24",
    "-d sunit=128,swidth=128",
    "-d su=0,sw=0",
    "-d su=64k,sw=4,agcount=5",
    "-d su=64k,sw=4,agcount=8",
    "-d su=64k,sw=4,agsize=32m",
    "-d su=64k,sw=2,agsize=20001b",
    "-d su=64k,sw=4 -b size=1024",
    "-d su=64k,sw=4 -b size=65536",
    "-d su=64k,sw=4 -s size=4096",
    "-d su=64k,sw=4 -l su=32k",
    "-d su=64k,sw=4 -i size=2048",
    "-d su=64k,sw=4 -i sparse=0",
    "-d sectsize=4096",
    "-l su=32k",
    "-l su=64k",
    "-l su=256k",
    "-l su=4k",
    "-l sunit=64",
    "-l su=32k -b size=1024",
    "-l size=32m",
    "-l size=10000b",
    "-l size=32m,su=32k",
    "-l size=32m -d su=64k,sw=4",
    "-l agnum=0",
    "-l agnum=1",
    "-l agnum=3",
    "-l agnum=0,su=64k",
    "-l agnum=0 -d su=64k,sw=4",
    "-l internal,version=2,lazy-count=1",
    "-m crc=1,metadir=0 -n ftype=1 -i attr=2,projid32bit=1",
];

/// Returns each option, at a few sizes.
pub fn options() -> Vec<Case> {
    let sizes = [600 * MIB, 2 * GIB + 12288, 20 * GIB];
    sizes.iter().flat_map(|size| OPTIONS.iter().map(|line| (*size, (*line).to_owned()))).collect()
}

/// Returns combinations of features.
pub fn features() -> Vec<Case> {
    let mut cases = Vec::new();
    for bits in 0..1u32 << 8 {
        let on = |n: u32| bits >> n & 1;
        let [rmapbt, reflink, finobt, bigtime] = [on(0), on(1), on(2), on(3)];
        let [sparse, nrext64, exchange, parent] = [on(4), on(5), on(6), on(7)];
        // Half of all combinations, such that every pair of features has all four values.
        if bits.count_ones() % 2 == 1 {
            continue;
        }
        let block_size = [1024, 4096, 16384][bits as usize / 2 % 3];
        // Parent pointers need exchange-range.
        let exchange = exchange | parent;
        cases.push((
            (600 + u64::from(bits)) * MIB,
            format!(
                "-b size={block_size} -m rmapbt={rmapbt},reflink={reflink},finobt={finobt},bigtime={bigtime} \
                 -i sparse={sparse},nrext64={nrext64},exchange={exchange} -n parent={parent}"
            ),
        ));
    }
    cases.push((GIB, "-m inobtcount=0".into()));
    cases
}

/// Returns cases with a too small log, for all parameters of the minimum.
pub fn logs() -> Vec<Case> {
    let mut cases = Vec::new();
    for block_size in [4096, 8192, 16384, 65536] {
        for size in [600 * MIB, 3 * GIB, TIB] {
            for metadata in
                ["rmapbt=1", "rmapbt=0", "reflink=0", "reflink=0,rmapbt=0", "reflink=0,rmapbt=0,finobt=0"]
            {
                for rest in [
                    "",
                    "-i nrext64=0",
                    "-n parent=1",
                    "-n parent=1 -i nrext64=0",
                    "-n size=65536",
                    "-n size=65536,parent=1",
                    "-i size=2048",
                    "-s size=4096",
                ] {
                    // Less than most minima.
                    cases.push((size, format!("-b size={block_size} -m {metadata} {rest} -l size=512b")));
                }
            }
        }
    }
    cases
}

/// Returns volumes for `xfs_repair` and the kernel, most of them smaller than `mkfs.xfs` permits outside of its tests.
pub fn judged() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [16, 17, 31, 32, 48, 63, 64, 100, 128, 299] {
        for block_size in [1024, 2048, 4096] {
            cases.push((size * MIB, format!("-b size={block_size}")));
        }
    }
    cases.extend([
        // 16 MiB would fit only the log.
        (32 * MIB, "-m rmapbt=0,reflink=0".into()),
        (16 * MIB, "-m finobt=0".into()),
        (16 * MIB, "-n parent=1 -i exchange=1".into()),
        (16 * MIB, "-s size=4096".into()),
        (16 * MIB, "-i size=2048".into()),
        (64 * MIB, "-d agcount=4 -i sparse=0,nrext64=0 -m bigtime=0".into()),
        (64 * MIB, "-d agcount=4,su=64k,sw=4 -l agnum=3".into()),
        (64 * MIB, "-i sparse=0 -n size=65536".into()),
        (128 * MIB, "-d su=64k,sw=4".into()),
        (300 * MIB, "-n parent=1".into()),
        (600 * MIB, "-l agnum=0 -d su=64k,sw=4".into()),
        (GIB, String::new()),
        (GIB, "-d su=64k,sw=4".into()),
        (GIB, "-b size=16384".into()),
        (GIB, "-b size=65536".into()),
    ]);
    cases
}

/// Returns invalid options.
pub fn refused() -> Vec<Case> {
    let lines = [
        "-b size=512",
        "-b size=3000",
        "-b size=131072",
        "-s size=4096 -b size=1024",
        "-i size=256",
        "-i size=4096",
        "-i maxpct=101",
        "-i attr=1",
        "-n size=512",
        "-n size=131072",
        "-n ftype=0",
        "-n version=1",
        "-L thirteencharx",
        "-m uuid=zz",
        "-m foo=1",
        "-m bigtime=0,bigtime=1",
        "-m finobt=0,inobtcount=1",
        "-m rmapbt=2",
        "-d agcount=0",
        "-d agcount=100",
        "-d agsize=2g",
        "-d agsize=1m",
        "-d agsize=64mb",
        "-d agcount=4,agsize=100m",
        "-d size=2g",
        "-d size=1m",
        "-d su=64k",
        "-d sunit=8",
        "-d su=6k,sw=2",
        "-d su=64k,sw=2,sunit=8",
        "-d su=64k,sw=2,noalign",
        "-d sunit=8,swidth=12",
        "-l size=1m",
        "-l size=2g",
        "-l size=10001b,su=64k",
        "-l su=512k",
        "-l sunit=1",
        "-l su=32k,sunit=64",
        "-l sectsize=4096",
        "-l version=1",
        "-l lazy-count=0",
        "-l internal=0",
        "-l agnum=4",
        "-r size=100m",
    ];
    lines.iter().map(|line| (GIB, (*line).to_owned())).collect()
}
