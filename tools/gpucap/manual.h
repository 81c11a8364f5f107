/* manual: manual pages in man(7) form, and --help, written from the tables that also drive a program's
 * parser. Used by gpucap and by the programs of the harness. Owns no lock. */
#ifndef GPUCAP_MANUAL_H
#define GPUCAP_MANUAL_H

#include <stdio.h>

/* Writes the head of the page and its NAME section: "gpucap", "a cap". */
void manual_open(FILE *out, const char *program, const char *summary);

/* Begins the next section: "OPTIONS". */
void manual_section(FILE *out, const char *title);

/* Writes text with special characters escaped. The caller ends the line. */
void manual_text(FILE *out, const char *text);

/* Writes the tag of one option; `form` is its value, NULL for none. Write its description next, by
 * manual_text. */
void manual_option(FILE *out, const char *name, const char *form);

/* ---- for --help, in lines of at most 80 columns ---- */

/* Writes wrapped text. The caller has written the first `column` columns of its first line; later lines begin
 * with `indent` spaces. Ends the last line. A newline in the text ends a line too. */
void manual_wrapped(FILE *out, int column, int indent, const char *text);

/* Writes one option. Its description begins at column `indent`, on a line of its own if the option is too
 * long, and ends with the default in brackets; NULL: none. */
void manual_help(FILE *out, const char *name, const char *form, int indent, const char *text,
                 const char *initial);

#endif
