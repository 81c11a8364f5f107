/* scenario_table: a table of texts, aligned or as Markdown. See scenario_table.h. */
#include "harness/scenario/scenario_table.h"

#include <stdarg.h>
#include <string.h>

void table_begin(struct table *table, const char *heads)
{
    memset(table, 0, sizeof(*table));
    while (*heads && table->columns < TABLE_COLUMNS) {
        const size_t length = strcspn(heads, "|");

        snprintf(table->head[table->columns++], TABLE_CELL, "%.*s", (int)length, heads);
        heads += length + (heads[length] == '|');
    }
}

void table_row(struct table *table, const char *format, ...)
{
    va_list arguments;

    if (table->rows == TABLE_ROWS)
        return;
    va_start(arguments, format);
    vsnprintf(table->cell[table->rows++][0], TABLE_CELL, format, arguments);
    va_end(arguments);
}

void table_set(struct table *table, unsigned column, const char *format, ...)
{
    va_list arguments;

    if (table->rows == 0 || column >= table->columns)
        return;
    va_start(arguments, format);
    vsnprintf(table->cell[table->rows - 1][column], TABLE_CELL, format, arguments);
    va_end(arguments);
}

void table_fill(struct table *table)
{
    for (unsigned i = 0; table->rows && i < table->columns; i++) {
        if (!table->cell[table->rows - 1][i][0])
            table_set(table, i, "-");
    }
}

static void print_line(const struct table *table, const char (*cells)[TABLE_CELL], const size_t *width,
                       FILE *out)
{
    for (unsigned i = 0; i < table->columns; i++)
        fprintf(out, "%s%-*s", i ? "  " : "", i + 1 < table->columns ? (int)width[i] : 0, cells[i]);
    fputc('\n', out);
}

void table_print(const struct table *table, FILE *out)
{
    size_t width[TABLE_COLUMNS] = {0};

    for (unsigned i = 0; i < table->columns; i++) {
        width[i] = strlen(table->head[i]);
        for (unsigned row = 0; row < table->rows; row++) {
            const size_t length = strlen(table->cell[row][i]);

            width[i] = length > width[i] ? length : width[i];
        }
    }
    print_line(table, table->head, width, out);
    for (unsigned row = 0; row < table->rows; row++)
        print_line(table, table->cell[row], width, out);
}

/* A '|' would end the cell. */
static void print_escaped(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void print_markdown_line(const struct table *table, const char (*cells)[TABLE_CELL], FILE *out)
{
    for (unsigned i = 0; i < table->columns; i++) {
        fputs("| ", out);
        print_escaped(cells[i], out);
        fputc(' ', out);
    }
    fputs("|\n", out);
}

void table_print_markdown(const struct table *table, FILE *out)
{
    print_markdown_line(table, table->head, out);
    for (unsigned i = 0; i < table->columns; i++)
        fputs("|---", out);
    fputs("|\n", out);
    for (unsigned row = 0; row < table->rows; row++)
        print_markdown_line(table, table->cell[row], out);
}
