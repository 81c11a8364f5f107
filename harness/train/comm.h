/* The processes of one job, as MPI starts them. MPI is in a shared object of its own (libtrain_mpi.so), so
 * that train runs without it; this is what that gives. Functions return 0, or MPI's error number. */
#ifndef HARNESS_COMM_H
#define HARNESS_COMM_H

#include <stddef.h>

struct comm {
    int rank, size;
    int local_rank, local_size; /* among those on this machine */
    /* From rank 0 to all. */
    int (*broadcast)(void *bytes, size_t count);
    /* values = the sum over the ranks, in host memory. */
    int (*sum)(float *values, size_t count);
    /* Ends every process of the job. */
    void (*abort)(int code);
    int (*close)(void);
};

#define COMM_OPEN_NAME "comm_mpi_open"
/* table_size is the caller's sizeof(struct comm): a stale object is refused. */
typedef int (*comm_open_fn)(size_t table_size, struct comm *out);

#endif
