/* removed: see removed.h. */
#include "tools/gpucap/removed.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDING ".ledger (deleted)" /* as the kernel names a removed file */

/* Returns true if the link of a descriptor names a removed ledger of the folder. */
static bool is_removed(const char *link, const char *folder)
{
    const size_t length = strlen(link), before = strlen(folder), ending = strlen(ENDING);

    return length > before + ending && !strncmp(link, folder, before) && link[before] == '/' &&
           !strchr(link + before + 1, '/') && !strcmp(link + length - ending, ENDING);
}

static bool uses_removed(const char *pid, const char *folder)
{
    char path[PATH_MAX], link[PATH_MAX];
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    DIR *files = opendir(path);
    for (struct dirent *file; files && !found && (file = readdir(files));) {
        const ssize_t length = readlinkat(dirfd(files), file->d_name, link, sizeof(link) - 1);

        link[length > 0 ? length : 0] = '\0';
        found = is_removed(link, folder);
    }
    if (files)
        closedir(files);
    return found;
}

int removed_each(const char *folder, void (*visit)(pid_t pid, void *argument), void *argument)
{
    char *real = realpath(folder, NULL); /* NULL: the folder itself is gone */
    DIR *processes = opendir("/proc");
    int count = 0;

    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid > 0 && uses_removed(entry->d_name, real ? real : folder)) {
            count++;
            visit(pid, argument);
        }
    }
    if (processes)
        closedir(processes);
    free(real);
    return count;
}

static void say(pid_t pid, void *command)
{
    fprintf(stderr, "gpucap: %s: process %ld is not shown: its ledger was removed\n", (const char *)command,
            (long)pid);
}

void removed_complain(const char *command, const char *folder)
{
    if (removed_each(folder, say, (void *)command))
        fprintf(stderr, "gpucap: %s: a job's max does not hold for such processes and later ones together\n",
                command);
}
