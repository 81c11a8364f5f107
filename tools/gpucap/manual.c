/* manual: see manual.h. */
#include "tools/gpucap/manual.h"

#include <ctype.h>

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
