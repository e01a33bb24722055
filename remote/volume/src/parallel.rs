//! Requests that are sent at the same time.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;

use base::lock::{Mutex, Rank};
use base::thread;

/// Requests that are sent at the same time, at most.
pub const WIDTH: usize = 16;

/// Requests of a batch, with their positions in it.
struct Queue<F, T> {
    waiting: Mutex<VecDeque<(usize, F)>>,
    done: Mutex<Vec<(usize, T)>>,
}

impl<F: FnOnce() -> T, T> Queue<F, T> {
    fn take(&self) -> Option<(usize, F)> {
        self.waiting.lock().pop_front()
    }

    fn work(&self) {
        while let Some((position, request)) = self.take() {
            let result = request();
            self.done.lock().push((position, result));
        }
    }
}

/// Carries out requests, [`WIDTH`] of them at the same time. Returns their results in order. The calling thread takes
/// part, and is alone if the system starts no threads.
pub fn all<T: Send + 'static>(requests: Vec<impl FnOnce() -> T + Send + 'static>) -> Vec<T> {
    if requests.len() < 2 {
        return requests.into_iter().map(|request| request()).collect();
    }
    let threads = requests.len().min(WIDTH) - 1;
    let queue = Arc::new(Queue {
        waiting: Mutex::new(Rank::Leaf, requests.into_iter().enumerate().collect()),
        done: Mutex::new(Rank::Leaf, Vec::new()),
    });
    let start = |_| {
        let queue = Arc::clone(&queue);
        thread::spawn("remote-request", move || queue.work()).ok()
    };
    let threads: Vec<_> = (0..threads).map_while(start).collect();
    queue.work();
    for thread in threads {
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    }
    let mut done = std::mem::take(&mut *queue.done.lock());
    done.sort_unstable_by_key(|(position, _)| *position);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_their_requests() {
        for count in [0, 1, 2, WIDTH, 5 * WIDTH] {
            let requests: Vec<_> = (0..count).map(|n| move || n * n).collect();
            assert_eq!(all(requests), (0..count).map(|n| n * n).collect::<Vec<_>>());
        }
    }

    #[test]
    #[should_panic(expected = "one of them")]
    fn a_panic_reaches_the_caller() {
        all((0..40).map(|n| move || assert!(n != 30, "one of them")).collect::<Vec<_>>());
    }
}
