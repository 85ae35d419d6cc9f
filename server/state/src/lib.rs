//! piw-state
