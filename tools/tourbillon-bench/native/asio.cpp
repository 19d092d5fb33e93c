// Asio, without Boost: a binary heap per io_context behind its lock, exact to the nanosecond (a timerfd), handlers.
//
// A `steady_timer` is constructed once, and then set, waited for and cancelled again and again. A cancelled wait ends in its
// handler with `operation_aborted`, which is part of the operation. So operations run in handlers of the io_context, as in a
// server, 64 of them at a time; then the io_context runs the handlers of the waits that they cancelled, and so on. With 0
// pending every new expiry is the earliest, and sets the timerfd. The io_context is constructed for one thread.
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/version.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "common.h"

using asio::steady_timer;
using std::chrono::nanoseconds;
using Error = asio::error_code;

/// Number of operations in one handler.
constexpr size_t AT_A_TIME = 64;

static steady_timer::time_point at(uint64_t nanos) { return steady_timer::time_point(nanoseconds(nanos)); }

/// Pending timers, each in its own allocation.
using Held = std::vector<std::unique_ptr<steady_timer>>;

static Held hold(asio::io_context &io, size_t count, const uint64_t *durations) {
    Held held;
    held.reserve(count);
    for (size_t i = 0; i < count; i++) {
        held.push_back(std::make_unique<steady_timer>(io, nanoseconds(durations[i])));
        held.back()->async_wait([](const Error &) {});
    }
    return held;
}

/// Lets the io_context turn once.
static void settle(asio::io_context &io) {
    io.restart();
    io.poll();
}

/// Runs operations in handlers of an io_context until all are done, with the handlers of the cancelled waits.
template <class Operation> class Work {
  public:
    Work(asio::io_context &io, size_t operations, Operation operation)
        : io(io), operations(operations), operation(operation) {}

    /// Returns wall and CPU time.
    void run() {
        io.restart();
        asio::post(io, [this] { some(); });
        cpu_before = cpu(), start = now();
        io.run();
        print_numbers(wall, cpu_spent);
    }

    /// The handler of every wait.
    auto handler() {
        return [this](const Error &error) { aborted += error == asio::error::operation_aborted; };
    }

    /// Number of waits that it has cancelled.
    size_t cancelled = 0;

  private:
    void some() {
        size_t end = std::min(done + AT_A_TIME, operations);
        while (done < end)
            operation(*this, done++);
        asio::post(io, [this] { done < operations ? some() : finish(); });
    }

    void finish() {
        if (aborted < cancelled)
            return asio::post(io, [this] { finish(); });
        wall = now() - start;
        cpu_spent = cpu() - cpu_before;
        io.stop();
    }

    asio::io_context &io;
    size_t operations, done = 0, aborted = 0;
    Operation operation;
    uint64_t start = 0, cpu_before = 0, wall = 0, cpu_spent = 0;
};

static void churn_timed(asio::io_context &io, std::vector<steady_timer> &ring, size_t window, size_t operations,
                        const uint64_t *durations) {
    if (window == 0) {
        Work work(io, operations, [&](auto &work, size_t i) {
            ring[0].expires_after(nanoseconds(durations[i]));
            ring[0].async_wait(work.handler());
            work.cancelled += ring[0].cancel();
        });
        return work.run();
    }
    size_t oldest = 0;
    auto replace = [&](auto &work, size_t i) {
        // A new expiry cancels the wait of the timer.
        work.cancelled += ring[oldest].expires_after(nanoseconds(durations[i]));
        ring[oldest].async_wait(work.handler());
        oldest = oldest + 1 == window ? 0 : oldest + 1;
    };
    Work work(io, operations, replace);
    for (size_t i = 0; i < window; i++)
        replace(work, i % operations);
    work.run();
    // The handlers of these waits belong to this round.
    for (auto &timer : ring)
        timer.cancel();
    settle(io);
}

static int churn(arguments arguments) {
    uint64_t far = arguments.at[0];
    size_t pending = arguments.at[1], operations = arguments.at[2], window = arguments.at[3];
    bool turned = arguments.at[4] != 0;
    uint64_t *durations = far_durations(operations, 0, far), *others = far_durations(pending, 1, far);
    std::unique_ptr<asio::io_context> io;
    Held held;
    while (asked()) {
        if (!io || !turned) {
            held.clear();
            io = std::make_unique<asio::io_context>(1);
            held = hold(*io, pending, others);
        }
        std::vector<steady_timer> ring;
        for (size_t i = 0; i < (window ? window : 1); i++)
            ring.emplace_back(*io);
        if (turned)
            settle(*io);
        churn_timed(*io, ring, window, operations, durations);
    }
    return 0;
}

