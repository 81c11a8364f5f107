/* The names of checkpoint files: a file that is being written beside its target, and the older ones that are
 * kept. Several processes may save to one path at once: each writes a file of its own, and every file that
 * has its final name is complete. Returns 0 or -1 with errno. */
#ifndef HARNESS_CHECKPOINT_PLACE_H
#define HARNESS_CHECKPOINT_PLACE_H

#include <limits.h>
#include <stdint.h>

/* Creates a file beside `path` under a name that no other process has, and writes that name to `temporary`.
 * Returns its descriptor, whose lock is held while the writer lives. Removes the files of dead writers. */
int checkpoint_place_create(const char *path, char temporary[PATH_MAX]);

/* Renames `temporary` to `path`. With keep > 1, the old path becomes path.1, path.1 becomes path.2, and so on
 * up to path.(keep - 1); path.0 exists only during the call. At every moment `path` is a complete file, if it
 * was one before. If it fails, all files are as they were. */
int checkpoint_place_commit(const char *temporary, const char *path, uint64_t keep);

#endif
