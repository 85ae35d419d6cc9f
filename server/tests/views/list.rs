//! The run list: order, chains, filters, windows, and paging across changes.

use piw_protocol::ops::{RunFilter, RunList, RunsPage};
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::RunListPage;
use piw_server::projection::ViewError;

use crate::fixture::{EPOCH, Fixture, Run};

fn ids(page: &RunListPage) -> Vec<&str> {
    page.items.iter().map(|item| item.run_id.as_str()).collect()
}

async fn list(f: &Fixture, filter: RunFilter) -> RunListPage {
    f.publisher
        .run_list(RunList {
            filter: Some(filter),
            ..RunList::default()
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn runs_are_listed_newest_first_and_a_chain_is_one_row() {
    let f = Fixture::new().await;
    let definition = f.circle(2);
    let first = f.run(definition, &Run::new("first", "completed"));
    f.run(definition, &Run::new("second", "queued"));
    let middle = f.run(
        definition,
        &Run {
            parent: Some((first, "continuation")),
            ..Run::new("middle", "completed")
        },
    );
    f.run(
        definition,
        &Run {
            parent: Some((middle, "continuation")),
            ..Run::new("last", "queued")
        },
    );
    f.run(
        definition,
        &Run {
            parent: Some((first, "restart")),
            ..Run::new("again", "queued")
        },
    );
    let page = f.publisher.run_list(RunList::default()).await.unwrap();
    assert_eq!((ids(&page), page.total), (vec!["again", "last", "second"], 3));
    let last = &page.items[1];
    assert_eq!(
        (last.parent_run_id.as_deref(), last.root_run_id.as_deref()),
        (Some("middle"), Some("first"))
    );
    assert_eq!(last.display.status, DisplayStatus::Queued);
}

#[tokio::test]
async fn filters_and_windows_select() {
    let f = Fixture::new().await;
    let definition = f.circle(2);
    f.run(
        definition,
        &Run {
            title: Some("Größe prüfen"),
            ..Run::new("a", "completed")
        },
    );
    f.run(
        definition,
        &Run {
            name: "other",
            ..Run::new("b", "failed")
        },
    );
    f.run(
        definition,
        &Run {
            created_at: EPOCH + 5_000,
            ..Run::new("c", "queued")
        },
    );
    f.run(
        definition,
        &Run {
            queue: "running",
            ..Run::new("d", "running")
        },
    );
    let text = |text: &str| RunFilter {
        text: Some(text.into()),
        ..RunFilter::default()
    };
    assert_eq!(ids(&list(&f, text("GRÖSSE")).await), Vec::<&str>::new());
    assert_eq!(ids(&list(&f, text("GRÖße")).await), ["a"]);
    let page = list(&f, text("OTH")).await;
    assert_eq!((ids(&page), page.total, page.unfiltered), (vec!["b"], 1, Some(4)));
    assert_eq!(list(&f, RunFilter::default()).await.unfiltered, None);
    let status = |status: &[DisplayStatus]| RunFilter {
        status: Some(status.to_vec()),
        ..RunFilter::default()
    };
    assert_eq!(
        ids(&list(&f, status(&[DisplayStatus::Failed, DisplayStatus::Completed])).await),
        ["b", "a"]
    );
    // A running row without a claim is not shown as running.
    assert_eq!(ids(&list(&f, status(&[DisplayStatus::Queued])).await), ["d", "c"]);
    let workflow = RunFilter {
        workflow: Some("flow".into()),
        ..RunFilter::default()
    };
    assert_eq!(ids(&list(&f, workflow).await), ["d", "c", "a"]);
    let after = |at: &str| RunFilter {
        created_after: Some(at.into()),
        ..RunFilter::default()
    };
    assert_eq!(ids(&list(&f, after("2026-01-01T00:00:05.000Z")).await), ["c"]);
    let wrong = RunList {
        filter: Some(after("yesterday")),
        ..RunList::default()
    };
    let error = f.publisher.run_list(wrong).await.unwrap_err();
    assert!(matches!(
        error,
        ViewError::BadRequest {
            field: "filter.createdAfter",
            ..
        }
    ));

    let window = RunList {
        start: Some(1),
        limit: Some(2),
        ..RunList::default()
    };
    let page = f.publisher.run_list(window).await.unwrap();
    assert_eq!((ids(&page), page.start, page.total), (vec!["c", "b"], 1, 4));
    let beyond = RunList {
        start: Some(u64::MAX),
        ..RunList::default()
    };
    assert_eq!(f.publisher.run_list(beyond).await.unwrap().items.len(), 0);
    let error = f
        .publisher
        .run_list(RunList {
            limit: Some(0),
            ..RunList::default()
        })
        .await
        .unwrap_err();
    assert!(matches!(error, ViewError::BadRequest { field: "limit", .. }));
}

/// Every filter of a world of all statuses, workflows and times, against what reading every run gives.
#[tokio::test]
async fn narrowed_lists_hold_what_every_run_says() {
    let f = Fixture::new().await;
    let definition = f.circle(2);
    let statuses = ["completed", "failed", "timed_out", "cancelled", "queued", "waiting"];
    for number in 0..36_i64 {
        let status = statuses[usize::try_from(number).unwrap() % statuses.len()];
        let id = format!("r{number:02}");
        f.run(
            definition,
            &Run {
                name: if number % 4 == 0 { "other" } else { "flow" },
                // Creation need not go up with the id: the clock may have been set back.
                created_at: EPOCH + (number * 7 % 36) * 1000,
                ..Run::new(&id, status)
            },
        );
    }
    let all = f.publisher.run_list(RunList::default()).await.unwrap().items;
    assert_eq!(all.len(), 36);
    let instant = |second: u32| format!("2026-01-01T00:00:{second:02}.000Z");
    let shown = |wanted: &[DisplayStatus]| Some(wanted.to_vec());
    for status in [
        None,
        shown(&[DisplayStatus::Failed]),
        shown(&[DisplayStatus::Waiting, DisplayStatus::Queued, DisplayStatus::TimedOut]),
        shown(&[DisplayStatus::Completed, DisplayStatus::Cancelled]),
        shown(&[]),
    ] {
        for workflow in [None, Some("other".to_owned()), Some("absent".to_owned())] {
            for (after, before) in [
                (None, None),
                (Some(9), None),
                (None, Some(20)),
                (Some(9), Some(20)),
                (Some(5), Some(5)),
            ] {
                let filter = RunFilter {
                    text: None,
                    status: status.clone(),
                    workflow: workflow.clone(),
                    created_after: after.map(instant),
                    created_before: before.map(instant),
                };
                let expected: Vec<&str> = all
                    .iter()
                    .filter(|item| {
                        status
                            .as_ref()
                            .is_none_or(|status| status.contains(&item.display.status))
                    })
                    .filter(|item| workflow.as_ref().is_none_or(|name| *name == item.workflow_name))
                    .filter(|item| after.is_none_or(|after| item.created_at >= instant(after)))
                    .filter(|item| before.is_none_or(|before| item.created_at < instant(before)))
                    .map(|item| item.run_id.as_str())
                    .collect();
                assert_eq!(ids(&list(&f, filter.clone()).await), expected, "{filter:?}");
            }
        }
    }
}

#[tokio::test]
async fn wrong_ages_are_refused_by_name() {
    let f = Fixture::new().await;
    let refused = async |after: &str, before: &str| {
        let filter = RunFilter {
            created_after: Some(after.into()),
            created_before: Some(before.into()),
            ..RunFilter::default()
        };
        let request = RunList {
            filter: Some(filter),
            ..RunList::default()
        };
        f.publisher.run_list(request).await.unwrap_err().to_string()
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    let error = refused(early, "soon").await;
    assert!(
        error.contains("filter.createdBefore") && error.contains("RFC 3339") && error.contains("soon"),
        "{error}"
    );
    let error = refused("2026-01-01", late).await;
    assert!(
        error.contains("filter.createdAfter") && error.contains("2026-01-01"),
        "{error}"
    );
    let error = refused(late, early).await;
    assert!(
        error.contains("filter.createdBefore")
            && error.contains("not before filter.createdAfter, 2026-01-01T00:00:01.000Z"),
        "{error}"
    );
}

#[tokio::test]
async fn a_failed_run_says_why_and_a_foreign_revision_is_stale() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(2), &Run::new("a", "failed"));
    f.set_value(run, "error", "{\"message\":\"it broke\"}");
    let page = f.publisher.run_list(RunList::default()).await.unwrap();
    assert_eq!(page.items[0].display.reason.as_deref(), Some("it broke"));
    let request = |revision: String| RunsPage {
        revision,
        cursor: 0,
        filter: None,
        limit: None,
    };
    assert_eq!(
        f.publisher
            .runs_page(request(page.revision.clone()))
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    for revision in ["", "x", "test.999.1", &format!("{}0", page.revision)] {
        let error = f.publisher.runs_page(request(revision.to_owned())).await.unwrap_err();
        assert!(matches!(error, ViewError::StaleList { .. }), "{revision}");
    }
}
