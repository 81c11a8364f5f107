/* refusal: see refusal.h. */
#include "interpose/refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/account/drivers_pools.h"
#include "interpose/base/clock.h"
#include "interpose/base/process.h"
#include "interpose/base/quote.h"
#include "interpose/base/sums.h"
#include "interpose/library.h"
#include "interpose/pool/pool_apart.h"
#include "interpose/pool/pools.h"
#include "interpose/see/owner.h"
#include "interpose/see/recorder.h"
#include "interpose/settings/log.h"

#define INTERVAL_MS   1000 /* between two lines of one kind */
#define KIND_SHIFT    40
#define LEDGER_OPTION (OPTIONS_PATH_MAX + sizeof(" --ledger="))
#define LINES         64 /* kinds whose last line is known; a power of two */

static _Atomic uint64_t last_lines[LINES]; /* each: a kind, and the time of its last line */
static atomic_uint silent;                 /* refusals that got no line since the last one that did */

/* Returns a number for refusals that look alike: of one card, for the same need and reason, and of
 * the same size up to a factor of two. Never 0. */
static uint64_t kind_of(int ordinal, enum refusal_of need, enum recording_limit reason, uint64_t bytes)
{
    const unsigned size = 64 - (unsigned)__builtin_clzll(bytes | 1);

    if (need == REFUSAL_ASYNC) /* is said in the same words */
        need = REFUSAL_PROGRAM;
    return (unsigned)ordinal << 16 | (unsigned)need << 12 | (unsigned)reason << 8 | size;
}

static void say_rest(void)
{
    const unsigned unsaid = process_is_copy() ? 0 : atomic_exchange(&silent, 0);

    if (unsaid)
        log_error("out of memory: %u more refused like these", unsaid);
}

/* Counts a refusal that gets no line. The next line or the end of the program says how many there were. */
static void count_silent(void)
{
    static atomic_flag registered = ATOMIC_FLAG_INIT;

    atomic_fetch_add(&silent, 1);
    if (!atomic_flag_test_and_set(&registered))
        (void)atexit(say_rest);
}

/* Returns true if a refusal of this kind gets a line; *unsaid is how many before it got none. */
static bool is_due(uint64_t kind, unsigned *unsaid)
{
    _Atomic uint64_t *line = &last_lines[(kind * UINT64_C(0x9e3779b97f4a7c15) >> 32) % LINES];
    const uint64_t now = clock_ms();
    uint64_t last = atomic_load(line);

    do {
        const uint64_t ms = last & ((UINT64_C(1) << KIND_SHIFT) - 1);

        if (last >> KIND_SHIFT == kind && now < ms + INTERVAL_MS) {
            count_silent();
            return false;
        }
    } while (!atomic_compare_exchange_weak(line, &last, kind << KIND_SHIFT | now));
    *unsaid = atomic_exchange(&silent, 0);
    return true;
}

/* Returns true if the administrator's ceiling is the limit, and no setting of the user's is as low. */
static bool is_ceiling(const struct options *options, const struct device *device, bool is_job,
                       uint64_t limit)
{
    const uint64_t max = device_rule(device, &options->max);
    const uint64_t each = device_rule(device, &options->each);
    const bool has_job = options->group[0];

    return device_rule(device, &options->ceiling) == limit &&
           (is_job ? max > limit : each > limit && (has_job || max > limit));
}

/* Writes which setting the limit comes from, and where that was set. */
static void write_origin(const struct device *device, bool is_job, uint64_t limit, char text[64])
{
    static const char *const places[] = {
        [OPTIONS_DEFAULT] = "",
        [OPTIONS_ADMIN] = ", from " OPTIONS_ADMIN_FILE,
        [OPTIONS_USER] = ", from ~/" OPTIONS_USER_FILE,
        [OPTIONS_ENVIRONMENT] = "", /* as gpucap run sets it */
    };
    const struct options *options = library_options();
    const bool is_each = !is_job && device_rule(device, &options->each) == limit;
    const enum options_id id = is_each ? OPTIONS_EACH : OPTIONS_MAX;
    const bool is_admin = is_ceiling(options, device, is_job, limit);

    if (is_job && limit != options_job_limit(options, device->ordinal, device->uuid, device->total))
        snprintf(text, 64, "job's max, from `gpucap set` or another process");
    else if (!is_job && limit == device->total && options->source[id] == OPTIONS_DEFAULT)
        snprintf(text, 64, "the whole card");
    else
        snprintf(text, 64, "%s%s%s", is_job ? "job's " : "", options_table[id].name,
                 places[is_admin ? OPTIONS_ADMIN : options->source[id]]);
}

