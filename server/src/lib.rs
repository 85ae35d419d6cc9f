//! piw-server

pub mod publish;
