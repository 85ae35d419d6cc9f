//! piw-engine
