/* people: see people.h. */
#include "interpose/settings/people.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns true and writes the number if the text is one that a user or group can have. UINT32_MAX stands for
 * no user. */
static bool read_number(const char *text, unsigned *number)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    const unsigned long value = strtoul(text, &end, 10);
    *number = (unsigned)value;
    return *end == '\0' && value < UINT32_MAX;
}

/* Finds a name in a file of lines "name:password:number:...", which may be of any length: a group may have
 * thousands of members, and the library's own reader stops at a line that is too long for it. */
static bool find(const char *path, const char *name, unsigned *number)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    bool is_there = false;

    while (file && !is_there && getline(&line, &room, file) >= 0) {
        char *rest = line;
        const char *found = strsep(&rest, ":\n");

        strsep(&rest, ":\n");
        const char *text = strsep(&rest, ":\n");
        is_there = text && !strcmp(found, name) && read_number(text, number);
    }
    free(line);
    if (file)
        fclose(file);
    return is_there;
}

bool people_may_exist(const char *name)
{
    const char *digits = name + (*name == '-');
    unsigned number;

    return !*digits || digits[strspn(digits, "0123456789")] || read_number(name, &number);
}

bool people_is_user(const char *name)
{
    unsigned uid;

    return (read_number(name, &uid) || find("/etc/passwd", name, &uid)) && uid == getuid();
}

int people_is_in_group(const char *name)
{
    static gid_t groups[NGROUPS_MAX]; /* as many as Linux allows, so that a ceiling is not escaped by many */
    unsigned gid;

    if (!read_number(name, &gid) && !find("/etc/group", name, &gid))
        return 0;
    const int count = getgroups(NGROUPS_MAX, groups);
    if (count < 0)
        return -errno;
    for (int i = 0; i < count; i++) {
        if (groups[i] == gid)
            return 1;
    }
    return getgid() == gid || getegid() == gid;
}
