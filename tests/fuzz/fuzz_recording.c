/* Recordings: any bytes are a recording or refused with a reason; events are in order, and the timeline's
 * sums agree with its blocks. Checksums are put right first, so that what is behind them is reached. */
#include "fuzz.h"
#include "fuzz_recording.h"
#include "tools/gpucap/timeline.h"

#define DEVICES 3

static void check_timeline(const struct recording *recording, uint16_t device)
{
    struct timeline timeline;
    struct timeline_share *shares;
    uint32_t *live;
    uint64_t bytes = 0;

    FUZZ_PROMISE(timeline_open(&timeline, recording, device));
    const struct timeline_state state = timeline_state_after(&timeline, timeline.step_count);
    const size_t count = timeline_shares(&timeline, timeline.step_count, TIMELINE_BY_OWNER, &shares);
    for (size_t i = 0; i < count; i++) {
        bytes += shares[i].bytes;
        FUZZ_PROMISE(*timeline_name(recording, TIMELINE_BY_OWNER, shares[i].id));
    }
    FUZZ_PROMISE(bytes == state.live);
    FUZZ_PROMISE(state.live <= RECORDING_BYTES_MAX && state.pool_live <= state.live);
    FUZZ_PROMISE(timeline.peak <= timeline.step_count && timeline.live_peak <= timeline.step_count);
    const size_t blocks = timeline_live_blocks(&timeline, timeline.step_count, &live);
    for (size_t i = 0; i < blocks; i++)
        FUZZ_PROMISE(timeline.blocks[live[i]].end_ns == TIMELINE_NEVER);
    free(live);
    free(shares);
    timeline_close(&timeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct recording recording;
    char why[RECORDING_WHY] = "";
    uint16_t devices[DEVICES];
    uint8_t *copy = malloc(count + 1);

    if (!copy)
        return 0;
    memcpy(copy, bytes, count);
    put_checksums_right(copy, count);
    if (recording_parse(&recording, copy, count, why)) {
        FUZZ_PROMISE(*why);
        free(copy);
        return 0;
    }
    free(copy); /* nothing may point there */
    for (size_t i = 1; i < recording.count; i++)
        FUZZ_PROMISE(recording.events[i - 1].time_ns <= recording.events[i].time_ns);
    recording_remark(&recording, why);
    FUZZ_PROMISE(recording_program(&recording, RECORDING_COMMAND));
    for (size_t i = 0; i < recording.devices.count; i++)
        FUZZ_PROMISE(recording_text(&recording.devices, recording.devices.entries[i].id, 2));
    const size_t found = timeline_devices(&recording, devices, DEVICES);
    for (size_t i = 0; i < found; i++)
        check_timeline(&recording, devices[i]);
    recording_close(&recording);
    return 0;
}
