/* The reader of saved scenario results: any text is read or refused, and what was read can be shown. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "harness/scenario/scenario_results.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 2 };
    static struct scenario_result results[MOST];
    struct docs_origin origin;
    unsigned count, line;
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (results_parse(text, &origin, results, MOST, &count, &line) == 0) {
        for (unsigned i = 0; i < count; i++)
            results[i].title = results[i].subject = results[i].question = "";
        free(docs_summary(&origin, results, count));
    }
    free(text);
    return 0;
}
