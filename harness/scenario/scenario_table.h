/* scenario_table: a table of texts, printed aligned for a terminal or as Markdown. Bounded, does not
 * allocate, truncates long texts. Pure except for the output. Owns no lock. */
#ifndef HARNESS_SCENARIO_TABLE_H
#define HARNESS_SCENARIO_TABLE_H

#include <stdio.h>

enum { TABLE_COLUMNS = 8, TABLE_ROWS = 24, TABLE_CELL = 120 };

struct table {
    unsigned columns, rows;
    char head[TABLE_COLUMNS][TABLE_CELL];
    char cell[TABLE_ROWS][TABLE_COLUMNS][TABLE_CELL];
};

/* Empties the table. `heads`: names of the columns, separated by '|'. */
void table_begin(struct table *table, const char *heads);

/* Adds a row and sets its first cell. Rows beyond TABLE_ROWS are dropped. */
void table_row(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets a cell of the last row. */
void table_set(struct table *table, unsigned column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes a dash into every empty cell of the last row. */
void table_fill(struct table *table);

void table_print(const struct table *table, FILE *out);
void table_print_markdown(const struct table *table, FILE *out);

#endif
