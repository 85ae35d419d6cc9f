use proptest::prelude::*;

use super::*;

const RUN: RunFacts<'static> = RunFacts {
    status: RunStatus::Running,
    paused: false,
    parked: false,
    ambiguous_effects: 0,
    continued_by: None,
    request: None,
};
const FACTS: Facts<'static> = Facts {
    run: RUN,
    runner: false,
    open_turn: false,
    request_turn: false,
    waiting_on: None,
    park_reason: None,
    error: None,
    restarts: 0,
    unsettled_effects: 0,
};

fn waiting(kind: RequestKind) -> Facts<'static> {
    let run = RunFacts {
        status: RunStatus::Waiting,
        parked: true,
        request: Some(kind),
        ..RUN
    };
    Facts {
        run,
        waiting_on: Some("ask"),
        ..FACTS
    }
}

fn shown(facts: &Facts<'_>) -> (DisplayStatus, Option<String>, String) {
    let display = display(facts);
    (display.status, display.activity, display.controls.join(" "))
}

#[test]
fn running_and_queued() {
    let runner = Facts { runner: true, ..FACTS };
    assert_eq!(
        shown(&runner),
        (
            DisplayStatus::Running,
            Some("supervised_runner".into()),
            "pause cancel".into()
        )
    );
    let queued = Facts {
        run: RunFacts {
            status: RunStatus::Queued,
            ..RUN
        },
        ..FACTS
    };
    assert_eq!(shown(&queued), (DisplayStatus::Queued, None, "pause cancel".into()));
    let parked = Facts {
        run: RunFacts { parked: true, ..RUN },
        park_reason: Some(ParkReason::RunnerNoProgress),
        ..FACTS
    };
    assert_eq!(shown(&parked), (DisplayStatus::Queued, None, "resume cancel".into()));
    assert!(
        display(&parked)
            .reason
            .unwrap()
            .starts_with("runnerNoProgress: its runner keeps ending")
    );
}

#[test]
fn a_request_is_waiting_except_during_its_own_turn() {
    let agent = waiting(RequestKind::AgentOutput);
    assert_eq!(
        shown(&agent),
        (DisplayStatus::Waiting, None, "submit update pause cancel".into())
    );
    let turn = Facts {
        open_turn: true,
        request_turn: true,
        ..agent
    };
    assert_eq!(shown(&turn).0, DisplayStatus::Running);
    assert_eq!(shown(&turn).1.as_deref(), Some("origin_turn"));
    let other_turn = Facts {
        open_turn: true,
        ..agent
    };
    assert_eq!(shown(&other_turn).0, DisplayStatus::Waiting);
    let runner = Facts { runner: true, ..agent };
    assert_eq!(
        (shown(&runner).0, shown(&runner).1.as_deref()),
        (DisplayStatus::Waiting, Some("supervised_runner"))
    );
}

#[test]
fn each_request_offers_its_own_answer() {
    assert_eq!(shown(&waiting(RequestKind::Checkpoint)).2, "answer pause cancel");
    assert_eq!(shown(&waiting(RequestKind::Decision)).2, "human-answer pause cancel");
    assert_eq!(shown(&waiting(RequestKind::VisibleReply)).2, "pause cancel");
    assert_eq!(
        display(&waiting(RequestKind::Checkpoint)).reason.as_deref(),
        Some("\"ask\" waits for an answer")
    );
}

#[test]
fn a_pause_hides_the_request_and_an_unclear_effect_hides_the_pause() {
    let mut facts = waiting(RequestKind::Checkpoint);
    facts.run.paused = true;
    assert_eq!(shown(&facts), (DisplayStatus::Paused, None, "resume cancel".into()));
    facts.run.ambiguous_effects = 1;
    assert_eq!(shown(&facts), (DisplayStatus::Ambiguous, None, "review cancel".into()));
    assert_eq!(
        display(&facts).reason.as_deref(),
        Some("1 effect may or may not have happened; review it")
    );
}

