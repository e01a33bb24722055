//! `AppendList`: a list that grows while other threads read it.

use std::sync::Arc;

use races::append_list::AppendList;
use races::try_orders;
use shuttle::thread;

#[test]
fn entries_within_the_length_are_visible() {
    try_orders(|| {
        let list = Arc::new(AppendList::new(vec![0].into_boxed_slice()));
        let writer = thread::spawn({
            let list = Arc::clone(&list);
            move || (1..5).for_each(|n| list.push(n).unwrap())
        });
        let mut before = 0;
        for _ in 0..3 {
            let seen: Vec<usize> = list.iter().copied().collect();
            assert!(seen.len() >= before && seen.iter().copied().eq(0..seen.len()), "{seen:?}");
            before = seen.len();
        }
        writer.join().unwrap();
        assert_eq!(list.len(), 5);
    });
}

#[test]
fn a_concurrent_append_succeeds_or_fails() {
    try_orders(|| {
        let list = Arc::new(AppendList::new(Box::new([])));
        let other = thread::spawn({
            let list = Arc::clone(&list);
            move || list.push(1).is_ok()
        });
        let mine = list.push(2).is_ok();
        let theirs = other.join().unwrap();
        let mut seen: Vec<_> = list.iter().copied().collect();
        seen.sort_unstable();
        let wanted: Vec<_> =
            [(theirs, 1), (mine, 2)].iter().filter(|(done, _)| *done).map(|(_, n)| *n).collect();
        assert_eq!(seen, wanted);
        assert!(mine || theirs);
    });
}
