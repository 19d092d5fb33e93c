//! How the store takes requests: at once, later, not at all, or with an answer that is lost.

use std::time::Duration;

use tourbillon_durable::StoreError;
use tourbillon_durable::core::Input;
use tourbillon_durable::store::{
    ClaimAnswer, CreateAnswer, DueEntry, Heartbeat, MemoryTables, RescheduleAnswer, WriteAnswer, WriteOp,
};

use super::node::{NodeFlaw, Tag};
use super::store::Flaw;
use super::world::{Answer, Event, QUICK, Request, World};

impl World {
    fn latency(&mut self) -> Duration {
        let is_slow = self.slow_until > self.time && self.random.one_in(2);
        let is_late = self.is_rough && self.is_troubled && self.random.one_in(20);
        self.random.duration(if is_slow || is_late { Duration::from_secs(4) } else { QUICK })
    }

    pub(super) fn send(&mut self, node: u64, request: Request) {
        let latency = self.latency();
        self.after(latency, Event::Request(node, request));
    }

    fn answer(&mut self, node: u64, answer: Answer) {
        let latency = self.latency();
        self.after(latency, Event::Answer(node, answer));
    }

    /// Returns whether something happens that happens once in so many times while there is trouble.
    pub(super) fn goes_wrong(&mut self, once_in: u64) -> bool {
        self.is_rough && self.is_troubled && self.random.one_in(once_in)
    }

    /// The store takes a request, perhaps of a node that is dead by now.
    pub(super) fn store_answers(&mut self, node: u64, request: Request) {
        let cut_off_until = self.nodes.get(&node).map_or(0, |node| node.cut_off_until);
        let is_cut_off = cut_off_until.max(self.gone_until) > self.time;
        if is_cut_off || self.goes_wrong(40) {
            self.ledger.totals.lost_requests += 1;
            return self.fail(node, request, StoreError::Unavailable("cut off".into()));
        }
        match request {
            Request::Write(ops, tags) => self.store_writes(node, ops, tags),
            Request::Heartbeat(heartbeat, sent) => self.store_beats(node, heartbeat, sent),
            Request::Scan(scan, query) => {
                let result = self.unless_lost(Ok(self.readable().due(&query)));
                let answer = Answer::Input(Box::new(Input::Scanned { kind: query.kind, scan, result }));
                match self.node_flaw {
                    Some(NodeFlaw::LooksSlowly) => self.after(Duration::from_secs(3), Event::Answer(node, answer)),
                    _ => self.answer(node, answer),
                }
            }
            Request::Orphans(kind, shards, limit) => {
                let result = self.unless_lost(Ok(self.readable().orphans(&kind, &shards, limit)));
                self.answer(node, Answer::Input(Box::new(Input::OrphansFound { kind, result })));
            }
            Request::Pull(query) => {
                let page = self.readable().due(&query);
                self.answer(node, Answer::Pulled(page));
            }
        }
    }

    /// Returns what a read sees: in a shared store only what is durable, in the store of one process all that was applied.
    fn readable(&self) -> &MemoryTables {
        if self.traits.has_other_writers() { self.store.committed() } else { &self.store.tables }
    }

    fn store_writes(&mut self, node: u64, ops: Vec<WriteOp>, tags: Vec<Tag>) {
        if self.goes_wrong(40) {
            self.ledger.totals.lost_writes += 1;
            self.ledger.failed(&self.store.tables);
            let error = StoreError::Uncertain("the connection was lost, and nothing was committed".into());
            return self.answer(node, Answer::Written(tags, Err(error)));
        }
        // As a server does that commits after the time limit of its client. A store of one process has no such client.
        if self.traits.has_other_writers() && self.goes_wrong(40) {
            self.ledger.totals.late_writes += 1;
            let later = self.random.duration(Duration::from_secs(4));
            self.after(later, Event::LateWrite(ops));
            let error = StoreError::Uncertain("the store did not answer in time".into());
            return self.answer(node, Answer::Written(tags, Err(error)));
        }
        let is_full = self.full_until > self.time;
        if is_full && self.random.one_in(4) {
            if self.store.flaw == Some(Flaw::AppliesWhatFails) {
                self.store.write(&ops, self.store_now(), false);
            }
            self.ledger.failed(&self.store.tables);
            return self.answer(node, Answer::Written(tags, Err(StoreError::Full("no room at all".into()))));
        }
        let now = self.store_now();
        let (number, answers) = self.store.write(&ops, now, is_full);
        self.ledger.wrote(number, &ops, &answers, &self.store.tables, now);
        self.store.tables.check().unwrap();
        let is_lost = self.goes_wrong(25);
        self.ledger.totals.lost_answers += u64::from(is_lost);
        let result: Result<Vec<WriteAnswer>, StoreError> =
            if is_lost { Err(StoreError::Uncertain("the answer is lost".into())) } else { Ok(answers) };
        if self.store.flaw == Some(Flaw::AnswersBeforeSync) && !is_lost {
            self.ledger.answered(number);
            self.answer(node, Answer::Written(tags, result));
        } else {
            self.replies.insert(number, (node, Answer::Written(tags, result)));
        }
        self.sync_later(number);
    }

    /// Returns the answer to a request, or that it is lost on its way.
    fn unless_lost<T>(&mut self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if !self.goes_wrong(25) {
            return answer;
        }
        self.ledger.totals.lost_answers += 1;
        Err(StoreError::Unavailable("the answer is lost".into()))
    }