/// A new expiry cancels the wait, so a new one must be begun.
static int reset(arguments arguments) {
    uint64_t far = arguments.at[0], step = arguments.at[3], later = now() + 3 * far;
    size_t pending = arguments.at[1], operations = arguments.at[2];
    asio::io_context io(1);
    Held held = hold(io, pending + 1, far_durations(pending + 1, 1, far));
    while (asked()) {
        Work work(io, operations, [&](auto &work, size_t) {
            work.cancelled += held[0]->expires_at(at(later += step));
            held[0]->async_wait(work.handler());
        });
        // From here on every cancelled wait belongs to this round.
        held[0]->expires_at(at(later));
        held[0]->async_wait(work.handler());
        settle(io);
        work.run();
        held[0]->cancel();
        settle(io);
        held[0]->async_wait([](const Error &) {});
    }
    return 0;
}

/// Returns the CPU time from when all are armed until the last has fired; 0 if the first was due before that.
static uint64_t fire_once(size_t count, uint64_t spread, uint64_t lead) {
    uint64_t *offsets = random_numbers(count, count, 0, spread), base = now() + lead, spent = 0;
    size_t left = count;
    asio::io_context io(1);
    {
        std::vector<steady_timer> timers;
        timers.reserve(count);
        for (size_t i = 0; i < count; i++) {
            timers.emplace_back(io, at(base + offsets[i]));
            timers.back().async_wait([&left](const Error &error) { left -= !error; });
        }
        if (now() < base) {
            uint64_t before = cpu();
            io.run();
            spent = cpu() - before;
            if (left)
                exit(fail("not all timers have fired"));
        }
    }
    free(offsets);
    return spent;
}

/// A task that sleeps again and again.
class Task {
  public:
    Task(asio::io_context &io, uint64_t seed, const arguments &arguments, struct lateness &late)
        : timer(io), random(seed), shortest(arguments.at[1]), longest(arguments.at[2]), late(late) {}

    void sleep() {
        deadline = now() + shortest + next_random(&random) % (longest - shortest);
        timer.expires_at(at(deadline));
        timer.async_wait([this](const Error &) { woken(); });
    }

  private:
    void woken() {
        uint64_t time = now();
        lateness_note(&late, deadline, time);
        if (time < late.end)
            sleep();
    }

    steady_timer timer;
    uint64_t random, shortest, longest, deadline = 0;
    struct lateness &late;
};

static int lateness(arguments arguments) {
    uint64_t count = arguments.at[0], warm_up = arguments.at[3], time = arguments.at[4];
    struct lateness late = lateness_new(count, arguments.at[1], time);
    asio::io_context io(1);
    while (asked()) {
        late.begin = now() + warm_up, late.end = late.begin + time, late.count = 0;
        std::vector<std::unique_ptr<Task>> tasks;
        for (uint64_t i = 0; i < count; i++)
            tasks.push_back(std::make_unique<Task>(io, i, arguments, late));
        struct watch watch = {late.begin, late.end, 0, 0};
        watch_start(&watch);
        for (auto &task : tasks)
            task->sleep();
        io.restart();
        io.run();
        lateness_print(&late, watch_finish(&watch));
    }
    return 0;
}

static int memory(arguments arguments) {
    size_t count = arguments.at[1];
    uint64_t *durations = far_durations(count, 1, arguments.at[0]);
    asio::io_context io(1);
    hold(io, 1, durations);
    while (asked()) {
        settle(io);
        uint64_t before = resident();
        Held held = hold(io, count, durations);
        settle(io);
        print_numbers(resident() - before, sizeof(steady_timer));
    }
    return 0;
}

int main(int argc, char **argv) {
    char version[32];
    snprintf(version, sizeof version, "asio %d.%d.%d", ASIO_VERSION / 100000, ASIO_VERSION / 100 % 1000,
             ASIO_VERSION % 100);
    const struct program program = {version, churn, reset, fire_once, lateness, memory};
    return run_program(&program, argc, argv);
}
