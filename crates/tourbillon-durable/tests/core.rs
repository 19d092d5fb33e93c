//! The core alone: what it asks for while nothing is due.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tourbillon_durable::core::{Action, Core, CoreConfig, DeliveryId, Input, Now, StoreRequest, Wakeup, WriteTag};
use tourbillon_durable::store::{
    ClaimOp, CreateOp, DuePage, DueQuery, Heartbeat, MemoryTables, NodeId, Ownership, ShardId, StoreTraits, Verdict,
    WriteOp, is_pull_fence,
};
use tourbillon_durable::{NewTimer, RetryPolicy, StoreError, StoreTime, TimerId};

const NOW: StoreTime = StoreTime::from_micros(1_800_000_000_000_000);
const WINDOW: Duration = Duration::from_secs(60);
const RESCAN: Duration = Duration::from_millis(250);

fn config(has_other_writers: bool) -> CoreConfig {
    CoreConfig {
        node: NodeId(TimerId::from_u128(1).as_uuid()),
        store: StoreTraits { shards: 1, parallel_writes: 1, rescan: has_other_writers.then_some(RESCAN) },
        delivery_lease: Duration::from_secs(30),
        node_lease: Duration::from_secs(10),
        window: WINDOW,
        rows_in_memory: 1_000,
        page: 100,
        retry: Duration::from_millis(200),
    }
}

/// A node that owns its shards, has one handler and has loaded a window in which nothing is due.
fn idle_core(has_other_writers: bool, next_wake: Option<StoreTime>) -> Core {
    let mut core = Core::new(config(has_other_writers));
    let mut inputs = vec![Input::Registered { kind: "mail".into(), limit: 1 }, Input::Tick];
    while let Some(input) = inputs.pop() {
        for action in core.handle(Now { store: NOW, steady: Duration::ZERO }, input) {
            inputs.push(match action {
                Action::Heartbeat(_) => {
                    let shards = vec![(ShardId(0), 1)];
                    let ownership = Ownership { shards, fair_share: 1, now: NOW, ..Ownership::default() };
                    Input::Owned { sent: Duration::ZERO, result: Ok(ownership) }
                }
                Action::Scan(scan, query) => {
                    let page = DuePage { entries: Vec::new(), has_more: false, next_wake };
                    Input::Scanned { kind: query.kind, scan, result: Ok(page) }
                }
                Action::Orphans { kind, .. } => Input::OrphansFound { kind, result: Ok(Vec::new()) },
                other => panic!("there is nothing to do: {other:?}"),
            });
        }
    }
    core
}

#[test]
fn q6_a_store_of_one_process_is_not_asked_again_before_its_first_timer_is_near() {
    let in_an_hour = NOW.saturating_add(Duration::from_secs(3600));
    let core = idle_core(false, Some(in_an_hour));
    let near = in_an_hour.saturating_sub(WINDOW);
    assert_eq!(core.next_wakeup(), Wakeup { store: Some(near), steady: None });
    let core = idle_core(false, Some(StoreTime::MAX));
    assert_eq!(core.next_wakeup(), Wakeup::default(), "without timers it is never asked");
}

#[test]
fn q6_a_shared_store_is_asked_less_than_ten_times_a_second() {
    let mut core = idle_core(true, None);
    let (mut steady, mut requests) = (Duration::ZERO, 0);
    let until = Duration::from_secs(60);
    while let Some(at) = core.next_wakeup().steady.filter(|at| *at < until) {
        steady = at.max(steady + Duration::from_micros(1));
        let store = NOW.saturating_add(steady);
        for action in core.handle(Now { store, steady }, Input::Tick) {
            requests += 1;
            let answer = match action {
                Action::Heartbeat(_) => {
                    let shards = vec![(ShardId(0), 1)];
                    let ownership = Ownership { shards, fair_share: 1, now: store, ..Ownership::default() };
                    Input::Owned { sent: steady, result: Ok(ownership) }
                }
                Action::Scan(scan, query) => Input::Scanned { kind: query.kind, scan, result: Ok(DuePage::default()) },
                other => panic!("there is nothing to do: {other:?}"),
            };
            core.handle(Now { store, steady }, answer);
        }
    }
    assert!((60..600).contains(&requests), "{requests} requests in a minute");
}

