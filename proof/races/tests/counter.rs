//! What a counter grants was there, and the last of it can be taken from anywhere.

use std::sync::Arc;

use races::percpu::{Counter, pretend};
use races::try_orders;
use shuttle::thread;

#[test]
fn nothing_is_granted_twice_and_nothing_is_lost() {
    try_orders(|| {
        let counter = Arc::new(Counter::new(5));
        let takes = |cpu: usize, counter: Arc<Counter>| {
            move || {
                pretend(cpu);
                let took = counter.try_sub(3);
                if took {
                    counter.add(1);
                }
                u64::from(took)
            }
        };
        let others = [0, 1].map(|cpu| thread::spawn(takes(cpu, Arc::clone(&counter))));
        let taken: u64 = others.into_iter().map(|other| other.join().unwrap()).sum();
        // One thread always finds three of five; both do where the first gave one back before.
        assert!(taken >= 1);
        assert_eq!(counter.sum(), 5 - 2 * taken);
        pretend(0);
        assert!(counter.try_sub(5 - 2 * taken), "the rest can be taken wherever it lies");
        assert!(!counter.try_sub(1));
    });
}

/// One CPU fetched a batch from the common part, and before it had put that into its own, another looked for the rest
/// in all parts and found too little: a volume with a thousand free blocks said that it was full.
#[test]
fn what_is_on_its_way_between_two_parts_is_not_missed() {
    try_orders(|| {
        let counter = Arc::new(Counter::new(1030));
        let takes = |cpu: usize, count: u64, counter: Arc<Counter>| {
            move || {
                pretend(cpu);
                assert!(counter.try_sub(count), "there are 1030");
            }
        };
        let others =
            [(0, 1), (1, 900)].map(|(cpu, count)| thread::spawn(takes(cpu, count, Arc::clone(&counter))));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(counter.sum(), 129);
    });
}
