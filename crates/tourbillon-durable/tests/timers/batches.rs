//! Batches of requests.

use tourbillon_durable::{
    Answer, CancelCounts, FirstDue, LARGEST_BATCH, LARGEST_BATCH_PAYLOAD, MemoryStore, NewTimer, Request, Target,
    Timers, TimersError,
};

use crate::{end, hour, open};

fn timer(key: &str) -> NewTimer {
    NewTimer::after("mail", hour()).key(key).name("batch")
}

fn get_key(key: &str) -> Request {
    Request::GetKey { namespace: "default".into(), key: key.into() }
}

fn counts(cancelled: u64, gone: u64) -> Answer {
    Answer::Cancelled(CancelCounts { cancelled, in_flight: 0, gone })
}

#[test]
fn u1_u2_u3_u4_a_batch_of_any_requests_is_done_in_its_order() {
    let timers = open();
    let requests = vec![
        Request::Create(timer("a")),
        Request::Cancel(Target::key("a")),
        Request::Create(timer("a").payload("again")),
        Request::Create(timer("a").payload("differently")),
        Request::Reschedule { target: Target::key("a"), when: FirstDue::After(2 * hour()), if_version: None },
        Request::Create(timer("b")),
        Request::Cancel(Target::key("b").in_namespace("elsewhere")),
        get_key("a"),
        get_key("none"),
    ];
    let answers = timers.blocking().batch(requests).unwrap();
    let [created, cancelled, again, conflict, moved, other, elsewhere, found, nothing] = &answers[..] else {
        panic!("{answers:?}")
    };
    let (Ok(Answer::Created(first)), Ok(Answer::Created(second)), Ok(Answer::Created(_))) = (created, again, other)
    else {
        panic!("{answers:?}")
    };
    assert_eq!(cancelled, &Ok(counts(1, 0)), "the first was cancelled in the transaction that created it");
    assert!(first.id != second.id && second.is_new);
    assert_eq!(conflict, &Err(TimersError::Conflict(second.id)));
    assert!(matches!(moved, Ok(Answer::Rescheduled(moved)) if moved.due > second.due), "{moved:?}");
    assert_eq!(elsewhere, &Ok(counts(0, 1)));
    let (Ok(Answer::Found(found)), Ok(Answer::Found(nothing))) = (found, nothing) else { panic!("{answers:?}") };
    assert_eq!((found[0].id.timer, nothing.len()), (second.id, 0));
    let by_id = timers.blocking().batch(vec![Request::Get(second.id), Request::Discard(found[0].id)]).unwrap();
    assert!(
        matches!(&by_id[..], [Ok(Answer::Found(rows)), Ok(Answer::DeadLetter(false))] if rows == found),
        "{by_id:?}"
    );
    end(&timers);
}

#[test]
fn u8_o2_a_batch_with_an_invalid_timer_or_too_many_requests_does_nothing() {
    let timers = open();
    let invalid = vec![Request::Create(timer("a")), Request::Create(timer("b").namespace("<b>"))];
    assert!(matches!(timers.blocking().batch(invalid), Err(TimersError::Invalid(_))));
    let too_many = (0..=LARGEST_BATCH).map(|_| Request::Cancel(Target::name("x"))).collect();
    assert_eq!(timers.blocking().batch(too_many), Err(TimersError::BatchTooLarge(LARGEST_BATCH + 1)));
    assert_eq!(timers.blocking().counts().unwrap().armed, 0);
    assert_eq!(timers.blocking().batch(Vec::new()), Ok(Vec::new()));
    end(&timers);
}

#[test]
fn u3_many_timers_are_rescheduled_in_one_request() {
    let timers: Timers = open();
    let calls = timers.blocking();
    calls.create_all(vec![timer("a"), timer("b")]).unwrap();
    let change = |key: &str| (Target::key(key), FirstDue::After(3 * hour()));
    let moved = calls.reschedule_all(vec![change("a"), change("none"), change("b")]).unwrap();
    assert!(matches!(&moved[..], [Ok(_), Err(TimersError::NotFound), Ok(_)]), "{moved:?}");
    assert_eq!(calls.cancel_target(Target::name("batch")).unwrap().cancelled, 2);
    end(&timers);
}

#[test]
fn o2_u8_a_batch_with_too_many_bytes_of_payload_does_nothing() {
    const MIB: usize = 1 << 20;
    let timers = Timers::builder().payload_limit(MIB).build(MemoryStore::new()).unwrap();
    let batch = |count| {
        let create = |number: usize| Request::Create(timer(&number.to_string()).payload(vec![0; MIB]));
        timers.blocking().batch((0..count).map(create).collect())
    };
    let most = LARGEST_BATCH_PAYLOAD / MIB;
    assert_eq!(batch(most + 1), Err(TimersError::BatchPayloadTooLarge(LARGEST_BATCH_PAYLOAD + MIB)));
    assert_eq!(timers.blocking().counts().unwrap().armed, 0);
    assert!(batch(most).unwrap().iter().all(Result::is_ok));
    assert_eq!(timers.blocking().counts().unwrap().armed, most as u64);
    end(&timers);
}
