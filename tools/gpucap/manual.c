/* manual: see manual.h. */
#include "tools/gpucap/manual.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

void manual_open(FILE *out, const char *program, const char *summary)
{
    fputs(".TH ", out);
    for (const char *c = program; *c; c++)
        fputc(toupper((unsigned char)*c), out);
    fprintf(out, " 1 \"\" \"gpucap " GPUCAP_VERSION "\" \"User Commands\"\n");
    manual_section(out, "NAME");
    fprintf(out, "%s \\- ", program);
    manual_text(out, summary);
    fputc('\n', out);
}

void manual_section(FILE *out, const char *title)
{
    fprintf(out, ".SH %s\n", title);
}

/* In man(7) a dash is \-, a backslash \e, and a dot or quote at the start of a line a request. */
void manual_text(FILE *out, const char *text)
{
    char before = '\n';

    for (; *text; before = *text++) {
        if (before == '\n' && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '`')
            fputs("\\(ga", out);
        else if (*text == '~')
            fputs("\\(ti", out);
        else
            fputc(*text, out);
    }
}

void manual_option(FILE *out, const char *name, const char *form)
{
    fputs(".TP\n\\fB\\-\\-", out);
    manual_text(out, name);
    if (form) {
        fputs("=\\fI", out);
        manual_text(out, form);
    }
    fputs("\\fR\n", out);
}

/* ---- --help ---- */

#define HELP_WIDTH 80

/* Writes words from the column on, and returns the column after them. */
static int wrap(FILE *out, int column, int indent, const char *text)
{
    for (; *text; text += strspn(text, " ")) {
        const int length = (int)strcspn(text, " \n");
        const bool is_full = column > indent && column + 1 + length > HELP_WIDTH;

        if (length && is_full) {
            fputc('\n', out);
            column = 0;
        }
        if (length)
            column += column <= indent ? fprintf(out, "%*s%.*s", indent - column, "", length, text)
                                       : fprintf(out, " %.*s", length, text);
        text += length;
        if (*text == '\n') {
            fputc('\n', out);
            column = 0;
            text++;
        }
    }
    return column;
}

void manual_wrapped(FILE *out, int column, int indent, const char *text)
{
    if (wrap(out, column, indent, text))
        fputc('\n', out);
}

void manual_help(FILE *out, const char *name, const char *form, int indent, const char *text,
                 const char *initial)
{
    int column = form ? fprintf(out, "  --%s=%s", name, form) : fprintf(out, "  --%s", name);

    if (column >= indent) {
        fputc('\n', out);
        column = 0;
    }
    column = wrap(out, column, indent, text);
    if (initial) {
        char shown[HELP_WIDTH];

        snprintf(shown, sizeof(shown), "[%s]", initial);
        wrap(out, column, indent, shown);
    }
    fputc('\n', out);
}
