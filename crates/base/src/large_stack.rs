//! Threads for what calls itself deeply: planners, and expressions that are evaluated.

use crate::error::{Error, Result, catch_panic, error_from_panic};

/// The stack of a thread that plans: of which only the pages that are used are ever real.
pub const PLAN_STACK_BYTES: usize = 64 << 20;

/// The stack of a thread that evaluates expressions.
pub const RUN_STACK_BYTES: usize = 16 << 20;

/// What `run` returns, run on a thread with a stack of its own.
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
