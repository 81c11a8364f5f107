/* gpucap doctor: says what a program under gpucap would meet on this machine. One section per thing looked
 * at; each prints what it found and counts the problems. Loads the driver and NVML, nothing else: other
 * libraries are only read. Owns no lock.
 */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/doctor.h"
#include "tools/gpucap/elfscan.h"
#include "interpose/settings/options.h"
#include "tools/gpucap/lines.h"
#include "tools/gpucap/place.h"
#include "tools/gpucap/preload.h"
#include "tools/gpucap/probe.h"
#include "tools/gpucap/symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MPS_DEFAULT_FOLDER "/tmp/nvidia-mps" /* when CUDA_MPS_PIPE_DIRECTORY is unset */
#define NAMES_MAX          128               /* of memory symbols in one driver; it has about 40 */
#define NAME_BYTES         64
#define TOPIC_COLUMNS      11

/* Prints "topic      text", wrapped. */
static void print(const char *topic, const char *kind, const char *format, va_list args)
{
    char *text = NULL;
    const int column = printf("%-*s %s", TOPIC_COLUMNS - 1, topic, kind);

    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    lines_text(column, TOPIC_COLUMNS, text ? text : format);
    free(text);
}

void doctor_line(const char *topic, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print(topic, "", format, args);
    va_end(args);
}

void doctor_problem(struct doctor_report *report, const char *topic, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print(topic, "PROBLEM: ", format, args);
    va_end(args);
    report->problems++;
}

void doctor_warning(struct doctor_report *report, const char *topic, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print(topic, "WARNING: ", format, args);
    va_end(args);
    report->warnings++;
}

static void check_library(struct doctor_report *report)
{
    struct elfscan scan;
    char path[PATH_MAX];
    char version[64];
    int error = place_library(path, sizeof(path));
    if (error) {
        doctor_problem(report, "library",
                       "%s not found (%s); it belongs beside gpucap or in ../lib, or set %s",
                       PLACE_LIBRARY_NAME, strerror(-error), PLACE_LIBRARY_ENV);
        return;
    }
    error = elfscan_open(&scan, path);
    if (error) {
        doctor_problem(report, "library", "%s cannot be read as a library: %s", path, strerror(-error));
        return;
    }
    if (!elfscan_read_string(&scan, "gpucap_version_text", version, sizeof(version)))
        doctor_problem(report, "library", "%s says no version: it is not a library of gpucap", path);
    else if (strcmp(version, GPUCAP_VERSION) != 0)
        doctor_problem(report, "library", "%s is version %s, this command is " GPUCAP_VERSION, path, version);
    else
        doctor_line("library", "%s, version %s", path, version);
    if (!preload_can_hold(path))
        doctor_problem(report, "library",
                       "LD_PRELOAD cannot hold its path: it has a space, a colon or a dollar sign");
    elfscan_close(&scan);
}

static void check_driver(struct doctor_report *report, const struct probe *probe)
{
    if (!probe->found) {
        doctor_problem(report, "driver", "%s", probe->error);
        doctor_line("driver", "without a GPU: `gpucap run --sim ...` and `gpucap doctor --sim`");
        return;
    }
    doctor_line("driver", "%s, release %s, CUDA %d.%d", probe->path,
                *probe->release ? probe->release : "unknown", probe->cuda_version / 1000,
                probe->cuda_version % 1000 / 10);
    if (*probe->error)
        doctor_problem(report, "driver", "%s", probe->error);
    else if (!probe->device_count)
        doctor_problem(report, "devices", "none (CUDA_VISIBLE_DEVICES=%s)",
                       getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "unset");
}

static void list_devices(struct doctor_report *report, const struct probe *probe)
{
    char total[SIZE_TEXT];
    char free_text[SIZE_TEXT];
    char topic[24];
    for (int i = 0; i < probe->device_count; i++) {
        const struct probe_device *device = &probe->devices[i];
        snprintf(topic, sizeof(topic), "device %d", i);
        doctor_line(topic, "%s, %s, %s in all, %s free, %s", device->name, device->uuid,
                    size_format(device->total, total),
                    device->free_known ? size_format(device->free, free_text) : "unknown",
                    device->vmm ? "virtual memory management" : "no virtual memory management");
        if (!device->vmm)
            doctor_warning(report, topic, "it has a cap but no pool: the driver cannot map memory there");
    }
}

/* Returns the process id of the MPS daemon if the one that wrote the pid file still runs, else 0. */
static long mps_daemon(const char *folder)
{
    char path[PATH_MAX];
    long pid = 0;
    snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", folder);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%ld", &pid) != 1 || pid <= 0 || pid > INT_MAX ||
        (kill((pid_t)pid, 0) != 0 && errno != EPERM))
        pid = 0;
    fclose(file);
    return pid;
}

