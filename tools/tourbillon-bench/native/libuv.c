/* libuv: a binary heap per loop, ticks of a millisecond, callbacks. No locks: everything belongs to the loop's thread.
 *
 * The program owns a timer's handle: it is initialised once, then started and stopped again and again, which allocates
 * nothing. `uv_timer_start` counts from the loop's own time, which the loop reads once per turn, so `churn` and `reset` read
 * no clock. Where it matters when a timer fires (`fire`, `lateness`), `uv_update_time` reads the clock first. Durations are
 * rounded up to milliseconds.
 */
#include <uv.h>

#include "common.h"

static uint64_t millis(uint64_t nanos) { return (nanos + 999999) / 1000000; }

static void never(uv_timer_t *timer) { (void)timer; }

/* Pending timers, each in its own allocation. */
struct held {
    size_t count;
    uv_timer_t **timers;
};

static struct held hold(uv_loop_t *loop, size_t count, const uint64_t *durations) {
    struct held held = {count, (uv_timer_t **)allocate(count, sizeof(uv_timer_t *))};
    for (size_t i = 0; i < count; i++) {
        held.timers[i] = (uv_timer_t *)allocate(1, sizeof(uv_timer_t));
        uv_timer_init(loop, held.timers[i]);
        uv_timer_start(held.timers[i], never, millis(durations[i]), 0);
    }
    return held;
}

static void let_go(uv_loop_t *loop, struct held held) {
    for (size_t i = 0; i < held.count; i++)
        uv_close((uv_handle_t *)held.timers[i], NULL);
    uv_run(loop, UV_RUN_NOWAIT);
    for (size_t i = 0; i < held.count; i++)
        free(held.timers[i]);
    free(held.timers);
}