#[test]
fn a_run_that_goes_on_is_running_with_the_review_beside_it() {
    let mut facts = Facts { runner: true, ..FACTS };
    facts.run.ambiguous_effects = 1;
    assert_eq!(
        shown(&facts),
        (
            DisplayStatus::Running,
            Some("supervised_runner".into()),
            "review cancel".into()
        )
    );
    assert_eq!(
        display(&facts).reason.as_deref(),
        Some("1 effect may or may not have happened; review it")
    );
    let parked = Facts {
        run: RunFacts {
            parked: true,
            ..facts.run
        },
        runner: false,
        park_reason: Some(ParkReason::EffectAmbiguous),
        ..facts
    };
    assert_eq!(shown(&parked), (DisplayStatus::Ambiguous, None, "review cancel".into()));
    let asks = Facts {
        run: RunFacts {
            ambiguous_effects: 1,
            ..waiting(RequestKind::Checkpoint).run
        },
        ..waiting(RequestKind::Checkpoint)
    };
    assert_eq!(shown(&asks).0, DisplayStatus::Ambiguous);
}

#[test]
fn terminal_results_come_first() {
    let failed = Facts {
        run: RunFacts {
            status: RunStatus::Failed,
            ..RUN
        },
        error: Some("broken"),
        ..FACTS
    };
    assert_eq!(shown(&failed), (DisplayStatus::Failed, None, "restart".into()));
    assert_eq!(display(&failed).reason.as_deref(), Some("broken"));
    let mut unclear = failed;
    unclear.run.ambiguous_effects = 1;
    unclear.unsettled_effects = 1;
    assert_eq!(shown(&unclear), (DisplayStatus::Failed, None, "review".into()));
    assert_eq!(shown(&Facts { restarts: 3, ..failed }).2, "");
    let continued = RunFacts {
        status: RunStatus::Completed,
        continued_by: Some("r2"),
        ..RUN
    };
    let display = display(&Facts {
        run: continued,
        ..FACTS
    });
    assert_eq!(
        (display.status, display.reason.as_deref()),
        (DisplayStatus::Completed, Some("continued as r2"))
    );
}

#[test]
fn interruption_is_seen_only_where_a_claim_should_be() {
    assert!(possibly_interrupted(&RUN, false));
    assert!(!possibly_interrupted(&RUN, true));
    assert!(!possibly_interrupted(&RunFacts { parked: true, ..RUN }, false));
    assert!(!possibly_interrupted(
        &RunFacts {
            status: RunStatus::Failed,
            ..RUN
        },
        false
    ));
}

fn any_facts() -> impl Strategy<Value = Facts<'static>> {
    let status = prop::sample::select(vec![
        RunStatus::Queued,
        RunStatus::Running,
        RunStatus::Waiting,
        RunStatus::Completed,
        RunStatus::Failed,
        RunStatus::TimedOut,
        RunStatus::Cancelled,
    ]);
    let request = prop::option::of(prop::sample::select(vec![
        RequestKind::AgentOutput,
        RequestKind::VisibleReply,
        RequestKind::Checkpoint,
        RequestKind::Decision,
    ]));
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    (status, request, flags, 0u64..2, 0u32..5).prop_map(|(status, request, flags, ambiguous_effects, restarts)| {
        let (paused, parked, runner, open_turn, request_turn) = flags;
        let run = RunFacts {
            status,
            paused,
            parked,
            ambiguous_effects,
            continued_by: None,
            request,
        };
        Facts {
            run,
            runner,
            open_turn,
            request_turn,
            restarts,
            unsettled_effects: ambiguous_effects,
            ..FACTS
        }
    })
}

proptest! {
    /// In every state there is a way out: a live run can be cancelled, an ended one offers nothing that changes it.
    #[test]
    fn controls_fit_the_state(facts in any_facts()) {
        let display = display(&facts);
        let offers = |name: &str| display.controls.iter().any(|control| control == name);
        prop_assert_eq!(offers("cancel"), !facts.run.status.is_terminal());
        prop_assert_eq!(offers("review"), facts.run.ambiguous_effects > 0);
        prop_assert!(!(offers("pause") && offers("resume")));
        if facts.run.status.is_terminal() {
            prop_assert!(!offers("pause") && !offers("resume") && !offers("answer"));
        }
        if facts.run.paused {
            prop_assert!(!offers("answer") && !offers("submit") && !offers("human-answer"));
        }
    }
}
