/* fleet_show: progress on stderr. On a terminal, one line per member, redrawn in place; elsewhere a line
 * when a member starts or ends, and an overview from time to time. Never writes to stdout, which is for the
 * report. Owns no lock. */
#ifndef HARNESS_FLEET_SHOW_H
#define HARNESS_FLEET_SHOW_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/fleet/fleet_member.h"

struct fleet_show {
    bool terminal, quiet;
    unsigned drawn;                /* lines drawn last time */
    const struct fleet_member *of; /* the members they show */
    unsigned char said_end[256];   /* not a terminal: enum fleet_end last printed, by member */
    uint64_t said_ns;              /* not a terminal: time of the last overview */
};

void fleet_show_open(struct fleet_show *show, bool quiet);

/* The `show` function of struct fleet_watch; `arg` is the struct fleet_show. */
void fleet_show_all(const struct fleet_member *members, size_t count, void *arg);

/* Ends the display and leaves the last lines in place. */
void fleet_show_end(struct fleet_show *show);

/* Writes one member's line, without a newline and at most `width` bytes. Pure. */
void fleet_show_line(const struct fleet_member *member, size_t number, char *line, size_t width);

/* Writes a size: "1.2 GiB", "12.3 MiB", "-" for 0. */
void fleet_show_bytes(uint64_t bytes, char *text, size_t size);

#endif
