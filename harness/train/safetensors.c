/* Reading and writing headers of safetensors files. See safetensors.h. The reader takes the JSON that the
 * format allows and nothing else, in one pass over the text, and never reads behind its end. */
#include "harness/train/safetensors.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at, *end;
    const char *wrong; /* the first thing */
};

static void fail(struct reader *reader, const char *what)
{
    if (!reader->wrong)
        reader->wrong = what;
    reader->at = reader->end;
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && *reader->at && strchr(" \t\r\n", *reader->at))
        reader->at++;
}

/* Takes this character if it is next. */
static bool take(struct reader *reader, char c)
{
    skip_blanks(reader);
    if (reader->wrong || reader->at == reader->end || *reader->at != c)
        return false;
    reader->at++;
    return true;
}

static void need(struct reader *reader, char c)
{
    if (!take(reader, c))
        fail(reader, "its header is not JSON as the format has it");
}

/* ---- values ---- */

/* Reads a string into `out`, or past it if `out` is NULL. Escapes but those of quotes and backslashes have no
 * place in a name. */
static void read_string(struct reader *reader, char *out, size_t size)
{
    size_t length = 0;

    need(reader, '"');
    while (!reader->wrong) {
        char c;

        if (reader->at == reader->end) {
            fail(reader, "its header ends within a string");
            return;
        }
        c = *reader->at++;
        if (c == '"')
            break;
        if (c == '\\') {
            c = reader->at < reader->end ? *reader->at++ : 0;
            if (out && c != '"' && c != '\\' && c != '/') {
                fail(reader, "a name in its header has an escape that is not supported");
                return;
            }
        } else if ((unsigned char)c < ' ') {
            fail(reader, "a string in its header has a control character");
            return;
        }
        if (out && length + 1 >= size) {
            fail(reader, "a name in its header is too long");
            return;
        }
        if (out)
            out[length++] = c;
    }
    if (out)
        out[length] = 0;
}

static uint64_t read_number(struct reader *reader)
{
    uint64_t value = 0;
    const char *start;

    skip_blanks(reader);
    start = reader->at;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') {
        uint64_t digit = (uint64_t)(*reader->at++ - '0');

        if (value > (UINT64_MAX - digit) / 10) {
            fail(reader, "a number in its header is too large");
            return 0;
        }
        value = 10 * value + digit;
    }
    if (reader->at == start)
        fail(reader, "its header has no number where one is needed");
    return value;
}

/* Reads [N, N, ...]. Returns how many, at most `room`. */
static int read_numbers(struct reader *reader, uint64_t *out, int room)
{
    int count = 0;

    need(reader, '[');
    if (take(reader, ']'))
        return 0;
    do {
        uint64_t number = read_number(reader);

        if (count == room)
            fail(reader, "a tensor has too many dimensions");
        else
            out[count++] = number;
    } while (take(reader, ','));
    need(reader, ']');
    return count;
}

/* __metadata__: strings by name, which mean nothing here. */
static void skip_metadata(struct reader *reader)
{
    need(reader, '{');
    if (take(reader, '}'))
        return;
    do {
        read_string(reader, NULL, 0);
        need(reader, ':');
        read_string(reader, NULL, 0);
    } while (take(reader, ','));
    need(reader, '}');
}

/* ---- tensors ---- */

size_t safetensors_type_bytes(const char *type)
{
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8},     {"I64", 8},
                 {"I32", 4}, {"I16", 2},  {"I8", 1},  {"U8", 1},      {"BOOL", 1},
                 {"U64", 8}, {"U32", 4},  {"U16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(type, types[i].name) == 0)
            return types[i].bytes;
    return 0;
}

/* Sets *bytes to what a tensor takes. False: too much for a number. */
static bool count_bytes(const struct safetensors_tensor *tensor, uint64_t *bytes)
{
    *bytes = safetensors_type_bytes(tensor->type);
    for (int i = 0; i < tensor->dims; i++) {
        if (tensor->shape[i] && *bytes > UINT64_MAX / tensor->shape[i])
            return false;
        *bytes *= tensor->shape[i];
    }
    return true;
}

static void check_tensor(struct reader *reader, const struct safetensors_tensor *tensor, uint64_t data_bytes)
{
    uint64_t bytes = 0;

    if (reader->wrong)
        return;
    if (!safetensors_type_bytes(tensor->type))
        fail(reader, "a tensor has a type that is not known");
    else if (tensor->begin > tensor->end || tensor->end > data_bytes)
        fail(reader, "a tensor lies outside of its data: it is truncated or damaged");
    else if (!count_bytes(tensor, &bytes) || bytes != tensor->end - tensor->begin)
        fail(reader, "the place of a tensor does not fit its shape");
}

static void read_tensor(struct reader *reader, struct safetensors_tensor *tensor)
{
    enum { TYPE = 1, SHAPE = 2, PLACE = 4, ALL = 7 };
    int seen = 0;

    need(reader, '{');
    do {
        char key[SAFETENSORS_NAME_BYTES] = "";
        uint64_t place[2] = {0};
        int this = 0;

        read_string(reader, key, sizeof(key));
        need(reader, ':');
        if (strcmp(key, "dtype") == 0) {
            this = TYPE;
            read_string(reader, tensor->type, sizeof(tensor->type));
        } else if (strcmp(key, "shape") == 0) {
            this = SHAPE;
            tensor->dims = read_numbers(reader, tensor->shape, SAFETENSORS_DIMS);
        } else if (strcmp(key, "data_offsets") == 0) {
            this = PLACE;
            if (read_numbers(reader, place, 2) != 2)
                fail(reader, "the place of a tensor is not two numbers");
            tensor->begin = place[0];
            tensor->end = place[1];
        }
        if (!this || (seen & this))
            fail(reader, "a tensor has a key that is not known, or one twice");
        seen |= this;
    } while (take(reader, ','));
    need(reader, '}');
    if (seen != ALL)
        fail(reader, "a tensor lacks its type, shape or place");
}