/// Returns the leases that the core asks for in the heartbeats among its actions.
fn leases(actions: Vec<Action>) -> Vec<Duration> {
    let lease = |action| if let Action::Heartbeat(heartbeat) = action { Some(heartbeat.lease) } else { None };
    actions.into_iter().filter_map(lease).collect()
}

#[test]
fn o9_a_node_takes_shards_of_a_shared_store_only_while_it_has_a_handler() {
    let mut core = Core::new(config(true));
    let lease = config(true).node_lease;
    let now = Now { store: NOW, steady: Duration::ZERO };
    let owned = |shards| {
        let ownership = Ownership { shards, fair_share: 1, now: NOW, ..Ownership::default() };
        Input::Owned { sent: Duration::ZERO, result: Ok(ownership) }
    };
    assert_eq!(leases(core.handle(now, Input::Tick)), [Duration::ZERO], "it hears the clock and takes nothing");
    let register = |limit| Input::Registered { kind: "mail".into(), limit };
    assert_eq!(leases(core.handle(now, register(1))), [], "its heartbeat is under way");
    assert_eq!(
        leases(core.handle(now, owned(Vec::new()))),
        [lease],
        "it asks at once, and not with the next heartbeat"
    );
    assert_eq!(leases(core.handle(now, owned(vec![(ShardId(0), 1)]))), []);
    assert!(core.is_owner());
    core.handle(now, register(0));
    let later = Now { store: NOW, steady: lease / 3 };
    assert_eq!(leases(core.handle(later, Input::Tick)), [Duration::ZERO], "without a handler it gives its shards up");
    assert!(!core.is_owner());
}

#[test]
fn o9_the_only_node_of_a_store_owns_it_without_a_handler_too() {
    let mut core = Core::new(config(false));
    let now = Now { store: NOW, steady: Duration::ZERO };
    assert_eq!(leases(core.handle(now, Input::Tick)), [config(false).node_lease]);
}

#[test]
fn q1_d47_a_store_that_cannot_be_written_for_a_while_does_not_end_its_node() {
    let mut core = idle_core(true, None);
    let beat_at = |core: &mut Core, steady| core.handle(Now { store: NOW.saturating_add(steady), steady }, Input::Tick);
    let fails = |core: &mut Core, steady, error| {
        let result = Err(error);
        let actions = core.handle(Now { store: NOW, steady }, Input::Owned { sent: steady, result });
        actions.iter().any(|action| matches!(action, Action::StoreFailed(_)))
    };
    let lease = config(true).node_lease;
    let mut steady = lease / 3;
    let passing = [StoreError::ReadOnly, StoreError::Unavailable, StoreError::Uncertain, StoreError::Full];
    for error in passing {
        assert_eq!(leases(beat_at(&mut core, steady)), [lease]);
        assert!(!fails(&mut core, steady, error("it will pass".to_owned())));
        steady += lease / 10;
    }
    assert_eq!(leases(beat_at(&mut core, steady)), [lease], "it asks again");
    assert!(fails(&mut core, steady, StoreError::NotPermitted("an operator has to act".to_owned())));
}

