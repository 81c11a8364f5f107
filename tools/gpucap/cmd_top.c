/* gpucap top: the table of `gpucap ps`, live. What needs ncurses is in a part of its own (top_keys.c). Owns
 * no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/parts.h"

#include <unistd.h>

int cmd_top(const struct arguments *arguments)
{
    struct ledgers ledgers;
    int status;

    const parts_show show = parts_load(PARTS_TOP, "top");
    if (!show)
        return CLI_FAILED;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return cli_fail("top: it needs a terminal; `gpucap ps` prints the same once");
    if ((status = look_open(&ledgers, arguments)))
        return status;
    status = show(&ledgers);
    ledgers_close(&ledgers);
    return status;
}
