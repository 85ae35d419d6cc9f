//! piw-protocol
