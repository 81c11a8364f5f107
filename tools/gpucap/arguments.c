/* arguments: see arguments.h. */
#include "tools/gpucap/arguments.h"

#include <stdio.h>
#include <string.h>

#define WORD_MAX 64

static int find_option(const struct cli_command *command, const char *name, size_t length)
{
    for (int i = 0; command->options && command->options[i].name; i++) {
        if (strlen(command->options[i].name) == length && !strncmp(command->options[i].name, name, length))
            return i;
    }
    return -1;
}

static int unknown_option(const struct cli_command *command, const char *name, size_t length)
{
    const char *names[ARGUMENTS_OPTIONS + 1];
    char word[WORD_MAX], where[WORD_MAX];
    size_t count = 0;

    for (; command->options && command->options[count].name; count++)
        names[count] = command->options[count].name;
    names[count++] = "help";
    snprintf(word, sizeof(word), "%.*s", (int)(length < sizeof(word) ? length : sizeof(word) - 1), name);
    snprintf(where, sizeof(where), "%s: ", command->name);
    return cli_unknown(where, "option", word, names, count);
}

/* Reads "--name", "--name=value" or "--name value"; sets *used to the number of words. */
static int parse_option(const struct cli_command *command, char **argv, struct arguments *arguments,
                        int *used)
{
    const char *name = argv[0] + 2;
    const size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    const int row = find_option(command, name, length);

    *used = 1;
    if (row < 0)
        return unknown_option(command, name, length);
    const struct cli_option *option = &command->options[row];
    if (value && !option->value)
        return cli_fail("%s: --%s takes no value", command->name, option->name);
    if (!value && option->value && !option->optional) {
        value = argv[1];
        *used = 2;
    }
    if (option->value && !option->optional && !(value && *value))
        return cli_fail("%s: --%s needs a value: --%s=%s", command->name, option->name, option->name,
                        option->value);
    arguments->values[row] = value ? value : "";
    return 0;
}

/* "-o FILE" where the command has --output. */
static int parse_output(const struct cli_command *command, char **argv, struct arguments *arguments,
                        int *used)
{
    const int row = find_option(command, "output", strlen("output"));

    if (row < 0 || argv[0][1] != 'o')
        return cli_fail("%s: unknown option '%s' (see 'gpucap help %s')", command->name, argv[0],
                        command->name);
    const char *file = argv[0][2] ? argv[0] + 2 : argv[1];
    *used = argv[0][2] ? 1 : 2;
    arguments->values[row] = file;
    return file && *file ? 0 : cli_fail("%s: -o needs a file", command->name);
}

int arguments_parse(const struct cli_command *command, int argc, char **argv, struct arguments *arguments)
{
    bool only_operands = command->settings;

    *arguments = (struct arguments){.command = command, .operands = argv + 1};
    for (int i = 1; i < argc;) {
        int used = 1, status = 0;

        if (only_operands || argv[i][0] != '-' || !argv[i][1])
            arguments->operands[arguments->count++] = argv[i];
        else if (!strcmp(argv[i], "--"))
            only_operands = true;
        else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            arguments->help = true;
        else if (argv[i][1] == '-')
            status = parse_option(command, argv + i, arguments, &used);
        else
            status = parse_output(command, argv + i, arguments, &used);
        if (status || arguments->help)
            return status;
        i += used;
    }
    arguments->operands[arguments->count] = NULL;
    if (command->operands == CLI_NOTHING && arguments->count)
        return cli_fail("%s: unexpected argument '%s'", command->name, arguments->operands[0]);
    return 0;
}

const char *arguments_value(const struct arguments *arguments, const char *option)
{
    const int row = find_option(arguments->command, option, strlen(option));

    return row < 0 ? NULL : arguments->values[row];
}
