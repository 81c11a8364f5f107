/* recording_columns: divides a timeline into columns of equal time and computes the live bytes of each group
 * at the highest moment of each column, for pictures in the terminal and as SVG. Peaks stay visible, however
 * few columns there are. Owns no lock. */
#ifndef GPUCAP_RECORDING_COLUMNS_H
#define GPUCAP_RECORDING_COLUMNS_H

#include "tools/gpucap/timeline.h"

#define COLUMNS_NAMED  6 /* groups by owner, tag or kind that have a place of their own */
#define COLUMNS_GROUPS (COLUMNS_NAMED + 3)

struct columns_column {
    uint64_t bytes[COLUMNS_GROUPS]; /* at the moment when most bytes were live */
    uint64_t used;                  /* the most in use in the column */
    uint64_t limit;                 /* TIMELINE_NO: none */
    uint32_t refusals, waits;
};

struct columns {
    struct columns_column *columns;
    int width;
    const char *names[COLUMNS_GROUPS]; /* from the bottom up: "CUDA context", groups, "others", "not named" */
    uint64_t most[COLUMNS_GROUPS];     /* largest value of each; 0: it does not appear */
    uint64_t peak;                     /* the most in use */
};

/* Returns false without memory. */
bool columns_open(struct columns *columns, const struct timeline *timeline, enum timeline_by by, int width);
void columns_close(struct columns *columns);

#endif
