/* manual: manual pages in man(7) form, written from the tables that also drive a program's parser and its
 * --help. Used by gpucap and by the programs of the harness. Owns no lock. */
#ifndef GPUCAP_MANUAL_H
#define GPUCAP_MANUAL_H

#include <stdio.h>

/* The head of the page, and its NAME: "gpucap", "a cap". */
void manual_open(FILE *out, const char *program, const char *summary);

/* The next section: "OPTIONS". */
void manual_section(FILE *out, const char *title);

/* Text as it is, whatever is in it; the caller ends the line. */
void manual_text(FILE *out, const char *text);

/* The tag of one option; form is its value, NULL for none. What manual_text writes after it is what it does.
 */
void manual_option(FILE *out, const char *name, const char *form);

#endif
