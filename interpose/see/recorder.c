/* recorder: see recorder.h. Names are in recorder_names.c. */
#include "interpose/see/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/base/process.h"
#include "interpose/base/sums.h"
#include "interpose/base/thread.h"
#include "interpose/see/events.h"
#include "interpose/see/live.h"
#include "interpose/see/owner.h"
#include "interpose/see/recorder_names.h"
#include "interpose/see/stacks.h"
#include "interpose/settings/log.h"

#define LOOK_MS    100  /* between two looks at rings that are not half full */
#define BATCH      1024 /* events after which the threads get their room back */
#define TURN_MS    100  /* a process that was stopped uses up one turn, however long that was */
#define STOP_TURNS 20   /* that recorder_stop waits */
#define SYNC_TURNS 10
#define CARDS      64
#define RELEASED   64 /* the last releases, in case the driver refuses one */
#define MEASURES   3  /* at most, while events change the figure meanwhile */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* guarded by lock */
static bool running;           /* the thread exists */
static bool stopping;          /* it is to end */
static uint64_t asked, served; /* numbers of the requests of recorder_sync */
static char path[RECORDING_WRITE_PATH];
static char why[RECORDING_WRITE_WHY]; /* why the last recorder_start failed */

/* The thread's own. */
static struct recording_write file = {.fd = -1};
static uint64_t began; /* CLOCK_MONOTONIC */
static int failure;    /* -errno that has ended the recording */
static void (*sample)(void (*used)(int device, uint64_t bytes, uint64_t idle));
static uint64_t events, sampled_events, sampled_ns; /* events ever taken; when last measured */
static struct card {
    uint64_t held;                /* by our pools */
    uint64_t driver_held;         /* by the driver's stream-ordered pools, at the last look at them */
    _Atomic uint64_t driver_idle; /* the part that is no live block, as last written; read by other threads */
    _Atomic uint64_t context;     /* by contexts for themselves; read by other threads */
} cards[CARDS];
static struct recording_event released[RELEASED];
static unsigned released_next;
static uint64_t moved; /* events that changed what the driver counts for the process */
static struct sampled {
    int device;
    uint64_t bytes, idle;
} samples[CARDS];
static size_t sample_count;
static bool flush_soon;
static void (*list_live)(void (*add)(struct recording_event *event));

static struct card *card_of(int device)
{
    return &cards[device % CARDS];
}

/* ---- the file ---- */

/* Writes an event after the names that it uses. */
static void write_event(struct recording_event *event)
{
    const uint64_t time = event->time_ns;

    if (failure || (failure = recorder_names_of(&file, event)))
        return;
    failure = recording_write_reserve(&file, sizeof(*event));
    if (failure)
        return;
    event->head.size = sizeof(*event);
    event->time_ns = sums_minus(time, began);
    recording_write_add(&file, event, sizeof(*event));
}

/* ---- the driver's figure ---- */

/* Live bytes of a card by what holds them. Managed and imported memory is not in the driver's figure. */
struct live_sums {
    uint64_t pooled; /* in our pools, if it has any */
    uint64_t async;  /* in the driver's stream-ordered pools */
    uint64_t beside; /* all that is not in our pools */
};

static struct live_sums live_on(int device)
{
    const bool have_pools = card_of(device)->held;
    struct live_sums sums = {0};
    struct live_row row;

    for (size_t i = 0; live_row(i, &row); i++) {
        if (row.device != device || row.kind == RECORDING_MANAGED || row.kind == RECORDING_IMPORT)
            continue;
        *(row.kind == RECORDING_MALLOC && have_pools ? &sums.pooled : &sums.beside) += row.bytes;
        sums.async += row.kind == RECORDING_ASYNC ? row.bytes : 0;
    }
    return sums;
}

/* Returns what idles in the driver's stream-ordered pools: what they held at the last look and is no live
 * block now. Writes it if it has changed. */
static uint64_t take_driver_idle(const struct recording_event *used)
{
    struct card *card = card_of(used->device);
    struct recording_event event = {.head.type = RECORDING_DRIVER,
                                    .device = used->device,
                                    .time_ns = used->time_ns,
                                    .bytes = sums_minus(card->driver_held, live_on(used->device).async),
                                    .thread = used->thread};

    const uint64_t idle = event.bytes;

    if (atomic_exchange(&card->driver_idle, idle) != idle)
        write_event(&event);
    return idle;
}

/* Fills in what idles in our pools, and writes what the card's contexts hold for themselves: the rest of the
 * driver's figure. */
