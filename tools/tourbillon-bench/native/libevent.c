/* libevent: a binary heap per base, timeouts in microseconds, callbacks. No locks, since threads are not enabled: everything
 * belongs to the base's thread.
 *
 * The program owns an event: it is assigned once, then added and deleted again and again, which allocates nothing. This
 * happens in a callback of the base, where the time is the loop's last reading, so `churn` and `reset` read no clock. Outside
 * of callbacks (`fire`) libevent reads the clock for each event; in `lateness` `event_base_update_cache_time` reads it first.
 * By default that is the coarse clock, which lags by up to a kernel tick, and waits are of whole milliseconds; with
 * `EVENT_BASE_FLAG_PRECISE_TIMER` it is the exact clock, and a timerfd waits. Common timeouts (a queue for each of a few fixed
 * durations, instead of the heap) do not apply to random durations.
 */
#include <event2/event.h>
#include <event2/event_struct.h>

#include "common.h"

static struct timeval micros(uint64_t nanos) {
    uint64_t all = (nanos + 999) / 1000;
    struct timeval time = {(time_t)(all / 1000000), (suseconds_t)(all % 1000000)};
    return time;
}

static struct timeval *all_micros(const uint64_t *nanos, size_t count) {
    struct timeval *times = (struct timeval *)allocate(count, sizeof *times);
    for (size_t i = 0; i < count; i++)
        times[i] = micros(nanos[i]);
    return times;
}

static struct event_base *base_new(int flags) {
    struct event_config *config = event_config_new();
    if (!config || event_config_set_flag(config, flags))
        exit(fail("no configuration"));
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    if (!base)
        exit(fail("no base"));
    return base;
}

static void never(evutil_socket_t fd, short what, void *argument) { (void)fd, (void)what, (void)argument; }

/* Calls a function in a callback of the base. */
static void in_callback(struct event_base *base, event_callback_fn callback, void *argument) {
    struct event event;
    evtimer_assign(&event, base, callback, argument);
    event_active(&event, EV_TIMEOUT, 0);
    event_base_loop(base, EVLOOP_NONBLOCK);
}

/* Pending events, each in its own allocation. */
struct held {
    size_t count;
    struct event **events;
};

static struct held hold(struct event_base *base, size_t count, const uint64_t *durations) {
    struct held held = {count, (struct event **)allocate(count, sizeof(struct event *))};
    for (size_t i = 0; i < count; i++) {
        struct timeval time = micros(durations[i]);
        held.events[i] = (struct event *)allocate(1, sizeof(struct event));
        evtimer_assign(held.events[i], base, never, NULL);
        event_add(held.events[i], &time);
    }
    return held;
}

static void let_go(struct held held) {
    for (size_t i = 0; i < held.count; i++) {
        event_del(held.events[i]);
        free(held.events[i]);
    }
    free(held.events);
}

/* The work of a round of `churn`. */
struct churn {
    struct event *ring;
    size_t window, operations;
    const struct timeval *times;
};

static void churn_timed(evutil_socket_t fd, short what, void *argument) {
    (void)fd, (void)what;
    const struct churn *work = (const struct churn *)argument;
    struct event *ring = work->ring;
    uint64_t cpu_before = cpu(), start = now();
    if (work->window == 0) {
        for (size_t i = 0; i < work->operations; i++) {
            event_add(&ring[0], &work->times[i]);
            event_del(&ring[0]);
        }
    } else {
        for (size_t i = 0, oldest = 0; i < work->operations; i++) {
            event_del(&ring[oldest]);
            event_add(&ring[oldest], &work->times[i]);
            oldest = oldest + 1 == work->window ? 0 : oldest + 1;
        }
    }
    uint64_t wall = now() - start;
    print_numbers(wall, cpu() - cpu_before);
}

static int churn(struct arguments arguments) {
    uint64_t far = arguments.at[0];
    size_t pending = arguments.at[1], operations = arguments.at[2], window = arguments.at[3];
    int turned = arguments.at[4] != 0, fresh = 1;
    size_t places = window ? window : 1;
    uint64_t *durations = far_durations(operations, 0, far), *others = far_durations(pending, 1, far);
    struct event *ring = (struct event *)allocate(places, sizeof *ring);
    struct timeval *times = all_micros(durations, operations);
    struct churn work = {ring, window, operations, times};
    struct event_base *base = NULL;
    struct held held = {0, NULL};
    while (asked()) {
        if (fresh) {
            base = base_new(0);
            held = hold(base, pending, others);
            for (size_t i = 0; i < places; i++) {
                evtimer_assign(&ring[i], base, never, NULL);
                if (window)
                    event_add(&ring[i], &times[i % operations]);
            }
        }
        if (turned)
            event_base_loop(base, EVLOOP_NONBLOCK);
        in_callback(base, churn_timed, &work);
        fresh = !turned;
        if (fresh) {
            for (size_t i = 0; i < places; i++)
                event_del(&ring[i]);
            let_go(held);
            event_base_free(base);
        }
    }
    return 0;
}

