//! One file for each command. What they share: the connection ([`session`]), reading JSON arguments ([`input`]) and
//! printing ([`output`]).

pub mod answer;
pub mod check;
pub mod control;
pub mod effects;
pub mod init;
pub mod input;
pub mod internal;
pub mod keys;
pub mod output;
pub mod pi;
pub mod ps;
pub mod relay;
pub mod run;
pub mod server;
pub mod session;
pub mod show;
pub mod state;
pub mod themes;
pub mod view;
pub mod workflows;
