/* lines: see lines.h. */
#include "tools/gpucap/lines.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void lines_text(int column, int indent, const char *text)
{
    for (bool first = true; *text; first = false) {
        const int length = (int)strcspn(text, " ");

        if (!first && column + 1 + length > LINES_WIDTH)
            column = printf("\n%*s", indent, "") - 1;
        else if (!first)
            column += printf(" ");
        column += printf("%.*s", length, text);
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

int lines_item(int column, const char *item)
{
    if (column > LINES_LABEL && column + 3 + (int)strlen(item) > LINES_WIDTH)
        column = printf("\n%*s", LINES_LABEL, "") - 1;
    else if (column > LINES_LABEL)
        column += printf(" | ");
    return column + printf("%s", item);
}
