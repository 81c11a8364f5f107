/* lines: text and lists on stdout, in lines of at most 80 columns. Owns no lock. */
#ifndef GPUCAP_LINES_H
#define GPUCAP_LINES_H

#define LINES_WIDTH 80
#define LINES_LABEL 15 /* columns of "  label        ", which stands before what a command says */

/* Prints text, and ends the line. It begins where the line is, at `column`, and goes on in further lines from
 * `indent` on. */
void lines_text(int column, int indent, const char *text);

/* Prints one more item of "  label        first | second". `column` is where the line is: LINES_LABEL before
 * the first. Returns where it is then. */
int lines_item(int column, const char *item);

#endif