static void check_mps(struct doctor_report *report)
{
    char control[PATH_MAX];
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    const char *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    if (!folder || !*folder)
        folder = MPS_DEFAULT_FOLDER;
    snprintf(control, sizeof(control), "%s/control", folder);
    long pid = mps_daemon(folder);
    if (pid)
        doctor_line("mps", "active: daemon %ld, pipes in %s", pid, folder);
    else if (access(control, F_OK) == 0)
        doctor_line("mps", "a control pipe is in %s; its daemon could not be seen from here", folder);
    else
        doctor_line("mps", "not active (no control pipe in %s)", folder);
    if (limit)
        doctor_warning(report, "mps",
                       "it has a limit of its own, beside gpucap's: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%s",
                       limit);
}

struct conflict {
    char names[256];
    size_t used;
    int count;
};

static bool collect_conflict(const char *name, void *arg)
{
    struct conflict *conflict = arg;
    if (!symbols_conflict(name))
        return true;
    conflict->count++;
    int length = snprintf(conflict->names + conflict->used, sizeof(conflict->names) - conflict->used, "%s%s",
                          conflict->used ? " " : "", name);
    if (length > 0 && (size_t)length < sizeof(conflict->names) - conflict->used)
        conflict->used += (size_t)length;
    else
        conflict->names[conflict->used] = 0;
    return true;
}

static void check_entry(struct doctor_report *report, const char *entry, size_t length, const char *origin)
{
    struct elfscan scan;
    struct conflict conflict = {0};
    char path[PATH_MAX];
    if (!preload_find(entry, length, path, sizeof(path))) {
        doctor_problem(report, "preload", "%.*s (from %s) was not found; the loader warns and goes on",
                       (int)length, entry, origin);
        return;
    }
    const char *base = strrchr(path, '/');
    if (!strcmp(base ? base + 1 : path, PLACE_LIBRARY_NAME)) {
        doctor_line("preload", "%s (from %s): gpucap itself", path, origin);
        return;
    }
    int error = elfscan_open(&scan, path);
    if (error) {
        doctor_problem(report, "preload", "%s (from %s) cannot be read as a library: %s", path, origin,
                       strerror(-error));
        return;
    }
    elfscan_defined(&scan, collect_conflict, &conflict);
    elfscan_close(&scan);
    if (conflict.count)
        doctor_problem(report, "preload", "%s (from %s) defines %d names that gpucap hooks: %s", path, origin,
                       conflict.count, conflict.names);
    else
        doctor_line("preload", "%s (from %s): no conflict", path, origin);
}

static int check_list(struct doctor_report *report, const char *list, const char *separators,
                      const char *origin)
{
    int count = 0;
    size_t length;
    for (const char *entry; (entry = preload_next(&list, separators, &length)); count++)
        check_entry(report, entry, length, origin);
    return count;
}

static void check_preload(struct doctor_report *report)
{
    char text[4096];
    int count = 0;
    const char *list = getenv("LD_PRELOAD");
    if (list)
        count += check_list(report, list, PRELOAD_SEPARATORS, "LD_PRELOAD");
    FILE *file = fopen(PRELOAD_SYSTEM, "re");
    if (file) {
        text[fread(text, 1, sizeof(text) - 1, file)] = 0;
        fclose(file);
        count += check_list(report, text, PRELOAD_SEPARATORS "\t\n", PRELOAD_SYSTEM);
    }
    if (!count)
        doctor_line("preload", "nothing else is preloaded");
}

static const char *source_text(const struct options_places *places, enum options_source source, int id)
{
    switch (source) {
    case OPTIONS_ENVIRONMENT:
        return options_table[id].variable;
    case OPTIONS_USER:
        return places->user_file;
    case OPTIONS_ADMIN:
        return places->admin_file;
    case OPTIONS_DEFAULT:
        break;
    }
    return "default";
}