#[test]
fn d53_q7_a_delegated_row_is_claimed_with_a_fence_and_not_delivered_after_the_lease() {
    let lease = config(true).node_lease;
    // A node that owns nothing; the answer to its claim comes in time, or when its lease is over.
    let delivers = |answered: Duration| {
        let mut tables = MemoryTables::new(1);
        let owner = NodeId(TimerId::from_u128(2).as_uuid());
        let kinds = Some(["tick".to_owned()].into());
        tables.heartbeat(&Heartbeat { node: owner, lease: lease * 9, release: Vec::new(), kinds }, NOW);
        let (spec, on_conflict) = NewTimer::after("mail", Duration::ZERO).check(Default::default()).unwrap();
        let create = CreateOp { id: TimerId::from_u128(9), spec: Arc::new(spec), on_conflict };
        tables.write(vec![WriteOp::Create(create)], NOW).unwrap();

        let mut core = Core::new(config(true));
        let mut inputs = vec![Input::Registered { kind: "mail".into(), limit: 1 }];
        let mut answer = None;
        while let Some(input) = inputs.pop() {
            for action in core.handle(Now { store: NOW, steady: Duration::ZERO }, input) {
                match action {
                    Action::Heartbeat(heartbeat) => {
                        let result = Ok(tables.heartbeat(&heartbeat, NOW));
                        inputs.push(Input::Owned { sent: Duration::ZERO, result });
                    }
                    Action::Scan(scan, query) => {
                        let result = Ok(tables.due(&query));
                        inputs.push(Input::Scanned { kind: query.kind, scan, result });
                    }
                    Action::Orphans { kind, .. } => inputs.push(Input::OrphansFound { kind, result: Ok(Vec::new()) }),
                    Action::Write(tag, WriteOp::Claim(op)) => {
                        assert!(is_pull_fence(op.epoch), "the shard is another node's");
                        answer = Some((tag, tables.write(vec![WriteOp::Claim(op)], NOW).unwrap().remove(0)));
                    }
                    other => panic!("there is nothing else to do: {other:?}"),
                }
            }
        }
        assert!(!core.is_owner());
        let (tag, answer) = answer.expect("the row is claimed");
        let now = Now { store: NOW.saturating_add(answered), steady: answered };
        let actions = core.handle(now, Input::Written(tag, Ok(answer)));
        actions.iter().any(|action| matches!(action, Action::Deliver(..)))
    };
    assert!(delivers(lease / 2));
    assert!(!delivers(lease), "another node may have the row by then");
}

#[test]
fn q2_a_claim_that_is_answered_after_its_lease_is_given_back_and_not_delivered() {
    let lease = config(false).delivery_lease;
    // A worker may have pulled the row by then, refused it, and a client may have cancelled it.
    let actions = |answered: Duration| {
        let mut tables = MemoryTables::new(1);
        let owner = NodeId(TimerId::from_u128(1).as_uuid());
        tables.heartbeat(&Heartbeat { node: owner, lease: lease * 9, release: Vec::new(), kinds: None }, NOW);
        let (spec, on_conflict) = NewTimer::after("mail", Duration::ZERO).check(Default::default()).unwrap();
        let create = CreateOp { id: TimerId::from_u128(9), spec: Arc::new(spec), on_conflict };
        tables.write(vec![WriteOp::Create(create)], NOW).unwrap();
        let shards = vec![ShardId(0)];
        let query = DueQuery { kind: "mail".into(), shards, after: None, until: NOW, limit: 1 };
        let entry = tables.due(&query).entries[0];

        let mut core = idle_core(false, Some(StoreTime::MAX));
        let now = |steady: Duration| Now { store: NOW.saturating_add(steady), steady };
        let claims = core.handle(now(Duration::ZERO), Input::Noticed { kind: "mail".into(), entry });
        let [Action::Write(tag, claim)] = &claims[..] else { panic!("only the row is due: {claims:?}") };
        let answer = tables.write(vec![claim.clone()], NOW).unwrap().remove(0);
        // The first answer is lost, and the claim is sent again: its lease began with the first one.
        let lost = StoreError::Uncertain("lost".into());
        core.handle(now(Duration::ZERO), Input::Written(tag.clone(), Err(lost)));
        let again = core.handle(now(answered / 2), Input::Tick);
        let [Action::Write(tag, _)] = &again[..] else { panic!("the claim is sent again: {again:?}") };
        core.handle(now(answered), Input::Written(tag.clone(), Ok(answer)))
    };
    // The node's clock may be slower than the store's: the lease counts less a tenth.
    let ends = lease - lease / 10;
    let in_time = actions(ends - Duration::from_millis(1));
    // More than half of the lease is over, so it is extended at once.
    let extends = |action: &Action| matches!(action, Action::Write(_, WriteOp::Extend(_)));
    assert!(matches!(&in_time[..], [Action::Deliver(..), extend] if extends(extend)), "{in_time:?}");
    let late = actions(ends);
    let Some(Action::Write(_, WriteOp::Finish(finish))) = late.first() else { panic!("it is given back: {late:?}") };
    let retry = config(false).retry;
    assert!(matches!(finish.verdict, Verdict::Return { after } if after >= retry) && late.len() == 1, "{late:?}");
}

