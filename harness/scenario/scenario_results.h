/* scenario_results: saves results in a file, so that another machine can write the documentation. Lines "key
 * value", parts of a value separated by tabs. The file is not trusted: unknown lines are refused, and values
 * that are too long are refused or cut. Owns no lock. */
#ifndef HARNESS_SCENARIO_RESULTS_H
#define HARNESS_SCENARIO_RESULTS_H

#include "harness/scenario/scenario_docs.h"

/* Checks beforehand, as far as possible, that results_save can write `path`. Returns 0 or a negative errno.
 */
int results_can_save(const char *path);

/* Writes all results into a new file and renames it to `path`. Returns 0 or a negative errno. */
int results_save(const char *path, const struct docs_origin *origin, const struct scenario_result *results,
                 unsigned count);

/* Reads a text of results, at most `most` of them. The texts that belong to a letter (title, subject,
 * question) stay NULL. Returns 0, or -EINVAL with the number of the bad line in *line. */
int results_parse(const char *text, struct docs_origin *origin, struct scenario_result *results,
                  unsigned most, unsigned *count, unsigned *line);

#endif
