/* Measures ways to compute a product, for a table that has `tune` set. Waits for the device, so it must never
 * be called while the stream is captured. Allocates no device memory. */
#include "kernels/gemm.cuh"

enum { ROUNDS = 4, RUNS = 3, MOST_CANDIDATES = 16 };

/* An earlier candidate is kept unless a later one takes less than this share of its time: below is noise. */
static const float CLEARLY_FASTER = 0.98f;

/* Returns the milliseconds of a few runs, or infinity if the candidate does not run. */
static float measure(gemm_tune_run_fn run, void *arg, int candidate, const cudaEvent_t *events,
                     ops_stream stream)
{
    float ms = INFINITY;

    if (cudaEventRecord(events[0], stream))
        return INFINITY;
    for (int i = 0; i < RUNS; i++) {
        if (run(arg, candidate, stream))
            return INFINITY;
    }
    if (cudaEventRecord(events[1], stream) || cudaEventSynchronize(events[1]) ||
        cudaEventElapsedTime(&ms, events[0], events[1]))
        return INFINITY;
    return ms;
}

static int choose(const float *ms, int count)
{
    float least = INFINITY;

    for (int i = 0; i < count; i++)
        least = fminf(least, ms[i]);
    for (int i = 0; i < count && least < INFINITY; i++) {
        if (ms[i] * CLEARLY_FASTER <= least)
            return i;
    }
    return -1;
}

/* The candidates take turns, so that a change of the clock meets all of them. The first round, which loads
 * their code, does not count. */
int gemm_tune_fastest(gemm_tune_run_fn run, void *arg, int count, ops_stream stream)
{
    cudaEvent_t events[2] = {NULL, NULL};
    float ms[MOST_CANDIDATES];
    int fastest = -1;

    count = count < MOST_CANDIDATES ? count : MOST_CANDIDATES;
    for (int i = 0; i < count; i++)
        ms[i] = INFINITY;
    if (cudaEventCreate(&events[0]) == cudaSuccess && cudaEventCreate(&events[1]) == cudaSuccess) {
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < count; i++) {
                float taken = measure(run, arg, i, events, stream);

                ms[i] = round ? fminf(ms[i], taken) : INFINITY;
            }
        }
        fastest = choose(ms, count);
    }
    for (int i = 0; i < 2; i++) {
        if (events[i])
            cudaEventDestroy(events[i]);
    }
    (void)cudaGetLastError(); /* of a candidate that did not run: the next launch must not report it */
    return fastest;
}