    /// The store applies a batch after its sender has given up waiting.
    pub(super) fn store_writes_late(&mut self, ops: &[WriteOp]) {
        let (now, is_full) = (self.store_now(), self.full_until > self.time);
        let (number, answers) = self.store.write(ops, now, is_full);
        self.ledger.wrote(number, ops, &answers, &self.store.tables, now);
        self.store.tables.check().unwrap();
        self.sync_later(number);
    }

    fn store_beats(&mut self, node: u64, heartbeat: Heartbeat, sent: Duration) {
        let (number, ownership) = self.store.heartbeat(heartbeat, self.store_now());
        self.ledger.owned(number, &ownership);
        let result = self.unless_lost(Ok(ownership));
        let input = Input::Owned { sent, result };
        self.replies.insert(number, (node, Answer::Input(Box::new(input))));
        self.sync_later(number);
    }

    /// Has a change made durable some time later. A crash may be quicker.
    fn sync_later(&mut self, number: u64) {
        let takes = Duration::from_millis(if self.crashes_soon { 20 } else { 4 });
        let takes = self.random.duration(takes / 2) + takes / 2;
        self.after(takes, Event::Synced(number));
        if std::mem::take(&mut self.crashes_soon) {
            let soon = self.random.duration(takes / 2);
            self.after(soon, Event::StoreCrash);
        }
    }

    /// Changes have become durable: the clients that asked for them get their answers.
    pub(super) fn synced(&mut self, number: u64) {
        self.store.sync(number);
        while let Some(reply) = self.replies.first_entry().filter(|reply| *reply.key() <= number) {
            let (number, (node, answer)) = reply.remove_entry();
            if !matches!(answer, Answer::Written(_, Err(_))) {
                self.ledger.answered(number);
            }
            self.answer(node, answer);
        }
    }

    /// The store ends and begins again, with what is durable and perhaps some of the rest. Clients that wait for answers do not know which.
    pub(super) fn crash_store(&mut self) {
        self.ledger.totals.store_crashes += 1;
        let survivors = self.random.index(self.store.unsynced() + 1);
        self.store.crash(survivors);
        self.ledger.recovered(&self.store.tables);
        self.store.tables.check().unwrap();
        for (_, (node, answer)) in std::mem::take(&mut self.replies) {
            self.ledger.totals.undone_answers += 1;
            let error = StoreError::Uncertain("the store has crashed".into());
            let answer = match answer {
                Answer::Written(tags, _) => Answer::Written(tags, Err(error)),
                Answer::Input(input) => match *input {
                    Input::Owned { sent, .. } => Answer::Input(Box::new(Input::Owned { sent, result: Err(error) })),
                    other => Answer::Input(Box::new(other)),
                },
                Answer::Pulled(page) => Answer::Pulled(page),
            };
            self.answer(node, answer);
        }
    }

    fn fail(&mut self, node: u64, request: Request, error: StoreError) {
        let answer = match request {
            Request::Write(_, tags) => Answer::Written(tags, Err(error)),
            Request::Scan(scan, query) => {
                Answer::Input(Box::new(Input::Scanned { kind: query.kind, scan, result: Err(error) }))
            }
            Request::Orphans(kind, ..) => Answer::Input(Box::new(Input::OrphansFound { kind, result: Err(error) })),
            Request::Heartbeat(_, sent) => Answer::Input(Box::new(Input::Owned { sent, result: Err(error) })),
            // The worker asks again anyway.
            Request::Pull(_) => return,
        };
        self.answer(node, answer);
    }

    /// A node learns what became of its batch.
    pub(super) fn written(&mut self, number: u64, tags: Vec<Tag>, result: Result<Vec<WriteAnswer>, StoreError>) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.batcher.done();
        let answers: Vec<Result<WriteAnswer, StoreError>> = match result {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => tags.iter().map(|_| Err(error.clone())).collect(),
        };
        for (tag, answer) in tags.into_iter().zip(answers) {
            let kind = match tag {
                Tag::Core(tag) => {
                    self.tell(number, Input::Written(tag, answer));
                    continue;
                }
                Tag::Client(kind, create, _) => {
                    self.client_learns(number, create, &answer);
                    kind
                }
                Tag::Pull(since) => {
                    self.worker_pulls(since, &answer);
                    String::new()
                }
                Tag::Worker(finish) => {
                    self.worker_learns(finish, &answer);
                    String::new()
                }
                Tag::Extension => {
                    self.count_extension(&answer);
                    String::new()
                }
            };
            self.notice(number, kind, answer);
        }
        self.send_batches(number);
    }

    /// Tells a node's core of a row that others have armed by this node, or may have armed.
    fn notice(&mut self, number: u64, kind: String, answer: Result<WriteAnswer, StoreError>) {
        let input = match answer {
            Ok(WriteAnswer::Create(CreateAnswer::Created { entry, .. })) => Input::Noticed { kind, entry },
            Ok(WriteAnswer::Reschedule(RescheduleAnswer::Moved { entry, kind, .. })) => Input::Noticed { kind, entry },
            Ok(WriteAnswer::Claim(ClaimAnswer::Claimed { row, next })) => {
                for entry in next.into_iter().chain([DueEntry::from(&row)]) {
                    self.tell(number, Input::Noticed { kind: row.spec.kind.clone(), entry });
                }
                return;
            }
            Ok(WriteAnswer::Extend(_)) if self.traits.has_other_writers() => return,
            Ok(
                WriteAnswer::DeadLetter(Some(Some(_)))
                | WriteAnswer::Extend(Ok(()))
                | WriteAnswer::Finish(Ok(Some(_)))
                | WriteAnswer::Claim(ClaimAnswer::GivenUp { next: Some(_), .. }),
            )
            | Err(StoreError::Uncertain(_)) => Input::Hinted,
            _ => return,
        };
        self.tell(number, input);
    }
}
