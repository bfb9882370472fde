//! Turns panics of workers into errors, and suppresses their output by the standard library.
//!
//! A worker's panic is caught, and its message becomes the run's error. By then the standard library has
//! printed `thread … panicked` into the middle of a display or a terminal's table. To prevent that, a
//! catching thread registers beforehand. A hook in front of the existing one is silent about panics on
//! registered threads. It passes on all other panics, and with `RUST_BACKTRACE=full` these too.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Number of nested catchers on this thread.
    static CATCHER_COUNT: Cell<usize> = const { Cell::new(0) };
}

fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            let is_caught = CATCHER_COUNT.try_with(|catchers| catchers.get() > 0).unwrap_or(false);
            let is_wanted = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value == "full");
            if !is_caught || is_wanted {
                before(panic);
            }
        }));
    });
}

/// Runs `run` and returns its result, or the payload of its panic, without printing the panic.
///
/// After a panic, the caller must not use the state that `run` changed.
pub fn catch_silently<T>(run: impl FnOnce() -> T) -> std::thread::Result<T> {
    install_panic_hook();
    CATCHER_COUNT.with(|catchers| catchers.set(catchers.get() + 1));
    let caught = catch_unwind(AssertUnwindSafe(run));
    CATCHER_COUNT.with(|catchers| catchers.set(catchers.get() - 1));
    caught
}

/// Returns the message that users see for a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a worker panicked: {}", text.unwrap_or("no message"))
}

/// Silences the panics of this thread from now on, because its joiner or a runtime catches them.
pub fn silence_thread_panics() {
    install_panic_hook();
    CATCHER_COUNT.with(|catchers| catchers.set(catchers.get() + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_catch_keeps_outer_catcher_registered() {
        let outer = catch_silently(|| {
            catch_silently(|| panic!("inner")).unwrap_err();
            CATCHER_COUNT.with(Cell::get)
        });
        assert_eq!(outer.unwrap(), 1);
        assert_eq!(CATCHER_COUNT.with(Cell::get), 0);
    }
}
