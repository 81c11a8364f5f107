/* Checkpoint files: a header and table that are accepted describe exactly the bytes that were given. */
#include "fuzz.h"
#include "harness/train/checkpoint_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct checkpoint_header header;
    struct checkpoint_entry *entries;
    uint64_t sum = sizeof(header);
    size_t table;

    if (count < sizeof(header))
        return 0;
    memcpy(&header, bytes, sizeof(header));
    if (checkpoint_check_header(&header, count))
        return 0;
    table = header.param_count * sizeof(*entries);
    FUZZ_PROMISE(sizeof(header) + table <= count);
    FUZZ_PROMISE(strlen(header.name) < sizeof(header.name));
    entries = malloc(table);
    if (!entries)
        abort();
    memcpy(entries, bytes + sizeof(header), table);
    if (!checkpoint_check_entries(&header, entries)) {
        for (uint32_t i = 0; i < header.param_count; i++)
            sum += sizeof(*entries) + checkpoint_entry_bytes(&entries[i]);
        FUZZ_PROMISE(sum == count);
    }
    free(entries);
    return 0;
}
