/* Files that say which trainings a fleet starts: what is accepted can be started. */
#include "fuzz.h"
#include "harness/fleet/fleet_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct fleet_plan plan;
    char *text = fuzz_text(bytes, count);

    memset(&plan, 0, sizeof(plan));
    if (fleet_plan_read(&plan, text, "file") == 0) {
        FUZZ_PROMISE(plan.count <= FLEET_MEMBERS_MAX);
        for (size_t i = 0; i < plan.count; i++) {
            size_t words = 0;

            FUZZ_PROMISE(plan.jobs[i].argv[0]);
            while (plan.jobs[i].argv[words])
                words++;
            FUZZ_PROMISE(words <= FLEET_WORDS_MAX);
            FUZZ_PROMISE(strnlen(plan.jobs[i].name, FLEET_NAME_MAX) < FLEET_NAME_MAX);
        }
    }
    fleet_plan_free(&plan);
    free(text);
    return 0;
}