static void say_file(const char *kind, const char *path)
{
    char first;
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;

    if (path)
        doctor_line("settings", "%s file %s: %s", kind, path,
                    fd >= 0 && read(fd, &first, 1) >= 0 ? "read"
                    : errno == ENOENT                   ? "none"
                                                        : strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void list_limits(const struct options *options, const char *source, const struct probe *probe)
{
    char text[SIZE_TEXT];
    for (int i = 0; i < probe->device_count; i++) {
        const struct probe_device *device = &probe->devices[i];
        uint64_t limit = options_limit(options, i, device->uuid, device->total);
        uint64_t asked = rules_for(&options->max, i, device->uuid, device->total);
        if (limit == RULES_UNLIMITED)
            doctor_line("limit", "device %d: none (max from %s)", i, source);
        else
            doctor_line("limit", "device %d: %s (max from %s)", i, size_format(limit, text),
                        limit < asked ? OPTIONS_ADMIN_FILE ", the ceiling" : source);
    }
}

/* Lists the settings that differ from the defaults. */
static void list_settings(const struct options *options, const struct options_places *places)
{
    int count = 0;

    for (int id = 0; id < OPTIONS_COUNT; id++) {
        const enum options_source source = options->source[id];

        if (source == OPTIONS_DEFAULT)
            continue;
        doctor_line("settings", "%s: %s (%s)", options_table[id].name,
                    source == OPTIONS_ENVIRONMENT ? getenv(options_table[id].variable) : "set",
                    source_text(places, source, id));
        count++;
    }
    doctor_line("settings", "%s the defaults (`gpucap help run` lists them)",
                count ? "all others have" : "all have");
}

static void check_settings(struct doctor_report *report, const struct probe *probe)
{
    struct options options;
    char user_file[OPTIONS_PATH_MAX];
    char error[OPTIONS_ERROR_MAX];
    struct options_places places = options_places_here(user_file);
    say_file("user's", places.user_file);
    say_file("administrator's", places.admin_file);
    if (options_load(&options, &places, error)) {
        doctor_problem(report, "settings", "%s", error);
        return;
    }
    list_settings(&options, &places);
    list_limits(&options, source_text(&places, options.source[OPTIONS_MAX], OPTIONS_MAX), probe);
}

struct name {
    char text[NAME_BYTES];
    enum symbols_kind kind;
};

struct names {
    struct name list[NAMES_MAX];
    int count;
};

static bool collect_memory(const char *text, void *arg)
{
    struct names *names = arg;
    enum symbols_kind kind = symbols_classify(text);
    if (kind == SYMBOLS_OTHER || strlen(text) >= NAME_BYTES)
        return true;
    struct name *name = &names->list[names->count++];
    strcpy(name->text, text);
    name->kind = kind;
    return names->count < NAMES_MAX;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static void list_kind(const struct names *names, enum symbols_kind kind, const char *title)
{
    int count = 0, column = 0;
    for (int i = 0; i < names->count; i++)
        count += names->list[i].kind == kind;
    doctor_line("symbols", "%s: %d", title, count);
    for (int i = 0; i < names->count; i++) {
        const struct name *name = &names->list[i];

        if (name->kind != kind)
            continue;
        if (column && column + 1 + (int)strlen(name->text) > LINES_WIDTH) {
            putchar('\n');
            column = 0;
        }
        column += column ? printf(" %s", name->text) : printf("%-10s   %s", "", name->text);
    }
    if (column)
        putchar('\n');
}

static void check_symbols(struct doctor_report *report, const struct probe *probe)
{
    struct elfscan scan;
    if (!probe->found)
        return;
    int error = elfscan_open(&scan, probe->path);
    if (error) {
        doctor_problem(report, "symbols", "%s cannot be read: %s", probe->path, strerror(-error));
        return;
    }
    struct names *names = calloc(1, sizeof(*names));
    if (names) {
        elfscan_defined(&scan, collect_memory, names);
        qsort(names->list, (size_t)names->count, sizeof(names->list[0]), by_text);
        list_kind(names, SYMBOLS_HOOKED, "hooked");
        list_kind(names, SYMBOLS_HOST, "host memory, not limited");
        list_kind(names, SYMBOLS_NOT_COUNTED, "not hooked, seen at the next measurement");
        free(names);
    }
    elfscan_close(&scan);
}

static void say_result(const struct doctor_report *report)
{
    const char *problems = report->problems == 1 ? "problem" : "problems";
    const char *warnings = report->warnings == 1 ? "warning" : "warnings";

    if (report->problems && report->warnings)
        doctor_line("result", "%d %s and %d %s found", report->problems, problems, report->warnings,
                    warnings);
    else if (report->problems)
        doctor_line("result", "%d %s found", report->problems, problems);
    else if (report->warnings)
        doctor_line("result", "%d %s found", report->warnings, warnings);
    else
        doctor_line("result", "healthy");
}

static int examine(const char *sim_folder)
{
    struct doctor_report report = {0};
    struct probe *probe = calloc(1, sizeof(*probe));
    if (!probe)
        return cli_fail("doctor: no memory");
    check_library(&report);
    probe_driver(probe, sim_folder);
    check_driver(&report, probe);
    list_devices(&report, probe);
    check_mps(&report);
    check_preload(&report);
    check_settings(&report, probe);
    doctor_check_ledger(&report);
    check_symbols(&report, probe);
    free(probe);
    say_result(&report);
    return report.problems || report.warnings ? 1 : 0;
}

int cmd_doctor(const struct arguments *arguments)
{
    const char *sim = arguments_value(arguments, "sim");
    char folder[PATH_MAX];
    const int status = sim ? cli_use_sim("doctor: ", *sim ? sim : NULL, folder, sizeof(folder)) : 0;
    return status ? status : examine(sim ? folder : NULL);
}
