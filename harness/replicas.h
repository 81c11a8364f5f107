/* Data-parallel training: several replicas of one model, whose gradients are averaged before every update. */
#ifndef HARNESS_REPLICAS_H
#define HARNESS_REPLICAS_H

#include "options.h"
#include "status.h"

enum status replicas_run(const struct options *options);

#endif
