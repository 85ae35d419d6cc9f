//! piw-server