static void take_used(struct recording_event *used)
{
    struct card *card = card_of(used->device);
    const uint64_t in_pools = card->held, in_drivers = take_driver_idle(used);
    const struct live_sums live = live_on(used->device);
    struct recording_event context = {
        .head.type = RECORDING_CONTEXT,
        .device = used->device,
        .time_ns = used->time_ns,
        .bytes = sums_minus(sums_minus(used->bytes, in_pools), live.beside + in_drivers),
        .other = used->device + 1U,
        .thread = used->thread,
    };

    used->other = sums_minus(in_pools, live.pooled);
    if (context.bytes && context.bytes != card->context)
        write_event(&context);
    card->context = context.bytes;
}

/* ---- events ---- */

/* Writes the release of every block in a range. */
static void release_range(const struct recording_event *gone)
{
    struct recording_event event = *gone;

    while (live_take_within(gone->address, gone->bytes, &event)) {
        event.head.type = RECORDING_FREE;
        event.other = 0;
        write_event(&event);
        event = *gone;
    }
}

/* Writes the release of a block that is still known where another one begins now: its own was lost, or a
 * graph's memory has another size. */
static void release_unseen(const struct recording_event *event)
{
    struct recording_event before = {.head.type = RECORDING_FREE,
                                     .kind = event->kind,
                                     .address = event->address,
                                     .thread = event->thread,
                                     .time_ns = event->time_ns};

    if (live_take(&before))
        write_event(&before);
}

/* Turns an EVENTS_KEPT into the allocation of the block released last under this number. False: unknown. */
static bool find_released(struct recording_event *event)
{
    for (unsigned i = 1; i <= RELEASED; i++) {
        struct recording_event *before = &released[(released_next - i) % RELEASED];
        const uint64_t time = event->time_ns;

        if (before->address != event->address || before->thread != event->thread)
            continue;
        if (before->head.type != RECORDING_FREE)
            return false;
        *event = *before;
        event->head.type = RECORDING_ALLOC;
        event->time_ns = time;
        before->head.type = 0;
        return true;
    }
    return false;
}

/* Returns true if what the driver counts for the process has changed with this event. */
static bool moves_memory(const struct recording_event *event)
{
    switch (event->head.type) {
    case RECORDING_GROW:
    case RECORDING_TRIM:
    case RECORDING_CONTEXT:
    case EVENTS_GONE:
        return true;
    case RECORDING_ALLOC:
    case RECORDING_FREE:
        return event->kind != RECORDING_MALLOC || !card_of(event->device)->held;
    default:
        return false;
    }
}

/* Takes one noted event. */
static void take(const struct recording_event *noted)
{
    struct recording_event event = *noted;

    moved += moves_memory(&event);
    switch (event.head.type) {
    case RECORDING_ALLOC:
        release_unseen(&event);
        live_add(&event);
        break;
    case RECORDING_FREE:
        if (!live_take(&event)) {
            event.head.type = 0; /* not a block, or one from before the recording: nothing can be kept */
            released[released_next++ % RELEASED] = event;
            return;
        }
        released[released_next++ % RELEASED] = event;
        break;
    case EVENTS_GONE:
        release_range(&event);
        return;
    case EVENTS_KEPT:
        if (!find_released(&event))
            return;
        live_add(&event);
        break;
    case RECORDING_GROW:
    case RECORDING_TRIM:
        card_of(event.device)->held = event.other;
        break;
    case RECORDING_USED:
        take_used(&event);
        break;
    case RECORDING_REFUSAL: /* the program may be about to abort */
        flush_soon = true;
        break;
    case RECORDING_CONTEXT: /* has ended */
        card_of(event.device)->context = 0;
        card_of(event.device)->driver_held = 0;
        take_driver_idle(&event);
        break;
    default:
        break;
    }
    write_event(&event);
}

static void tell_dropped(uint64_t count, uint32_t thread)
{
    struct recording_event event = {.head.type = RECORDING_DROPPED,
                                    .time_ns = recording_write_system.now(),
                                    .bytes = count,
                                    .thread = thread};

    if (count)
        write_event(&event);
}

/* Returns the reader whose next event is the oldest, or NULL if all events are newer than `until`. */
static struct events_reader *oldest(struct events_reader *readers, size_t count, uint64_t until)
{
    struct events_reader *first = NULL;
    uint64_t least = until;

    for (size_t i = 0; i < count; i++) {
        struct events_reader *reader = &readers[i];
        const uint64_t time =
            reader->at != reader->end ? reader->slots[reader->at % EVENTS_RING].time_ns : UINT64_MAX;

        if (time <= least) {
            least = time;
            first = reader;
        }
    }
    return first;
}