/// Lets time pass from `begin` to `end` while nothing happens but what the core asks for, and returns its actions with their times. `answer` says how
/// each of them is answered at once.
fn pass(
    core: &mut Core,
    (begin, end): (Duration, Duration),
    first: Input,
    mut answer: impl FnMut(Duration, &Action) -> Option<Input>,
) -> Vec<(Duration, Action)> {
    let (mut steady, mut inputs, mut log) = (begin, VecDeque::from([first]), Vec::new());
    loop {
        while let Some(input) = inputs.pop_front() {
            for action in core.handle(Now { store: NOW.saturating_add(steady), steady }, input) {
                inputs.extend(answer(steady, &action));
                log.push((steady, action));
            }
        }
        let wakeup = core.next_wakeup();
        let by_store = wakeup.store.map(|at| at.since(NOW));
        let next = wakeup.steady.into_iter().chain(by_store).min();
        match next.map(|at| at.max(steady + Duration::from_micros(1))).filter(|at| *at <= end) {
            Some(at) => (steady, inputs) = (at, VecDeque::from([Input::Tick])),
            None => return log,
        }
    }
}

fn owned_at(steady: Duration) -> Input {
    let now = NOW.saturating_add(steady);
    let ownership = Ownership { shards: vec![(ShardId(0), 1)], fair_share: 1, now, ..Ownership::default() };
    Input::Owned { sent: steady, result: Ok(ownership) }
}

/// Returns the waits between the times of heartbeats.
fn waits(log: &[(Duration, Action)]) -> Vec<Duration> {
    let beats = log.iter().filter(|(_, action)| matches!(action, Action::Heartbeat(_))).map(|(at, _)| *at);
    beats.clone().zip(beats.skip(1)).map(|(one, next)| next - one).collect()
}

#[test]
fn d47_a_store_that_is_gone_is_asked_ever_more_rarely_and_by_each_node_at_other_times() {
    let (retry, longest) = (config(true).retry, config(true).node_lease / 10);
    let span = (Duration::ZERO, Duration::from_secs(600));
    let is_gone = |steady, action: &Action| {
        let result = Err(StoreError::Unavailable("it is gone".into()));
        matches!(action, Action::Heartbeat(_)).then_some(Input::Owned { sent: steady, result })
    };
    let node = |number| {
        let node = NodeId(TimerId::from_u128(number).as_uuid());
        let mut core = Core::new(CoreConfig { node, ..config(true) });
        let register = Input::Registered { kind: "mail".into(), limit: 1 };
        (waits(&pass(&mut core, span, register, is_gone)), core)
    };
    let (one, mut core) = node(1);
    assert_eq!(one[0], retry, "a short outage is over soon");
    assert!(one.iter().all(|wait| *wait <= longest), "a lease can still be renewed");
    assert!(one[4..].iter().all(|wait| *wait >= longest / 2) && one.len() < 1_200, "{one:?}");
    assert!(one[4..].iter().any(|wait| *wait != one[4]), "the waits differ");
    assert_ne!(one, node(2).0, "and the nodes do not come together");
    // The first answer ends the long waits.
    let back = (span.1, span.1 + Duration::from_secs(60));
    let (mut answers, mut failed_at) = (0, Vec::new());
    pass(&mut core, back, Input::Tick, |steady, action| match action {
        Action::Heartbeat(_) => {
            answers += 1;
            if answers > 1 {
                failed_at.push(steady);
                return is_gone(steady, action);
            }
            Some(owned_at(steady))
        }
        Action::Scan(scan, query) => {
            Some(Input::Scanned { kind: query.kind.clone(), scan: *scan, result: Ok(DuePage::default()) })
        }
        Action::Orphans { kind, .. } => Some(Input::OrphansFound { kind: kind.clone(), result: Ok(Vec::new()) }),
        _ => None,
    });
    assert_eq!(failed_at[1] - failed_at[0], retry);
}

