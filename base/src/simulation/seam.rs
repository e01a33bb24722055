//! Where `lock`, `thread` and `percpu` ask whether their thread is simulated. Without debug
//! assertions every question has the constant answer "no", and nothing of this is left in the program.

#[cfg(debug_assertions)]
pub use on::*;

#[cfg(not(debug_assertions))]
pub use off::*;

/// Tells the scheduler when a lock was released: the last field of its guard, as fields are dropped in order.
pub struct Released {
    #[cfg(debug_assertions)]
    address: usize,
}

impl Released {
    /// Of the lock at this address.
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
impl Drop for Released {
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

    use super::super::world::World;
    use super::super::{Plan, Report};
    use super::address;
    use crate::lock::Rank;
    use crate::percpu;

    thread_local! {
        static CURRENT: RefCell<Option<(Arc<World>, usize)>> = const { RefCell::new(None) };
        /// Whether it is set: the question of every lock, answered without a destructor to register.
        static SIMULATED: Cell<bool> = const { Cell::new(false) };
    }

    fn current() -> Option<(Arc<World>, usize)> {
        if !SIMULATED.get() {
            return None;
        }
        // A guard may be dropped while its thread ends, when the variable is gone.
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Whether this thread is simulated.
    #[inline]
    pub fn is_simulated() -> bool {
        SIMULATED.get()
    }

    /// Virtual time since the run began; `None` where the thread is not simulated.
    pub fn now() -> Option<Duration> {
        current().map(|(world, _)| world.now())
    }

    /// A random number of the run; `None` where the thread is not simulated.
    pub fn random() -> Option<u64> {
        current().map(|(world, _)| world.random())
    }

    /// The number of CPUs that this thread believes in.
    pub fn cpus() -> Option<usize> {
        current().map(|(world, _)| world.plan.cpus.max(1))
    }

    /// A place at which another thread may go on.
    #[inline]
    pub fn preempt() {
        if let Some((world, me)) = current() {
            world.preempt(me);
        }
    }

    /// Takes the lock `lock` by trying. The thread is simulated.
    pub fn acquire<L: ?Sized, G>(lock: &L, mut attempt: impl FnMut() -> Option<G>) -> G {
        if let Some((world, me)) = current() {
            world.preempt(me);
            loop {
                if let Some(guard) = attempt() {
                    return guard;
                }
                world.wait_for_lock(me, address(lock));
            }
        }
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
            std::thread::yield_now();
        }
    }

    /// A lock was taken: to be told of a run that fails.
    pub fn took<L>(lock: &L, rank: Rank) {
        if let Some((world, me)) = current() {
            world.took(me, address(lock), rank);
        }
    }

    /// A lock of this rank was given back.
    pub fn gave_back(rank: Rank) {
        if let Some((world, me)) = current() {
            world.gave_back(me, rank);
        }
    }

    /// A lock was released by other means than a guard.
    pub fn released<L: ?Sized>(lock: &L) {
        released_at(address(lock));
    }

    pub fn released_at(address: usize) {
        if let Some((world, _)) = current() {
            world.released(address);
        }
    }

    /// Waits at a condition variable. The thread is simulated; `lock` was released, and is free again on return.
    pub fn wait<C, L>(
        condvar: &C,
        lock: &L,
        timeout: Option<Duration>,
        is_locked: impl Fn() -> bool,
    ) -> bool {
        let Some((world, me)) = current() else { return false };
        let notified = world.wait(me, address(condvar), address(lock), timeout);
        while is_locked() {
            world.wait_for_lock(me, address(lock));
        }
        notified
    }

    /// Wakes one waiter, or all.
    pub fn notify<C>(condvar: &C, all: bool) {
        if let Some((world, _)) = current() {
            world.notify(address(condvar), all);
        }
    }

    /// Sleeps in virtual time. `false` where the thread is not simulated.
    pub fn sleep(time: Duration) -> bool {
        current().map(|(world, me)| world.sleep(me, time)).is_some()
    }

    /// Lets another thread go on. `false` where this one is not simulated.
    pub fn yield_now() -> bool {
        current().map(|(world, me)| world.yield_now(me)).is_some()
    }

    /// A thread that a simulated thread starts.
    #[derive(Clone)]
    pub struct Child {
        world: Arc<World>,
        number: usize,
    }

    impl std::fmt::Debug for Child {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Child({})", self.number)
        }
    }

    impl Child {
        /// Registers a thread that this one is about to start.
        pub fn register(name: &str) -> Option<Self> {
            let (world, _) = current()?;
            let number = world.add(name);
            Some(Self { world, number })
        }

        /// Runs `body` as the thread. A panic ends the run.
        pub fn enter<T>(self, body: impl FnOnce() -> T) -> T {
            self.world.begin(self.number);
            let result = inside(&self.world, self.number, body);
            self.world.end(self.number);
            result
        }

        /// It could not be started.
        pub fn cancel(&self) {
            self.world.forget(self.number);
        }

        /// Waits until it has ended.
        pub fn join(&self) {
            if let Some((world, me)) = current() {
                world.join(me, self.number);
            }
        }
    }

    fn inside<T>(world: &Arc<World>, number: usize, body: impl FnOnce() -> T) -> T {
        CURRENT.set(Some((Arc::clone(world), number)));
        SIMULATED.set(true);
        percpu::pretend(Some(number % world.plan.cpus.max(1)));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        SIMULATED.set(false);
        CURRENT.set(None);
        percpu::pretend(None);
        // What it panicked about was printed by the panic's hook.
        result.unwrap_or_else(|_| world.fail("a thread panicked"))
    }

    /// Runs `main` as the first simulated thread, and waits for all threads that it started.
    pub fn run<T>(plan: Plan, main: impl FnOnce() -> T) -> (T, Report) {
        let world = Arc::new(World::new(plan));
        let result = inside(&world, 0, main);
        let report = world.finish(0);
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
    pub const fn released<L: ?Sized>(_: &L) {}

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

    /// There is none.
    #[derive(Clone, Debug)]
    pub enum Child {}

    impl Child {
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
