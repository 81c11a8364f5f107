/* recording_print: see recording_print.h. */
#include "tools/gpucap/recording_print.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 80
#define LABEL 15 /* columns before the text */

void recording_print_holders(const char *label, const struct recording_holder *holders, int count)
{
    int column = printf("  %-*s", LABEL - 2, label);
    char size[RECORDING_TIME], item[128];

    for (int i = 0; i < count; i++) {
        const int length =
            snprintf(item, sizeof(item), "%.90s %s", holders[i].name, recording_size(holders[i].bytes, size));

        if (i && column + 3 + length > WIDTH) {
            printf("\n%*s", LABEL, "");
            column = LABEL;
        } else if (i) {
            column += printf(" | ");
        }
        column += printf("%s", item);
    }
    putchar('\n');
}

void recording_print_cut(char *sentence, int width)
{
    for (char *comma; (int)strlen(sentence) > width && (comma = strrchr(sentence, ','));)
        *comma = '\0';
    printf("%.*s\n", width, sentence);
}
