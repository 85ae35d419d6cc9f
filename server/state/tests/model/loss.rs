//! Losses of power in the model: between operations, and in the middle of them.

use super::*;
use piw_state::vfs::Fault;

impl World {
    pub(super) async fn lose_power(&mut self, survives: Survives) {
        self.disk.lose_power(survives);
        self.state.close();
        self.place.clock.reboot();
        self.reopen().await;
    }

    /// Two runs are started and a node is finished, all at once, and the power goes on the way. What was answered is there, once;
    /// the rest is there as a whole or not at all, and sending it again does it once.
    pub(super) async fn lose_power_at(&mut self, on: On, at: u64, survives: Survives) {
        let (one, two) = (self.identity(Operation::RunStart), self.identity(Operation::RunStart));
        let state = self.state.clone();
        let start =
            |identity: &CommandIdentity| state.start_run(identity.clone(), Kind::Chain.flow().new_run(json!(1)));
        let stepping = self.stepping();
        let message = stepping.map(|at| {
            let run = self.runners[at].run;
            let step = usize::try_from(self.runs[run].steps).expect("small");
            let nodes = self.runs[run].kind.nodes();
            self.runners[at]
                .runner
                .step_message(nodes[step], json!(step), nodes[step + 1], 1)
        });
        let step = async {
            let (Some(at), Some(message)) = (stepping, message) else {
                return false;
            };
            state.apply_child(&self.runners[at].runner.claim, message).await.is_ok()
        };
        self.disk.inject(Fault::power_loss(on).at(at).survives(survives));
        let before = self.disk.counts().faults;
        let (first, stepped, second) = tokio::join!(start(&one), step, start(&two));
        let lost = self.disk.counts().faults > before;
        self.disk.heal();
        if !lost {
            // It was to go later than there was anything to do.
            self.disk.lose_power(survives);
        }
        self.state.close();
        self.place.clock.reboot();
        self.state = self.place.serve().await;
        assert_eq!(self.state.verify().await.expect("verify"), vec![]);
        if let Some(at) = stepping {
            let run = self.runners[at].run;
            let steps = facts(&self.state, &self.runs[run].id).await.3;
            let more = steps - self.runs[run].steps;
            assert!(
                more == 1 || (more == 0 && !stepped),
                "answered: {stepped}, steps more: {more}"
            );
            self.runs[run].steps = steps;
            if more == 1 {
                self.runs[run].streak = 0;
            }
        }
        for (identity, answer) in [(one, first), (two, second)] {
            let mut again = identity;
            again.request_id = format!("{} again", again.request_id);
            let known = self
                .state
                .stored_receipt::<piw_protocol::ops::RunReceipt>(again.clone())
                .await
                .expect("read")
                .is_some();
            assert!(known || answer.is_err(), "an answered start is missing");
            let repeated = self
                .state
                .start_run(again, Kind::Chain.flow().new_run(json!(1)))
                .await
                .expect("start");
            let expected = if known { Outcome::Adopted } else { Outcome::Accepted };
            assert_eq!(repeated.outcome, expected);
            if let Ok(answer) = answer {
                assert_eq!(common::run_id(&answer), common::run_id(&repeated));
            }
            self.add(common::run_id(&repeated), Kind::Chain, 0);
        }
        self.check().await;
        self.recover().await;
    }

    /// A runner that may finish a node which is not its run's last.
    fn stepping(&self) -> Option<usize> {
        (0..self.runners.len()).find(|&at| {
            let slot = &self.runners[at];
            let run = &self.runs[slot.run];
            let nodes = run.kind.nodes();
            let step = usize::try_from(run.steps).expect("small");
            slot.holds
                && !slot.expired
                && slot.begun
                && step + 1 < nodes.len()
                && nodes[step] != "ask"
                && (run.kind != Kind::Effect || step > 0 || run.effect == Effect::Applied)
        })
    }
}