#[test]
fn d47_o6_a_request_that_the_store_always_refuses_is_told_of_while_all_others_succeed_and_is_not_given_up() {
    let mut tables = MemoryTables::new(1);
    let owner = NodeId(TimerId::from_u128(1).as_uuid());
    tables.heartbeat(
        &Heartbeat { node: owner, lease: config(true).node_lease * 999, release: Vec::new(), kinds: None },
        NOW,
    );
    // It is delivered again each time that the lease of its delivery is over.
    let timer = NewTimer::after("mail", Duration::ZERO).retry(RetryPolicy::attempts(1_000));
    let (spec, on_conflict) = timer.check(Default::default()).unwrap();
    let create = CreateOp { id: TimerId::from_u128(9), spec: Arc::new(spec), on_conflict };
    tables.write(vec![WriteOp::Create(create)], NOW).unwrap();

    let mut core = Core::new(config(true));
    let refused = StoreError::Internal("PostgreSQL answers XX000".into());
    let works_from = Duration::from_secs(1_000);
    let (mut finishes, mut finished) = (Vec::new(), false);
    let register = Input::Registered { kind: "mail".into(), limit: 1 };
    let span = (Duration::ZERO, Duration::from_secs(1_100));
    let log = pass(&mut core, span, register, |steady, action| {
        let now = NOW.saturating_add(steady);
        Some(match action {
            Action::Heartbeat(_) => owned_at(steady),
            Action::Scan(scan, query) => {
                Input::Scanned { kind: query.kind.clone(), scan: *scan, result: Ok(tables.due(query)) }
            }
            Action::Orphans { kind, .. } => Input::OrphansFound { kind: kind.clone(), result: Ok(Vec::new()) },
            Action::Deliver(id, _) => Input::HandlerDone(*id, Verdict::Done),
            Action::Write(tag, WriteOp::Finish(op)) if steady < works_from => {
                finishes.push(op.clone());
                Input::Written(tag.clone(), Err(refused.clone()))
            }
            Action::Write(tag, op) => {
                finished |= matches!(op, WriteOp::Finish(_));
                Input::Written(tag.clone(), Ok(tables.write(vec![op.clone()], now).unwrap().remove(0)))
            }
            _ => return None,
        })
    });
    let told: Vec<u64> = log
        .iter()
        .filter_map(|(at, action)| match action {
            Action::StoreFails(failing) => {
                assert_eq!((failing.request, &failing.error), (StoreRequest::Finish, &refused));
                Some((*at - failing.since).as_secs())
            }
            Action::StoreFailed(error) => panic!("the node has ended: {error}"),
            _ => None,
        })
        .collect();
    let doubled = [60, 120, 240, 480, 960];
    assert!(
        told.len() == doubled.len() && told.iter().zip(doubled).all(|(told, at)| (at..at + 20).contains(told)),
        "{told:?}"
    );
    let of_first = finishes.iter().filter(|finish| finish.attempt == 1).count();
    assert!((300..1_000).contains(&of_first), "the first is asked for {of_first} times");
    assert!(finished && tables.rows().next().is_none(), "it has fired once the store could write it");
    let recovered: Vec<Duration> =
        log.iter().filter(|(_, action)| *action == Action::StoreRecovered).map(|(at, _)| *at).collect();
    assert!(matches!(&recovered[..], [at] if *at >= works_from) && core.failing().is_none(), "{recovered:?}");
}

#[test]
fn d47_o6_what_a_node_asks_for_no_more_is_not_told_of() {
    let mut core = idle_core(true, None);
    let fails = |steady, action: &Action| match action {
        Action::Heartbeat(_) => Some(owned_at(steady)),
        Action::Scan(scan, query) => {
            let result = Err(StoreError::Unavailable("it is gone".into()));
            Some(Input::Scanned { kind: query.kind.clone(), scan: *scan, result })
        }
        _ => None,
    };
    let tells = |log: Vec<(Duration, Action)>| {
        log.into_iter().filter(|(_, action)| matches!(action, Action::StoreFails(_))).count()
    };
    let span = (Duration::ZERO, Duration::from_secs(30));
    assert_eq!(tells(pass(&mut core, span, Input::Tick, fails)), 0, "not for a minute yet");
    assert_eq!(core.failing().map(|failing| failing.request), Some(StoreRequest::Scan));
    let off = Input::Registered { kind: "mail".into(), limit: 0 };
    let span = (span.1, Duration::from_secs(600));
    assert_eq!(tells(pass(&mut core, span, off, fails)), 0);
    assert!(core.failing().is_none());
}

/// A store of one shard with rows that are due, and what the core does with it.
struct DueRows {
    tables: MemoryTables,
    core: Core,
    delivered: Vec<DeliveryId>,
}

