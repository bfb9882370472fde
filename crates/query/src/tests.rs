//! What takes a whole plan to test.

mod functions;
mod joins;
mod map;
mod tables;
mod windows;
