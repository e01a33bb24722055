//! References that are taken and dropped while their count changes its mode, and the object is unlinked.

use std::sync::Arc;

use races::percpu::override_current;
use races::refs::{Counted, Ref, RefCount, collect};
use races::try_fair_orders;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

/// An object that counts how often it was queued.
struct Object {
    count: RefCount<()>,
    references: AtomicUsize,
    queued: AtomicUsize,
}

impl Counted for Object {
    type Attached = ();

    fn count(&self) -> &RefCount<()> {
        &self.count
    }

    fn unreferenced(self: Arc<Self>) {
        self.queued();
    }
}

impl Object {
    fn queued(&self) {
        assert_eq!(self.references.load(SeqCst), 0, "it has references");
        self.queued.fetch_add(1, SeqCst);
    }

    /// Takes references on a CPU and drops them, until the object is queued.
    fn use_it(self: &Arc<Self>, cpu: usize, times: usize) {
        override_current(Some(cpu));
        for _ in 0..times {
            let Ok(first) = Ref::acquire(self) else { return };
            self.references.fetch_add(1, SeqCst);
            let second = first.clone();
            drop(first);
            thread::yield_now();
            self.references.fetch_sub(1, SeqCst);
            drop(second);
        }
    }
}

fn object() -> Arc<Object> {
    Arc::new(Object {
        count: RefCount::new(false),
        references: AtomicUsize::new(0),
        queued: AtomicUsize::new(0),
    })
}

/// References of two CPUs in turns: the count changes to per-CPU mode.
fn count_per_cpu(object: &Arc<Object>) {
    for cpu in 0..16 {
        override_current(Some(cpu % 2));
        drop(Ref::acquire(object).ok());
    }
    assert!(object.count.is_per_cpu());
}

#[test]
fn an_unlinked_object_is_queued_once_and_after_its_last_reference() {
    try_fair_orders(|| {
        let object = object();
        let reference = Ref::acquire(&object).unwrap();
        count_per_cpu(&object);
        let users: Vec<_> = (0..2)
            .map(|cpu| {
                let object = Arc::clone(&object);
                thread::spawn(move || object.use_it(cpu, 2))
            })
            .collect();
        if object.count.set_unlinked() {
            drop(reference);
            collect([Arc::clone(&object)]).iter().for_each(|object| object.queued());
        }
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!(object.queued.load(SeqCst), 1);
        assert_eq!(Arc::strong_count(&object), 1);
    });
}

/// The count is collected for another reason, and changes its mode again, while the object is unlinked.
#[test]
fn a_mode_that_changes_meanwhile_loses_no_reference() {
    try_fair_orders(|| {
        let object = object();
        let reference = Ref::acquire(&object).unwrap();
        count_per_cpu(&object);
        let user = {
            let object = Arc::clone(&object);
            thread::spawn(move || object.use_it(1, 2))
        };
        let evictor = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                override_current(Some(0));
                if object.count.begin_collecting() {
                    collect([Arc::clone(&object)]).iter().for_each(|object| object.queued());
                }
            })
        };
        let must_collect = object.count.set_unlinked();
        drop(reference);
        if must_collect {
            collect([Arc::clone(&object)]).iter().for_each(|object| object.queued());
        }
        user.join().unwrap();
        evictor.join().unwrap();
        assert_eq!(object.queued.load(SeqCst), 1);
        assert_eq!(Arc::strong_count(&object), 1);
    });
}

/// A thread that found a free object takes a reference, and drops it after the object became another one.
#[test]
fn a_late_reference_frees_what_the_object_has_become() {
    try_fair_orders(|| {
        let object = object();
        let reference = Ref::acquire(&object).unwrap();
        assert!(!object.count.set_unlinked());
        let late = {
            let object = Arc::clone(&object);
            thread::spawn(move || {
                override_current(Some(1));
                drop(Ref::acquire(&object));
            })
        };
        drop(reference);
        // It may be the other thread's drop that queues the object.
        while object.queued.load(SeqCst) == 0 {
            thread::yield_now();
        }
        assert!(object.count.set_free().is_none());
        object.count.set_allocated();
        let reference = Ref::new(&object);
        assert!(!object.count.set_unlinked());
        drop(reference);
        late.join().unwrap();
        assert_eq!(object.queued.load(SeqCst), 2);
        assert_eq!(Arc::strong_count(&object), 1);
    });
}
