//! Prints the step-shaped commit rate with its growth and write-ahead log per step: `step-rate [steps] [directory]`.

use std::path::PathBuf;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: u64 = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let base = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(base)?;
    let commits = piw_state::bench::commit_rate(dir.path(), 2_000)?;
    let rate = piw_state::bench::step_rate(&dir.path().join("state"), steps).await?;
    println!("single-row commits/s    {commits:.0}");
    println!(
        "step-shaped commits/s   {:.0} ({} steps)",
        rate.per_second(),
        rate.steps
    );
    println!(
        "last tenth / first      {:.2}",
        rate.last_tenth.as_secs_f64() / rate.first_tenth.as_secs_f64()
    );
    println!("growth per step         {:.0} bytes", rate.growth_bytes);
    println!("log per step            {:.0} bytes", rate.wal_bytes);
    for runs in [1, 16] {
        let at = dir.path().join(format!("writer-{runs}"));
        let through = piw_state::bench::writer_rate(&at, runs, steps / u64::from(runs)).await?;
        println!(
            "through the writer      {through:.0} ({runs} at once, {:.2} x)",
            through / rate.per_second()
        );
    }
    Ok(())
}
