/* prog_stderr: a program that does something to its standard error and then starts CUDA: prog_stderr WAY MODE
 * FILE. Prints the driver's answer and what stands in FILE, which is a log or a data file. Knows nothing of
 * gpucap. */
#include "prog_driver.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_MODE 0600

static const char *file;

static int open_file(int flags)
{
    return open(file, O_CREAT | O_RDWR | flags, FILE_MODE);
}

/* The program's own file gets the number of the standard error that it has closed. */
static void open_data(int flags)
{
    if (open_file(flags) != STDERR_FILENO || write(STDERR_FILENO, "data\n", 5) != 5)
        printf("descriptor 2 is not the file\n");
}

static void redirect(void)
{
    int log = open_file(O_APPEND);

    dup2(log, STDERR_FILENO);
    close(log);
}

static void start_cuda(void)
{
    printf("init %d\n", (int)cu.cuInit(0));
    fflush(stdout);
}

static void wait_for(pid_t pid)
{
    int status;

    if (waitpid(pid, &status, 0) != pid || status)
        printf("child %d\n", status);
}

/* A child with another standard error, while we share memory with it. */
static void start_child(void)
{
    int ends[2];

    if (pipe(ends))
        return;
    pid_t pid = vfork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        _exit(0);
    }
    wait_for(pid);
}

/* A child that lives on by itself, as a daemon does. */
static void become_daemon(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        redirect();
        start_cuda();
        _exit(0);
    }
    wait_for(pid);
}

static void replace(const char *mode)
{
    if (!strcmp(mode, "data")) {
        close(STDERR_FILENO);
        open_data(0);
    } else if (!strcmp(mode, "append")) {
        close(STDERR_FILENO);
        open_data(O_APPEND);
    } else if (!strcmp(mode, "fclose")) {
        fclose(stderr);
        open_data(0);
    } else if (!strcmp(mode, "log-then-data")) {
        redirect();
        unlink(file);
        close(STDERR_FILENO);
        open_data(0);
    } else if (!strcmp(mode, "same-number")) {
        close(STDERR_FILENO);
        open_data(0);
        dup2(STDERR_FILENO, STDERR_FILENO);
    } else if (!strcmp(mode, "dup2")) {
        redirect();
    } else if (!strcmp(mode, "dup3")) {
        dup3(open_file(O_APPEND), STDERR_FILENO, 0);
    } else if (!strcmp(mode, "freopen")) {
        if (!freopen(file, "a", stderr))
            printf("freopen failed\n");
    } else if (!strcmp(mode, "freopen64")) {
        if (!freopen64(file, "a", stderr))
            printf("freopen64 failed\n");
    } else if (!strcmp(mode, "vfork")) {
        redirect();
        start_child();
    } else if (!strcmp(mode, "closed")) {
        close(STDERR_FILENO);
    }
}

/* A pipe without a reader. */
static void lose_reader(void)
{
    int ends[2];

    if (pipe(ends))
        return;
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    close(ends[0]);
}

static void say_content(void)
{
    char text[4096];
    int from = open(file, O_RDONLY);
    ssize_t n = from < 0 ? 0 : read(from, text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    printf("file: %s", text);
}

int main(int argc, char **argv)
{
    if (argc < 4 || !prog_driver_open(argv[1]))
        return 3;
    file = argv[3];
    if (!strcmp(argv[2], "daemon")) {
        become_daemon();
    } else {
        replace(argv[2]);
        if (!strcmp(argv[2], "no-reader"))
            lose_reader();
        start_cuda();
    }
    say_content();
    return 0;
}
