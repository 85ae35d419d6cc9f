//! A whole server, in this process or in one of its own, with scripted children.
#![expect(clippy::unwrap_used, reason = "tests")]

mod child;
mod connections;
mod processes;
mod runs;
mod sessions;
mod support;

/// The entry of servers and scripted children that are this very binary, started again; as a test it does nothing.
#[test]
fn child_entry() {
    child::child_main();
}
