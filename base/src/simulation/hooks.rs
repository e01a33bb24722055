//! The hooks by which `lock`, `thread` and `percpu` call the scheduler if their thread is simulated. Without debug
//! assertions they compile to nothing.

#[cfg(debug_assertions)]
pub use on::*;

#[cfg(not(debug_assertions))]
pub use off::*;

/// Reports the release of a lock to the scheduler: the last field of a guard, because fields are dropped in order.
pub struct ReleaseHook {
    #[cfg(debug_assertions)]
    address: usize,
}

impl ReleaseHook {
    /// Address of the lock.
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "nobody is told"))]
    #[inline]
    pub fn new<T: ?Sized>(lock: &T) -> Self {
        Self {
            #[cfg(debug_assertions)]
            address: address(lock),
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for ReleaseHook {
    fn drop(&mut self) {
        on::released_at(self.address);
    }
}

#[cfg(debug_assertions)]
fn address<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).cast::<u8>() as usize
}

#[cfg(debug_assertions)]
mod on {
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::scheduler::Scheduler;
    use super::super::{SimulationOptions, SimulationReport};
    use super::address;
    use crate::lock::Rank;
    use crate::percpu;

    thread_local! {
        static CURRENT: RefCell<Option<(Arc<Scheduler>, usize)>> = const { RefCell::new(None) };
        /// Whether `CURRENT` is set: the check of every lock operation, without registering a destructor.
        static SIMULATED: Cell<bool> = const { Cell::new(false) };
    }

    fn current() -> Option<(Arc<Scheduler>, usize)> {
        if !SIMULATED.get() {
            return None;
        }
        // A guard may be dropped while its thread ends, when the variable no longer exists.
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Whether this thread is simulated.
    #[inline]
    pub fn is_simulated() -> bool {
        SIMULATED.get()
    }

    /// Virtual time since the start of the run; `None` outside a simulation.
    pub fn now() -> Option<Duration> {
        current().map(|(scheduler, _)| scheduler.now())
    }

    /// A random number of the run; `None` outside a simulation.
    pub fn random() -> Option<u64> {
        current().map(|(scheduler, _)| scheduler.random())
    }

    /// Number of simulated CPUs; `None` outside a simulation.
    pub fn cpus() -> Option<usize> {
        current().map(|(scheduler, _)| scheduler.plan.cpus.max(1))
    }

    /// A preemption point, unless the thread is in a read section: others may wait for its end without being simulated.
    #[inline]
    pub fn preempt() {
        if let Some((scheduler, me)) = current()
            && !crate::rcu::is_in_section()
        {
            scheduler.preempt(me);
        }
    }

    /// Takes a lock by repeated attempts. The thread is simulated.
    pub fn acquire<L: ?Sized, G>(lock: &L, mut attempt: impl FnMut() -> Option<G>) -> G {
        if let Some((scheduler, me)) = current() {
            scheduler.preempt(me);
            loop {
                if let Some(guard) = attempt() {
                    return guard;
                }
                scheduler.wait_for_lock(me, address(lock));
            }
        }
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
            std::thread::yield_now();
        }
    }

    /// Records that a lock was taken, for the report of a failed run.
    pub fn on_lock<L>(lock: &L, rank: Rank) {
        if let Some((scheduler, me)) = current() {
            scheduler.on_lock(me, address(lock), rank);
        }
    }

    /// Records that a lock of this rank was released.
    pub fn on_unlock(rank: Rank) {
        if let Some((scheduler, me)) = current() {
            scheduler.on_unlock(me, rank);
        }
    }

    /// Records that a lock was released other than by its guard.
    pub fn on_release<L: ?Sized>(lock: &L) {
        released_at(address(lock));
    }

    pub fn released_at(address: usize) {
        if let Some((scheduler, _)) = current() {
            scheduler.on_release(address);
        }
    }

    /// Waits for a condition variable. The thread is simulated; `lock` has been released, and is free on return.
    pub fn wait<C, L>(
        condvar: &C,
        lock: &L,
        timeout: Option<Duration>,
        is_locked: impl Fn() -> bool,
    ) -> bool {
        let Some((scheduler, me)) = current() else { return false };
        let notified = scheduler.wait(me, address(condvar), address(lock), timeout);
        while is_locked() {
            scheduler.wait_for_lock(me, address(lock));
        }
        notified
    }

