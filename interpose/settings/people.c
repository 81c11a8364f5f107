/* people: see people.h. */
#include "interpose/settings/people.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 16384 /* of /etc/group: a group may have many members */
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

static bool find_user(const char *name, unsigned *uid)
{
    FILE *file = fopen("/etc/passwd", "re");
    char line[LINE_BYTES];
    struct passwd entry, *found = NULL;
    bool is_there = false;

    while (file && !is_there && fgetpwent_r(file, &entry, line, sizeof(line), &found) == 0) {
        is_there = !strcmp(entry.pw_name, name);
        *uid = entry.pw_uid;
    }
    if (file)
        fclose(file);
    return is_there;
}

static bool find_group(const char *name, unsigned *gid)
{
    FILE *file = fopen("/etc/group", "re");
    char line[LINE_BYTES];
    struct group entry, *found = NULL;
    bool is_there = false;

    while (file && !is_there && fgetgrent_r(file, &entry, line, sizeof(line), &found) == 0) {
        is_there = !strcmp(entry.gr_name, name);
        *gid = entry.gr_gid;
    }
    if (file)
        fclose(file);
    return is_there;
}

bool people_is_user(const char *name)
{
    unsigned uid;

    return (read_number(name, &uid) || find_user(name, &uid)) && uid == getuid();
}

bool people_is_in_group(const char *name)
{
    gid_t groups[GROUPS_MAX];
    unsigned gid;

    if (!read_number(name, &gid) && !find_group(name, &gid))
        return false;
    const int count = getgroups(GROUPS_MAX, groups);
    for (int i = 0; i < count; i++) {
        if (groups[i] == gid)
            return true;
    }
    return getgid() == gid || getegid() == gid;
}
