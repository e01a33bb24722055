//! Work under way is not overlooked.

use std::sync::Arc;

use races::percpu::{Pending, pretend};
use races::try_orders;
use shuttle::thread;

/// What was under way was one sum of differences. Read part by part, it missed the beginning of one thing and saw its
/// end on another CPU: that hid what had been under way all the time, and a volume was unmounted under its workers.
#[test]
fn nothing_under_way_is_hidden_by_what_comes_and_goes() {
    try_orders(|| {
        let pending = Arc::new(Pending::new());
        pretend(0);
        pending.begin();
        let other = thread::spawn({
            let pending = Arc::clone(&pending);
            move || {
                pretend(0);
                pending.begin();
                pretend(1);
                pending.end(1);
            }
        });
        assert!(!pending.is_none());
        other.join().unwrap();
        assert!(!pending.is_none());
        pending.end(1);
        assert!(pending.is_none());
    });
}