/* Writes the option with which a command outside this process's environment finds its ledger, if needed. */
static const char *ledger_option(char text[LEDGER_OPTION])
{
    const struct options *options = library_options();
    char word[OPTIONS_PATH_MAX];

    text[0] = '\0';
    if (*options->ledger == '/' && options->source[OPTIONS_LEDGER] == OPTIONS_ENVIRONMENT)
        snprintf(text, LEDGER_OPTION, " --ledger=%s", quote_word(options->ledger, word, sizeof(word)));
    return text;
}

/* Prints how the job's memory divides between this process and the others. */
static void say_of_job(const struct device *device, uint64_t used)
{
    char own[SIZE_TEXT], others[SIZE_TEXT], option[LEDGER_OPTION];

    log_error("  this process uses %s, the job's others %s; see `gpucap why %ld%s`", size_format(used, own),
              size_format(ledger_used_by_others(device->ledger), others), (long)getpid(),
              ledger_option(option));
}

/* ---- what idled ---- */

struct look {
    CUdevice ordinal;
    uint64_t request;
    struct pool_apart here, elsewhere;
};

static void look_at(struct pool *pool, void *argument)
{
    struct look *look = argument;

    pool_apart_add(pool->ordinal == look->ordinal ? &look->here : &look->elsewhere, pool, look->request);
}

/* Fills in what idles on a card, and what keeps it from serving `bytes`. */
static void find_apart(int ordinal, uint64_t bytes, uint64_t apart[RECORDING_APART_COUNT])
{
    struct look look = {.ordinal = ordinal, .request = bytes};

    pools_each(look_at, &look);
    pool_apart_end(&look.here);
    memcpy(apart, look.here.of, sizeof(look.here.of));
    apart[RECORDING_APART_DRIVER] = drivers_pools_idle_on(ordinal);
    apart[RECORDING_APART_CARDS] = look.elsewhere.of[RECORDING_APART_IDLE];
}

/* ---- recordings ---- */

static void note_one(int ordinal, int reason, uint64_t bytes, uint64_t pieces)
{
    events_note(&(struct recording_event){.head.type = RECORDING_APART,
                                          .device = (uint16_t)ordinal,
                                          .limit = (uint8_t)reason,
                                          .bytes = bytes,
                                          .other = pieces});
}

/* Notes what idled, before the refusal itself. */
static void note_apart(int ordinal, const uint64_t apart[RECORDING_APART_COUNT])
{
    note_one(ordinal, RECORDING_APART_IDLE, apart[RECORDING_APART_IDLE], apart[RECORDING_APART_PIECES]);
    for (int i = RECORDING_APART_IDLE + 1; i < RECORDING_APART_COUNT; i++) {
        if (apart[i])
            note_one(ordinal, i, apart[i], 0);
    }
}

/* Enters a refusal into recordings and the ledger (NULL: none). `fits`: what would have been granted.
 * `job_max`: the limit of the job if that limit, or the process's own, has refused; 0: neither, or no job. */
static void enter(struct ledger *ledger, int ordinal, const struct ledger_refusal *refusal, uint64_t fits,
                  enum recording_limit cause, uint64_t job_max)
{
    uint64_t apart[RECORDING_APART_COUNT];

    find_apart(ordinal, refusal->asked, apart);
    if (events_are_on()) {
        note_apart(ordinal, apart);
        if (job_max)
            note_one(ordinal, RECORDING_APART_OTHERS, sums_minus(refusal->job_used, refusal->used), 0);
        events_note(&(struct recording_event){.head.type = RECORDING_REFUSAL,
                                              .device = (uint16_t)ordinal,
                                              .limit = (uint8_t)cause,
                                              .address = job_max,
                                              .bytes = refusal->asked,
                                              .other = fits,
                                              .owner = owner_current,
                                              .stack = owner_stack});
        events_wake(); /* it is in the file before the program can abort, most likely */
    }
    if (ledger)
        ledger_note_refusal(ledger, refusal, apart);
}

/* Names the recording that shows what was live, or says once how to make one unless a command was named. */
static void say_of_recording(bool is_helped)
{
    static atomic_bool said;
    char path[RECORDING_WRITE_PATH], word[RECORDING_WRITE_PATH];

    if (events_are_on() && recorder_runs(path))
        log_error("  `gpucap why %s` tells who held the memory", quote_word(path, word, sizeof(word)));
    else if (!is_helped && !atomic_exchange(&said, true))
        log_error("  who held the memory: `gpucap run --record=FILE`, then `gpucap why FILE`");
}

