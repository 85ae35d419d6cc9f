//! `workflow.check` and `workflow.list`: what can be started from a project, and whether one would be.

use piw_protocol::envelope::Request;
use piw_protocol::ops::{WorkflowCheck, WorkflowCheckReport, WorkflowList, WorkflowListReport};
use piw_protocol::view::DefinitionView;

use super::start::project_directory;
use super::{not_built, payload};
use crate::answer::{Answer, unavailable};
use crate::paths;
use crate::server::Server;
use crate::supervise::resolve::Resolved;

impl Server {
    /// Loads and validates without starting; the receipt is the resolved definition with its warnings.
    pub(super) async fn workflow_check(&self, request: &Request) -> Answer {
        let checked = async {
            let check: WorkflowCheck = payload(request)?;
            let project_path = project_directory(&check.project_path)?;
            self.resolve(check.workflow, project_path, None, self.scratch()?).await
        };
        match checked.await {
            Ok(Resolved { definition, .. }) => Answer::accepted(&WorkflowCheckReport {
                workflow: DefinitionView::Inline(Box::new(definition.definition)),
                definition_digest: definition.definition_digest,
                sources: definition.sources,
                unsupported: definition.unsupported,
                warnings: definition
                    .warnings
                    .into_iter()
                    .chain(definition.needs_session)
                    .chain(definition.agent_problem)
                    .collect(),
            }),
            Err(answer) => answer,
        }
    }

    /// Looks up files only; nothing is evaluated.
    pub(super) async fn workflow_list(&self, request: &Request) -> Answer {
        let Some(lister) = self.workflows else {
            return not_built(request.operation);
        };
        let project = payload::<WorkflowList>(request).and_then(|list| project_directory(&list.project_path));
        let project = match project {
            Ok(project) => project,
            Err(answer) => return answer,
        };
        let global = paths::global_workflows();
        match tokio::task::spawn_blocking(move || lister(project.as_ref(), global.as_deref())).await {
            Ok(workflows) => Answer::accepted(&WorkflowListReport { workflows }),
            Err(_) => unavailable(&piw_state::StateError::Closed),
        }
    }
}
