/* gpucap: the command line. Finds the command in the table and runs it; nothing else happens here. */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/preload.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM                                                                                                  \
    {                                                                                                        \
        "sim", "SPEC", true, "Use simulated GPUs, as many and as large as SPEC says (2x16G)."                \
    }
#define LEDGER                                                                                               \
    {                                                                                                        \
        "ledger", "DIR", false, "The folder of the ledgers; default: GPUCAP_LEDGER, else the user's own."    \
    }
#define END                                                                                                  \
    {                                                                                                        \
        NULL, NULL, false, NULL                                                                              \
    }

static const struct cli_option run_options[] = {
    {"adopt", "WAY", true,
     "Set the documented variables with which PyTorch and JAX leave caching to gpucap, so that their idle "
     "memory can be lent: pool (the default), or async for programs that use CUDA graphs. With pool, "
     "TensorFlow keeps its cache, but takes memory only as it needs it. Variables that are already set are "
     "not changed."},
    {"summary", NULL, false,
     "When the program has ended, print one line per card: the peak use of its job, how long it "
     "waited, how much it lent and borrowed, and how many requests were refused. The program is then a "
     "child of gpucap."},
    SIM,
    END,
};
static const struct cli_option doctor_options[] = {SIM, END};
static const struct cli_option look_options[] = {LEDGER, SIM, END};
static const struct cli_option ps_options[] = {
    {"json", NULL, false, "Print JSON: sizes in bytes, null for no limit."},
    {"prometheus", NULL, false, "Print metrics in Prometheus' text format."},
    {"owners", "PID", false,
     "Show which libraries, kinds of memory and tags hold the memory of a process that is being recorded."},
    {"bytes", NULL, false, "With --owners: sizes to the byte."},
    LEDGER,
    SIM,
    END,
};
static const struct cli_option record_options[] = {
    {"to", "FILE", false, "The file, with %p for the process id; default: gpucap-%p.gpucap in this folder."},
    {"stacks", NULL, false, "Also record call stacks."},
    LEDGER,
    SIM,
    END,
};
static const struct cli_option set_options[] = {
    {"max", "SIZE", false, "The new limit: a size such as 12G, a share of the card such as 50%, or none."},
    {"min", "SIZE", false, "Part of a card that other jobs leave to this one while it uses less."},
    {"high", "SIZE", false, "While the job uses more than this, it gives idle memory back at once."},
    LEDGER,
    SIM,
    END,
};
static const struct cli_option summary_options[] = {
    {"fit", NULL, false,
     "Find the smallest limit by replaying the recording against the pool on simulated cards, in seconds; "
     "of several cards in a recording, for the first."},
    END,
};
static const struct cli_option export_options[] = {
    {"to", "FORMAT", false,
     "perfetto: a trace for ui.perfetto.dev. pytorch: a snapshot for pytorch.org/memory_viz. csv: a line per "
     "event. svg: a picture."},
    {"output", "FILE", false, "Where to write it, instead of stdout; also -o FILE."},
    END,
};
static const struct cli_option page_options[] = {
    {"output", "FILE", false, "Where to write it; also -o FILE."},
    END,
};