/* Says that memory is there, but kept for other jobs. */
static void say_kept(const struct device *device, const char *what, uint64_t bytes, uint64_t kept,
                     const char *more)
{
    char asked[SIZE_TEXT], left[SIZE_TEXT];

    log_error("out of memory on device %d: %s %s; %s of the card are kept for other jobs (their min)%s",
              device->ordinal, what, size_format(bytes, asked), size_format(kept, left), more);
}

static const char *count_unsaid(unsigned unsaid, char more[48])
{
    more[0] = '\0';
    if (unsaid)
        snprintf(more, 48, " (and %u refused before)", unsaid);
    return more;
}

/* Returns the largest request that the limit would have allowed: what it leaves, and what our pools would
 * have given back for it. Leases that the job's other processes do not use count as left, unless it was they
 * that refused the request. */
static uint64_t largest_that_fits(struct device *device, enum refusal_of whose, uint64_t bytes)
{
    struct account *account = &device->account;
    uint64_t room = account_glance(account).room;
    const uint64_t unused = device_shares(device) ? sums_minus(account_room_beside_others(account), room) : 0;

    if (whose == REFUSAL_DRIVER || whose == REFUSAL_GRAPH) {
        const uint64_t need = limit_round(bytes);

        room = sums_minus(need, account_short_to_grow(account, need));
    }
    room = sums_add(room, pools_reclaimable(device->ordinal));
    if (bytes > sums_add(room, unused))
        room += unused;
    return whose == REFUSAL_ASYNC ? room / LIMIT_STEP * LIMIT_STEP : room;
}

/* Returns the largest request that the card could have served, or UINT64_MAX if that is not known. */
static uint64_t largest_on_card(struct device *device)
{
    uint64_t free_bytes;

    if (device_free_bytes(device, &free_bytes))
        return UINT64_MAX;
    return sums_add(free_bytes, pools_reclaimable(device->ordinal));
}

/* Returns why a request that the limits allow was refused. `kept`: what is kept for other jobs. */
static enum recording_limit cause_on_card(uint64_t bytes, uint64_t on_card, uint64_t kept)
{
    return kept && bytes <= on_card ? RECORDING_LIMIT_KEPT : RECORDING_LIMIT_CARD;
}

/* Returns what the card would have given beside what is kept for other jobs; 0: not known. */
static uint64_t fits_beside(uint64_t on_card, uint64_t kept)
{
    return on_card == UINT64_MAX ? 0 : sums_minus(on_card, kept);
}

/* Returns the limit of the job for a refusal by it, or by the process's own limit; 0: none. */
static uint64_t job_limit(const struct device *device, const struct ledger_refusal *refusal,
                          enum recording_limit cause)
{
    if (cause == RECORDING_LIMIT_JOB)
        return refusal->limit;
    if (cause != RECORDING_LIMIT_PROCESS || !device_shares(device))
        return 0;
    const uint64_t max = ledger_max(device->ledger);
    return max == LEDGER_UNLIMITED ? 0 : max;
}

/* Enters a refusal into recordings and the ledger. `on_card`: what largest_on_card() says, if it was not the
 * limit. Returns what refused. */
static enum recording_limit note_refusal(struct device *device, struct ledger_refusal *refusal,
                                         uint64_t on_card, uint64_t kept)
{
    const enum recording_limit own = device_limit_kind(device);
    const bool is_job = refusal->bound == RECORDING_LIMIT_JOB && own == RECORDING_LIMIT_PROCESS;
    const enum recording_limit cause = refusal->asked <= refusal->fits
                                           ? cause_on_card(refusal->asked, on_card, kept)
                                       : is_job ? RECORDING_LIMIT_JOB
                                                : own;

    if (cause == RECORDING_LIMIT_KEPT) {
        refusal->bound = cause;
        refusal->fits = fits_beside(on_card, kept);
    }
    enter(device->ledger, device->ordinal, refusal, sums_smaller(refusal->fits, sums_minus(on_card, kept)),
          cause, job_limit(device, refusal, cause));
    return cause;
}

/* Notes the refusal of a request without a limit. `device`: has a ledger, or NULL. Returns what refused. */
static enum recording_limit note_unlimited(int ordinal, struct device *device, uint64_t bytes, uint64_t kept)
{
    const uint64_t on_card = device ? largest_on_card(device) : UINT64_MAX;
    const enum recording_limit cause = cause_on_card(bytes, on_card, kept);
    const struct ledger_refusal refusal = {.at = clock_boot_ns(),
                                           .asked = bytes,
                                           .limit = LEDGER_UNLIMITED,
                                           .fits = fits_beside(on_card, kept),
                                           .bound = cause};

