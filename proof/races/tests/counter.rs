//! A counter grants no more than it has, and any CPU can take the rest.

use std::sync::Arc;

use races::percpu::{Counter, override_current};
use races::try_orders;
use shuttle::thread;

#[test]
fn counts_are_neither_granted_twice_nor_lost() {
    try_orders(|| {
        let counter = Arc::new(Counter::new(5));
        let takes = |cpu: usize, counter: Arc<Counter>| {
            move || {
                override_current(Some(cpu));
                let took = counter.try_sub(3);
                if took {
                    counter.add(1);
                }
                u64::from(took)
            }
        };
        let others = [0, 1].map(|cpu| thread::spawn(takes(cpu, Arc::clone(&counter))));
        let taken: u64 = others.into_iter().map(|other| other.join().unwrap()).sum();
        // One thread always finds three of five; both do if the first one added one before.
        assert!(taken >= 1);
        assert_eq!(counter.sum(), 5 - 2 * taken);
        override_current(Some(0));
        assert!(counter.try_sub(5 - 2 * taken), "the rest can be taken from any CPU");
        assert!(!counter.try_sub(1));
    });
}

/// One CPU took a batch from the shared part. Before it was added to the CPU's own part, another CPU summed all parts
/// and found too little: a volume with a thousand free blocks reported ENOSPC.
#[test]
fn a_count_moving_between_two_parts_is_found() {
    try_orders(|| {
        let counter = Arc::new(Counter::new(1030));
        let takes = |cpu: usize, count: u64, counter: Arc<Counter>| {
            move || {
                override_current(Some(cpu));
                assert!(counter.try_sub(count), "there are 1030");
            }
        };
        let others =
            [(0, 1), (1, 900)].map(|(cpu, count)| thread::spawn(takes(cpu, count, Arc::clone(&counter))));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(counter.sum(), 129);
    });
}
