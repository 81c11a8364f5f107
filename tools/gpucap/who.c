/* who: see who.h. */
#include "tools/gpucap/who.h"

#include "interpose/account/ledger.h"
#include "interpose/base/files.h"
#include "tools/gpucap/words.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_ROOM 64

void who_user(uid_t uid, char *name, size_t size)
{
    const struct passwd *user = getpwuid(uid);

    if (user)
        snprintf(name, size, "%s", user->pw_name);
    else
        snprintf(name, size, "%u", (unsigned)uid);
    words_clean(name);
}

/* Returns true if, by /proc, the process belongs to the user. */
static bool owns(pid_t pid, uid_t uid)
{
    char path[PATH_ROOM];
    struct stat folder;

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return pid > 1 && stat(path, &folder) == 0 && folder.st_uid == uid;
}

/* The mapping, because a program may close the descriptor. */
bool who_has_ledger(pid_t pid, uid_t uid, const char *uuid)
{
    char path[PATH_ROOM], name[LEDGER_UUID + sizeof("/.ledger")], *line = NULL;
    size_t room = 0;
    bool has = false;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    snprintf(name, sizeof(name), "/%.*s.ledger", LEDGER_UUID - 1, uuid);
    FILE *maps = owns(pid, uid) ? fopen(path, "re") : NULL;
    while (maps && !has && getline(&line, &room, maps) >= 0)
        has = strstr(line, name);
    free(line);
    if (maps)
        fclose(maps);
    return has;
}

/* Reads /proc/PID/cmdline with spaces between the words. False if it cannot be read or is empty. */
static bool read_command(pid_t pid, char *command, size_t size)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    const ssize_t length = files_read(path, command, size - 1);
    if (length <= 0)
        return false;
    command[length] = '\0';
    for (ssize_t i = 0; i + 1 < length; i++) {
        if (command[i] == '\0')
            command[i] = ' ';
    }
    return true;
}

static void drop_folder(char *command)
{
    const char *name = command;

    for (const char *c = command; *c && *c != ' '; c++) {
        if (*c == '/')
            name = c + 1;
    }
    memmove(command, name, strlen(name) + 1);
}

/* Cuts a command line down to the program's name, without folder and arguments. */
static void shorten(char *command)
{
    command[strcspn(command, " ")] = '\0';
    drop_folder(command);
}

void who_process(pid_t pid, char *user, size_t user_size, char *command, size_t command_size)
{
    char path[PATH_ROOM];
    struct stat folder;

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    if (stat(path, &folder) == 0)
        who_user(folder.st_uid, user, user_size);
    else
        snprintf(user, user_size, "-");
    if (!read_command(pid, command, command_size))
        snprintf(command, command_size, "-");
    drop_folder(command);
    words_clean(command);
}

/* Returns true if the command line begins with `recorded`, if need be after its folder is dropped. */
static bool begins_with(char *command, const char *recorded)
{
    if (strncmp(command, recorded, strlen(recorded)) == 0)
        return true;
    drop_folder(command);
    return strncmp(command, recorded, strlen(recorded)) == 0;
}

void who_command(pid_t pid, uid_t uid, const char *recorded, char *command, size_t size)
{
    const bool own = uid == geteuid() || geteuid() == 0;

    /* The same beginning: this is the process that the ledger means, not one of the same number in another
     * PID namespace. */
    if (!owns(pid, uid) || !read_command(pid, command, size) || !begins_with(command, recorded)) {
        snprintf(command, size, "%s", recorded);
        if (!own)
            shorten(command);
    }
    words_clean(command);
}
