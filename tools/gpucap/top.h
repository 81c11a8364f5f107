/* top: the parts of `gpucap top`: rows and their order, the last minute of each process, and the screen. Does
 * not access the ledger; cmd_top.c does. Owns no lock. */
#ifndef GPUCAP_TOP_H
#define GPUCAP_TOP_H

#include "tools/gpucap/ledgers.h"

#include <stdbool.h>
#include <stdint.h>

#define TOP_SAMPLES 60 /* one a second */
#define TOP_STATUS  160

enum top_order { TOP_BY_USED, TOP_BY_IDLE, TOP_BY_PEAK, TOP_BY_PID, TOP_BY_JOB, TOP_ORDERS };

/* A line of the table: a process on a card, or a job on a card. */
struct top_row {
    const struct ledgers_card *card;
    const struct ledgers_process *process; /* the first process, of a job */
    int members;
    uint64_t used, idle, peak, limit;
    uint64_t past[TOP_SAMPLES]; /* `used`, the newest last */
};

struct top_history; /* the last minute of every process */

struct top {
    struct ledgers *ledgers;
    struct top_history *history;
    struct top_row *rows;
    int count, selected, first; /* rows; `first` is the first one on the screen */
    char uuid[LEDGER_UUID];     /* of the selected row: rows move */
    struct ledger_entry entry;
    enum top_order order;
    bool by_job, help, colour, blocks; /* blocks: the terminal has the letters of a sparkline */
    char status[TOP_STATUS];           /* result of the last key; "": none */
    char prompt[TOP_STATUS];           /* a question to the user; "": none */
};

/* Notes the present use of each process, and removes ended ones. Returns false without memory. */
bool top_history_add(struct top_history **history, const struct ledgers *ledgers);
void top_history_free(struct top_history *history);

/* Rebuilds the rows and keeps the selection on the same process or job. Returns false without memory. */
bool top_rows(struct top *top);
/* Returns how many processes, or jobs, the rows are: one on several cards has several rows. */
int top_things(const struct top *top);
/* Selects a row, or the nearest existing one. */
void top_select(struct top *top, int row);
const char *top_order_name(enum top_order order);

/* Draws everything on the terminal's screen. */
void top_draw(struct top *top);
/* Defines the colours, if the terminal has any. */
void top_draw_init(struct top *top);

#endif