/* The work of a round of `reset`. */
struct reset {
    struct event *event;
    size_t operations;
    const struct timeval *times;
};

/* Adding a pending event moves it. */
static void reset_timed(evutil_socket_t fd, short what, void *argument) {
    (void)fd, (void)what;
    const struct reset *work = (const struct reset *)argument;
    uint64_t start = now();
    for (size_t i = 0; i < work->operations; i++)
        event_add(work->event, &work->times[i]);
    print_numbers(now() - start, 0);
}

static int reset(struct arguments arguments) {
    uint64_t far = arguments.at[0], step = arguments.at[3], later = 3 * far;
    size_t pending = arguments.at[1], operations = arguments.at[2];
    struct timeval *times = (struct timeval *)allocate(operations, sizeof *times), first = micros(far);
    struct event_base *base = base_new(0);
    hold(base, pending, far_durations(pending + 1, 1, far) + 1);
    struct event event;
    evtimer_assign(&event, base, never, NULL);
    event_add(&event, &first);
    struct reset work = {&event, operations, times};
    while (asked()) {
        for (size_t i = 0; i < operations; i++)
            times[i] = micros(later += step);
        event_base_loop(base, EVLOOP_NONBLOCK);
        in_callback(base, reset_timed, &work);
    }
    return 0;
}

static size_t left;

static void count_down(evutil_socket_t fd, short what, void *argument) {
    (void)fd, (void)what, (void)argument;
    left--;
}

/* Returns the CPU time from when all are armed until the last has fired; 0 if the first was due before that. */
static uint64_t fire_once(size_t count, uint64_t spread, uint64_t lead) {
    uint64_t *offsets = random_numbers(count, count, 0, spread), start = now() + lead, spent = 0;
    struct event *events = (struct event *)allocate(count, sizeof *events);
    struct event_base *base = base_new(0);
    for (size_t i = 0; i < count; i++) {
        uint64_t time = now(), due = start + offsets[i];
        struct timeval wait = micros(due > time ? due - time : 0);
        evtimer_assign(&events[i], base, count_down, NULL);
        event_add(&events[i], &wait);
    }
    if (now() < start) {
        left = count;
        uint64_t before = cpu();
        event_base_dispatch(base);
        spent = cpu() - before;
        if (left)
            exit(fail("not all timers have fired"));
    }
    for (size_t i = 0; i < count; i++)
        event_del(&events[i]);
    event_base_free(base);
    free(events);
    free(offsets);
    return spent;
}

struct task {
    struct event event;
    uint64_t random, deadline;
};

static struct event_base *base;
static struct lateness late;
static uint64_t shortest, longest;

static void sleep_again(struct task *task) {
    uint64_t duration = shortest + next_random(&task->random) % (longest - shortest);
    struct timeval time = micros(duration);
    task->deadline = now() + duration;
    event_base_update_cache_time(base);
    event_add(&task->event, &time);
}

static void woken(evutil_socket_t fd, short what, void *argument) {
    (void)fd, (void)what;
    struct task *task = (struct task *)argument;
    uint64_t time = now();
    lateness_note(&late, task->deadline, time);
    if (time < late.end)
        sleep_again(task);
}

static int lateness(struct arguments arguments) {
    size_t count = arguments.at[0];
    uint64_t warm_up = arguments.at[3], time = arguments.at[4];
    shortest = arguments.at[1], longest = arguments.at[2];
    late = lateness_new(count, shortest, time);
    struct task *tasks = (struct task *)allocate(count, sizeof *tasks);
    base = base_new(arguments.at[5] ? EVENT_BASE_FLAG_PRECISE_TIMER : 0);
    for (size_t i = 0; i < count; i++)
        evtimer_assign(&tasks[i].event, base, woken, &tasks[i]);
    while (asked()) {
        late.begin = now() + warm_up, late.end = late.begin + time, late.count = 0;
        struct watch watch = {late.begin, late.end, 0, 0};
        watch_start(&watch);
        for (size_t i = 0; i < count; i++) {
            tasks[i].random = i;
            sleep_again(&tasks[i]);
        }
        event_base_dispatch(base);
        lateness_print(&late, watch_finish(&watch));
    }
    return 0;
}

static int memory(struct arguments arguments) {
    size_t count = arguments.at[1];
    uint64_t *durations = far_durations(count, 1, arguments.at[0]);
    struct event_base *base = base_new(0);
    let_go(hold(base, 1, durations));
    while (asked()) {
        uint64_t before = resident();
        struct held held = hold(base, count, durations);
        print_numbers(resident() - before, sizeof(struct event));
        let_go(held);
    }
    return 0;
}

int main(int argc, char **argv) {
    char version[64];
    snprintf(version, sizeof version, "libevent %s", event_get_version());
    const struct program program = {version, churn, reset, fire_once, lateness, memory};
    return run_program(&program, argc, argv);
}