const struct cli_command cli_commands[] = {
    {"run", "[--OPTION=VALUE...] [--] PROGRAM [ARGUMENT...]", "Run a program under a memory cap.", NULL,
     run_options, CLI_PROGRAM, true, cmd_run},
    {"ps", "[--json | --prometheus | --owners=PID [--bytes]]",
     "Show which processes hold how much of each card.",
     "USED is the card memory of a process, and IDLE the part of it that is unused in its pool. LIMIT is the "
     "process's own limit or its job's, whichever is less; a quotation mark means the same limit as in the "
     "line above. If it is the process's own, a line above the table has the job's. The figures are fresh: "
     "each process is asked first. Processes that do not run under gpucap come last, if NVML lists them, "
     "with a dash in the columns that only gpucap can fill.",
     ps_options, CLI_NOTHING, false, cmd_ps},
    {"top", "", "Show processes and cards live, and change limits.",
     "Keys: arrows select, s changes the order, g groups by job, t gives idle memory of the selected process "
     "back, m changes the limit of its job, k sends it a signal, ? shows help, q quits.",
     look_options, CLI_NOTHING, false, cmd_top},
    {"set", "PID|JOB|GROUP [--max=SIZE] [--min=SIZE] [--high=SIZE]", "Change the limits of a running job.",
     "A process id stands for the job of that process. The limit holds for all its processes, on each card "
     "that they use. For a GROUP that has no process yet it is set in advance. If the job uses more than the "
     "new limit, it gives idle memory back, and new requests are refused until enough is free; gpucap takes "
     "no memory from a program. Only the owner of the processes, or root, may do this.",
     set_options, CLI_JOB, false, cmd_set},
    {"trim", "PID|JOB|all", "Make processes give idle memory back now.",
     "Memory that is unused in a process's pool goes back to the card. The program keeps all its blocks. "
     "Only the owner of a process, or root, may do this.",
     look_options, CLI_PROCESS, false, cmd_trim},
    {"why", "PID|JOB|all|FILE...", "Explain why requests of a process were refused.",
     "Shows the last refused requests, the limit, who held the memory, and what to try; for a waiting "
     "process, what it waits for. The process must be alive. For one that has ended, give its recording, "
     "which also shows the live blocks by tag, owner and size. Add the recordings of the job's other "
     "processes to see what these held then.",
     look_options, CLI_REFUSED, false, cmd_why},
    {"record", "start|stop PID [--to=FILE] [--stacks]", "Record the device memory of a running process.",
     "Blocks that are live at the start come first in the recording, without their owners. The process must "
     "be one of `gpucap ps`. To record from the start, give gpucap run --record=FILE. Only the owner of a "
     "process, or root, may do this.",
     record_options, CLI_RECORDED, false, cmd_record},
    {"summary", "[--fit] FILE...", "Summarize recordings in a screenful.",
     "For each process and card: the peak and its parts, refusals, waits and loans, memory that was never "
     "freed, large short-lived blocks, idle memory in the pool, and the limit below which the program cannot "
     "run.",
     summary_options, CLI_FILE, false, cmd_summary},
    {"view", "FILE...", "Show recordings as a picture in the terminal.",
     "Memory over time, stacked by tag if the program sets tags, else by owner, with the limit, idle memory "
     "in "
     "the pool, and marks where requests were refused or waited. The width is that of the terminal, or "
     "COLUMNS if stdout is not a terminal. Without colour each part has a character of its own.",
     NULL, CLI_FILE, false, cmd_view},
    {"page", "FILE... -o OUT.html", "Write recordings as one HTML page, to zoom and click.",
     "The file needs nothing else and loads nothing: open it in a browser, or send it. It shows memory over "
     "time by owner, tag, kind or process, the limit, refusals, waits and loans; a click on a moment shows "
     "the address space and its largest blocks. Recordings of several processes share one axis of time; runs "
     "that did not overlap each begin at 0.",
     page_options, CLI_FILE, false, cmd_page},
    {"export", "--to=FORMAT FILE... [-o OUT]", "Write recordings in the formats of other programs.", NULL,
     export_options, CLI_FILE, false, cmd_export},
    {"replay", "FILE", "Repeat the allocations of a recording, as fast as possible.",
     "Run it under 'gpucap run --max=SIZE' to learn whether the program would fit, without the program: exit "
     "status 0 if all requests fitted, 1 if one was refused. Under 'gpucap run --sim' it needs no GPU. Of a "
     "recording with several cards it repeats those of the first.",
     NULL, CLI_FILE, false, cmd_replay},
    {"doctor", "[--sim[=SPEC]]", "Show this machine's driver, cards, settings and problems.", NULL,
     doctor_options, CLI_NOTHING, false, cmd_doctor},
    {"help", "[COMMAND]", "Show the commands, or the help of one command.", NULL, NULL, CLI_COMMAND, false,
     cmd_help},
    {"completion", "bash|zsh", "Print a script that completes gpucap's words in a shell.",
     "For bash: source <(gpucap completion bash). For zsh: write the output to a file _gpucap in a folder of "
     "fpath.",
     NULL, CLI_SHELL, false, cmd_completion},
    {"man", "", "Print the manual page, in man(7) format.", NULL, NULL, CLI_NOTHING, false, cmd_man},
    {"version", "", "Print the version.", NULL, NULL, CLI_NOTHING, false, cmd_version},
    {NULL, NULL, NULL, NULL, NULL, CLI_NOTHING, false, NULL},
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

static bool reads_ledgers(const struct cli_command *command)
{
    for (const struct cli_option *option = command->options; option && option->name; option++) {
        if (!strcmp(option->name, "ledger"))
            return true;
    }
    return false;
}

/* Starts the command again without the library if that is preloaded here, as in a shell under `gpucap run`:
 * it would report the limit as the card's size. Otherwise returns. */
static void leave_library(char **argv)
{
    const void *symbol = dlsym(RTLD_DEFAULT, "gpucap_version_text");
    const char *list = getenv("LD_PRELOAD");
    Dl_info library;
    if (!symbol || !list || !dladdr(symbol, &library))
        return;
    char *rest = preload_remove(list, library.dli_fname);
    if (rest && strlen(rest) < strlen(list) && setenv("LD_PRELOAD", rest, 1) == 0)
        execv("/proc/self/exe", argv);
    free(rest);
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
    struct arguments arguments;
    int status = arguments_parse(command, argc, argv, &arguments);
    if (!status)
        status = arguments.help ? cli_help(command->name) : command->run(&arguments);
    if (fflush(stdout) != 0 || ferror(stdout))
        return cli_fail("%s: cannot write to stdout", command->name);
    return status;
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
            if (reads_ledgers(command))
                leave_library(argv);
            return run_command(command, argc - 1, argv + 1);
        }
        names[count++] = command->name;
    }
    if (argv[1][0] == '-')
        return cli_fail("'%s' is not a command; put options after one: gpucap run %s ...", argv[1], argv[1]);
    return cli_unknown("", "command", argv[1], names, count);
}
