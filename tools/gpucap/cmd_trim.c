/* gpucap trim: makes processes give their idle memory back now. Owns no lock. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/look.h"
#include "tools/gpucap/steer.h"

int cmd_trim(const struct arguments *arguments)
{
    struct ledgers ledgers;
    int status;

    if (arguments->count != 1)
        return cli_fail("trim: usage: gpucap trim PID|JOB|all");
    if ((status = look_open(&ledgers, arguments)))
        return status;
    if (ledgers_choose(&ledgers, arguments->operands[0]))
        status = steer_trim(&ledgers, false, stdout);
    else
        status = look_absent("trim", &ledgers, arguments->operands[0]);
    ledgers_close(&ledgers);
    return status;
}
