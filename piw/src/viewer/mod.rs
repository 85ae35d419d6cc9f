//! The terminal viewer: runs, their graphs, their steps, live.
//!
//! Data flows one way. [`message::Message`]s — keys, mouse, views from the server, ticks — change the [`model::Model`] in
//! `update`, which answers with [`message::Effect`]s; `draw` turns the model into cells and changes nothing. No input and
//! no drawing waits for the network or a file.
//!
//! | module | owns |
//! | --- | --- |
//! | [`model`], [`message`] | the state and what changes it |
//! | `update` | the only writer of the model |
//! | `draw` | the frame |
//! | [`screen`] | which part of the terminal belongs to what |
//! | `browser`, `graph_panel`, `inspector`, `timeline`, `popup` | the parts, each with its state and drawing |
//! | [`hosts`] | the watched servers and their connections |
//! | [`run`] | the run on screen |
//! | [`graph`] | the layered drawing |
//! | [`theme`] | colours and glyphs |
//! | [`config`] | the configuration file |
//! | [`markdown`] | Markdown as rows, highlighted code |
//! | [`external`] | the pager and the editor |
//! | `terminal`, `output` | the screen, and the thread that writes to it |
//! | [`action`] | actions, keys, help |

pub mod action;
pub mod background;
pub mod browser;
pub mod clock;
pub mod config;
pub mod draw;
mod event_loop;
pub mod external;
pub mod graph;
pub mod graph_panel;
pub mod hosts;
pub mod inspector;
pub mod keymap;
pub mod markdown;
pub mod message;
pub mod model;
pub mod once;
mod output;
mod outside;
mod pace;
pub mod popup;
pub mod run;
pub mod screen;
mod terminal;
pub mod theme;
pub mod timeline;
pub mod update;
pub mod widgets;

pub use event_loop::{Ended, ViewerError, ViewerOptions, run};
pub use graph::text::graph_text;
pub use once::{OnceError, once};

#[cfg(test)]
pub(crate) mod fixtures;

#[cfg(test)]
mod tests;
