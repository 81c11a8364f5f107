/* text: help, manual page and version, all from the tables of commands and options, so that none of them can
 * say what the parser does not do. Writes to stdout only.
 */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/manual.h"
#include "tools/gpucap/place.h"

#include <stdio.h>
#include <string.h>

#define NAME_COLUMN  10 /* width of the first column of --help */
#define FORM_MAX     64
#define COMMANDS_MAX 32

int cmd_version(const struct arguments *arguments)
{
    (void)arguments;
    puts("gpucap " GPUCAP_VERSION);
    return 0;
}

static void help_settings(void)
{
    char form[FORM_MAX + OPTIONS_VALUE_MAX];

    for (int id = 0; id < OPTIONS_COUNT; id++) {
        const struct options_entry *option = &options_table[id];

        printf("  --%s=VALUE (%s, default: %s)\n", option->name, option->variable, option->standard);
        manual_wrapped(stdout, 0, NAME_COLUMN + 2, option->help);
        snprintf(form, sizeof(form), "VALUE: %s", option->form);
        manual_wrapped(stdout, 0, NAME_COLUMN + 2, form);
    }
}

/* "--sim[=SPEC]", "--max=SIZE" or "--json". */
static const char *option_form(const struct cli_option *option, char form[FORM_MAX])
{
    snprintf(form, FORM_MAX, "--%s%s%s%s", option->name,
             option->optional ? "[="
             : option->value  ? "="
                              : "",
             option->value ? option->value : "", option->optional ? "]" : "");
    return form;
}

static void help_options(const struct cli_option *options)
{
    char form[FORM_MAX];

    for (; options && options->name; options++) {
        printf("  %s\n", option_form(options, form));
        manual_wrapped(stdout, 0, NAME_COLUMN + 2, options->help);
    }
}

static const struct cli_option *run_options(void)
{
    const struct cli_command *command = cli_commands;

    while (command->run != cmd_run)
        command++;
    return command->options;
}

/* Prints the options of run: the library's, which variables and files can set too, and its own. */
static void help_run(const struct cli_command *command)
{
    puts("\noptions, also as variables and as 'name = value' lines in configuration files:");
    help_settings();
    puts("\noptions on the command line alone:");
    help_options(command->options);
    putchar('\n');
    manual_wrapped(stdout, 0, 0,
                   "A value comes from the command line, else the variable, else ~/" OPTIONS_USER_FILE
                   ", else " OPTIONS_ADMIN_FILE
                   ". max in the last file is a ceiling for everyone; below a line "
                   "[user NAME] or [group NAME] it is the ceiling for these people.");
}

int cli_help(const char *name)
{
    const char *names[COMMANDS_MAX];
    size_t count = 0;

    for (const struct cli_command *command = cli_commands; command->name; command++) {
        names[count++] = command->name;
        if (strcmp(command->name, name) != 0)
            continue;
        printf("usage: gpucap %s%s%s\n\n", name, *command->arguments ? " " : "", command->arguments);
        manual_wrapped(stdout, 0, 0, command->summary);
        if (command->details) {
            putchar('\n');
            manual_wrapped(stdout, 0, 0, command->details);
        }
        if (command->settings)
            help_run(command);
        else if (command->options)
            puts("\noptions:");
        if (!command->settings)
            help_options(command->options);
        return 0;
    }
    return cli_unknown("help: ", "command", name, names, count);
}

int cmd_help(const struct arguments *arguments)
{
    if (arguments->count > 1)
        return cli_fail("help: unexpected argument '%s'", arguments->operands[1]);
    if (arguments->count)
        return cli_help(arguments->operands[0]);
    puts("gpucap: a hard GPU memory cap for unmodified CUDA programs\n\n"
         "  gpucap run --max=8G -- python3 train.py\n\ncommands:");
    for (const struct cli_command *command = cli_commands; command->name; command++)
        printf("  %-*s  %s\n", NAME_COLUMN, command->name, command->summary);
    puts("\n'gpucap help COMMAND' explains one of them; 'gpucap help run' lists all\n"
         "settings, and 'gpucap man | man -l -' shows the manual page.");
    return 0;
}

static void man_own_options(const struct cli_option *options)
{
    char form[FORM_MAX];

    for (; options->name; options++) {
        fputs(".TP\n\\fB", stdout);
        manual_text(stdout, option_form(options, form));
        fputs("\\fR\n", stdout);
        manual_text(stdout, options->help);
        putchar('\n');
    }
}

