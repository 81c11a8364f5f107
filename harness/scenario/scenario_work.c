/* scenario_work: the trainings that the scenarios run. See scenario_work.h. */
#include "harness/scenario/scenario_work.h"

#include "harness/scenario/scenario.h"

enum { SIMULATED, GPU, TINY, PLACES };

/* By letter and place. Sizes on simgpu: a step takes 10 to 500 ms on two cores; the tiny ones are for tests.
 */
static const char *const pair[PLACES][16] = {
    {"--pair", "mlp", "mlp", "--hidden=32", "--batch=4096", "--val-batches=1", "--val-batch=1"},
    {"--pair", "resnet50", "gpt2-small", "--precision=bf16", "--batch=16", "--val-batches=1", "--val-batch=1",
     "--samples=2048", "--workers=8"},
    {"--pair", "mlp", "mlp", "--hidden=16", "--batch=512", "--val-batches=1"},
};
static const char *const arenas[PLACES][16] = {
    {"--model=mlp", "--hidden=64", "--batch=4096", "--val-batches=1"},
    {"--model=resnet50", "--precision=bf16", "--batch=64", "--val-batches=1", "--val-batch=1",
     "--samples=2048", "--workers=4"},
    {"--model=mlp", "--hidden=8", "--batch=1024", "--val-batches=1"},
};
static const char *const spike[PLACES][16] = {
    {"--model=cnn", "--width=8", "--image=32", "--raw=256", "--batch=64", "--augment=cpu", "--val-batch=128",
     "--val-batches=1"},
    {"--model=resnet50", "--precision=bf16", "--raw=1536", "--batch=64", "--augment=cpu", "--val-batch=64",
     "--val-batches=1", "--samples=1024", "--workers=14", "--data-budget=8G"},
    {"--model=cnn", "--width=2", "--image=16", "--raw=64", "--batch=8", "--augment=cpu", "--val-batch=64",
     "--val-batches=1"},
};
static const char *const fragments[PLACES][16] = {
    {"--model=gpt", "--layers=2", "--width=64", "--heads=2", "--length=256", "--batch=32", "--vary",
     "--val-batches=1", "--val-batch=1"},
    {"--model=gpt2-small", "--precision=bf16", "--batch=16", "--vary", "--val-batches=1", "--val-batch=1",
     "--samples=2048"},
    {"--model=gpt", "--layers=1", "--width=32", "--heads=2", "--length=64", "--batch=8", "--vary",
     "--val-batches=1", "--val-batch=1"},
};
static const char *const batch[PLACES][16] = {
    {"--model=gpt", "--layers=4", "--width=64", "--heads=2", "--length=128", "--batch=4096", "--find-batch",
     "--val-batches=1", "--val-batch=1"},
    {"--model=gpt2-small", "--batch=4096", "--find-batch", "--val-batches=1", "--val-batch=1",
     "--samples=8192"},
    {"--model=mlp", "--hidden=16", "--batch=64", "--find-batch", "--val-batches=1"},
};
static const char *const throughput[PLACES][16] = {
    {"--model=cnn", "--width=8", "--batch=32", "--val-batches=1"},
    {"--model=resnet18", "--precision=bf16", "--batch=32", "--image=64", "--val-batches=1", "--val-batch=1",
     "--samples=4096", "--workers=3"},
    {"--model=mlp", "--hidden=16", "--batch=16", "--val-batches=1"},
};
/* The size of the validation's batch and how many there are of them come from the scenario. Its activations
 * are no more than those of a training's step, so that the raw pictures are the peak. */
static const char *const peaks[PLACES][16] = {
    {"--model=cnn", "--width=8", "--image=32", "--raw=256", "--batch=96", "--augment=cpu", "--alloc=naive",
     "--val-preprocess=gpu", "--validate-every=4"},
    {"--model=resnet50", "--precision=bf16", "--raw=2048", "--batch=8", "--augment=cpu", "--alloc=naive",
     "--val-preprocess=gpu", "--validate-every=3", "--samples=512", "--workers=4", "--data-budget=4G"},
    {"--model=cnn", "--width=2", "--image=16", "--raw=128", "--batch=16", "--augment=cpu", "--alloc=naive",
     "--val-preprocess=gpu", "--validate-every=2"},
};

scenario_work_list scenario_work(const struct scenario *scenario)
{
    const int place = scenario->tiny ? TINY : scenario->card.simulated ? SIMULATED : GPU;

    switch (scenario->result->letter) {
    case 'a':
        return pair[place];
    case 'b':
        return arenas[place];
    case 'c':
        return spike[place];
    case 'd':
        return fragments[place];
    case 'e':
        return batch[place];
    case 'g':
        return peaks[place];
    default:
        return throughput[place];
    }
}

const char *scenario_steps(const struct scenario *scenario)
{
    const bool few = scenario->quick;

    if (scenario->tiny) /* those of (b) must still be there when the last one has started */
        return scenario->result->letter == 'b'   ? "--steps=40"
               : scenario->result->letter == 'g' ? "--steps=6"
                                                 : "--steps=3";
    switch (scenario->result->letter) {
    case 'a':
        return scenario->card.simulated ? few ? "--steps=10" : "--steps=60"
               : few                    ? "--steps=12"
                                        : "--steps=60";
    case 'c': /* preparing a step's pictures takes 0.2 s on the 16 cores of an H200's host */
        return scenario->card.simulated ? few ? "--steps=8" : "--steps=20" : few ? "--steps=6" : "--steps=40";
    case 'd':
        return scenario->card.simulated ? few ? "--steps=6" : "--steps=20"
               : few                    ? "--steps=20"
                                        : "--steps=60";
    case 'g':
        return scenario->card.simulated ? few ? "--steps=8" : "--steps=40" : few ? "--steps=6" : "--steps=40";
    case 'f':
        return scenario->card.simulated ? few ? "--steps=30" : "--steps=100"
               : few                    ? "--steps=200"
                                        : "--steps=1000";
    default:
        return scenario->card.simulated ? few ? "--steps=8" : "--steps=20"
               : few                    ? "--steps=20"
                                        : "--steps=60";
    }
}

const char *scenario_few_steps(const struct scenario *scenario)
{
    if (scenario->result->letter == 'd' && !scenario->tiny) /* one that varies needs some to fragment */
        return scenario->quick ? scenario->card.simulated ? "--steps=6" : "--steps=8" : "--steps=20";
    return "--steps=3";
}
