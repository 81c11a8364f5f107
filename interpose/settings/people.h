/* people: whether this process runs for a user or group that a configuration file names. Reads /etc/passwd
 * and /etc/group, never a directory service: that would load its code into the host program. Owns no lock. */
#ifndef GPUCAP_PEOPLE_H
#define GPUCAP_PEOPLE_H

#include <stdbool.h>

/* Returns false if `name` is a number that no user or group can have. */
bool people_may_exist(const char *name);

/* `name` is a name or a number. */
bool people_is_user(const char *name);
/* Returns 1, 0, or -errno if the process's groups cannot be listed. */
int people_is_in_group(const char *name);

#endif
