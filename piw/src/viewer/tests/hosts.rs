//! Several hosts in one viewer.

use std::time::Duration;

use piw_protocol::client::ClientError;
use piw_protocol::ops::RunReceipt;

use super::*;
use crate::viewer::hosts::RunId;
use crate::viewer::message::Command;

const BUILD: HostId = HostId(0);
const GPU: HostId = HostId(1);
const ATTIC: HostId = HostId(2);

fn retry(attempt: u32, reason: &str) -> Retry {
    Retry {
        attempt,
        delay: Duration::from_secs(4),
        reason: reason.into(),
    }
}

/// Three hosts: one with runs, one with runs whose newest is on screen, one that cannot be reached.
pub(super) fn three(size: (u16, u16)) -> Stage {
    let names = ["build", "gpu-large-west", "attic"].map(str::to_owned);
    let hosts = Hosts::new(&names);
    let (model, effects) = Model::new(hosts, None, Theme::plain(), size, fixtures::START + 31_000);
    let mut stage = Stage {
        model,
        effects,
        rendered: 0,
    };
    stage.connection(BUILD, connected());
    stage.connection(GPU, connected());
    stage.connection(
        ATTIC,
        ConnectionState::Reconnecting(retry(3, "ssh cannot reach attic: No route to host")),
    );
    list(&mut stage, BUILD, 6, 60_000);
    list(&mut stage, GPU, 5, 90_000);
    stage.send(Message::Run {
        run_id: stage.model.run.as_ref().unwrap().run_id.clone(),
        view: Some(Arc::new(fixtures::running().view())),
        freshness: Freshness::Live,
    });
    stage
}

/// The runs of a host, one every hundred seconds, the newest `newest` milliseconds after the start of time.
fn list(stage: &mut Stage, host: HostId, count: u64, newest: i64) {
    let generation = stage.effects.iter().rev().find_map(|effect| match effect {
        Effect::WatchRuns {
            host: asked,
            generation,
            ..
        } if *asked == host => Some(*generation),
        _ => None,
    });
    let mut page = run_list(count);
    for (at, item) in page.items.iter_mut().enumerate() {
        item.created_at = fixtures::at(3_600_000 + newest - 100_000 * at as i64);
    }
    stage.send(Message::Runs {
        host,
        generation: generation.unwrap(),
        page: Some(Arc::new(page)),
        freshness: Freshness::Live,
    });
}

fn lose(stage: &mut Stage, host: HostId) {
    let lost = retry(2, "ssh cannot reach gpu: Connection timed out");
    let generation = stage.effects.iter().rev().find_map(|effect| match effect {
        Effect::WatchRuns {
            host: asked,
            generation,
            ..
        } if *asked == host => Some(*generation),
        _ => None,
    });
    stage.connection(host, ConnectionState::Reconnecting(lost.clone()));
    stage.send(Message::Runs {
        host,
        generation: generation.unwrap(),
        page: None,
        freshness: Freshness::Stale(lost.clone()),
    });
    if let Some(run) = &stage.model.run
        && run.run_id.host == host
    {
        stage.send(Message::Run {
            run_id: run.run_id.clone(),
            view: None,
            freshness: Freshness::Stale(lost),
        });
    }
}

fn without_toasts(mut stage: Stage) -> Stage {
    stage.model.toasts.clear();
    stage
}

#[test]
fn the_runs_of_all_hosts_are_one_list() {
    for (width, height) in [(80, 24), (120, 40), (250, 80)] {
        let mut stage = without_toasts(three((width, height)));
        insta::assert_snapshot!(format!("hosts_{width}x{height}"), stage.frame());
        if width == 80 {
            stage.press("b b");
            insta::assert_snapshot!("hosts_80x24_full", stage.frame());
        }
    }
}

