/* Headers of safetensors files: what is accepted describes exactly the bytes that were given, and can be
 * written and read again. The input is the file's beginning; the data is as long as its last two bytes say.
 */
#include "fuzz.h"
#include "harness/train/safetensors.h"

static void check(const struct safetensors_table *table, uint64_t data_bytes)
{
    uint64_t at = 0;

    for (size_t i = 0; i < table->count; i++) {
        const struct safetensors_tensor *tensor = &table->tensors[i];
        uint64_t bytes = safetensors_type_bytes(tensor->type);

        FUZZ_PROMISE(strlen(tensor->name) < sizeof(tensor->name));
        FUZZ_PROMISE(tensor->dims >= 0 && tensor->dims <= SAFETENSORS_DIMS);
        for (int d = 0; d < tensor->dims; d++)
            bytes *= tensor->shape[d];
        FUZZ_PROMISE(tensor->begin == at && tensor->end - tensor->begin == bytes);
        FUZZ_PROMISE(safetensors_find(table, tensor->name) == tensor);
        at = tensor->end;
    }
    FUZZ_PROMISE(at == data_bytes);
}

/* Names that the writer takes: without quotes and backslashes. */
static int is_plain(const struct safetensors_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (strpbrk(table->tensors[i].name, "\"\\"))
            return 0;
    return 1;
}

static void check_again(struct safetensors_table *table, uint64_t data_bytes)
{
    struct safetensors_table again;
    size_t bytes;
    char *text = safetensors_make_header(table->tensors, table->count, &bytes);

    if (!text)
        abort();
    FUZZ_PROMISE(bytes % 8 == 0);
    FUZZ_PROMISE(!safetensors_parse(text + SAFETENSORS_LENGTH_BYTES, bytes - SAFETENSORS_LENGTH_BYTES,
                                    data_bytes, &again));
    FUZZ_PROMISE(again.count == table->count);
    check(&again, data_bytes);
    safetensors_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct safetensors_table table;
    uint64_t data_bytes;
    char *text;

    if (count < 2)
        return 0;
    data_bytes = bytes[count - 2] + 256u * bytes[count - 1];
    /* Memory of its own size, so that a read behind the end is found. */
    text = malloc(count - 2 ? count - 2 : 1);
    if (!text)
        abort();
    memcpy(text, bytes, count - 2);
    if (safetensors_parse(text, count - 2, data_bytes, &table)) {
        FUZZ_PROMISE(!table.tensors && !table.count);
    } else {
        check(&table, data_bytes);
        if (is_plain(&table))
            check_again(&table, data_bytes);
    }
    safetensors_free(&table);
    free(text);
    return 0;
}