impl DueRows {
    /// Returns a core that knows none of the rows.
    fn new() -> DueRows {
        let mut tables = MemoryTables::new(1);
        let owner = NodeId(TimerId::from_u128(1).as_uuid());
        let lease = Duration::from_secs(3600);
        tables.heartbeat(&Heartbeat { node: owner, lease, release: Vec::new(), kinds: None }, NOW);
        DueRows { tables, core: idle_core(false, Some(StoreTime::MAX)), delivered: Vec::new() }
    }

    fn create(&mut self, number: u128) {
        let (spec, on_conflict) = NewTimer::after("mail", Duration::ZERO).check(Default::default()).unwrap();
        let create = CreateOp { id: TimerId::from_u128(number), spec: Arc::new(spec), on_conflict };
        self.tables.write(vec![WriteOp::Create(create)], NOW).unwrap();
    }

    /// Tells the core something, and returns what it does.
    fn tell(&mut self, input: Input) -> Vec<Action> {
        self.core.handle(Now { store: NOW, steady: Duration::ZERO }, input)
    }

    /// Tells the core that there is a handler with this limit, or none, and returns what it does.
    fn register(&mut self, limit: usize) -> Vec<Action> {
        self.tell(Input::Registered { kind: "mail".into(), limit })
    }

    /// Answers the core until it has nothing to do but to wait for handlers.
    fn answer(&mut self, mut actions: Vec<Action>) {
        while let Some(action) = actions.pop() {
            let input = match action {
                Action::Scan(scan, query) => self.scanned(scan, &query),
                Action::Orphans { kind, .. } => Input::OrphansFound { kind, result: Ok(Vec::new()) },
                Action::Write(tag, op) => Input::Written(tag, Ok(self.tables.write(vec![op], NOW).unwrap().remove(0))),
                Action::Deliver(id, _) => {
                    self.delivered.push(id);
                    continue;
                }
                other => panic!("there is nothing else to do: {other:?}"),
            };
            actions.extend(self.tell(input));
        }
    }

    fn scanned(&self, scan: u64, query: &DueQuery) -> Input {
        Input::Scanned { kind: query.kind.clone(), scan, result: Ok(self.tables.due(query)) }
    }
}

#[test]
fn p7_a_handler_that_is_registered_again_has_no_more_deliveries_than_its_limit() {
    let mut rows = DueRows::new();
    (1..=3).for_each(|number| rows.create(number));
    for _ in 0..3 {
        assert_eq!(rows.register(0), []);
        let actions = rows.register(1);
        rows.answer(actions);
        assert_eq!(rows.delivered.len(), 1, "the first delivery has not ended");
    }
    for ended in 1..=3 {
        let actions = rows.tell(Input::HandlerDone(rows.delivered[ended - 1], Verdict::Done));
        rows.answer(actions);
        assert_eq!(rows.delivered.len(), (ended + 1).min(3));
    }
    assert_eq!(rows.core.deliveries(), 0);
}

#[test]
fn d45_an_answer_for_a_handler_that_was_removed_is_not_taken_for_one_to_the_next_handler() {
    let mut rows = DueRows::new();
    let scan_of = |actions: Vec<Action>| {
        let scan = |action| if let Action::Scan(scan, query) = action { Some((scan, query)) } else { None };
        actions.into_iter().find_map(scan).expect("the core looks for rows")
    };
    rows.register(0);
    let (old, query) = scan_of(rows.register(1));
    let before = rows.scanned(old, &query);
    rows.register(0);
    // Nobody wants the notice of this row.
    rows.create(1);
    let (new, query) = scan_of(rows.register(1));
    let actions = rows.tell(before);
    rows.answer(actions);
    let after = rows.scanned(new, &query);
    let actions = rows.tell(after);
    rows.answer(actions);
    assert_eq!(rows.delivered.len(), 1, "the row is found");
}

