/* people: whether this process runs for a user or group that a configuration file names. Reads /etc/passwd
 * and /etc/group, never a directory service: that would load its code into the host program. Owns no lock. */
#ifndef GPUCAP_PEOPLE_H
#define GPUCAP_PEOPLE_H

#include <stdbool.h>

/* `name` is a name or a number. */
bool people_is_user(const char *name);
bool people_is_in_group(const char *name);

#endif
