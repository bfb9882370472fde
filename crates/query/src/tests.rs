//! What takes a whole plan to test.

mod functions;
mod joins;
mod tables;
mod windows;
