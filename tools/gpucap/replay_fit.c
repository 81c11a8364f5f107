/* replay_fit: see replay_fit.h. */
#include "tools/gpucap/replay_fit.h"

#include "tools/gpucap/cli.h"
#include "tools/gpucap/place.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  (UINT64_C(2) << 20) /* in which the driver hands out memory */
#define LEAST (2 * PAGE)          /* simgpu has no smaller card */
#define TRIES 40

struct place {
    char library[PATH_MAX], sim[PATH_MAX];
};

/* Sets up a simulated card of that size, with contexts of 0 bytes: the caller adds what contexts need. */
static void set_environment(const struct place *place, uint64_t capacity)
{
    /* Set rather than left out: a configuration file may have others. */
    static const char *const values[][2] = {
        {"GPUCAP_MAX", "none"},   {"GPUCAP_EACH", "none"},  {"GPUCAP_MIN", "none"},
        {"GPUCAP_HIGH", "none"},  {"GPUCAP_GROUP", "none"}, {"GPUCAP_WAIT", "off"},
        {"GPUCAP_RECORD", "off"}, {"GPUCAP_RESERVE", "0"},  {"GPUCAP_LEDGER", "off"}};
    char text[64];

    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
        setenv(values[i][0], values[i][1], 1);
    snprintf(text, sizeof(text), "1x%llu;ctx=0", (unsigned long long)capacity);
    setenv("GPUCAP_SIM", text, 1);
    snprintf(text, sizeof(text), "fit-%d-%llu", (int)getpid(), (unsigned long long)capacity);
    setenv("GPUCAP_SIM_ID", text, 1);
    setenv("LD_LIBRARY_PATH", place->sim, 1);
    setenv("LD_PRELOAD", place->library, 1);
}

/* The exit status of `gpucap replay`, -1 without one. */
static int replay_with(const struct place *place, const char *path, uint64_t capacity)
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        set_environment(place, capacity);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execl("/proc/self/exe", "gpucap", "replay", "--", path, (char *)NULL);
        _exit(CLI_FAILED);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

/* Returns the peak of the live bytes that are replayed. */
static uint64_t peak_of_blocks(const struct timeline *timeline)
{
    struct timeline_state state = TIMELINE_START;
    uint64_t peak = 0;

    for (size_t i = 0; i < timeline->step_count; i++) {
        timeline_advance(&state, timeline, &timeline->steps[i]);
        peak = state.live > peak ? state.live : peak;
    }
    return peak;
}

int replay_fit(const char *path, const struct timeline *timeline, uint64_t *bytes, char why[RECORDING_WHY])
{
    const uint64_t peak = peak_of_blocks(timeline);
    uint64_t low = peak / PAGE * PAGE, high = (peak + PAGE - 1) / PAGE * PAGE + PAGE;
    struct place place;
    int status = CLI_UNDONE;

    if (place_library(place.library, sizeof(place.library)) || place_sim(place.sim, sizeof(place.sim))) {
        snprintf(why, RECORDING_WHY, "the simulated GPU is not installed beside this gpucap");
        return -1;
    }
    high = high < LEAST ? LEAST : high;
    for (int i = 0; i < TRIES && (status = replay_with(&place, path, high)) == CLI_UNDONE; i++) {
        low = high;
        high += high / 32 / PAGE * PAGE + PAGE;
    }
    while (status == 0 && high - low > PAGE && high - low > high / REPLAY_FIT_PART) {
        const uint64_t middle = low + (high - low) / 2 / PAGE * PAGE;
        const int half = replay_with(&place, path, middle);

        if (half == 0)
            high = middle;
        else if (half == CLI_UNDONE)
            low = middle;
        else
            status = half;
    }
    if (status) {
        snprintf(why, RECORDING_WHY, "the recording could not be replayed");
        return -1;
    }
    *bytes = high;
    return 0;
}
