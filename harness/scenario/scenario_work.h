/* scenario_work: the trainings that the scenarios run, as arguments of `train`: small ones for simgpu,
 * which computes on the processor, and real sizes for a GPU. Pure data. */
#ifndef HARNESS_SCENARIO_WORK_H
#define HARNESS_SCENARIO_WORK_H

struct scenario;

/* Arguments of `train`, ended by NULL. */
typedef const char *const *scenario_work_list;

scenario_work_list scenario_work(const struct scenario *scenario);

/* Returns "--steps=N" for a run that is timed; scenario_few_steps for one that only shows whether it fits. */
const char *scenario_steps(const struct scenario *scenario);
const char *scenario_few_steps(const struct scenario *scenario);

#endif
