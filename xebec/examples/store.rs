//! A store of many small values in one image: a key is a file name, a value a file.
//!
//! `cargo run --release --example store -- [IMAGE [COUNT]]` stores COUNT values (10,000) in IMAGE, which is created if
//! it does not exist, opens it again, and reads them back.

use std::path::Path;

use xebec::{Dir, ImageBuilder, Volume};

/// Directories that share the keys, so that threads that add keys rarely meet.
const SHARDS: u64 = 256;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Values by their keys. Shared by any number of threads.
struct Store<'v> {
    shards: Vec<Dir<'v>>,
}

impl<'v> Store<'v> {
    fn open(volume: &'v Volume) -> Result<Self> {
        let root = Dir::root(volume)?;
        let open = |shard| {
            let name = format!("{shard:02x}");
            root.create_dir_all(&name)?;
            Ok(root.open_dir(&name)?)
        };
        Ok(Self { shards: (0..SHARDS).map(open).collect::<Result<_>>()? })
    }

    fn shard(&self, key: &str) -> &Dir<'v> {
        let hash = key.bytes().fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        &self.shards[(hash % SHARDS) as usize]
    }

    /// Sets a value. Readers see the old value or the new one, as a rename replaces it.
    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let (shard, temporary) = (self.shard(key), format!(".{key}"));
        shard.write(&temporary, value)?;
        Ok(shard.rename(&temporary, shard, key)?)
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.shard(key).read(key) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.errno() == xebec::errno::ENOENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let image = arguments.next().unwrap_or_else(|| "store.xfs".into());
    let count: u64 = arguments.next().map_or(Ok(10_000), |count| count.parse())?;
    if !Path::new(&image).exists() {
        // The file is sparse: it takes the space of what is stored.
        ImageBuilder::new(&image).size(16 << 30).build()?;
    }

    let volume = Volume::open_path(&image)?;
    let store = Store::open(&volume)?;
    std::thread::scope(|scope| {
        let put = |first: u64| {
            let mut keys = (first..count).step_by(4);
            keys.try_for_each(|n| store.put(&format!("key {n}"), format!("value {n}").as_bytes()))
        };
        let writers: Vec<_> = (0..4).map(|first| scope.spawn(move || put(first))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().map_err(|_| "a writer panicked")?)
    })?;
    volume.sync()?; // from here on, the values survive a power cut
    drop(store);
    volume.unmount()?;

    let volume = Volume::open_path(&image)?;
    let store = Store::open(&volume)?;
    for n in 0..count {
        let value = store.get(&format!("key {n}"))?;
        assert_eq!(value, Some(format!("value {n}").into_bytes()));
    }
    assert_eq!(store.get("no such key")?, None);
    println!("{count} values in {image}");
    drop(store);
    volume.unmount()?;
    Ok(())
}
