//! Who waits at the device: one thread, as long as it keeps up. Where several wait, the kernel wakes them in turn, and
//! who asks one thing after the other pays for two that run where one would do: an `open` is three times as fast by
//! one. The others stand by, and come when they are needed:
//!
//! | when | who comes |
//! |---|---|
//! | a request may take long ([`call`](Crew::call)) | one of them, at once |
//! | requests come without a pause ([`STREAK`]) | one more |
//! | a request is still worked on after a while ([`TICK`]) | the lookout, which is one of them |
//!
//! Who has answered a request stands by if somebody else waits at the device.
//!
//! # Invariants
//! - Unless all threads work on requests, one waits at the device, or is going there, or the lookout is awake and sees
//!   within two ticks that it is not so.
//! - The lookout sleeps where nothing happens; who takes a request then wakes it. Both the taking and the sleeping are
//!   told before the other is looked at, so that one of the two sees it.
//!
//! # Locking
//! One lock, for who stands by; it is not held by who waits at the device or works.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests that were there already when they were asked for, one after the other, until one more thread comes.
const STREAK: u32 = 32;

/// A request that was there already takes no longer to come, but for its bytes: a nanosecond for each
/// [`COPIED`] of them.
const AT_ONCE: Duration = Duration::from_micros(2);
const COPIED: usize = 4;

/// How often the lookout looks.
const TICK: Duration = Duration::from_millis(1);

/// Ticks without a request, after which it sleeps.
const QUIET: u32 = 20;

/// See the module.
#[derive(Debug, Default)]
pub struct Crew {
    /// Threads that wait at the device.
    waiting: AtomicUsize,
    /// Requests that were taken.
    taken: AtomicUsize,
    /// Threads that stand by, the lookout too.
    idle: AtomicUsize,
    /// The lookout sleeps.
    asleep: AtomicBool,
    standby: Mutex<Standby>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Standby {
    /// How many are called and have not come yet.
    called: usize,
    /// One of them is the lookout.
    has_lookout: bool,
    /// The mount has ended.
    ended: bool,
}

/// A thread's membership. When it ends, so does the mount, or another takes its place.
#[derive(Debug)]
pub struct Member<'c> {
    crew: &'c Crew,
    /// Requests in a row that were there at once.
    streak: u32,
    /// The mount has ended.
    ended: bool,
}