    /// Wakes one waiter, or all.
    pub fn notify<C>(condvar: &C, all: bool) {
        if let Some((scheduler, _)) = current() {
            scheduler.notify(address(condvar), all);
        }
    }

    /// Sleeps in virtual time. Returns `false` outside a simulation.
    pub fn sleep(time: Duration) -> bool {
        current().map(|(scheduler, me)| scheduler.sleep(me, time)).is_some()
    }

    /// Yields to another thread. Returns `false` outside a simulation.
    pub fn yield_now() -> bool {
        current().map(|(scheduler, me)| scheduler.yield_now(me)).is_some()
    }

    /// A thread started by a simulated thread.
    #[derive(Clone)]
    pub struct SimulatedThread {
        scheduler: Arc<Scheduler>,
        number: usize,
    }

    impl std::fmt::Debug for SimulatedThread {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Child({})", self.number)
        }
    }

    impl SimulatedThread {
        /// Registers a thread that is about to be started.
        pub fn register(name: &str) -> Option<Self> {
            let (scheduler, _) = current()?;
            let number = scheduler.add(name);
            Some(Self { scheduler, number })
        }

        /// Runs `body` as the thread. A panic ends the run.
        pub fn enter<T>(self, body: impl FnOnce() -> T) -> T {
            self.scheduler.begin(self.number);
            let result = inside(&self.scheduler, self.number, body);
            self.scheduler.end(self.number);
            result
        }

        /// Unregisters a thread that could not be started.
        pub fn cancel(&self) {
            self.scheduler.forget(self.number);
        }

        /// Waits until the thread has ended.
        pub fn join(&self) {
            if let Some((scheduler, me)) = current() {
                scheduler.join(me, self.number);
            }
        }
    }

    fn inside<T>(scheduler: &Arc<Scheduler>, number: usize, body: impl FnOnce() -> T) -> T {
        CURRENT.set(Some((Arc::clone(scheduler), number)));
        SIMULATED.set(true);
        percpu::override_current(Some(number % scheduler.plan.cpus.max(1)));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        SIMULATED.set(false);
        CURRENT.set(None);
        percpu::override_current(None);
        // The panic hook has printed the message.
        result.unwrap_or_else(|_| scheduler.fail("a thread panicked"))
    }

    /// Runs `main` as the first simulated thread, and waits for all threads that it started.
    pub fn run<T>(plan: SimulationOptions, main: impl FnOnce() -> T) -> (T, SimulationReport) {
        let scheduler = Arc::new(Scheduler::new(plan));
        let result = inside(&scheduler, 0, main);
        let report = scheduler.finish(0);
        (result, report)
    }
}

#[cfg(not(debug_assertions))]
mod off {
    use std::time::Duration;

    /// Whether this thread is simulated.
    #[inline]
    pub const fn is_simulated() -> bool {
        false
    }

    #[inline]
    pub const fn now() -> Option<Duration> {
        None
    }

    #[inline]
    pub const fn cpus() -> Option<usize> {
        None
    }

    #[inline]
    pub const fn preempt() {}

    #[inline]
    pub fn acquire<L: ?Sized, G>(_: &L, mut attempt: impl FnMut() -> Option<G>) -> G {
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
        }
    }

    #[inline]
    pub const fn on_release<L: ?Sized>(_: &L) {}

    #[inline]
    pub fn wait<C, L>(_: &C, _: &L, _: Option<Duration>, _: impl Fn() -> bool) -> bool {
        false
    }

    #[inline]
    pub const fn notify<C>(_: &C, _: bool) {}

    #[inline]
    pub const fn sleep(_: Duration) -> bool {
        false
    }

    #[inline]
    pub const fn yield_now() -> bool {
        false
    }

    /// Never constructed.
    #[derive(Clone, Debug)]
    pub enum SimulatedThread {}

    impl SimulatedThread {
        pub const fn register(_: &str) -> Option<Self> {
            None
        }

        pub fn enter<T>(self, _: impl FnOnce() -> T) -> T {
            match self {}
        }

        pub const fn cancel(&self) {
            match *self {}
        }

        pub const fn join(&self) {
            match *self {}
        }
    }
}
