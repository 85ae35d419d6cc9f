//! piw-runner