/* Reads all rings up to now. Later events stay for the next time: what led to them may not have been seen. */
static void drain(void)
{
    static struct events_reader readers[EVENTS_THREADS];
    const uint64_t until = recording_write_system.now();
    const size_t count = events_begin(readers);
    struct events_reader *next;
    unsigned batch = 0;

    for (size_t i = 0; i < count; i++) {
        if (!readers[i].named)
            recorder_names_forget_thread(readers[i].thread);
        readers[i].named = true;
        tell_dropped(readers[i].dropped, readers[i].thread);
    }
    tell_dropped(events_lost(), 0);
    events_end(readers, count);
    for (size_t i = 0; i < count; i++)
        readers[i].dropped = 0;
    while ((next = oldest(readers, count, until))) {
        const struct recording_event *event = &next->slots[next->at % EVENTS_RING];

        if (event->time_ns >= began) /* else a remainder of an earlier recording */
            take(event);
        events++;
        next->at++;
        if (++batch % BATCH == 0)
            events_end(readers, count);
    }
    events_end(readers, count);
}

/* ---- the driver's figure, by the recorder ---- */

static void keep_sample(int device, uint64_t bytes, uint64_t idle)
{
    if (sample_count < CARDS)
        samples[sample_count++] = (struct sampled){device, bytes, idle};
}

static void add_used(const struct sampled *sampled)
{
    struct recording_event used = {.head.type = RECORDING_USED,
                                   .device = (uint16_t)sampled->device,
                                   .time_ns = recording_write_system.now(),
                                   .bytes = sampled->bytes};

    if (sampled->idle != RECORDER_UNKNOWN)
        card_of(sampled->device)->driver_held = sampled->idle + live_on(sampled->device).async;
    take_used(&used);
    write_event(&used);
}

/* Asks for the driver's figure. Asks again if there were events meanwhile: their memory would count as the
 * contexts' own. */
static void measure(void)
{
    uint64_t before;
    int tries = 0;

    do {
        before = moved;
        sample_count = 0;
        sample(keep_sample);
        drain();
    } while (moved != before && ++tries < MEASURES);
    for (size_t i = 0; i < sample_count; i++)
        add_used(&samples[i]);
}

/* Measures if there were events since the last time, at most once per RECORDER_SAMPLE_MS unless `now_please`.
 * With `begins`, measures also without events: the process may have contexts already. */
static void take_sample(bool now_please, bool begins)
{
    const uint64_t now = recording_write_system.now();

    if (!sample || (events == sampled_events && !begins) ||
        (!now_please && sampled_ns && now - sampled_ns < RECORDER_SAMPLE_MS * UINT64_C(1000000)))
        return;
    sampled_events = events;
    sampled_ns = now;
    if (!failure)
        measure();
}

/* Takes a block that is live when the recording begins, or an event with a figure of that moment. The caller
 * holds locks that the program's threads need, so blocks are written later. */
static void add_live(struct recording_event *event)
{
    event->time_ns = began;
    if (event->head.type == 0) {
        live_add(event);
        return;
    }
    if (event->head.type == RECORDING_GROW)
        card_of(event->device)->held = event->other;
    write_event(event);
}

static void write_live(struct recording_event *event)
{
    event->time_ns = began;
    write_event(event);
}

/* ---- steps ---- */

int recorder_open(const struct recorder_settings *settings, char reason[RECORDING_WRITE_WHY])
{
    char name[RECORDING_WRITE_PATH] = "";
    int rc = recording_write_name(settings->file, name);

    if (rc) {
        snprintf(reason, RECORDING_WRITE_WHY, "%.160s: %s", settings->file,
                 rc == -EINVAL ? "only %p, %h and %% may follow a %" : "the name is too long");
        return rc;
    }
    began = recording_write_system.now();
    const struct recording_head head = {
        .magic = RECORDING_MAGIC,
        .version = RECORDING_VERSION,
        .head_bytes = sizeof(head),
        .began_unix_ns = clock_read(CLOCK_REALTIME),
        .began_mono_ns = began,
        .pid = (uint32_t)getpid(),
        .flags = settings->stacks ? RECORDING_STACKS : 0,
    };
    rc = recording_write_open(&file, name, &head, reason);
    if (rc)
        return rc;
    failure = 0;
    list_live = settings->list_live;
    sample = settings->sample;
    sampled_ns = 0;
    sampled_events = events;
    memcpy(path, name, sizeof(path));
    live_clear();
    for (int i = 0; i < CARDS; i++) {
        cards[i].held = cards[i].driver_held = 0;
        cards[i].context = cards[i].driver_idle = 0;
    }
    recorder_names_clear();
    owner_keep_stacks(settings->stacks);
    failure = recorder_names_program(&file, settings->job);
    events_switch(true);
    return 0;
}

