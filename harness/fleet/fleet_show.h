/* fleet_show: the progress of a fleet on stderr: a line for each member, drawn over on a terminal; elsewhere
 * plain lines when a member starts or ends, and now and then between.
 *
 * Never writes to stdout, which belongs to the report. Owns no lock. */
#ifndef HARNESS_FLEET_SHOW_H
#define HARNESS_FLEET_SHOW_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/fleet/fleet_member.h"

struct fleet_show {
    bool terminal, quiet;
    unsigned drawn;                /* lines of the last picture */
    const struct fleet_member *of; /* whose they are */
    unsigned char said_end[256];   /* plain: enum fleet_end that was last told, by member */
    uint64_t said_ns;              /* plain: when the last overview was given */
};

void fleet_show_open(struct fleet_show *show, bool quiet);
/* For struct fleet_watch: arg is the struct fleet_show. */
void fleet_show_all(const struct fleet_member *members, size_t count, void *arg);
/* Leaves the last picture where it is. */
void fleet_show_end(struct fleet_show *show);

/* One member's line without its end, at most `width` bytes; pure. */
void fleet_show_line(const struct fleet_member *member, size_t number, char *line, size_t width);
/* "1.2 GiB", "12.3 MiB", "-" for 0. */
void fleet_show_bytes(uint64_t bytes, char *text, size_t size);

#endif
