//! Objects that are freed, and their attached objects.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::{AttachedRef, Counted, Ref, RefCount, collect};
use crate::percpu::override_current;

/// An object that lists those that must be freed.
struct Object {
    count: RefCount<String>,
    unreferenced: Arc<Mutex<Vec<Arc<Self>>>>,
}

impl Counted for Object {
    type Attached = String;

    fn count(&self) -> &RefCount<String> {
        &self.count
    }

    fn unreferenced(self: Arc<Self>) {
        let list = Arc::clone(&self.unreferenced);
        list.lock().unwrap().push(self);
    }
}

fn object() -> Arc<Object> {
    Arc::new(Object { count: RefCount::new(false), unreferenced: Arc::default() })
}

impl Object {
    fn take_unreferenced(&self) -> usize {
        std::mem::take(&mut *self.unreferenced.lock().unwrap()).len()
    }
}

/// A reference, taken on this CPU.
fn acquire(object: &Arc<Object>, cpu: usize) -> Ref<Object> {
    override_current(Some(cpu));
    Ref::acquire(object).unwrap()
}

/// References of two CPUs in turns, which are counted on each CPU in the end.
fn of_two_cpus(object: &Arc<Object>) -> Vec<Ref<Object>> {
    let references = (0..20).map(|n| acquire(object, n % 2)).collect();
    assert!(object.count.is_per_cpu());
    references
}

#[test]
fn references_keep_the_object_in_memory_by_one_strong_count() {
    let object = object();
    let first = acquire(&object, 0);
    let second = first.clone();
    assert_eq!(Arc::strong_count(&object), 2);
    drop(first);
    assert_eq!(Arc::strong_count(&object), 2);
    drop(second);
    assert_eq!(Arc::strong_count(&object), 1);
    assert_eq!(object.take_unreferenced(), 0);
}

#[test]
fn the_last_reference_to_an_unlinked_object_queues_it_once() {
    let object = object();
    let reference = acquire(&object, 0);
    assert!(!object.count.set_unlinked());
    drop(reference.clone());
    assert_eq!(object.take_unreferenced(), 0);
    drop(reference);
    assert_eq!(object.take_unreferenced(), 1);
    assert!(Ref::acquire(&object).is_err());
    assert_eq!(object.take_unreferenced(), 0);
    object.count.set_free();
    assert!(Ref::acquire(&object).is_err() && object.count.is_free());
    object.count.set_allocated();
    drop(acquire(&object, 0));
    assert_eq!((object.take_unreferenced(), Arc::strong_count(&object)), (0, 1));
}

/// References are taken on one CPU and dropped on another, in both modes.
#[test]
fn a_collected_count_is_that_of_all_cpus() {
    let object = object();
    let mut references = of_two_cpus(&object);
    override_current(Some(2));
    references.truncate(7);
    assert!(object.count.set_unlinked());
    assert!(!object.count.begin_collecting(), "it has begun");
    references.truncate(5);
    references.push(references[0].clone());
    assert!(collect([Arc::clone(&object)]).is_empty());
    while let Some(reference) = references.pop() {
        assert_eq!(object.take_unreferenced(), 0);
        drop(reference);
    }
    assert_eq!(object.take_unreferenced(), 1);
    assert_eq!(Arc::strong_count(&object), 1);
    override_current(None);
}

#[test]
fn an_object_whose_references_were_dropped_before_is_queued_by_the_collection() {
    let object = object();
    let references = of_two_cpus(&object);
    assert!(object.count.set_unlinked());
    drop(references);
    assert_eq!(object.take_unreferenced(), 0);
    let queued = collect([Arc::clone(&object)]);
    assert!(queued.len() == 1 && Arc::ptr_eq(&queued[0], &object));
    assert!(Ref::acquire(&object).is_err());
    drop(queued);
    assert_eq!((object.take_unreferenced(), Arc::strong_count(&object)), (0, 1));
    override_current(None);
}

/// An unlinked file cannot be counted on each CPU. When it had got a name, its references were counted in one word
/// nevertheless, however many CPUs used it.
#[test]
fn an_object_that_is_no_longer_unlinked_is_counted_on_each_cpu() {
    let object = object();
    let anchor = acquire(&object, 0);
    assert!(!object.count.set_unlinked());
    (0..20).for_each(|n| drop(acquire(&object, n % 2)));
    assert!(!object.count.is_per_cpu());
    object.count.clear_unlinked();
    drop((anchor, of_two_cpus(&object)));
    override_current(None);
}

#[test]
fn one_cpu_counts_in_one_word() {
    let object = object();
    for n in 0..100 {
        drop(acquire(&object, n / 50));
    }
    assert!(!object.count.is_per_cpu());
    override_current(None);
}

/// A larger count would make each inode in memory larger.
#[test]
fn a_count_has_three_words() {
    assert_eq!(size_of::<RefCount<String>>(), 3 * size_of::<u64>());
}

/// An attached object that counts its drops.
struct Part<'a>(&'a AtomicUsize);

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

struct Owner<'a> {
    count: RefCount<Part<'a>>,
}

impl<'a> Counted for Owner<'a> {
    type Attached = Part<'a>;

    fn count(&self) -> &RefCount<Part<'a>> {
        &self.count
    }

    fn unreferenced(self: Arc<Self>) {
        let _leaked = self.count.set_free();
    }
}

#[test]
fn an_attached_object_stays_while_it_is_referenced() {
    let dropped = AtomicUsize::new(0);
    let owner = Arc::new(Owner { count: RefCount::new(false) });
    assert!(AttachedRef::new(Ref::new(&owner), |part| Some(part)).is_none());
    owner.count.attach(Part(&dropped));
    owner.count.attach(Part(&dropped));
    assert_eq!(dropped.load(SeqCst), 1, "the second one");
    let part = AttachedRef::new(Ref::new(&owner), |part| Some(part)).unwrap();
    assert_eq!(part.0.load(SeqCst), 1);
    assert!(part.owner().attached().is_some());
    assert!(!owner.count.set_unlinked());
    drop(owner);
    assert_eq!(part.0.load(SeqCst), 1);
}

#[test]
fn counts_of_many_threads_add_up() {
    let object = object();
    let anchor = Ref::acquire(&object).unwrap();
    std::thread::scope(|scope| {
        for cpu in 0..4 {
            let object = &object;
            scope.spawn(move || {
                let mut kept = Vec::new();
                for n in 0..2000 {
                    kept.push(acquire(object, cpu));
                    if n % 3 == 0 {
                        kept.swap_remove(n % kept.len());
                    }
                    if n % 97 == 0 && object.count.begin_collecting() {
                        assert!(collect([Arc::clone(object)]).is_empty());
                    }
                }
            });
        }
    });
    let is_per_cpu = object.count.set_unlinked();
    drop(anchor);
    let queued = if is_per_cpu { collect([Arc::clone(&object)]).len() } else { object.take_unreferenced() };
    assert_eq!(queued, 1);
    assert_eq!(Arc::strong_count(&object), 1);
}
