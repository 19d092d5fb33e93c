/* What the programs of this folder share: random numbers, clocks, and the protocol.
 *
 *     PROGRAM version                                            prints the version of the library
 *     PROGRAM churn    FAR PENDING OPERATIONS WINDOW TURNED      wall and CPU ns of all operations
 *     PROGRAM reset    FAR PENDING OPERATIONS STEP               wall ns of all operations
 *     PROGRAM fire     PENDING SPREAD LEAD                       CPU ns of all fires
 *     PROGRAM lateness TASKS SHORTEST LONGEST WARM_UP TIME [..]  CPU ns, then the lateness of each fire (early: negative)
 *     PROGRAM memory   FAR PENDING                               bytes by which memory grew, and the size of a timer
 *
 * Times are nanoseconds. For every line on its standard input a program runs one round and prints one line of numbers;
 * it exits when that input ends. The README defines the work; each program does it in the way of its library.
 */
#ifndef TOURBILLON_BENCH_COMMON_H
#define TOURBILLON_BENCH_COMMON_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* splitmix64, as in random.rs: every system gets the same numbers. */
static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void *allocate(size_t count, size_t size) {
    void *memory = malloc(count * size + 1);
    if (!memory) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

/* Returns random numbers from `least` to less than `least` + `spread`. */
static inline uint64_t *random_numbers(size_t count, uint64_t seed, uint64_t least, uint64_t spread) {
    uint64_t *numbers = (uint64_t *)allocate(count, sizeof *numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = least + next_random(&seed) % spread;
    return numbers;
}

/* Returns durations of timers that should not fire. */
static inline uint64_t *far_durations(size_t count, uint64_t seed, uint64_t far) {
    return random_numbers(count, seed, far, far);
}

static inline uint64_t read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t now(void) { return read_clock(CLOCK_MONOTONIC); }

/* Returns the CPU time of all threads. */
static inline uint64_t cpu(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

static inline void sleep_until(uint64_t nanos) {
    struct timespec time = {(time_t)(nanos / 1000000000u), (long)(nanos % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
        ;
}

/* Returns the resident bytes of this process. */
static inline uint64_t resident(void) {
    unsigned long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu %lu", &size, &pages) != 2)
        exit(1);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Measures the CPU time between two times, on a thread that sleeps meanwhile. */
struct watch {
    uint64_t begin, end, cpu;
    pthread_t thread;
};

static inline void *watch_thread(void *argument) {
    struct watch *watch = (struct watch *)argument;
    sleep_until(watch->begin);
    uint64_t before = cpu();
    sleep_until(watch->end);
    watch->cpu = cpu() - before;
    return NULL;
}

static inline void watch_start(struct watch *watch) {
    if (pthread_create(&watch->thread, NULL, watch_thread, watch))
        exit(1);
}

static inline uint64_t watch_finish(struct watch *watch) {
    pthread_join(watch->thread, NULL);
    return watch->cpu;
}

/* The lateness of the fires of a round. The array is large enough for all, so that the round allocates nothing. */
struct lateness {
    uint64_t begin, end;
    size_t count, room;
    int64_t *nanos;
};

static inline struct lateness lateness_new(uint64_t tasks, uint64_t shortest, uint64_t time) {
    struct lateness late = {0, 0, 0, (size_t)(tasks * (time / shortest + 2)), NULL};
    late.nanos = (int64_t *)allocate(late.room, sizeof *late.nanos);
    return late;
}

static inline void lateness_note(struct lateness *late, uint64_t deadline, uint64_t time) {
    if (late->begin <= deadline && deadline < late->end && late->count < late->room)
        late->nanos[late->count++] = (int64_t)(time - deadline);
}

static inline void lateness_print(const struct lateness *late, uint64_t cpu_nanos) {
    printf("%llu", (unsigned long long)cpu_nanos);
    for (size_t i = 0; i < late->count; i++)
        printf(" %lld", (long long)late->nanos[i]);
    putchar('\n');
}

/* Flushes the output, and returns whether another round is asked for. */
static inline int asked(void) {
    fflush(stdout);
    for (int c = getchar(); c != EOF; c = getchar())
        if (c == '\n')
            return 1;
    return 0;
}

static inline void print_numbers(uint64_t a, uint64_t b) {
    printf("%llu %llu\n", (unsigned long long)a, (unsigned long long)b);
}

/* The arguments after the scenario's name; 0 for those that are missing. */
struct arguments {
    uint64_t at[8];
};

static inline struct arguments arguments_of(int argc, char **argv) {
    struct arguments all = {{0}};
    for (int i = 2; i < argc && i - 2 < 8; i++)
        all.at[i - 2] = strtoull(argv[i], NULL, 10);
    return all;
}

static inline int fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    return 1;
}

/* The scenarios of a program. */
struct program {
    const char *version;
    int (*churn)(struct arguments);
    int (*reset)(struct arguments);
    /* Returns the CPU time of the fires from when all are armed; 0 if the first was due before that. */
    uint64_t (*fire)(size_t count, uint64_t spread, uint64_t lead);
    int (*lateness)(struct arguments);
    int (*memory)(struct arguments);
};

/* Runs a small round first, and repeats a round with more time if arming took too long, as fire.rs does. */
static inline int fire_rounds(const struct program *program, struct arguments arguments) {
    uint64_t spent, lead = arguments.at[2];
    program->fire(10000, 50000000, 50000000);
    while (asked()) {
        while (!(spent = program->fire(arguments.at[0], arguments.at[1], lead)))
            lead *= 2;
        print_numbers(spent, 0);
    }
    return 0;
}

/* Runs the selected scenario, and returns the exit status. */
static inline int run_program(const struct program *program, int argc, char **argv) {
    const char *scenario = argc > 1 ? argv[1] : "";
    struct arguments arguments = arguments_of(argc, argv);
    if (!strcmp(scenario, "version"))
        return puts(program->version) < 0;
    if (!strcmp(scenario, "churn"))
        return program->churn(arguments);
    if (!strcmp(scenario, "reset"))
        return program->reset(arguments);
    if (!strcmp(scenario, "fire"))
        return fire_rounds(program, arguments);
    if (!strcmp(scenario, "lateness"))
        return program->lateness(arguments);
    if (!strcmp(scenario, "memory"))
        return program->memory(arguments);
    return fail("no such scenario");
}

#endif
