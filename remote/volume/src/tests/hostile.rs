use block::Device;
use store::faulty::{Faults, FaultyStore, Network};

use super::*;

fn volume() -> MemoryStore {
    let store = MemoryStore::default();
    make(&store, 10_000, 1);
    let device = ObjectDevice::open(shared(&store), small(2)).unwrap();
    (0..500).for_each(|n| write(&device, n * 19, n + 1));
    device.close().unwrap();
    // Segments behind the checkpoint.
    let device = ObjectDevice::open(shared(&store), small(3)).unwrap();
    write(&device, 3, 33);
    device.flush().unwrap();
    drop(device);
    store
}

fn quick(seed: u64) -> ObjectOptions {
    ObjectOptions { timeout: Duration::from_millis(200), take_over: true, ..small(seed) }
}

/// Whatever an object contains, opening and reading end, without a panic, and each block reads as it was, or fails, or
/// is that of an earlier state.
#[test]
fn damaged_objects_are_errors() {
    let store = volume();
    let random = Random::with_sequences(1, 9);
    let mut refused = 0;
    for key in store.keys() {
        for n in 0..40u64 {
            let copy = store.copy();
            let mut bytes = copy.get(&key, 1 << 30).unwrap().bytes.to_vec();
            match n % 4 {
                0 if !bytes.is_empty() => bytes.truncate((random.next_u64() % bytes.len() as u64) as usize),
                1 => bytes.extend_from_slice(&[7; 100]),
                _ => {
                    let at = random.next_u64() as usize % bytes.len();
                    // More often in headers.
                    let at = if n % 2 == 0 { at % 96 } else { at } % bytes.len();
                    bytes[at] ^= 1 << (random.next_u64() % 8);
                }
            }
            copy.overwrite(&key, bytes);
            for writer in [false, true] {
                let opened = match writer {
                    true => ObjectDevice::open(shared(&copy), quick(n)),
                    false => ObjectDevice::open_read_only(shared(&copy), None, quick(n)),
                };
                let Ok(device) = opened else {
                    refused += 1;
                    continue;
                };
                for at in (0..500).map(|n| n * 19).chain([3]) {
                    let mut found = vec![0; BLOCK];
                    if device.read_at(at * BLOCK as u64, &mut found).is_ok() {
                        let value = u64::from_le_bytes(found[..8].try_into().unwrap());
                        assert!([0, at / 19 + 1, 33].contains(&value), "{key}: block {at} is {value}");
                    }
                }
                let _ = device.flush();
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn short_and_corrupt_replies_are_read_again() {
    let store = volume();
    let network = Network::new(store);
    let faults = Faults { short: 50, corrupt: 50, refused: 50, ..Faults::default() };
    let client = FaultyStore::new(network, faults, 4);
    let options = ObjectOptions { take_over: true, ..small(5) };
    let device = ObjectDevice::open(Arc::new(client), options).unwrap();
    (0..500).for_each(|n| assert_eq!(read(&device, n * 19), n + 1));
    write(&device, 3, 34);
    device.flush().unwrap();
    assert_eq!(read(&device, 3), 34);
}

/// A store that answers nothing for longer than the timeout is an error, not a hang.
#[test]
fn a_silent_store_is_an_error_in_time() {
    let network = Network::new(volume());
    let silent = Faults { lost: 1000, ..Faults::default() };
    let open = ObjectDevice::open(Arc::new(FaultyStore::new(network, silent, 6)), quick(7));
    let error = open.err().unwrap().to_string();
    assert!(error.contains("does not answer"), "{error}");
}
