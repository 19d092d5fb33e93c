//! The core alone: what it asks for while nothing is due.

use std::sync::Arc;
use std::time::Duration;

use tourbillon_durable::core::{Action, Core, CoreConfig, DeliveryId, Input, Now, Wakeup};
use tourbillon_durable::store::{
    CreateOp, DuePage, DueQuery, Heartbeat, MemoryTables, NodeId, Ownership, ShardId, StoreTraits, Verdict, WriteOp,
    is_pull_fence,
};
use tourbillon_durable::{NewTimer, StoreError, StoreTime, TimerId};

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
    let (lease, retry) = (config(true).node_lease, config(true).retry);
    let mut steady = lease / 3;
    let passing = [StoreError::ReadOnly, StoreError::Unavailable, StoreError::Uncertain, StoreError::Full];
    for error in passing {
        assert_eq!(leases(beat_at(&mut core, steady)), [lease]);
        assert!(!fails(&mut core, steady, error("it will pass".to_owned())));
        steady += retry;
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
    let in_time = actions(lease - Duration::from_millis(1));
    // More than half of the lease is over, so it is extended at once.
    let extends = |action: &Action| matches!(action, Action::Write(_, WriteOp::Extend(_)));
    assert!(matches!(&in_time[..], [Action::Deliver(..), extend] if extends(extend)), "{in_time:?}");
    let late = actions(lease);
    let Some(Action::Write(_, WriteOp::Finish(finish))) = late.first() else { panic!("it is given back: {late:?}") };
    let retry = config(false).retry;
    assert!(matches!(finish.verdict, Verdict::Return { after } if after >= retry) && late.len() == 1, "{late:?}");
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
