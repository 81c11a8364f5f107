/* gpucap: the command line. Finds the command in the table and runs it; nothing else happens here. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

const struct cli_command cli_commands[] = {
    {"run", "[--OPTION=VALUE...] [--sim[=SPEC]] [--] PROGRAM [ARGUMENT...]",
     "Run a program under a memory cap.", cmd_run},
    {"doctor", "[--sim[=SPEC]]", "Say what was found here, and what would not work.", cmd_doctor},
    {"help", "", "Show the commands and options.", cmd_help},
    {"man", "", "Print the manual page, in man(7) format.", cmd_man},
    {"version", "", "Print the version.", cmd_version},
    {NULL, NULL, NULL, NULL},
};

/* The forms that people try first. */
static const char *plain_name(const char *word)
{
    if (!strcmp(word, "--version") || !strcmp(word, "-V"))
        return "version";
    if (!strcmp(word, "--help") || !strcmp(word, "-h"))
        return "help";
    return word;
}

int main(int argc, char **argv)
{
    const char *names[sizeof(cli_commands) / sizeof(cli_commands[0])];
    size_t count = 0;
    if (argc < 2)
        return cli_fail("a command is missing; try 'gpucap help'");
    const char *wanted = plain_name(argv[1]);
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        if (!strcmp(command->name, wanted)) {
            int status = command->run(argc - 1, argv + 1);
            if (fflush(stdout) != 0 || ferror(stdout))
                return cli_fail("%s: cannot write to stdout", command->name);
            return status;
        }
        names[count++] = command->name;
    }
    return cli_unknown("", "command", argv[1], names, count);
}
