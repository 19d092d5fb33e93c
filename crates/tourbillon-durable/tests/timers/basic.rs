//! Creating, cancelling, delivering and ending.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tourbillon_durable::spec::FirstDue;
use tourbillon_durable::store::{ListFilter, RowState};
use tourbillon_durable::{
    Ack, BlockingTimers, CancelCounts, InvalidTimer, MemoryStore, NewTimer, RetryPolicy, Target, Timers, TimersError,
};

use crate::{PATIENCE, end, eventually, hour, ms, next, open, record};

#[test]
fn q3_q4_v1_o6_a_timer_is_delivered_after_its_time_with_all_that_its_handler_needs() {
    let timers = open();
    let received = record(&timers, "reminder", |_| Ack::Done);
    let timer = NewTimer::after("reminder", ms(20))
        .key("tea")
        .name("kitchen")
        .namespace("home")
        .json(&["pour", "drink"])
        .unwrap();
    let created = timers.blocking().create(timer).unwrap();
    let delivery = next(&received);
    assert!(SystemTime::now() >= created.due && delivery.due() == created.due);
    assert_eq!((delivery.id(), delivery.occurrence(), delivery.attempt()), (created.id, 1, 1));
    assert_eq!((delivery.key(), delivery.name(), delivery.namespace()), (Some("tea"), Some("kitchen"), "home"));
    assert_eq!(delivery.json::<Vec<String>>().unwrap(), ["pour", "drink"]);
    assert_eq!(delivery.content_type(), Some("application/json"));
    eventually("it is acknowledged", || timers.stats().done == 1 && timers.blocking().counts().unwrap().claimed == 0);
    assert_eq!(timers.blocking().history(created.id).unwrap().len(), 1);
    assert_eq!(timers.stats().lateness["home"].claim.len(), 1);
    end(&timers);
    assert_eq!(timers.blocking().cancel("x"), Err(TimersError::Ended));
}

#[test]
fn u1_u2_u3_creates_cancels_and_reschedules_answer_truthfully() {
    let timers = open();
    let calls = timers.blocking();
    let timer = || NewTimer::after("mail", hour()).key("order 1").name("client 7");
    let first = calls.create(timer()).unwrap();
    let again = calls.create(timer()).unwrap();
    assert!(first.is_new && !again.is_new && first.id == again.id);
    assert_eq!(calls.create(timer().payload("other")), Err(TimersError::Conflict(first.id)));
    let target = || Target::Key { namespace: "default".into(), key: "order 1".into() };
    let moved = calls.reschedule(target(), FirstDue::After(2 * hour()), Some(first.version)).unwrap();
    assert!(moved.due > first.due);
    let stale = calls.reschedule(target(), FirstDue::After(hour()), Some(first.version));
    assert_eq!(stale, Err(TimersError::VersionIs(moved.version)));
    assert_eq!(calls.cancel_name("client 7").unwrap(), CancelCounts { cancelled: 1, in_flight: 0, gone: 0 });
    assert_eq!(calls.cancel("order 1").unwrap(), CancelCounts { cancelled: 0, in_flight: 0, gone: 1 });
    assert_eq!(calls.reschedule(target(), FirstDue::After(hour()), None), Err(TimersError::NotFound));
    end(&timers);
}

#[test]
fn u8_bad_input_is_a_typed_error() {
    let timers = open();
    let create = |timer: NewTimer| timers.blocking().create(timer).unwrap_err();
    let large = NewTimer::after("mail", hour()).payload(vec![0; 65 * 1024]);
    assert_eq!(
        create(large),
        TimersError::Invalid(InvalidTimer::PayloadTooLarge { size: 65 * 1024, limit: 64 * 1024 })
    );
    let before_1970 = NewTimer::at("mail", SystemTime::UNIX_EPOCH - ms(1));
    assert_eq!(create(before_1970), TimersError::Invalid(InvalidTimer::Time));
    assert_eq!(create(NewTimer::after("mail", Duration::MAX)), TimersError::Invalid(InvalidTimer::NeverDue));
    assert_eq!(create(NewTimer::cron("mail", "0 0 30 2 *", "UTC")), TimersError::Invalid(InvalidTimer::NeverDue));
    assert!(matches!(create(NewTimer::cron("mail", "x", "UTC")), TimersError::Invalid(InvalidTimer::Cron(_))));
    assert!(matches!(create(NewTimer::cron("mail", "* * * * *", "Mars")), TimersError::Invalid(InvalidTimer::Cron(_))));
    for timer in [
        NewTimer::after("", hour()),
        NewTimer::after("a b", hour()),
        NewTimer::after("mail", hour()).namespace("<script>"),
        NewTimer::after("mail", hour()).key("a\0b"),
        NewTimer::after("mail", hour()).name("x".repeat(513)),
    ] {
        let error = create(timer);
        assert!(matches!(error, TimersError::Invalid(InvalidTimer::Text { .. })), "{error}");
    }
    assert_eq!(create(NewTimer::every("mail", Duration::ZERO)), TimersError::Invalid(InvalidTimer::ZeroInterval));
    assert_eq!(create(NewTimer::after("mail", hour()).times(2)), TimersError::Invalid(InvalidTimer::NotRepeating));
    assert_eq!(timers.on_with_limit("mail", 0, |_| async {}), Err(TimersError::ZeroLimit));
    assert!(timers.on("<b>", |_| async {}).is_err());
    end(&timers);
}

