//! Tests that need whole query plans.

mod functions;
mod joins;
mod map;
mod tables;
mod windows;
