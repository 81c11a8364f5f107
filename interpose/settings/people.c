/* people: see people.h. */
#include "interpose/settings/people.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUPS_MAX 1024

/* Returns true and writes the number if the text is one. */
static bool read_number(const char *text, unsigned *number)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    *number = (unsigned)strtoul(text, &end, 10);
    return *end == '\0';
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

bool people_is_user(const char *name)
{
    unsigned uid;

    return (read_number(name, &uid) || find("/etc/passwd", name, &uid)) && uid == getuid();
}

bool people_is_in_group(const char *name)
{
    gid_t groups[GROUPS_MAX];
    unsigned gid;

    if (!read_number(name, &gid) && !find("/etc/group", name, &gid))
        return false;
    const int count = getgroups(GROUPS_MAX, groups);
    for (int i = 0; i < count; i++) {
        if (groups[i] == gid)
            return true;
    }
    return getgid() == gid || getegid() == gid;
}
