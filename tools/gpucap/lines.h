/* lines: text and lists on stdout, in lines of at most 80 columns. Owns no lock. */
#ifndef GPUCAP_LINES_H
#define GPUCAP_LINES_H

#define LINES_WIDTH 80
#define LINES_LABEL 15 /* columns of "  label        ", which begins a line of output */

/* Prints text that begins at `column` of the current line, wraps it to lines that begin at `indent`, and ends
 * the last line. */
void lines_text(int column, int indent, const char *text);

/* Prints one more item of "  label        first | second". `column` is the current column, LINES_LABEL before
 * the first item. Returns the column after it. */
int lines_item(int column, const char *item);

#endif