impl Crew {
    /// One more thread. It waits at the device when [`Member::turn`] says so.
    pub fn join(&self) -> Member<'_> {
        Member { crew: self, streak: 0, ended: false }
    }

    /// Somebody else waits at the device from now on, or soon.
    pub fn call(&self) {
        if self.waiting.load(SeqCst) == 0 && self.idle.load(SeqCst) > 0 {
            self.call_one(&mut self.lock());
        }
    }

    fn call_one(&self, standby: &mut Standby) {
        standby.called += 1;
        // Whoever hears it comes, the lookout or another.
        self.bell.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Standby> {
        self.standby.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands by; whether it is called, and not the end.
    fn stand_by(&self) -> bool {
        self.idle.fetch_add(1, SeqCst);
        let mut standby = self.lock();
        let called = loop {
            if standby.ended {
                break false;
            }
            if standby.called > 0 {
                standby.called -= 1;
                break true;
            }
            standby = if standby.has_lookout {
                self.bell.wait(standby).unwrap_or_else(PoisonError::into_inner)
            } else {
                standby.has_lookout = true;
                let mut standby = self.look_out(standby);
                standby.has_lookout = false;
                // Somebody else is to be that.
                self.bell.notify_one();
                standby
            };
        };
        self.idle.fetch_sub(1, SeqCst);
        called
    }

    /// Looks whether somebody waits at the device, until somebody is called, or the end.
    fn look_out<'c>(&'c self, mut standby: MutexGuard<'c, Standby>) -> MutexGuard<'c, Standby> {
        let (mut seen, mut quiet) = (self.taken.load(SeqCst), 0);
        while standby.called == 0 && !standby.ended {
            standby = self.bell.wait_timeout(standby, TICK).unwrap_or_else(PoisonError::into_inner).0;
            let taken = self.taken.load(SeqCst);
            let is_stuck = taken == seen && self.waiting.load(SeqCst) == 0;
            quiet = if taken == seen { quiet + 1 } else { 0 };
            seen = taken;
            if is_stuck {
                standby.called += 1;
            } else if quiet >= QUIET {
                quiet = 0;
                self.asleep.store(true, SeqCst);
                // Who takes a request from now on sees that.
                if self.taken.load(SeqCst) == seen && standby.called == 0 && !standby.ended {
                    standby = self.bell.wait(standby).unwrap_or_else(PoisonError::into_inner);
                }
                self.asleep.store(false, SeqCst);
            }
        }
        standby
    }
}

impl Member<'_> {
    /// Returns when this thread is to wait at the device, at first or after an answer; `false` where the mount has
    /// ended.
    pub fn turn(&mut self) -> bool {
        // Between this and the waiting another one may come, which then stands by after its first answer.
        if self.crew.waiting.load(SeqCst) > 0 && !self.crew.stand_by() {
            return false;
        }
        self.crew.waiting.fetch_add(1, SeqCst);
        true
    }

    /// A request of so many bytes was taken, `waited` after the last answer; or none, as the mount has ended.
    pub fn took(&mut self, waited: Duration, length: usize) {
        let crew = self.crew;
        crew.waiting.fetch_sub(1, SeqCst);
        crew.taken.fetch_add(1, SeqCst);
        if crew.asleep.load(SeqCst) && crew.asleep.swap(false, SeqCst) {
            // It sleeps, or is about to, with the lock.
            drop(crew.lock());
            crew.bell.notify_all();
        }
        let at_once = AT_ONCE + Duration::from_nanos((length / COPIED) as u64);
        self.streak = if waited < at_once { self.streak + 1 } else { 0 };
        if self.streak == STREAK {
            self.streak = 0;
            crew.call();
        }
    }

    /// The mount has ended, for all.
    pub fn end(&mut self) {
        self.ended = true;
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut standby = self.crew.lock();
        standby.ended |= self.ended;
        // Where it failed or panicked, another goes on.
        standby.called += 1;
        self.crew.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// What a request does before it is answered.
    type Work = Box<dyn FnOnce() + Send>;

    /// A device of requests.
    struct Device(Mutex<Receiver<Work>>);

    /// Threads that serve until the device ends; how many requests each of them had.
    fn serve(threads: usize, ask: impl FnOnce(Sender<Work>)) -> Vec<u32> {
        let (sender, receiver) = channel();
        let (crew, device) = (Crew::default(), Device(Mutex::new(receiver)));
        let work = || {
            let (mut member, mut count) = (crew.join(), 0);
            while member.turn() {
                let since = std::time::Instant::now();
                let request = device.0.lock().unwrap().recv();
                member.took(since.elapsed(), 0);
                let Ok(request) = request else { break };
                count += 1;
                request();
            }
            member.end();
            count
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            ask(sender);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Requests that are not answered hold up nobody: whoever stands by takes the next, also after a long silence.
    #[test]
    fn a_long_request_holds_up_no_other() {
        /// Long after all is done; only then somebody was held up.
        const NEVER: Duration = Duration::from_secs(60);
        let (done, dones) = channel();
        let counts = serve(4, |sender| {
            let ends: Vec<Sender<()>> = (0..3)
                .map(|_| {
                    std::thread::sleep(Duration::from_millis(60));
                    let (end, ended) = channel();
                    sender.send(Box::new(move || ended.recv().unwrap_or_default())).unwrap();
                    end
                })
                .collect();
            for _ in 0..50 {
                let done = done.clone();
                sender.send(Box::new(move || done.send(()).unwrap())).unwrap();
            }
            let all = (0..50).all(|_| dones.recv_timeout(NEVER).is_ok());
            drop(ends);
            assert!(all, "they wait for the long ones");
        });
        assert_eq!(counts.iter().sum::<u32>(), 53);
    }

    /// With pauses in between, in which all but one stand by, each request is answered, and all threads end.
    #[test]
    fn one_after_the_other_is_answered() {
        let counts = serve(8, |sender| {
            for _ in 0..200 {
                sender.send(Box::new(|| {})).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        assert_eq!(counts.iter().sum::<u32>(), 200);
    }

    /// A thread that fails while it is the only one at the device is followed by another.
    #[test]
    fn who_fails_is_replaced() {
        let crew = Crew::default();
        let mut first = crew.join();
        assert!(first.turn());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| crew.join().turn());
            std::thread::sleep(Duration::from_millis(20));
            first.took(Duration::ZERO, 0);
            drop(first);
            assert!(second.join().unwrap());
        });
    }
}
