/* Measures time and memory of a training's operations: --profile and --nvtx. In the measured steps, two CUDA
 * events enclose each operation on its stream, and the live bytes of each kind of memory are noted when it is
 * queued. The events are created before those steps and read after them, so that the host runs ahead of the
 * device as in any other step. On simgpu, events use the host's clock. In all other steps, and without a
 * profile, the model calls the operations directly.
 *
 * A profile belongs to the thread of its trainer. Functions accept NULL and then do nothing. */
#ifndef HARNESS_PROFILE_H
#define HARNESS_PROFILE_H

#include "harness/base/train_options.h"
#include "harness/model/model.h"

struct profile;

/* Makes a profile for replica `replica` if the options ask for one, else leaves *out NULL. All must outlive
 * the profile. */
enum status profile_open(struct profile **out, const struct train_options *options, struct model *model,
                         uint64_t replica);
void profile_close(struct profile *profile);

/* Call before the first work of a step is queued, and after the last. `step` counts from 0; `left` steps are
 * to be done, this one included. */
enum status profile_begin_step(struct profile *profile, uint64_t step, uint64_t left);
enum status profile_end_step(struct profile *profile, uint64_t left);

/* Returns true until the last step of the profile is done: do not capture or time steps before that. */
bool profile_is_pending(const struct profile *profile);

/* Call on both sides of the average of a bucket, with the stream where it runs. */
enum status profile_begin_average(struct profile *profile, cudaStream_t stream, int bucket, size_t bytes);
enum status profile_end_average(struct profile *profile, cudaStream_t stream);

/* ---- afterwards ---- */

/* Fails if a file cannot be written there. */
enum status profile_can_write(const char *path);

/* Writes the profiles of a job's replicas as one trace for ui.perfetto.dev. `title` names the training. */
enum status profile_write(const char *path, const char *title, struct profile *const *profiles, int count);

/* Prints the most expensive operations and the memory at its peak, in 80 columns. */
enum status profile_print(const struct profile *profile, FILE *out);

#endif
