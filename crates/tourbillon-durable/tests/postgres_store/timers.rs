//! `Timers` on the store.

use super::*;

/// Creates, delivers, and cancels by key and by name by `timers`, which are those of a database.
pub(super) fn use_timers(timers: &tourbillon_durable::BlockingTimers) {
    let (sender, fired) = std::sync::mpsc::channel();
    timers
        .timers()
        .on("soon", move |delivery| {
            let (sender, on_tokio) = (sender.clone(), tokio::runtime::Handle::try_current().is_ok());
            async move { sender.send((delivery.attempt(), on_tokio)).map_err(|error| error.to_string()) }
        })
        .unwrap();
    timers.create(far("later").key("kept")).unwrap();
    for _ in 0..3 {
        timers.create(far("later").name("client 7")).unwrap();
    }
    timers.create(NewTimer::after("soon", Duration::from_millis(5))).unwrap();
    assert_eq!(fired.recv_timeout(Duration::from_secs(30)).unwrap(), (1, true));
    assert_eq!(timers.cancel("kept").unwrap().cancelled, 1);
    assert_eq!(timers.cancel_name("client 7").unwrap().cancelled, 3);
    timers.shutdown(Duration::from_secs(30)).unwrap();
}

#[test]
fn q1_v1_timers_of_a_database_deliver_on_tokio_and_without_a_runtime_of_the_callers() {
    let Some(schema) = Schema::new() else { return };
    let timers = wait(tourbillon_durable::Timers::builder().connect_with(schema.options())).unwrap();
    use_timers(&timers.blocking());
    use_timers(&tourbillon_durable::Timers::builder().connect_blocking(schema.options()).unwrap());
}

#[test]
fn q1_v1_timers_deliver_with_what_a_pooler_in_transaction_mode_needs() {
    let Some(schema) = Schema::new() else { return };
    let options = schema.options().prepared_statements(false).hints(false);
    use_timers(&wait(tourbillon_durable::Timers::builder().connect_with(options)).unwrap().blocking());
}

#[test]
fn p6_v1_handlers_may_block_all_their_threads_with_calls_of_the_blocking_surface() {
    let Some(schema) = Schema::new() else { return };
    let builder = tourbillon_durable::Timers::builder().threads(2);
    let timers = builder.connect_blocking(schema.options()).unwrap();
    let (sender, created) = std::sync::mpsc::channel();
    // Both threads are inside of handlers before one of them asks for anything.
    let (calls, both) = (timers.clone(), Arc::new(Barrier::new(2)));
    let handler = move |_| {
        let (calls, both, sender) = (calls.clone(), Arc::clone(&both), sender.clone());
        async move {
            both.wait();
            let result = calls.create(far("later"));
            sender.send(result.map(|created| created.is_new)).map_err(|error| error.to_string())
        }
    };
    timers.timers().on("soon", handler).unwrap();
    timers.create_all((0..2).map(|_| NewTimer::after("soon", Duration::ZERO)).collect()).unwrap();
    for _ in 0..2 {
        assert_eq!(created.recv_timeout(Duration::from_secs(30)), Ok(Ok(true)));
    }
    timers.shutdown(Duration::from_secs(30)).unwrap();
}

#[test]
fn v1_handlers_of_timers_that_are_connected_with_a_connector_for_tls_run_on_tokio() {
    let Some(schema) = Schema::new() else { return };
    let builder = tourbillon_durable::Timers::builder();
    let timers = wait(builder.connect_tls(schema.options(), tokio_postgres::NoTls)).unwrap();
    let (sender, slept) = std::sync::mpsc::channel();
    let handler = move |_| {
        let sender = sender.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            sender.send(()).map_err(|error| error.to_string())
        }
    };
    timers.on("soon", handler).unwrap();
    let timers = timers.blocking();
    timers.create(NewTimer::after("soon", Duration::ZERO)).unwrap();
    slept.recv_timeout(Duration::from_secs(30)).unwrap();
    timers.shutdown(Duration::from_secs(30)).unwrap();
}
