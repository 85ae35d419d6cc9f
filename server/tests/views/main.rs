//! What clients read of runs: views, pages, content and lists, over databases filled for the purpose.

mod content;
mod fixture;
mod graph;
mod list;
mod pages;
mod run_view;