    enter(device ? device->ledger : NULL, ordinal, &refusal, refusal.fits, cause, 0);
    return cause;
}

void refusal_note_full(int ordinal, uint64_t bytes)
{
    struct device *device = device_listed(ordinal);

    if (device && !device_is_unlimited(device)) /* refusal_say notes those */
        device = NULL;
    if (device || events_are_on())
        note_unlimited(ordinal, device, bytes, 0);
}

void refusal_say_kept(struct device *device, uint64_t bytes)
{
    const uint64_t kept = ledger_kept(device->ledger);
    unsigned unsaid = 0;
    char more[48];

    if (note_unlimited(device->ordinal, device, bytes, kept) == RECORDING_LIMIT_KEPT &&
        is_due(kind_of(device->ordinal, REFUSAL_PROGRAM, RECORDING_LIMIT_KEPT, bytes), &unsaid))
        say_kept(device, "asked for", bytes, kept, count_unsaid(unsaid, more));
}

/* Says that the limit left enough: the card is full, or the driver has refused for a reason of its own. */
static void say_not_limit(const struct device *device, const char *what, const struct ledger_refusal *refusal,
                          uint64_t on_card, const char *where, const char *more)
{
    char asked[SIZE_TEXT], left[SIZE_TEXT], rest[SIZE_TEXT], beside[SIZE_TEXT + 24] = "";
    char option[LEDGER_OPTION];

    size_format(refusal->asked, asked);
    size_format(refusal->fits, left);
    if (on_card != UINT64_MAX)
        snprintf(beside, sizeof(beside), ", the card has %s free", size_format(on_card, rest));
    if (on_card < refusal->asked) {
        log_error("out of memory on device %d: %s %s%s (%s leaves %s)%s", device->ordinal, what, asked,
                  beside, where, left, more);
        log_error("  who holds the card: `gpucap ps%s`", ledger_option(option));
    } else {
        log_error("out of memory on device %d: %s %s; the driver refused it, or memory came free too late: "
                  "%s leaves %s%s%s",
                  device->ordinal, what, asked, where, left, beside, more);
    }
    say_of_recording(on_card < refusal->asked);
}

/* Says that the limit left too little. */
static void say_limit(const struct device *device, const char *what, const struct ledger_refusal *refusal,
                      const char *where, const char *more)
{
    const bool has_others = device_shares(device) && ledger_used_by_others(device->ledger);
    char asked[SIZE_TEXT], left[SIZE_TEXT], limit[SIZE_TEXT];

    log_error("out of memory on device %d: %s %s, %s left of %s (%s)%s", device->ordinal, what,
              size_format(refusal->asked, asked), size_format(refusal->fits, left),
              size_format(refusal->limit, limit), where, more);
    if (has_others)
        say_of_job(device, refusal->used);
    say_of_recording(has_others);
}

void refusal_say(struct device *device, enum refusal_of whose, uint64_t bytes)
{
    static const char *const words[] = {
        [REFUSAL_PROGRAM] = "asked for",
        [REFUSAL_ASYNC] = "asked for",
        [REFUSAL_DRIVER] = "the driver needs for itself",
        [REFUSAL_GRAPH] = "a graph needs",
    };
    const char *what = words[whose];
    const bool shares = device_shares(device), is_job = device_job_binds(device);
    char where[64], more[48];
    unsigned unsaid = 0;

    struct ledger_refusal refusal = {.at = clock_boot_ns(),
                                     .asked = bytes,
                                     .used = account_known(&device->account),
                                     .limit = is_job ? ledger_max(device->ledger) : device->limit,
                                     .fits = largest_that_fits(device, whose, bytes),
                                     .bound = is_job ? RECORDING_LIMIT_JOB : RECORDING_LIMIT_PROCESS};
    refusal.job_used = refusal.used + (shares ? ledger_used_by_others(device->ledger) : 0);
    const bool is_limit = bytes > refusal.fits;
    const uint64_t on_card = is_limit ? UINT64_MAX : largest_on_card(device);
    const uint64_t kept = device->ledger ? ledger_kept(device->ledger) : 0;
    const enum recording_limit cause = note_refusal(device, &refusal, on_card, kept);
    if (!is_due(kind_of(device->ordinal, whose, cause, bytes), &unsaid))
        return;
    count_unsaid(unsaid, more);
    write_origin(device, is_job, refusal.limit, where);
    if (cause == RECORDING_LIMIT_KEPT)
        say_kept(device, what, bytes, kept, more);
    else if (is_limit)
        say_limit(device, what, &refusal, where, more);
    else
        say_not_limit(device, what, &refusal, on_card, where, more);
}