#[test]
fn d53_q3_a_claim_that_is_answered_after_its_handler_was_removed_is_given_back() {
    let mut rows = DueRows::new();
    rows.create(1);
    rows.register(0);
    let claim = |action: &Action| matches!(action, Action::Write(_, WriteOp::Claim(_)));
    let mut actions = rows.register(1);
    while !actions.iter().any(claim) {
        let Some(Action::Scan(scan, query)) = actions.into_iter().find(|action| matches!(action, Action::Scan(..)))
        else {
            panic!("the core looks for rows")
        };
        let page = rows.scanned(scan, &query);
        actions = rows.tell(page);
    }
    rows.register(0);
    rows.answer(actions);
    assert_eq!((rows.delivered.len(), rows.core.deliveries()), (0, 0));
    assert_eq!(rows.core.rows_in_memory(), 0);
    let actions = rows.register(1);
    rows.answer(actions);
    assert_eq!(rows.delivered.len(), 1);
}

/// Returns the claim among the actions.
fn claim_of(actions: Vec<Action>) -> Option<(WriteTag, ClaimOp)> {
    actions.into_iter().find_map(|action| match action {
        Action::Write(tag, WriteOp::Claim(op)) => Some((tag, op)),
        _ => None,
    })
}

#[test]
fn o9_q1_a_node_that_ends_does_not_wait_for_a_claim_that_the_store_has_failed() {
    for fails_first in [true, false] {
        let mut rows = DueRows::new();
        rows.create(1);
        rows.register(0);
        let mut actions = rows.register(1);
        while let Some(Action::Scan(scan, query)) = actions.iter().find(|action| matches!(action, Action::Scan(..))) {
            let page = rows.scanned(*scan, query);
            actions = rows.tell(page);
        }
        let (tag, _) = claim_of(actions).expect("the row is claimed");
        let failed = Input::Written(tag, Err(StoreError::Unavailable("it is gone".into())));
        let (first, last) = if fails_first { (failed, Input::Drain) } else { (Input::Drain, failed) };
        assert_eq!(leases(rows.tell(first)), [], "the claim is under way, or the node runs");
        assert_eq!(leases(rows.tell(last)), [Duration::ZERO], "the node leaves at once");
    }
}

/// Returns when the core sends its heartbeats in a minute, if the lease of the other node ends as `others_until` says.
fn beats(others_until: impl Fn(Duration) -> Option<Duration>) -> Vec<Duration> {
    let span = (Duration::ZERO, Duration::from_secs(60));
    let register = Input::Registered { kind: "mail".into(), limit: 1 };
    let log = pass(&mut Core::new(config(true)), span, register, |steady, action| match action {
        Action::Heartbeat(_) => {
            let Input::Owned { sent, result: Ok(ownership) } = owned_at(steady) else { return None };
            let others_until = others_until(steady).map(|until| NOW.saturating_add(until));
            Some(Input::Owned { sent, result: Ok(Ownership { others_until, ..ownership }) })
        }
        Action::Scan(scan, query) => {
            Some(Input::Scanned { kind: query.kind.clone(), scan: *scan, result: Ok(DuePage::default()) })
        }
        Action::Orphans { kind, .. } => Some(Input::OrphansFound { kind: kind.clone(), result: Ok(Vec::new()) }),
        _ => None,
    });
    log.into_iter().filter(|(_, action)| matches!(action, Action::Heartbeat(_))).map(|(at, _)| at).collect()
}

#[test]
fn o9_a_node_sends_a_heartbeat_soon_after_the_lease_of_a_dead_node_has_ended() {
    let lease = config(true).node_lease;
    let alone = beats(|_| None);
    let each = lease / 3;
    // A live node has renewed its lease a third of it ago at most.
    assert_eq!(beats(|steady| Some(steady + lease - each)), alone, "live nodes cost no heartbeat");
    for ends in [0, 7_000, 14_999, 19_000].map(Duration::from_millis) {
        let with_dead = beats(|steady| Some(ends).filter(|ends| *ends > steady));
        let after = with_dead.iter().find(|at| **at >= ends && **at > Duration::ZERO).unwrap();
        assert!(ends.is_zero() || *after <= ends + lease / 100, "{after:?} after {ends:?}");
        assert!(with_dead.len() <= alone.len() + 1, "{with_dead:?}");
    }
}

