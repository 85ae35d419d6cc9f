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
    assert_eq!(ids(&list(&f, text("OTH")).await), ["b"]);
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