static struct safetensors_tensor *add_tensor(struct reader *reader, struct safetensors_table *table)
{
    size_t room = table->room ? 2 * table->room : 64;
    struct safetensors_tensor *larger;

    if (table->count == SAFETENSORS_MAX_TENSORS) {
        fail(reader, "it has too many tensors");
        return NULL;
    }
    if (table->count == table->room) {
        larger = realloc(table->tensors, room * sizeof(*larger));
        if (!larger) {
            fail(reader, "there is no memory for its table");
            return NULL;
        }
        table->tensors = larger;
        table->room = room;
    }
    memset(&table->tensors[table->count], 0, sizeof(*larger));
    return &table->tensors[table->count++];
}

/* ---- the whole ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_tensor *)a)->name, ((const struct safetensors_tensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const struct safetensors_tensor *first = a;
    const struct safetensors_tensor *second = b;

    if (first->begin != second->begin)
        return first->begin < second->begin ? -1 : 1;
    return first->end < second->end ? -1 : first->end > second->end;
}

/* Every name once, and every byte in one tensor. Leaves the tensors in the order of the data. */
static void check_table(struct reader *reader, struct safetensors_table *table, uint64_t data_bytes)
{
    uint64_t at = 0;

    if (table->count)
        qsort(table->tensors, table->count, sizeof(*table->tensors), by_name);
    for (size_t i = 1; i < table->count; i++)
        if (by_name(&table->tensors[i - 1], &table->tensors[i]) == 0)
            fail(reader, "it has two tensors of one name");
    if (table->count)
        qsort(table->tensors, table->count, sizeof(*table->tensors), by_place);
    for (size_t i = 0; i < table->count; i++) {
        if (table->tensors[i].begin != at)
            fail(reader, "its tensors overlap, or there are bytes between them");
        at = table->tensors[i].end;
    }
    if (at != data_bytes)
        fail(reader, "it has bytes behind its last tensor");
}

static void read_entries(struct reader *reader, uint64_t data_bytes, struct safetensors_table *table)
{
    do {
        char name[SAFETENSORS_NAME_BYTES] = "";
        struct safetensors_tensor *tensor;

        read_string(reader, name, sizeof(name));
        need(reader, ':');
        if (strcmp(name, "__metadata__") == 0) {
            skip_metadata(reader);
            continue;
        }
        tensor = reader->wrong ? NULL : add_tensor(reader, table);
        if (!tensor)
            return;
        memcpy(tensor->name, name, sizeof(name));
        read_tensor(reader, tensor);
        check_tensor(reader, tensor, data_bytes);
    } while (take(reader, ','));
}

const char *safetensors_parse(const char *text, size_t count, uint64_t data_bytes,
                              struct safetensors_table *out)
{
    struct reader reader = {.at = text, .end = text + count};

    *out = (struct safetensors_table){0};
    need(&reader, '{');
    if (!take(&reader, '}')) {
        read_entries(&reader, data_bytes, out);
        need(&reader, '}');
    }
    skip_blanks(&reader);
    if (reader.at != reader.end)
        fail(&reader, "its header goes on behind its end");
    if (!reader.wrong)
        check_table(&reader, out, data_bytes);
    if (reader.wrong)
        safetensors_free(out);
    return reader.wrong;
}

void safetensors_free(struct safetensors_table *table)
{
    free(table->tensors);
    *table = (struct safetensors_table){0};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->tensors[i].name, name) == 0)
            return &table->tensors[i];
    return NULL;
}

/* ---- writing ---- */

static int print_tensor(char *out, size_t size, const struct safetensors_tensor *tensor)
{
    char shape[SAFETENSORS_DIMS * 24] = "";
    int length = 0;

    for (int i = 0; i < tensor->dims; i++)
        length += snprintf(shape + length, sizeof(shape) - (size_t)length, "%s%llu", i ? "," : "",
                           (unsigned long long)tensor->shape[i]);
    return snprintf(out, size, "\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                    tensor->name, tensor->type, shape, (unsigned long long)tensor->begin,
                    (unsigned long long)tensor->end);
}

char *safetensors_make_header(struct safetensors_tensor *tensors, size_t count, size_t *bytes)
{
    enum { TENSOR_TEXT = 512, ALIGN = 8 }; /* the longest name, type, shape and place, with the keys */
    size_t room = SAFETENSORS_LENGTH_BYTES + count * TENSOR_TEXT + 2 + ALIGN;
    char *text = calloc(1, room);
    size_t at = SAFETENSORS_LENGTH_BYTES;
    uint64_t place = 0;
    uint64_t length;

    if (!text)
        return NULL;
    text[at++] = '{';
    for (size_t i = 0; i < count; i++) {
        uint64_t size = 0;

        count_bytes(&tensors[i], &size);
        tensors[i].begin = place;
        tensors[i].end = place += size;
        if (i)
            text[at++] = ',';
        at += (size_t)print_tensor(text + at, room - at, &tensors[i]);
    }
    text[at++] = '}';
    while (at % ALIGN)
        text[at++] = ' ';
    length = at - SAFETENSORS_LENGTH_BYTES;
    memcpy(text, &length, sizeof(length));
    *bytes = at;
    return text;
}
