/* gpucap record: starts and stops the recording of a running process. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/ask.h"
#include "tools/gpucap/cli.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/words.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STANDARD_FILE "gpucap-%p.gpucap"

/* The request to start: the file's name from the root, because the process has a folder of its own. */
static int request_start(const struct arguments *arguments, char request[INQUIRY_QUESTION])
{
    const char *given = arguments_value(arguments, "to");
    const char *file = given ? given : STANDARD_FILE;
    const char *stacks = arguments_value(arguments, "stacks") ? "on" : "off";
    struct options scratch;
    char folder[PATH_MAX] = "", error[OPTIONS_ERROR_MAX];

    options_init(&scratch);
    if (!strcmp(file, "off"))
        return cli_fail("record: 'off' is not a file");
    if (options_set(&scratch, OPTIONS_RECORD, file, OPTIONS_DEFAULT, error))
        return cli_fail("record: --to%s", error + strcspn(error, "=")); /* it begins with --record= */
    if (file[0] != '/' && (!getcwd(folder, sizeof(folder)) || strchr(folder, '%')))
        return cli_fail("record: give the file's path from the root");
    if (snprintf(request, INQUIRY_QUESTION, "start %s %s%s%s", stacks, folder, *folder ? "/" : "", file) >=
        INQUIRY_QUESTION)
        return cli_fail("record: the path is too long");
    return 0;
}

int cmd_record(const struct arguments *arguments)
{
    static char answer[INQUIRY_ANSWER];
    char request[INQUIRY_QUESTION] = "stop";
    struct ledgers ledgers;
    const bool start = arguments->count == 2 && !strcmp(arguments->operands[0], "start");
    int status;

    if (!start && (arguments->count != 2 || strcmp(arguments->operands[0], "stop") != 0))
        return cli_fail("record: usage: gpucap record start|stop PID [--to=FILE] [--stacks]");
    if (start && (status = request_start(arguments, request)))
        return status;
    if ((status = look_open(&ledgers, arguments)))
        return status;
    status = ask_process(&ledgers, "record", arguments->operands[1], request, answer);
    if (status == 0) {
        answer[strlen(answer) - (*answer != '\0')] = '\0'; /* the newline */
        words_clean(answer);
        printf("process %s: %s\n", arguments->operands[1], answer);
    }
    ledgers_close(&ledgers);
    return status;
}