int recorder_step(bool flush)
{
    const bool begins = list_live != NULL;

    if (begins) {
        list_live(add_live);
        live_each(write_live);
    }
    list_live = NULL;
    drain();
    take_sample(flush, begins);
    if (!failure && file.used &&
        (flush || flush_soon ||
         recording_write_system.now() - file.since_ns >= RECORDER_FLUSH_MS * UINT64_C(1000000)))
        failure = recording_write_flush(&file);
    flush_soon = false;
    if (failure && events_are_on()) {
        events_switch(false);
        log_error("the recording to %s has ended: %s", path, strerror(-failure));
    }
    return failure;
}

void recorder_close(void)
{
    struct recording_event end = {.head.type = RECORDING_END};

    events_switch(false);
    recorder_step(false);
    end.time_ns = recording_write_system.now();
    write_event(&end);
    recorder_step(true);
    recording_write_close(&file);
}

/* ---- the thread ---- */

/* Serves recorder_sync. Returns true if the thread is to go on. */
static bool serve(uint64_t request)
{
    pthread_mutex_lock(&lock);
    served = request;
    const bool go_on = !stopping;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return go_on;
}

static uint64_t requested(void)
{
    pthread_mutex_lock(&lock);
    const uint64_t request = asked;
    pthread_mutex_unlock(&lock);
    return request;
}

static void *run(void *unused)
{
    uint64_t request;
    int rc;

    do {
        request = requested();
        rc = recorder_step(request != served);
        if (rc == 0 && request == served)
            events_sleep(LOOK_MS);
    } while (serve(request) && rc == 0);
    recorder_close();
    pthread_mutex_lock(&lock);
    running = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return unused;
}

int recorder_start(const struct recorder_settings *settings)
{
    int rc = -EALREADY;

    lock_mutex_take(&lock);
    if (!running) {
        stopping = false;
        rc = recorder_open(settings, why);
        running = rc == 0 && thread_start(run, NULL);
        if (rc == 0 && !running) {
            rc = -EAGAIN;
            snprintf(why, sizeof(why), "no thread can be started");
            events_switch(false);
            recording_write_close(&file);
        }
        if (rc)
            log_error("nothing is recorded: %s", why);
    }
    lock_mutex_release(&lock);
    return rc;
}

/* Waits until the thread has ended or has served the request, but no longer than so many turns. The caller
 * holds the lock. */
static void await_thread(uint64_t request, int turns)
{
    for (; running && served < request && turns; turns--) {
        const struct timespec until = clock_after(TURN_MS * UINT64_C(1000000));

        while (running && served < request && pthread_cond_timedwait(&changed, &lock, &until) == 0)
            continue;
    }
}

void recorder_stop(void)
{
    lock_disable_cancel();
    /* A signal handler that calls exit may have interrupted a thread that holds the lock. */
    if (process_lock_at_exit(&lock)) {
        stopping = running;
        events_wake();
        await_thread(UINT64_MAX, STOP_TURNS);
        pthread_mutex_unlock(&lock);
    }
    lock_restore_cancel();
}

bool recorder_sync(void)
{
    lock_mutex_take(&lock);
    const uint64_t request = ++asked;
    events_wake();
    await_thread(request, SYNC_TURNS);
    const bool done = running && served >= request;
    lock_mutex_release(&lock);
    return done;
}

const char *recorder_why(void)
{
    return why;
}

uint64_t recorder_context_bytes(int device)
{
    return device >= 0 && device < CARDS ? atomic_load(&cards[device].context) : 0;
}

uint64_t recorder_driver_idle(int device)
{
    return device >= 0 && device < CARDS ? atomic_load(&cards[device].driver_idle) : 0;
}

bool recorder_runs(char out[RECORDING_WRITE_PATH])
{
    pthread_mutex_lock(&lock);
    const bool runs = running;
    if (runs)
        memcpy(out, path, sizeof(path));
    pthread_mutex_unlock(&lock);
    return runs;
}

void recorder_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, NULL);
    running = stopping = false;
    events_after_fork();
    owner_after_fork();
    stacks_after_fork();
    recording_write_close(&file);
}
