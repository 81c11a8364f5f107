/* recording_print: see recording_print.h. */
#include "tools/gpucap/recording_print.h"
#include "tools/gpucap/lines.h"
#include "tools/gpucap/words.h"

#include <stdio.h>
#include <string.h>

#define NAME 50

void recording_print_holders(const char *label, const struct recording_holder *holders, int count)
{
    int column = printf("  %-*s", LINES_LABEL - 2, label);
    char size[RECORDING_TIME], name[WORDS_CUT], item[WORDS_CUT + RECORDING_TIME];

    if (!count)
        fputs("nothing", stdout);
    for (int i = 0; i < count; i++) {
        snprintf(item, sizeof(item), "%s %s", words_cut(holders[i].name, NAME, name),
                 recording_size(holders[i].bytes, size));
        column = lines_item(column, item);
    }
    putchar('\n');
}

void recording_print_cut(char *sentence, int width)
{
    char text[WORDS_CUT];

    for (char *comma; (int)strlen(sentence) > width && (comma = strrchr(sentence, ','));)
        *comma = '\0';
    puts((int)strlen(sentence) > width ? words_cut(sentence, width, text) : sentence);
}