static void man_commands(void)
{
    manual_section(stdout, "COMMANDS");
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        fputs(".TP\n.B gpucap ", stdout);
        manual_text(stdout, command->name);
        if (*command->arguments) {
            fputs("\\fR ", stdout);
            manual_text(stdout, command->arguments);
        }
        putchar('\n');
        manual_text(stdout, command->summary);
        putchar('\n');
        if (command->details) {
            manual_text(stdout, command->details);
            putchar('\n');
        }
        if (!command->settings && command->options) {
            puts(".RS");
            man_own_options(command->options);
            puts(".RE");
        }
    }
}

static void man_options(void)
{
    puts(".SH OPTIONS\nEach option of \\fBrun\\fR is also an environment variable and a line in a "
         "configuration\nfile, except those that name no variable.");
    for (int id = 0; id < OPTIONS_COUNT; id++) {
        const struct options_entry *option = &options_table[id];
        manual_option(stdout, option->name, "VALUE");
        manual_text(stdout, option->help);
        fputs(" The value is ", stdout);
        manual_text(stdout, option->form);
        printf(". Default: %s. Variable: %s.\n", option->standard, option->variable);
    }
    man_own_options(run_options());
}

static void man_examples(void)
{
    static const char *const examples[][2] = {
        {"gpucap run --max=8G -- python3 train.py",
         "The program and all processes that it starts share 8 GiB."},
        {"gpucap run --group=night --max=20G --wait=60s -- ./train a",
         "Several such runs share 20 GiB; their requests wait for each other's memory."},
        {"gpucap run --record=run-%p.gpucap -- ./train; gpucap why run-*.gpucap",
         "Explains after a run why it ran out of memory."},
        {"gpucap run --sim=1x16G --max=4G -- ./program", "Runs the program on a simulated card of 16 GiB."},
    };

    manual_section(stdout, "EXAMPLES");
    for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++) {
        fputs(".TP\n.B ", stdout);
        manual_text(stdout, examples[i][0]);
        putchar('\n');
        manual_text(stdout, examples[i][1]);
        putchar('\n');
    }
}

int cmd_man(const struct arguments *arguments)
{
    (void)arguments;
    manual_open(stdout, "gpucap", "a hard GPU memory cap for unmodified CUDA programs");
    manual_section(stdout, "SYNOPSIS");
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        fputs(command == cli_commands ? ".B gpucap " : ".br\n.B gpucap ", stdout);
        manual_text(stdout, command->name);
        fputs("\\fR ", stdout);
        manual_text(stdout, command->arguments);
        putchar('\n');
    }
    puts(".SH DESCRIPTION\n\\fBgpucap run\\fR starts a program with " PLACE_LIBRARY_NAME
         " preloaded. The library counts the device memory of the program\nand refuses requests that "
         "would exceed the cap with CUDA_ERROR_OUT_OF_MEMORY. The program sees a card of the cap's size.");
    man_commands();
    man_options();
    printf(".SH FILES\n.TP\n.I ~/%s\nOptions of this user, as \\fIname\\fR = \\fIvalue\\fR lines; # begins a "
           "comment.\n.TP\n.I %s\nOptions of the administrator: \\fBmax\\fR here is a ceiling that no user "
           "can exceed. "
           "Name cards by UUID here, because\nusers can change their numbers. Below a line [user NAME] or "
           "[group NAME], \\fBmax\\fR replaces the general one for\nthese people.\n",
           OPTIONS_USER_FILE, OPTIONS_ADMIN_FILE);
    printf(
        ".SH ENVIRONMENT\nThe variables named under OPTIONS, and \\fB%s\\fR: the library to preload, instead "
        "of the one\nbeside the executable or in ../lib.\n",
        PLACE_LIBRARY_ENV);
    printf(".SH EXIT STATUS\nThe exit status of the program. %d: gpucap itself failed. %d: the program "
           "cannot be executed. %d: it was not\nfound. \\fBdoctor\\fR: 0 healthy, 1 it found a problem or "
           "printed a warning. \\fBps\\fR, \\fBset\\fR, \\fBtrim\\fR, \\fBrecord\\fR and "
           "\\fBwhy\\fR: 0 done,\n1 the process or job does not exist, or something could not be read or "
           "changed. \\fBsummary\\fR, \\fBview\\fR, \\fBpage\\fR and\n\\fBexport\\fR: 0 done, 1 a recording "
           "could not be read and was left out. \\fBreplay\\fR: 0 all fitted, 1 a request was refused.\n",
           CLI_FAILED, CLI_CANNOT_EXECUTE, CLI_NOT_FOUND);
    man_examples();
    return 0;
}
