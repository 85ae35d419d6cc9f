//! What comes in and what goes out: messages change the model, effects are what it asks the outside for.

use std::collections::BTreeSet;
use std::sync::Arc;

use crossterm::event::Event;
use piw_protocol::client::{ConnectionState, Freshness};
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::effect::EffectResolve;
use piw_protocol::ops::{PageRequest, RunFilter, RunReceipt};
use piw_protocol::view::{ArtifactRef, RunListPage, RunPage, RunView};
use serde_json::Value;

use super::clock::Millis;
use super::config::Setting;
use super::external::{Prepared, Program};
use super::graph::{Density, Drawing, Graph};
use super::hosts::{HostId, RunId};
use super::markdown::Document;

/// Something happened.
#[derive(Debug, Clone)]
pub enum Message {
    /// A key, the mouse, a paste, a new size.
    Terminal(Event),
    /// Time passed while a clock is visible.
    Tick(Millis),
    /// A connection changed.
    Connection {
        /// The host.
        host: HostId,
        /// Its new state.
        state: ConnectionState,
    },
    /// The watched window of the run list, or how current it is, changed.
    Runs {
        /// The host.
        host: HostId,
        /// The watch that it belongs to.
        generation: u64,
        /// The newest window.
        page: Option<Arc<RunListPage>>,
        /// How current it is.
        freshness: Freshness,
    },
    /// The watched run, or how current it is, changed.
    Run {
        /// The run.
        run_id: RunId,
        /// The newest view.
        view: Option<Arc<RunView>>,
        /// How current it is.
        freshness: Freshness,
    },
    /// A view could not be read.
    BadView(String),
    /// A definition was fetched and verified, or could not be.
    Definition {
        /// The run.
        run_id: RunId,
        /// The reference's digest.
        sha256: String,
        /// The snapshot, or why there is none.
        result: Result<Arc<DefinitionSnapshot>, String>,
    },
    /// Markdown was laid out.
    Rendered {
        /// The run.
        run_id: RunId,
        /// What was laid out.
        key: DocumentKey,
        /// The document.
        document: Arc<Document>,
    },
    /// A graph was laid out.
    Layout {
        /// What was laid out.
        key: LayoutKey,
        /// The drawing.
        drawing: Arc<Drawing>,
    },
    /// A page arrived, or could not be had.
    Page {
        /// The run.
        run_id: RunId,
        /// What was asked for.
        request: PageRequest,
        /// The page, or why there is none.
        result: Result<Arc<RunPage>, String>,
    },
    /// Some bytes of content arrived.
    ContentProgress {
        /// Digest of the content.
        sha256: String,
        /// Bytes so far.
        received: u64,
    },
    /// Content arrived and was verified, or could not be.
    Content {
        /// Digest of the content.
        sha256: String,
        /// The value, or why there is none.
        result: Result<Content, String>,
    },
    /// A value is in a file for another program, or could not be written.
    Prepared(Result<Prepared, String>),
    /// A setting could not be saved.
    NotSaved(String),
    /// A command was decided.
    Decided {
        /// What was asked.
        command: Command,
        /// The run it was asked of.
        run_id: RunId,
        /// The stored receipt, or why there is none.
        result: Result<RunReceipt, String>,
    },
}

/// Verified content, read by its media type.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// JSON.
    Json(Arc<Value>),
    /// Text.
    Text(Arc<str>),
}

/// What a drawing was made for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayoutKey {
    /// Digest of the definition.
    pub digest: String,
    /// Density.
    pub density: Density,
    /// Folded groups.
    pub folded: BTreeSet<usize>,
}

/// What a Markdown document was laid out for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// The value's key in the inspector. What it names never changes; text that grows is not laid out.
    pub value: String,
    /// Bytes of the text.
    pub bytes: usize,
    /// Columns.
    pub columns: usize,
    /// Whether only ASCII characters may be drawn.
    pub ascii: bool,
}

/// A command on a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `run.pause`.
    Pause,
    /// `run.resume`.
    Resume,
    /// `run.cancel`.
    Cancel,
    /// `run.restart`.
    Restart,
    /// `checkpoint.answer`.
    Answer(Value),
    /// `effect.resolve`.
    Review(EffectResolve),
}

impl Command {
    /// The control that must be on offer.
    #[must_use]
    pub const fn control(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::Restart => "restart",
            Self::Answer(_) => "answer",
            Self::Review(_) => "review",
        }
    }
}

/// Something to do outside.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Watch a window of the run list instead of the present one.
    WatchRuns {
        /// The host.
        host: HostId,
        /// Names the watch in [`Message::Runs`].
        generation: u64,
        /// First item.
        start: u64,
        /// Most items, at most [`piw_protocol::view::PAGE_ITEMS`].
        limit: u64,
        /// Which runs.
        filter: Option<RunFilter>,
    },
    /// Watch a run instead of the present one.
    WatchRun(Option<RunId>),
    /// Fetch and verify a definition.
    FetchDefinition {
        /// The run.
        run_id: RunId,
        /// The content.
        reference: ArtifactRef,
    },
    /// Lay out Markdown away from the input path.
    Render {
        /// The run.
        run_id: RunId,
        /// What it is laid out for.
        key: DocumentKey,
        /// The text.
        text: Arc<str>,
    },
    /// Lay out a graph away from the input path.
    LayOut {
        /// What it is laid out for.
        key: LayoutKey,
        /// The graph.
        graph: SharedGraph,
    },
    /// Ask for a page; a newer request for the same part of the screen replaces it.
    FetchPage {
        /// The run.
        run_id: RunId,
        /// Presentation revision that it must belong to.
        revision: u64,
        /// Which page.
        request: PageRequest,
    },
    /// Fetch and verify content.
    FetchContent {
        /// The run.
        run_id: RunId,
        /// The content.
        reference: ArtifactRef,
    },
    /// Send a command.
    Command {
        /// The run.
        run_id: RunId,
        /// Execution revision that the user saw.
        revision: u64,
        /// What to do.
        command: Command,
    },
    /// Write a value into a private file for another program.
    Prepare {
        /// What the value is called.
        name: String,
        /// The value.
        content: Content,
        /// What will show it.
        program: Program,
    },
    /// Give the terminal to a program that shows a file, and take it back when that ends.
    Show(Prepared),
    /// Put text on the clipboard (OSC 52).
    Copy(String),
    /// Write a setting into the configuration file.
    Save(Setting),
    /// Ask the terminal for its background colour.
    AskGround,
    /// Stop the process until the shell continues it.
    Suspend,
    /// End the viewer.
    Quit,
}

/// A graph that compares by identity.
#[derive(Debug, Clone)]
pub struct SharedGraph(pub Arc<Graph>);

impl PartialEq for SharedGraph {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
