//! The threads of a world: each is a set of homes in the engine, and all of them are steps of one real thread.

use tourbillon::{Engine, SimulatedThread, Turn, Worker};

/// All threads of a world, and the one that turns the engine.
pub struct SimThreads {
    engine: Engine,
    list: Vec<SimThread>,
    driver: SimulatedThread,
    shards: usize,
}

struct SimThread {
    simulated: SimulatedThread,
    worker: Option<Worker>,
}

impl SimThreads {
    /// So many threads, of which the first so many turn their own shards.
    #[must_use]
    pub fn new(engine: &Engine, threads: usize, workers: usize, shards: usize) -> SimThreads {
        let list = (0..threads).map(|_| SimThread { simulated: SimulatedThread::new(), worker: None }).collect();
        let mut threads = SimThreads { engine: engine.clone(), list, driver: SimulatedThread::new(), shards };
        for thread in 0..threads.list.len() {
            // Each makes its home in its turn, so that it is known which shard is whose.
            threads.on(thread, || ());
        }
        for SimThread { simulated, worker } in threads.list.iter_mut().take(workers) {
            // SAFETY: the worker is dropped in the same simulated thread, below.
            *worker = unsafe { simulated.run(|| engine.worker(|| ())) };
        }
        threads
    }

    /// Does this on one of them, with the engine as the current one.
    pub fn on<R>(&mut self, thread: usize, run: impl FnOnce() -> R) -> R {
        let SimThreads { engine, list, .. } = self;
        let index = thread % list.len();
        // SAFETY: the guard is dropped in here. What else belongs to a thread is in `worker`.
        unsafe {
            list[index].simulated.run(|| {
                let _entered = engine.enter();
                // Each step is a poll of its own, as in an executor: nothing that is ready at once has to yield (D63).
                tourbillon::coop::refill();
                run()
            })
        }
    }

    /// Does this on the thread of the driver.
    pub fn drive<R>(&mut self, run: impl FnOnce(&Engine) -> R) -> R {
        let SimThreads { engine, driver, .. } = self;
        // SAFETY: what the driver does makes no guards that last.
        unsafe { driver.run(|| run(engine)) }
    }

    /// One that has its own shard turns that; nothing, if it has none.
    pub fn work(&mut self, thread: usize) -> Option<Turn> {
        let index = thread % self.list.len();
        let SimThread { simulated, worker } = &mut self.list[index];
        let worker = worker.as_mut()?;
        // SAFETY: the worker stays where it is.
        Some(unsafe { simulated.run(|| worker.turn()) })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Which shard a thread's timers go to: its own; or if there was none left, one that it shares.
    #[must_use]
    pub fn shard_of(&self, thread: usize) -> usize {
        let index = thread % self.list.len();
        if index < self.shards { index } else { (index - self.shards + 1) % self.shards }
    }

    /// Whether that is its own shard.
    #[must_use]
    pub fn owns(&self, thread: usize, shard: usize) -> bool {
        thread % self.list.len() == shard && shard < self.shards
    }
}

impl Drop for SimThreads {
    fn drop(&mut self) {
        for SimThread { simulated, worker } in &mut self.list {
            // SAFETY: here the worker is dropped, in the thread that it was made in.
            unsafe { simulated.run(|| drop(worker.take())) };
        }
    }
}
