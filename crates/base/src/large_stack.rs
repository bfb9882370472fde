//! Threads with a large stack for deep recursion: planners and expression evaluation.

use crate::error::{Error, Result, catch_panic, error_from_panic};

/// Stack size of a thread that plans. Only the pages that the thread touches take real memory.
pub const PLAN_STACK_BYTES: usize = 64 << 20;

/// Stack size of a thread that evaluates expressions.
pub const RUN_STACK_BYTES: usize = 16 << 20;

/// Runs `run` on a thread with a stack of `bytes`, and returns its result.
pub fn run_on_large_stack<T: Send>(
    bytes: usize,
    run: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("plan".into()).stack_size(bytes);
        let thread = thread.spawn_scoped(scope, || catch_panic(run)).map_err(|e| Error::Io {
            action: "start",
            path: "a thread".into(),
            source: e,
        })?;
        thread.join().unwrap_or_else(|panic| Err(error_from_panic(panic.as_ref())))
    })
}
