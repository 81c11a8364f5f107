/* pickle_write: see pickle_write.h. */
#include "tools/gpucap/pickle_write.h"

#include <string.h>

#define BATCH      1000 /* entries of a list at a time, as Python's own pickler does */
#define BATCH_FLAT 4096 /* bytes that are kept before they are written */

static void put(struct pickle *pickle, unsigned char byte)
{
    page_bytes_add(&pickle->bytes, &byte, 1);
    if (pickle->bytes.count < BATCH_FLAT)
        return;
    fwrite(pickle->bytes.bytes, 1, pickle->bytes.count, pickle->out);
    pickle->bytes.count = 0;
}

static void put_little(struct pickle *pickle, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put(pickle, (unsigned char)(number >> 8 * i));
}

void pickle_begin(struct pickle *pickle, FILE *out)
{
    memset(pickle, 0, sizeof(*pickle));
    pickle->out = out;
    put(pickle, 0x80); /* PROTO */
    put(pickle, 4);
}

bool pickle_end(struct pickle *pickle)
{
    put(pickle, '.'); /* STOP */
    const bool good = !pickle->bytes.failed;
    fwrite(pickle->bytes.bytes, 1, pickle->bytes.count, pickle->out);
    page_bytes_free(&pickle->bytes);
    return good;
}

void pickle_number(struct pickle *pickle, uint64_t number)
{
    if (number < 256) {
        put(pickle, 'K'); /* BININT1 */
        put_little(pickle, number, 1);
    } else if (number <= INT32_MAX) {
        put(pickle, 'J'); /* BININT */
        put_little(pickle, number, 4);
    } else {
        put(pickle, 0x8a); /* LONG1, signed */
        put(pickle, 8);
        put_little(pickle, number & INT64_MAX, 8);
    }
}

void pickle_true(struct pickle *pickle)
{
    put(pickle, 0x88); /* NEWTRUE */
}

void pickle_again(struct pickle *pickle, uint32_t memo)
{
    put(pickle, 'j'); /* LONG_BINGET */
    put_little(pickle, memo, 4);
}

uint32_t pickle_remember(struct pickle *pickle)
{
    put(pickle, 0x94); /* MEMOIZE */
    return pickle->memos++;
}

void pickle_text(struct pickle *pickle, const char *text)
{
    const size_t length = strlen(text);

    put(pickle, 'X'); /* BINUNICODE */
    put_little(pickle, length, 4);
    for (size_t i = 0; i < length; i++)
        put(pickle, (unsigned char)text[i]);
}

void pickle_key(struct pickle *pickle, const char *text)
{
    for (size_t i = 0; i < pickle->known_count; i++) {
        if (pickle->known[i].text == text) {
            pickle_again(pickle, pickle->known[i].memo);
            return;
        }
    }
    pickle_text(pickle, text);
    if (pickle->known_count == sizeof(pickle->known) / sizeof(*pickle->known))
        return;
    pickle->known[pickle->known_count].text = text;
    pickle->known[pickle->known_count++].memo = pickle_remember(pickle);
}

void pickle_begin_dict(struct pickle *pickle)
{
    put(pickle, '}'); /* EMPTY_DICT */
    put(pickle, '('); /* MARK */
}

void pickle_end_dict(struct pickle *pickle)
{
    put(pickle, 'u'); /* SETITEMS */
}

void pickle_begin_list(struct pickle *pickle)
{
    put(pickle, ']'); /* EMPTY_LIST */
    put(pickle, '('); /* MARK */
}

void pickle_end_list(struct pickle *pickle)
{
    put(pickle, 'e'); /* APPENDS */
}

void pickle_next(struct pickle *pickle, size_t *count)
{
    if (++*count % BATCH)
        return;
    put(pickle, 'e');
    put(pickle, '(');
}

void pickle_join(struct pickle *pickle)
{
    put(pickle, 0x86); /* TUPLE2 */
}

void pickle_pair(struct pickle *pickle, const char *key, uint64_t number)
{
    pickle_key(pickle, key);
    pickle_number(pickle, number);
}

void pickle_text_pair(struct pickle *pickle, const char *key, const char *text)
{
    pickle_key(pickle, key);
    pickle_text(pickle, text);
}
