/* lines: see lines.h. */
#include "tools/gpucap/lines.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Returns the columns of text in UTF-8: its characters. */
static int columns_of(const char *text, int length)
{
    int columns = 0;

    for (int i = 0; i < length; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

void lines_text(int column, int indent, const char *text)
{
    for (bool first = true; *text; first = false) {
        const int length = (int)strcspn(text, " "), columns = columns_of(text, length);

        if (!first && column + 1 + columns > LINES_WIDTH)
            column = printf("\n%*s", indent, "") - 1;
        else if (!first)
            column += printf(" ");
        printf("%.*s", length, text);
        column += columns;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

int lines_item(int column, const char *item)
{
    const int columns = columns_of(item, (int)strlen(item));

    if (column > LINES_LABEL && column + 3 + columns > LINES_WIDTH)
        column = printf("\n%*s", LINES_LABEL, "") - 1;
    else if (column > LINES_LABEL)
        column += printf(" | ");
    printf("%s", item);
    return column + columns;
}
