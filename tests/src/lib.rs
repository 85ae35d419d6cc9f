//! Drives the real `piw` binary as a user would: clean home, own state directory, own server.
//!
//! | module | owns |
//! | --- | --- |
//! | [`home`] | a temporary home with its server, and running commands in it |
//! | [`bench`] | measurements against the bars of the design |
//! | [`relay`] | the relay as a process, raw clients of it, an `ssh` that stays here |
//! | [`liar`] | a server that answers with something else than was asked for |
//! | [`pi`] | the real Pi coding agent with a scripted model behind it |
//! | [`picture`] | a terminal screen as SVG |
//! | [`torture`] | kills at fail points and at random, and what must hold afterwards |
//! | [`modes`] | the modes that a program has left a terminal in |
//! | [`session`] | recorded sessions, and recording them into a run |
//! | [`terminal`] | the binary in a pseudo-terminal |
//! | [`wait`] | waiting for conditions, never for time |

pub mod bench;
pub mod home;
pub mod liar;
pub mod modes;
pub mod pi;
pub mod picture;
pub mod relay;
pub mod session;
pub mod terminal;
pub mod torture;
pub mod wait;
pub mod workflows;
