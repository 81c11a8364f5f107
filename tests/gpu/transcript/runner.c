/* runner: sections, lines and children of a transcript program: see runner.h. Owns no lock. */
#include "runner.h"

#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECTION_LIMIT_S 60
#define MOST_ARGUMENTS  16

extern char **environ;

static const char *before_colon = "";

void tx_section(const char *name)
{
    before_colon = name;
}

void tx_say(const char *format, ...)
{
    va_list args;
    printf("%s: ", before_colon);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

const char *tx_yes(bool b)
{
    return b ? "yes" : "no";
}

static const char *lookup_option = "--lookup=dlsym";

int tx_run_self(const char *const args[])
{
    char *argv[MOST_ARGUMENTS] = {(char *)(uintptr_t) "transcript", (char *)(uintptr_t)lookup_option};
    pid_t pid;
    int status;
    for (int n = 2; args[n - 2] && n < MOST_ARGUMENTS - 1; n++)
        argv[n] = (char *)(uintptr_t)args[n - 2];
    fflush(stdout);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ))
        return 126;
    while (waitpid(pid, &status, 0) < 0)
        ;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

struct thread_call {
    void (*fn)(void *);
    void *arg;
};

static void *call(void *arg)
{
    struct thread_call *c = arg;
    c->fn(c->arg);
    return NULL;
}

void tx_in_thread(void (*fn)(void *), void *arg)
{
    struct thread_call c = {fn, arg};
    pthread_t thread;
    if (pthread_create(&thread, NULL, call, &c))
        abort();
    pthread_join(thread, NULL);
}

static bool is_in(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = list; p && *p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
        if (!strncmp(p, name, len) && (p[len] == ',' || p[len] == 0))
            return true;
    }
    return false;
}

static int run_one(const struct runner *r, const char *name, bool by_dlsym)
{
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->sections[i].name, name) != 0)
            continue;
        alarm(SECTION_LIMIT_S);
        tx_section(name);
        if (!r->open(by_dlsym))
            return RUNNER_NO_DRIVER;
        r->sections[i].run();
        tx_say("end");
        return 0;
    }
    fprintf(stderr, "no section %s; --list names them\n", name);
    return 2;
}

static int run_all(const struct runner *r, const char *only)
{
    for (size_t i = 0; i < r->count; i++) {
        char section[64];
        if (only && !is_in(only, r->sections[i].name))
            continue;
        snprintf(section, sizeof(section), "--section=%s", r->sections[i].name);
        int status = tx_run_self((const char *[]){section, NULL});
        if (status == RUNNER_NO_DRIVER)
            return RUNNER_NO_DRIVER;
        if (status != 0)
            printf("%s: ENDED with status %d\n", r->sections[i].name, status);
    }
    return 0;
}

static const char *value_of(const char *arg, const char *option)
{
    size_t len = strlen(option);
    return strncmp(arg, option, len) ? NULL : arg + len;
}

static void list(const struct runner *r)
{
    for (size_t i = 0; i < r->count; i++)
        printf("%-12s %s\n", r->sections[i].name, r->sections[i].what);
}

int runner_main(int argc, char **argv, const struct runner *r)
{
    const char *only = NULL, *section = NULL, *child = NULL;
    for (int i = 1; i < argc; i++) {
        const char *v;
        if (!strcmp(argv[i], "--list")) {
            list(r);
            return 0;
        } else if (value_of(argv[i], "--lookup=")) {
            lookup_option = argv[i];
        } else if ((v = value_of(argv[i], "--only="))) {
            only = v;
        } else if ((v = value_of(argv[i], "--section="))) {
            section = v;
        } else if (r->child && (v = value_of(argv[i], "--child="))) {
            child = v;
        } else {
            fprintf(stderr, "usage: %s [--lookup=dlsym|procaddr] [--only=SECTION,...] [--list]\n", argv[0]);
            return 2;
        }
    }
    bool by_dlsym = strcmp(lookup_option, "--lookup=procaddr") != 0;
    if (child) {
        alarm(SECTION_LIMIT_S);
        return r->open(by_dlsym) ? r->child(child) : RUNNER_NO_DRIVER;
    }
    return section ? run_one(r, section, by_dlsym) : run_all(r, only);
}