#[test]
fn d55_hints_that_come_faster_than_the_store_answers_are_gathered_and_none_is_lost() {
    let in_millis = Duration::from_millis;
    for (has_other_writers, takes) in [(true, 0), (true, 5), (true, 100), (false, 5), (false, 100)] {
        let takes = in_millis(takes);
        let mut core = idle_core(has_other_writers, Some(StoreTime::MAX));
        let mut looks = Vec::new();
        let mut waiting: Option<(Duration, u64, String)> = None;
        // A hint each millisecond of a second, and then none for a fifth of one, which is shorter than the wait for a look without a hint.
        for step in (50..=1_200).map(in_millis) {
            let answered = waiting.take_if(|(at, ..)| *at <= step).map(|(_, scan, kind)| {
                let page = DuePage { next_wake: Some(StoreTime::MAX), ..DuePage::default() };
                Input::Scanned { kind, scan, result: Ok(page) }
            });
            let hint = if step <= in_millis(1_000) { Input::Hinted } else { Input::Tick };
            for input in answered.into_iter().chain([hint]) {
                for action in core.handle(Now { store: NOW.saturating_add(step), steady: step }, input) {
                    let Action::Scan(scan, query) = action else { panic!("there is nothing else to do: {action:?}") };
                    looks.push(step);
                    waiting = Some((step + takes, scan, query.kind));
                }
            }
        }
        let between = (takes * 2).max(takes + in_millis(20));
        assert_eq!(looks[0], in_millis(50), "the first hint is followed at once");
        assert!(looks.iter().zip(&looks[1..]).all(|(one, next)| *next - *one >= between), "{takes:?}: {looks:?}");
        assert!(*looks.last().unwrap() >= in_millis(1_000), "{takes:?}: {looks:?}");
    }
}

#[test]
fn o9_a_node_that_is_always_busy_gives_shards_to_a_new_one() {
    const SHARDS: u16 = 8;
    const LIMIT: usize = 32;
    let store = StoreTraits { shards: SHARDS, ..config(true).store };
    let nodes = [1, 2].map(|number| NodeId(TimerId::from_u128(number).as_uuid()));
    let mut cores = nodes.map(|node| Core::new(CoreConfig { node, store, ..config(true) }));
    let mut tables = MemoryTables::new(SHARDS);
    let creates = (1..=4_000).map(|number| {
        let timer = NewTimer::after("mail", Duration::ZERO).key(number.to_string());
        let (spec, on_conflict) = timer.check(Default::default()).unwrap();
        WriteOp::Create(CreateOp { id: TimerId::from_u128(number), spec: Arc::new(spec), on_conflict })
    });
    tables.write(creates.collect(), NOW).unwrap();
    let mut running: [VecDeque<DeliveryId>; 2] = Default::default();
    let mut shares = [0; 2];
    let mut was_always_busy = true;
    // The second node comes after two leases of the first.
    for step in 0..400_u32 {
        let steady = Duration::from_millis(100) * step;
        let now = Now { store: NOW.saturating_add(steady), steady };
        for (index, core) in cores.iter_mut().enumerate().take(if step < 200 { 1 } else { 2 }) {
            let mut inputs = VecDeque::from([Input::Registered { kind: "mail".into(), limit: LIMIT }]);
            // One handler ends in each step, and the others go on.
            inputs.extend(running[index].pop_front().map(|id| Input::HandlerDone(id, Verdict::Done)));
            while let Some(input) = inputs.pop_front() {
                for action in core.handle(now, input) {
                    inputs.push_back(match action {
                        Action::Heartbeat(heartbeat) => {
                            let ownership = tables.heartbeat(&heartbeat, now.store);
                            shares[index] = ownership.shards.len();
                            Input::Owned { sent: steady, result: Ok(ownership) }
                        }
                        Action::Scan(scan, query) => {
                            let result = Ok(tables.due(&query));
                            Input::Scanned { kind: query.kind, scan, result }
                        }
                        Action::Orphans { kind, .. } => Input::OrphansFound { kind, result: Ok(Vec::new()) },
                        Action::Write(tag, op) => {
                            Input::Written(tag, Ok(tables.write(vec![op], now.store).unwrap().remove(0)))
                        }
                        Action::Deliver(id, _) => {
                            running[index].push_back(id);
                            continue;
                        }
                        other => panic!("there is nothing else to do: {other:?}"),
                    });
                }
            }
        }
        was_always_busy &= running[0].len() > LIMIT / 2;
    }
    assert!(was_always_busy);
    assert_eq!(shares, [usize::from(SHARDS / 2); 2]);
}