static void churn_timed(uv_timer_t *ring, size_t window, size_t operations, const uint64_t *durations) {
    uint64_t cpu_before = cpu(), start = now();
    if (window == 0) {
        for (size_t i = 0; i < operations; i++) {
            uv_timer_start(&ring[0], never, millis(durations[i]), 0);
            uv_timer_stop(&ring[0]);
        }
    } else {
        for (size_t i = 0, oldest = 0; i < operations; i++) {
            uv_timer_stop(&ring[oldest]);
            uv_timer_start(&ring[oldest], never, millis(durations[i]), 0);
            oldest = oldest + 1 == window ? 0 : oldest + 1;
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
    uv_timer_t *ring = (uv_timer_t *)allocate(places, sizeof *ring);
    uv_loop_t loop;
    struct held held = {0, NULL};
    while (asked()) {
        if (fresh) {
            uv_loop_init(&loop);
            held = hold(&loop, pending, others);
            for (size_t i = 0; i < places; i++) {
                uv_timer_init(&loop, &ring[i]);
                if (window)
                    uv_timer_start(&ring[i], never, millis(durations[i % operations]), 0);
            }
        }
        if (turned)
            uv_run(&loop, UV_RUN_NOWAIT);
        churn_timed(ring, window, operations, durations);
        fresh = !turned;
        if (fresh) {
            for (size_t i = 0; i < places; i++)
                uv_close((uv_handle_t *)&ring[i], NULL);
            let_go(&loop, held);
            uv_loop_close(&loop);
        }
    }
    return 0;
}

/* Starting a pending timer moves it. */
static int reset(struct arguments arguments) {
    uint64_t far = arguments.at[0], step = arguments.at[3], later = 3 * far;
    size_t pending = arguments.at[1], operations = arguments.at[2];
    uint64_t *timeouts = (uint64_t *)allocate(operations, sizeof *timeouts);
    uv_loop_t *loop = uv_default_loop();
    hold(loop, pending, far_durations(pending + 1, 1, far) + 1);
    uv_timer_t timer;
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, never, millis(far), 0);
    while (asked()) {
        for (size_t i = 0; i < operations; i++)
            timeouts[i] = millis(later += step);
        uv_run(loop, UV_RUN_NOWAIT);
        uint64_t start = now();
        for (size_t i = 0; i < operations; i++)
            uv_timer_start(&timer, never, timeouts[i], 0);
        print_numbers(now() - start, 0);
    }
    return 0;
}

static size_t left;

static void count_down(uv_timer_t *timer) {
    (void)timer;
    left--;
}

/* Returns the CPU time from when all are armed until the last has fired; 0 if the first was due before that. */
static uint64_t fire_once(size_t count, uint64_t spread, uint64_t lead) {
    uint64_t *offsets = random_numbers(count, count, 0, spread), base = now() + lead, spent = 0;
    uv_timer_t *timers = (uv_timer_t *)allocate(count, sizeof *timers);
    uv_loop_t loop;
    uv_loop_init(&loop);
    for (size_t i = 0; i < count; i++) {
        uint64_t time = now(), due = base + offsets[i];
        uv_timer_init(&loop, &timers[i]);
        uv_update_time(&loop);
        uv_timer_start(&timers[i], count_down, due > time ? millis(due - time) : 0, 0);
    }
    if (now() < base) {
        left = count;
        uint64_t before = cpu();
        uv_run(&loop, UV_RUN_DEFAULT);
        spent = cpu() - before;
        if (left)
            exit(fail("not all timers have fired"));
    }
    for (size_t i = 0; i < count; i++)
        uv_close((uv_handle_t *)&timers[i], NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    free(timers);
    free(offsets);
    return spent;
}

struct task {
    uv_timer_t timer;
    uint64_t random, deadline;
};

static struct lateness late;
static uint64_t shortest, longest;

static void sleep_again(struct task *task);

static void woken(uv_timer_t *timer) {
    struct task *task = (struct task *)timer->data;
    uint64_t time = now();
    lateness_note(&late, task->deadline, time);
    if (time < late.end)
        sleep_again(task);
}

static void sleep_again(struct task *task) {
    uint64_t duration = shortest + next_random(&task->random) % (longest - shortest);
    task->deadline = now() + duration;
    uv_update_time(task->timer.loop);
    uv_timer_start(&task->timer, woken, millis(duration), 0);
}

static int lateness(struct arguments arguments) {
    size_t count = arguments.at[0];
    uint64_t warm_up = arguments.at[3], time = arguments.at[4];
    shortest = arguments.at[1], longest = arguments.at[2];
    late = lateness_new(count, shortest, time);
    struct task *tasks = (struct task *)allocate(count, sizeof *tasks);
    uv_loop_t *loop = uv_default_loop();
    for (size_t i = 0; i < count; i++) {
        uv_timer_init(loop, &tasks[i].timer);
        tasks[i].timer.data = &tasks[i];
    }
    while (asked()) {
        late.begin = now() + warm_up, late.end = late.begin + time, late.count = 0;
        struct watch watch = {late.begin, late.end, 0, 0};
        watch_start(&watch);
        for (size_t i = 0; i < count; i++) {
            tasks[i].random = i;
            sleep_again(&tasks[i]);
        }
        uv_run(loop, UV_RUN_DEFAULT);
        lateness_print(&late, watch_finish(&watch));
    }
    return 0;
}

static int memory(struct arguments arguments) {
    size_t count = arguments.at[1];
    uint64_t *durations = far_durations(count, 1, arguments.at[0]);
    uv_loop_t *loop = uv_default_loop();
    let_go(loop, hold(loop, 1, durations));
    while (asked()) {
        uint64_t before = resident();
        struct held held = hold(loop, count, durations);
        print_numbers(resident() - before, sizeof(uv_timer_t));
        let_go(loop, held);
    }
    return 0;
}

int main(int argc, char **argv) {
    char version[32];
    snprintf(version, sizeof version, "libuv %s", uv_version_string());
    const struct program program = {version, churn, reset, fire_once, lateness, memory};
    return run_program(&program, argc, argv);
}
