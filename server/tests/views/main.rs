//! What clients read of runs: views, pages, content and lists, over databases filled for the purpose.

#![expect(clippy::unwrap_used, reason = "a test whose fixture cannot be read has failed")]

mod chain;
mod content;
mod driver;
mod fixture;
mod graph;
mod list;
mod pages;
mod publish;
mod run_view;
mod session;