#[test]
fn each_host_has_its_own_state_and_the_others_go_on() {
    let mut stage = without_toasts(three((120, 40)));
    assert_eq!(stage.model.run.as_ref().unwrap().run_id.host, GPU);
    lose(&mut stage, GPU);
    let error = ClientError::VersionMismatch {
        client: "0.1.0".into(),
        server: "0.2.0".into(),
    };
    stage.connection(ATTIC, ConnectionState::Stopped(error));
    insta::assert_snapshot!("hosts_lost", stage.frame());
    stage.press("p c");
    assert!(
        stage
            .effects
            .iter()
            .all(|effect| !matches!(effect, Effect::Command { .. }))
    );
    assert!(stage.model.popup.is_none(), "nothing of a lost host can be acted on");
    // The newest run of the host that is still there.
    stage.press("down");
    let run = stage.model.run.as_ref().unwrap().run_id.clone();
    assert_eq!(run.host, BUILD);
    stage.send(Message::Run {
        run_id: run.clone(),
        view: Some(Arc::new(fixtures::running().view())),
        freshness: Freshness::Live,
    });
    stage.press("p");
    let sent = stage.effects.iter().rev().find_map(|effect| match effect {
        Effect::Command { run_id, command, .. } => Some((run_id.clone(), command.clone())),
        _ => None,
    });
    assert_eq!(
        sent,
        Some((run, Command::Pause)),
        "the command goes to the run's own host"
    );
}

#[test]
fn the_same_id_on_two_hosts_is_two_runs() {
    let mut stage = three((120, 40));
    let shown = stage.model.run.as_ref().unwrap().run_id.clone();
    let other = RunId {
        host: BUILD,
        id: shown.id.clone(),
    };
    let mut view = fixtures::failed().view();
    view.run_id.clone_from(&shown.id);
    stage.send(Message::Run {
        run_id: other.clone(),
        view: Some(Arc::new(view)),
        freshness: Freshness::Live,
    });
    assert!(
        stage.model.run.as_ref().unwrap().offers("pause"),
        "the other host's view is not taken"
    );
    stage.press("c");
    assert!(stage.model.popup.is_some());
    // The run behind an open question is another one when the same id is shown from another host.
    stage.model.run.as_mut().unwrap().run_id = other;
    stage.press("y");
    assert!(
        stage
            .effects
            .iter()
            .all(|effect| !matches!(effect, Effect::Command { .. }))
    );
}

#[test]
fn a_restarted_run_is_selected_on_its_own_host() {
    let mut stage = three((120, 40));
    let run_id = stage.model.run.as_ref().unwrap().run_id.clone();
    let receipt = json!({
        "runId": run_id.id, "status": "queued", "paused": false, "runRevision": 1, "newRunId": "new",
    });
    let receipt: RunReceipt = serde_json::from_value(receipt).unwrap();
    stage.send(Message::Decided {
        command: Command::Restart,
        run_id,
        result: Ok(receipt),
    });
    let selected = stage.model.browser.selected_id.clone().unwrap();
    assert_eq!((selected.host, selected.id.as_str()), (GPU, "new"));
}

#[test]
fn what_is_wrong_with_a_host_is_said_once_and_on_a_click() {
    let stage = three((120, 40));
    assert!(
        stage
            .frame()
            .contains("attic: ssh cannot reach attic: No route to host"),
        "{}",
        stage.frame()
    );
    let mut stage = without_toasts(stage);
    stage.connection(ATTIC, ConnectionState::Reconnecting(retry(4, "still gone")));
    assert!(
        stage.model.toasts.is_empty(),
        "further attempts are counted, not announced"
    );
    let row = stage
        .frame()
        .lines()
        .position(|line| line.contains("attempt 4 in"))
        .unwrap();
    stage.click(5, row as u16);
    assert!(stage.frame().contains("attic: still gone"), "{}", stage.frame());
    let mut stage = without_toasts(stage);
    stage.press("H");
    assert!(stage.frame().contains("attic: still gone"), "{}", stage.frame());
}

#[test]
fn one_host_is_named_only_when_it_is_another_machine() {
    let mut stage = opened((120, 40), &fixtures::running());
    assert!(stage.frame().contains("\n live  7 steps"), "{}", stage.frame());
    stage.model.hosts = Hosts::new(&["gpu".to_owned()]);
    stage.connection(HostId(0), connected());
    assert!(stage.frame().contains("\n gpu · live  7 steps"), "{}", stage.frame());
}
