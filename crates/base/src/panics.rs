//! Panics that become errors are told once.
//!
//! A panic on a worker is caught, and its message is the run's error. The standard library has
//! printed `thread … panicked` by then, in the midst of a display or a terminal's table. So
//! whoever catches says so beforehand, and a hook, put before the one that is there, keeps still about
//! panics on threads that have said so. All others are printed as ever, and with
//! `RUST_BACKTRACE=full` these are too.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// How many catch what panics here.
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

/// What `run` returns, or what it panicked with, of which nothing is printed.
///
/// What `run` changed is not to be looked at after a panic.
pub fn catch_silently<T>(run: impl FnOnce() -> T) -> std::thread::Result<T> {
    install_panic_hook();
    CATCHER_COUNT.with(|catchers| catchers.set(catchers.get() + 1));
    let caught = catch_unwind(AssertUnwindSafe(run));
    CATCHER_COUNT.with(|catchers| catchers.set(catchers.get() - 1));
    caught
}

/// What is told of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a worker panicked: {}", text.unwrap_or("no message"))
}

/// Says that whatever panics on this thread from now on is caught: by who joins it, or by a runtime.
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
