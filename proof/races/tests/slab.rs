//! `Slab`: an entry that is removed and used again while other threads look for its old object.

use std::sync::Arc;

use races::percpu::override_current;
use races::slab::Slab;
use races::try_orders;
use shuttle::thread;

/// A handle whose file was closed must not find the file that is opened next.
#[test]
fn a_key_finds_its_own_object_or_none() {
    try_orders(|| {
        let slab = Arc::new(Slab::default());
        let key = slab.insert(1).unwrap().key;
        let reader = thread::spawn({
            let slab = Arc::clone(&slab);
            move || {
                override_current(Some(1));
                assert!(slab.get(key).is_none_or(|object| object == 1));
                slab.remove(key).is_some()
            }
        });
        let removed = slab.remove(key).is_some();
        let next = slab.insert(2).unwrap().key;
        assert_ne!(next, key);
        assert!(reader.join().unwrap() != removed, "it is removed once");
        assert_eq!((slab.get(next), slab.get(key)), (Some(2), None));
    });
}

/// Threads that add objects at the same time get entries of their own, also if they run on one CPU.
#[test]
fn objects_that_are_added_at_once_have_different_keys() {
    try_orders(|| {
        let slab = Arc::new(Slab::default());
        let add = |object: usize| {
            let slab = Arc::clone(&slab);
            thread::spawn(move || slab.insert(object).unwrap().key)
        };
        let threads = [add(1), add(2)];
        let keys = threads.map(|thread| thread.join().unwrap());
        assert_ne!(keys[0], keys[1]);
        assert_eq!(keys.map(|key| slab.get(key)), [Some(1), Some(2)]);
    });
}
