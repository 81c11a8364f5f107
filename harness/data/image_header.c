/* Walks the markers of a JPEG file. Never reads beyond the bytes it got. */
#include "harness/data/image_header.h"

#include <string.h>

enum {
    MARK = 0xff,
    SOI = 0xd8,
    EOI = 0xd9,
    SOF_BASELINE = 0xc0,
    SOF_LAST = 0xcf,
    DHT = 0xc4, /* this and JPG lie between the frame headers, but are none */
    JPG = 0xc8,
    RESTART = 0xd0,
    RESTARTS = 8,
    SOS = 0xda,
    APP14 = 0xee,
    GREY = 1,
    COLOURS = 3,
    BITS = 8
};

/* What has been seen so far. */
struct walk {
    const uint8_t *at, *end;
    struct image_header size; /* h of 0: no frame header yet */
    int components;
    bool rgb_names;  /* the components are called R, G, B */
    bool adobe;      /* Adobe's marker is there */
    uint8_t colours; /* its colour transform */
};

static unsigned word(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

/* The length of the segment that begins here, which counts its own two bytes; 0: it does not fit. */
static size_t segment(const struct walk *walk)
{
    size_t left = (size_t)(walk->end - walk->at);
    size_t length = left >= 2 ? word(walk->at) : 0;

    return length >= 2 && length <= left ? length : 0;
}

/* Chroma has one sample for each block of up to 2 x 2 of luma. */
static bool sampling_is_plain(const uint8_t *component, int count)
{
    for (int i = 0; i < count; i++) {
        unsigned across = component[3 * i + 1] >> 4, down = component[3 * i + 1] & 15;

        if (across < 1 || down < 1 || across > 2 || down > 2)
            return false;
        if ((i > 0 || count == GREY) && (across != 1 || down != 1))
            return false;
    }
    return true;
}

/* Reads a frame header: length, bits, height, width, components with name, sampling, table. */
static bool read_frame(struct walk *walk, size_t length)
{
    const uint8_t *at = walk->at;

    if (walk->size.h || length < 8 || at[2] != BITS)
        return false;
    walk->size = (struct image_header){word(at + 3), word(at + 5)};
    walk->components = at[7];
    if ((walk->components != GREY && walk->components != COLOURS) ||
        length != 8 + 3 * (size_t)walk->components)
        return false;
    walk->rgb_names = walk->components == COLOURS && at[8] == 'R' && at[11] == 'G' && at[14] == 'B';
    return walk->size.h && walk->size.w && sampling_is_plain(at + 8, walk->components);
}

static void read_adobe(struct walk *walk, size_t length)
{
    if (length >= 14 && !memcmp(walk->at + 2, "Adobe", 5)) {
        walk->adobe = true;
        walk->colours = walk->at[13];
    }
}

/* A scan header with all components: the only scan. */
static bool scan_is_only(const struct walk *walk, size_t length)
{
    bool converts = !walk->adobe ? !walk->rgb_names : walk->colours == 1;

    return walk->size.h && length == 6 + 2 * (size_t)walk->components && walk->at[2] == walk->components &&
           (walk->components == GREY || converts);
}

/* Walks over the coded data: the end must come, and before it only restarts, in turn. */
static bool data_is_whole(const uint8_t *at, const uint8_t *end)
{
    unsigned restart = 0;

    while (at < end && (at = memchr(at, MARK, (size_t)(end - at))) && end - at >= 2) {
        unsigned marker = at[1];

        if (marker == EOI)
            return true;
        if (marker == RESTART + restart)
            restart = (restart + 1) % RESTARTS;
        else if (marker != 0)
            return false;
        at += 2;
    }
    return false;
}

bool image_header_read(const uint8_t *file, size_t bytes, struct image_header *out)
{
    struct walk walk = {.at = file + 2, .end = file + bytes};

    if (bytes < 4 || file[0] != MARK || file[1] != SOI)
        return false;
    while (walk.end - walk.at >= 2 && walk.at[0] == MARK) {
        unsigned marker = walk.at[1];
        size_t length;

        walk.at += marker == MARK ? 1 : 2; /* a marker may have several MARKs before it */
        if (marker == MARK)
            continue;
        length = segment(&walk);
        if (!length)
            return false;
        if (marker == SOS) {
            *out = walk.size;
            return scan_is_only(&walk, length) && data_is_whole(walk.at + length, walk.end);
        }
        if (marker >= SOF_BASELINE && marker <= SOF_LAST && marker != DHT && marker != JPG &&
            (marker != SOF_BASELINE || !read_frame(&walk, length)))
            return false;
        if (marker == APP14)
            read_adobe(&walk, length);
        walk.at += length;
    }
    return false;
}