#[test]
fn d53_a_timer_without_a_handler_waits_and_is_shown() {
    let timers = open();
    timers.blocking().create(NewTimer::after("unknown", Duration::ZERO)).unwrap();
    eventually("it is shown", || timers.blocking().counts().unwrap().overdue == [("unknown".to_owned(), 1)]);
    let received = record(&timers, "unknown", |_| Ack::Done);
    assert_eq!(next(&received).kind(), "unknown");
    end(&timers);
}

#[test]
fn v4_p6_a_handler_that_fails_or_panics_gets_the_timer_again_until_it_is_a_dead_letter() {
    let timers = open();
    let received = record(&timers, "mail", |delivery| match delivery.attempt() {
        1 => Ack::RetryAfter(ms(1), "busy".into()),
        2 => panic!("the handler's own fault"),
        3 => Ack::GiveUp("broken".into()),
        _ => Ack::Done,
    });
    let retry = RetryPolicy { first: ms(1), longest: ms(1), ..RetryPolicy::default() };
    let created = timers.blocking().create(NewTimer::after("mail", ms(1)).retry(retry)).unwrap();
    assert_eq!(next(&received).attempt(), 1);
    // The second attempt panics before it has sent anything.
    let third = next(&received);
    assert_eq!(third.attempt(), 3);
    eventually("it is a dead letter", || timers.blocking().counts().unwrap().dead == 1);
    let filter = ListFilter { state: Some(RowState::Dead), ..ListFilter::default() };
    let dead = timers.blocking().list(filter, None, 10).unwrap().rows;
    assert_eq!((dead[0].id.timer, dead[0].last_error.as_deref()), (created.id, Some("broken")));
    assert!(timers.blocking().replay(third.row_id()).unwrap());
    assert_eq!(next(&received).attempt(), 4);
    eventually("it is done", || timers.blocking().get(created.id).unwrap().is_empty());
    assert!(!timers.blocking().discard(third.row_id()).unwrap());
    end(&timers);
}

#[test]
fn u6_q1_d52_a_repeating_timer_goes_on_in_the_next_process() {
    let store = MemoryStore::new();
    let timers = Timers::builder().build(store.clone()).unwrap();
    let received = record(&timers, "tick", |_| Ack::Done);
    timers.blocking().create(NewTimer::every("tick", ms(20)).times(4)).unwrap();
    let mut delivered = vec![next(&received)];
    assert_eq!(delivered[0].occurrence(), 1);
    end(&timers);
    delivered.extend(received.try_iter());
    let timers = Timers::builder().build(store).unwrap();
    let received = record(&timers, "tick", |_| Ack::Done);
    eventually("all have fired", || {
        let counts = timers.blocking().counts().unwrap();
        (counts.armed, counts.claimed) == (0, 0)
    });
    end(&timers);
    delivered.extend(received.try_iter());
    let occurrences: u64 = delivered.iter().map(|delivery| 1 + delivery.stands_for()).sum();
    assert_eq!(occurrences, 4, "{delivered:?}");
}

#[test]
fn p7_no_more_deliveries_run_than_the_handler_allows() {
    let timers = open();
    let running = Arc::new(Mutex::new((0, 0)));
    let (sender, received) = channel();
    let counted = Arc::clone(&running);
    let handler = move |_| {
        let (counted, sender) = (Arc::clone(&counted), sender.clone());
        async move {
            {
                let mut counts = counted.lock().unwrap();
                counts.0 += 1;
                counts.1 = counts.0.max(counts.1);
            }
            tourbillon::time::sleep(ms(2)).await;
            counted.lock().unwrap().0 -= 1;
            sender.send(()).unwrap();
        }
    };
    timers.on_with_limit("mail", 3, handler).unwrap();
    let calls: BlockingTimers = timers.blocking();
    let created = calls.create_all((0..100).map(|_| NewTimer::after("mail", Duration::ZERO)).collect()).unwrap();
    assert!(created.iter().all(Result::is_ok));
    (0..100).for_each(|_| received.recv_timeout(PATIENCE).unwrap());
    assert!(running.lock().unwrap().1 <= 3);
    end(&timers);
}

#[test]
fn q2_a_shutdown_that_cannot_wait_says_how_many_deliveries_were_running() {
    let timers = open();
    let (sender, received) = channel();
    let handler = move |_| {
        sender.send(()).unwrap();
        std::future::pending::<()>()
    };
    timers.on("mail", handler).unwrap();
    timers.blocking().create(NewTimer::after("mail", Duration::ZERO)).unwrap();
    received.recv_timeout(PATIENCE).unwrap();
    assert_eq!(timers.blocking().shutdown(ms(5)), Err(TimersError::StillRunning(1)));
}

#[test]
fn b1_the_futures_work_under_tokio_and_smol() {
    let use_them = |timers: Timers| async move {
        let created = timers.create(NewTimer::after("mail", hour()).key("k")).await.unwrap();
        assert_eq!(timers.get_key("default", "k").await.unwrap().unwrap().id.timer, created.id);
        assert_eq!(timers.cancel("k").await.unwrap().cancelled, 1);
        timers.shutdown(PATIENCE).await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(use_them(open()));
    smol::block_on(use_them(open()));
}

#[test]
fn u4_a_page_without_room_is_a_typed_error_and_not_the_end_of_the_list() {
    let timers = open();
    let calls = timers.blocking();
    calls.create(NewTimer::after("mail", hour())).unwrap();
    let list = |limit| calls.list(ListFilter::default(), None, limit);
    assert_eq!(list(0), Err(TimersError::ZeroPage));
    assert_eq!(list(1).unwrap().rows.len(), 1);
    end(&timers);
}
