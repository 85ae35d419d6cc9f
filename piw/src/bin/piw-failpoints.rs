//! The `piw` binary with fail points, for `piw-torture`.

use std::process::ExitCode;

fn main() -> ExitCode {
    piw::cli::main()
}
