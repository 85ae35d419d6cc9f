//! The recorded session of a run: the conversation at the newest event, and the one at a past event. A past event is shown from
//! the page that holds it and the checkpoint before that page, wherever in the session it is.

use std::collections::{BTreeMap, HashMap};

use piw_protocol::session::{Conversation, RecordedEvent, ReplayCheckpoint, SessionEventView, SessionRunView};
use piw_protocol::view::{ArtifactRef, ViewValue};
use serde::Deserialize;

use super::Loaded;
use crate::viewer::message::Content;

/// Events that a page for a position starts before it.
const LEAD: u64 = 128;
/// Known ends of steps that are kept for the timeline.
const ENDS: usize = 4096;
/// Events that wait for the conversation before them.
const PENDING: usize = 4096;

type Contents = HashMap<String, Loaded>;

/// What has to be fetched before a position can be shown, or shown whole.
#[derive(Debug, Clone, PartialEq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// The page of events that starts here.
    Page(u64),
    /// The conversation before the first known event.
    Content(ArtifactRef),
}

/// The conversation before an event.
#[derive(Debug, Clone)]
enum Base {
    Here(Conversation),
    /// Too large for the view; until it was fetched, and when it cannot be, the events alone are shown.
    Content(ArtifactRef),
}

impl Base {
    fn read(checkpoint: Option<&ReplayCheckpoint>) -> Self {
        match checkpoint.map(|checkpoint| ViewValue::from_wire(&checkpoint.state)) {
            Some(ViewValue::Artifact(reference)) => Self::Content(reference),
            Some(ViewValue::Inline(state)) => Self::Here(Conversation::deserialize(state).unwrap_or_default()),
            None => Self::Here(Conversation::default()),
        }
    }

    fn fill(&mut self, contents: &Contents) {
        if let Self::Content(reference) = self
            && let Some(Loaded::Ready(Content::Json(state))) = contents.get(&reference.sha256)
        {
            *self = Self::Here(Conversation::deserialize(&**state).unwrap_or_default());
        }
    }

    fn need(&self) -> Need {
        match self {
            Self::Here(_) => Need::Nothing,
            Self::Content(reference) => Need::Content(reference.clone()),
        }
    }

    fn with<'a>(&self, events: impl Iterator<Item = &'a RecordedEvent>) -> Conversation {
        let mut conversation = match self {
            Self::Here(conversation) => conversation.clone(),
            Self::Content(_) => Conversation::default(),
        };
        for event in events {
            conversation.apply(event);
        }
        conversation
    }
}

/// The newest conversation.
#[derive(Debug)]
struct Live {
    /// Position of the event that comes next.
    next: u64,
    conversation: Conversation,
    /// What the conversation has to be built from again once its beginning is there.
    pending: Option<(Base, Vec<RecordedEvent>)>,
}

/// Consecutive events.
#[derive(Debug)]
struct Page {
    start: u64,
    events: Vec<SessionEventView>,
    base: Base,
}

impl Page {
    fn get(&self, position: u64) -> Option<&SessionEventView> {
        let at = usize::try_from(position.checked_sub(self.start)?).ok()?;
        self.events.get(at)
    }
}

/// Conversations of a run.
#[derive(Debug, Default)]
pub struct Replay {
    live: Option<Live>,
    page: Option<Page>,
    shown: Option<Conversation>,
    /// Events with which a step ended, as far as their surroundings were seen; the steps that had ended by then.
    pub ends: BTreeMap<u64, u64>,
}

impl Replay {
    /// Takes the newest events of a view; returns what the conversation before them has to be fetched from.
    pub fn take_view(&mut self, session: &SessionRunView, contents: &Contents) -> Need {
        let page = &session.event_page;
        let end = page.start + page.items.len() as u64;
        self.note_ends(&page.items);
        let missed = |live: &Live| live.next < page.start || live.next > end;
        if self.live.as_ref().is_none_or(missed) {
            let mut base = Base::read(session.replay_checkpoint.as_ref());
            base.fill(contents);
            self.live = Some(Live {
                next: page.start,
                conversation: base.with(std::iter::empty()),
                pending: matches!(base, Base::Content(_)).then(|| (base, Vec::new())),
            });
        }
        let Some(live) = &mut self.live else {
            return Need::Nothing;
        };
        let known = usize::try_from(live.next - page.start).unwrap_or(usize::MAX);
        for event in page.items.iter().skip(known) {
            live.conversation.apply(&event.event);
            if let Some((_, events)) = live.pending.as_mut().filter(|(_, events)| events.len() < PENDING) {
                events.push(event.event.clone());
            }
        }
        live.next = end;
        live.pending.as_ref().map_or(Need::Nothing, |(base, _)| base.need())
    }

    /// Content arrived: it may be the beginning of the newest conversation.
    pub fn take_content(&mut self, contents: &Contents) {
        if let Some(live) = &mut self.live
            && let Some((base, events)) = &mut live.pending
        {
            base.fill(contents);
            if matches!(base, Base::Here(_)) {
                live.conversation = base.with(events.iter());
                live.pending = None;
            }
        }
    }

    /// Makes the conversation just after an event. While something is missing the one before stays.
    pub fn seek(&mut self, position: u64, session: &SessionRunView, contents: &Contents) -> Need {
        let newest = &session.event_page;
        if self.event(position).is_none() && position >= newest.start && !newest.items.is_empty() {
            // A copy: the view's window moves on, the viewer stays.
            self.take_page(newest.start, newest.items.clone(), session.replay_checkpoint.as_ref());
        }
        let Some(page) = self.page.as_mut().filter(|page| page.get(position).is_some()) else {
            return Need::Page(position.saturating_sub(LEAD));
        };
        page.base.fill(contents);
        let events = page.events.iter().take_while(|event| event.position <= position);
        self.shown = Some(page.base.with(events.map(|event| &event.event)));
        page.base.need()
    }

    /// Back to the newest conversation.
    pub fn go_live(&mut self) {
        self.shown = None;
        self.page = None;
    }

    /// Keeps a page of events.
    pub fn take_page(&mut self, start: u64, events: Vec<SessionEventView>, checkpoint: Option<&ReplayCheckpoint>) {
        self.note_ends(&events);
        self.page = Some(Page {
            start,
            events,
            base: Base::read(checkpoint),
        });
    }

    /// A known event around the shown position.
    #[must_use]
    pub fn event(&self, position: u64) -> Option<&SessionEventView> {
        self.page.as_ref()?.get(position)
    }

    /// The conversation at the shown position.
    #[must_use]
    pub fn conversation(&self) -> Option<&Conversation> {
        let live = || self.live.as_ref().map(|live| &live.conversation);
        self.shown.as_ref().or_else(live)
    }

    fn note_ends(&mut self, events: &[SessionEventView]) {
        for pair in events.windows(2) {
            if pair[1].steps > pair[0].steps {
                self.ends.insert(pair[1].position, pair[1].steps);
            }
        }
        while self.ends.len() > ENDS {
            self.ends.pop_first();
        }
    }
}
