//! Somebody who watches the list and every run the whole time, across all restarts, and must see the truth in the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use piw_protocol::client::{Client, ClientOptions, RunWatch, RunsWatch, UnixConnector};
use piw_protocol::ops::RunsWatch as Query;
use piw_protocol::view::{RunListPage, RunView};

/// How long a view may take to show what was read, before it is read again: it may be newer.
const CATCH_UP: Duration = Duration::from_millis(500);

/// The watches.
#[derive(Debug)]
pub struct Viewer {
    client: Client,
    list: Option<RunsWatch>,
    runs: BTreeMap<String, RunWatch>,
}

impl Viewer {
    /// Watches the list of the server at `socket`, whichever server that is.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        let options = ClientOptions {
            client_id: "viewer".to_owned(),
            first_delay: Duration::from_millis(10),
            longest_delay: Duration::from_millis(80),
            first_rearm: Duration::from_millis(50),
            connect_budget: u32::MAX,
            retry_budget: u32::MAX,
            ..ClientOptions::default()
        };
        let client = Client::start(UnixConnector::new(socket), options);
        let list = client.watch_runs(Query::default()).ok();
        Self {
            client,
            list,
            runs: BTreeMap::new(),
        }
    }

    /// Watches a run, too.
    pub fn watch(&mut self, run_id: &str) {
        if !self.runs.contains_key(run_id) {
            self.runs.insert(run_id.to_owned(), self.client.watch_run(run_id));
        }
    }

    /// Waits until the watched list shows what was read; says what it shows instead.
    pub async fn shows_list(&mut self, read: &RunListPage) -> Result<(), String> {
        let Some(watch) = &mut self.list else {
            return Err("the list cannot be watched".to_owned());
        };
        let same = |page: &RunListPage| page.total == read.total && page.items == read.items;
        let until = async {
            while !watch.live().is_some_and(|page| same(page)) {
                if watch.changed().await.is_err() {
                    return;
                }
            }
        };
        // What it shows is looked at below, however this ended.
        let _ = tokio::time::timeout(CATCH_UP, until).await;
        match watch.live() {
            Some(page) if same(page) => Ok(()),
            shown => Err(format!(
                "the list is {:?}, and the watch shows {shown:?} ({:?})",
                read.items,
                watch.freshness()
            )),
        }
    }

    /// Waits until the watched run shows what was read; says what it shows instead.
    pub async fn shows_run(&mut self, read: &RunView) -> Result<(), String> {
        let Some(watch) = self.runs.get_mut(&read.run_id) else {
            return Ok(());
        };
        let same = |view: &RunView| view.revision == read.revision && view.display == read.display;
        let until = async {
            while !watch.live().is_some_and(|view| same(view)) {
                if watch.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(CATCH_UP, until).await;
        match watch.live() {
            Some(view) if same(view) => Ok(()),
            shown => Err(format!(
                "run {} is at {} {:?}, and its watch shows {:?} ({:?})",
                read.run_id,
                read.revision,
                read.display,
                shown.map(|view| (view.revision, &view.display)),
                watch.freshness()
            )),
        }
    }
}
