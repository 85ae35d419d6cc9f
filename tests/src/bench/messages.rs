//! A session with fifty thousand messages: what its view costs when nothing changed and when something just did.

use std::path::Path;
use std::time::{Duration, Instant};

use piw_server::bench::SessionViewer;
use piw_state::bench::{History, session_history};

use super::table::{Bar, Row};

/// Messages of 1 KiB.
const SMALL: u64 = 50_000;
/// Messages of 300 KiB.
const LARGE: u64 = 25;
/// Views of each kind that are timed.
const VIEWS: u32 = 200;
/// Longest time of a view that nothing changed, which the design allows.
const REPEATED_MS: f64 = 0.060;
/// Longest time of the first view after a change.
const CHANGED_MS: f64 = 0.600;
/// Largest view, in KiB.
const VIEW_KIB: f64 = 256.0;
/// The coordinator epoch that looks.
const EPOCH: u64 = 1 << 20;

/// Fills a session and times its view.
///
/// # Errors
/// When the database cannot be written or read.
pub fn rows(dir: &Path) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let place = dir.join("messages");
    std::fs::create_dir_all(&place)?;
    runtime.block_on(async {
        let history = session_history(&place, SMALL, LARGE).await?;
        let viewer = SessionViewer::default();
        let (mut changed, mut repeated, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..=VIEWS {
            history.change(number % 10 == 9).await?;
            let (first, bytes) = view(&history, &viewer).await?;
            let (again, _) = view(&history, &viewer).await?;
            // The first round prepares statements and reads definitions.
            if number > 0 {
                changed.push(first);
                repeated.push(again);
                #[expect(clippy::cast_precision_loss, reason = "a view is far below 2^52 bytes")]
                sizes.push(bytes as f64 / 1024.0);
            }
        }
        history.state.close();
        let of = format!("session of {SMALL} messages of 1 KiB and {LARGE} of 300 KiB");
        let largest = sizes.iter().copied().fold(0.0, f64::max);
        Ok(vec![
            Row::millis(
                format!("{of}: its view, nothing changed"),
                Bar::AtMost(REPEATED_MS),
                &repeated,
            ),
            Row::millis("the same, first after a new message", Bar::AtMost(CHANGED_MS), &changed),
            Row::new("largest such view", "KiB", Bar::AtMost(VIEW_KIB), &[largest]),
        ])
    })
}

/// One view, timed where it is made.
async fn view(history: &History, viewer: &SessionViewer) -> Result<(Duration, usize), Box<dyn std::error::Error>> {
    let (viewer, session) = (viewer.clone(), history.session.clone());
    let now = history.state.clock().wall_ms();
    let viewed = history
        .state
        .read(move |reader| {
            let begun = Instant::now();
            let bytes = viewer.view(reader, &session, EPOCH, now);
            Ok((begun.elapsed(), bytes))
        })
        .await?;
    Ok((viewed.0, viewed.1?))
}
