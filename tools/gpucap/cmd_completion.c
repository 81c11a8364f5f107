/* gpucap completion: scripts by which bash and zsh complete gpucap's words, written from the tables of
 * commands and options. The scripts ask `gpucap completion processes` for the processes and jobs of the
 * moment. Owns no lock. */
#include "tools/gpucap/cli.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/look.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- the words of the moment ---- */

/* Returns false for a name with special characters, which bash would expand: it is left out. */
static bool is_plain(const char *name)
{
    for (const char *c = name; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("_.-", *c))
            return false;
    }
    return *name && *name != '-';
}

static int print_processes(void)
{
    struct ledgers ledgers;
    char folder[LEDGER_PATH];

    if (look_folder("completion", NULL, folder) || ledgers_open(&ledgers, "completion", folder, NULL))
        return CLI_FAILED;
    ledgers_read(&ledgers);
    for (int i = 0; i < ledgers.count; i++) {
        for (int j = 0; j < ledgers.cards[i].count; j++) {
            printf("%d\n", (int)ledgers.cards[i].processes[j].entry.pid);
            if (is_plain(ledgers.cards[i].processes[j].entry.job))
                puts(ledgers.cards[i].processes[j].entry.job);
        }
    }
    ledgers_close(&ledgers);
    return 0;
}

/* ---- bash ---- */

static void bash_options(const struct cli_command *command)
{
    for (int id = 0; command->settings && id < OPTIONS_COUNT; id++)
        printf("--%s= ", options_table[id].name);
    for (const struct cli_option *option = command->options; option && option->name; option++)
        printf("--%s%s ", option->name, option->value && !option->optional ? "=" : "");
    fputs("--help", stdout);
}

static void bash_operands(const struct cli_command *command)
{
    switch (command->operands) {
    case CLI_PROGRAM:
        puts("        [[ $word == -* ]] || { compopt -o filenames 2>/dev/null; "
             "COMPREPLY=($(compgen -c -- \"$word\") $(compgen -f -- \"$word\")); return; }");
        break;
    case CLI_PROCESS:
        puts("        words=\"$words all $(gpucap completion processes 2>/dev/null)\"");
        break;
    case CLI_JOB:
        puts("        words=\"$words $(gpucap completion processes 2>/dev/null)\"");
        break;
    case CLI_REFUSED:
        puts("        [[ $word == -* ]] || { compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "
             "\"$word\") "
             "$(compgen -W \"all $(gpucap completion processes 2>/dev/null)\" -- \"$word\")); return; }");
        break;
    case CLI_RECORDED:
        puts("        words=\"$words $(gpucap completion processes 2>/dev/null)\"\n"
             "        ((COMP_CWORD > 2)) || words='start stop'");
        break;
    case CLI_COMMAND:
        puts("        words=$commands");
        break;
    case CLI_SHELL:
        puts("        words='bash zsh'");
        break;
    case CLI_FILE:
        puts("        [[ $word == -* ]] || { compopt -o filenames 2>/dev/null; "
             "COMPREPLY=($(compgen -f -- \"$word\")); return; }");
        break;
    case CLI_NOTHING:
        break;
    }
}

static void print_bash(void)
{
    puts("# bash completion of gpucap, written by `gpucap completion bash`.\n"
         "_gpucap()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} words=");
    fputs("    local commands='", stdout);
    for (const struct cli_command *command = cli_commands; command->name; command++)
        printf("%s%s", command == cli_commands ? "" : " ", command->name);
    puts("'\n\n    COMPREPLY=()\n    if ((COMP_CWORD == 1)); then\n"
         "        COMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))\n        return\n    fi\n"
         "    case ${COMP_WORDS[1]} in");
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        printf("    %s)\n        words='", command->name);
        bash_options(command);
        puts("'");
        bash_operands(command);
        puts("        ;;");
    }
    puts("    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "    if [[ ${COMPREPLY[0]} == *= ]]; then\n        compopt -o nospace 2>/dev/null\n    fi\n}\n"
         "complete -F _gpucap gpucap");
}

/* ---- zsh ---- */

/* Inside single quotes, and inside the brackets of a specification of _arguments. */
static void print_quoted(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void zsh_option(const char *name, const char *value, bool optional, const char *help)
{
    printf(" \\\n        '--%s%s[", name, !value ? "" : optional ? "=-" : "=");
    print_quoted(help);
    fputs("]", stdout);
    if (value)
        printf("%s%s:", optional ? "::" : ":", value);
    fputs("'", stdout);
}

static const char *zsh_operands(enum cli_operands operands)
{
    switch (operands) {
    case CLI_PROGRAM:
        return "'(-)1:program:_command_names -e' '*::arguments:_normal'";
    case CLI_PROCESS:
    case CLI_JOB:
        return "'1:process or job:($(gpucap completion processes 2>/dev/null))'";
    case CLI_REFUSED:
        return "'*:process, job or recording:{compadd -- $(gpucap completion processes 2>/dev/null); "
               "_files}'";
    case CLI_RECORDED:
        return "'1:what to do:(start stop)' '2:process:($(gpucap completion processes 2>/dev/null))'";
    case CLI_COMMAND:
        return "'1:command:($names)'";
    case CLI_SHELL:
        return "'1:shell:(bash zsh)'";
    case CLI_FILE:
        return "'*:recording:_files'";
    case CLI_NOTHING:
        break;
    }
    return "";
}

static void print_zsh(void)
{
    puts("#compdef gpucap\n# zsh completion of gpucap, written by `gpucap completion zsh`.\n"
         "_gpucap()\n{\n    local -a commands names\n    commands=(");
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        printf("        '%s:", command->name);
        print_quoted(command->summary);
        puts("'");
    }
    puts("    )\n    names=(${commands%%:*})\n    if ((CURRENT == 2)); then\n"
         "        _describe command commands\n        return\n    fi\n"
         "    shift words\n    ((CURRENT--))\n    case $words[1] in");
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        printf("    %s)\n        _arguments '--help[Show what this command does.]'", command->name);
        for (int id = 0; command->settings && id < OPTIONS_COUNT; id++)
            zsh_option(options_table[id].name, "VALUE", false, options_table[id].help);
        for (const struct cli_option *option = command->options; option && option->name; option++)
            zsh_option(option->name, option->value, option->optional, option->help);
        if (command->operands != CLI_NOTHING)
            printf(" \\\n        %s", zsh_operands(command->operands));
        puts("\n        ;;");
    }
    puts("    esac\n}\n_gpucap \"$@\"");
}

int cmd_completion(const struct arguments *arguments)
{
    static const char *const kinds[] = {"bash", "zsh"};
    const char *kind = arguments->operands[0];

    if (arguments->count != 1)
        return cli_fail("completion: usage: gpucap completion bash|zsh");
    if (!strcmp(kind, "processes"))
        return print_processes();
    if (!strcmp(kind, "bash"))
        print_bash();
    else if (!strcmp(kind, "zsh"))
        print_zsh();
    else
        return cli_unknown("completion: ", "shell", kind, kinds, 2);
    return 0;
}
