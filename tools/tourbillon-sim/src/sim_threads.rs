//! The simulated threads of a world. To the engine each is a thread with its own shard; all of them take turns on one real
//! thread.

use tourbillon::{Engine, SimulatedThread, Turn, Worker};

/// All threads of a world, and the thread of the driver.
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
    /// Creates `threads` threads, of which the first `workers` turn their own shards.
    #[must_use]
    pub fn new(engine: &Engine, threads: usize, workers: usize, shards: usize) -> SimThreads {
        let list = (0..threads).map(|_| SimThread { simulated: SimulatedThread::new(), worker: None }).collect();
        let mut threads = SimThreads { engine: engine.clone(), list, driver: SimulatedThread::new(), shards };
        for thread in 0..threads.list.len() {
            // The threads register with the engine one by one, so that it is known which shard belongs to which thread.
            threads.on(thread, || ());
        }
        for SimThread { simulated, worker } in threads.list.iter_mut().take(workers) {
            // SAFETY: the worker is dropped on the same simulated thread: see `drop` below.
            *worker = unsafe { simulated.run(|| engine.worker(|| ())) };
        }
        threads
    }

    /// Runs a function on a thread, with the engine as the current one.
    pub fn on<R>(&mut self, thread: usize, run: impl FnOnce() -> R) -> R {
        let SimThreads { engine, list, .. } = self;
        let index = thread % list.len();
        // SAFETY: the guard is dropped within the closure. The only other value bound to a thread is `worker`.
        unsafe {
            list[index].simulated.run(|| {
                let _entered = engine.enter();
                // Each step is a poll of its own, as in an executor: a future that is ready at once need not yield (D63).
                tourbillon::coop::refill();
                run()
            })
        }
    }

    /// Runs a function on the driver's thread.
    pub fn drive<R>(&mut self, run: impl FnOnce(&Engine) -> R) -> R {
        let SimThreads { engine, driver, .. } = self;
        // SAFETY: the functions that drive the engine create no guard that outlives the call.
        unsafe { driver.run(|| run(engine)) }
    }

    /// Turns the shard of a thread; returns `None` if the thread has none of its own.
    pub fn work(&mut self, thread: usize) -> Option<Turn> {
        let index = thread % self.list.len();
        let SimThread { simulated, worker } = &mut self.list[index];
        let worker = worker.as_mut()?;
        // SAFETY: the worker stays on its simulated thread.
        Some(unsafe { simulated.run(|| worker.turn()) })
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no threads.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the shard that a thread's timers go to: its own, or a shared one if there are too few.
    #[must_use]
    pub fn shard_of(&self, thread: usize) -> usize {
        let index = thread % self.list.len();
        if index < self.shards { index } else { (index - self.shards + 1) % self.shards }
    }

    /// Returns whether a shard is the thread's own.
    #[must_use]
    pub fn owns(&self, thread: usize, shard: usize) -> bool {
        thread % self.list.len() == shard && shard < self.shards
    }
}

impl Drop for SimThreads {
    fn drop(&mut self) {
        for SimThread { simulated, worker } in &mut self.list {
            // SAFETY: the worker is dropped on the simulated thread that created it.
            unsafe { simulated.run(|| drop(worker.take())) };
        }
    }
}
