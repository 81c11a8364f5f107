/* Communication between the processes of an MPI job. MPI is linked into a shared object of its own
 * (libtrain_mpi.so), so that `train` runs without MPI; the object fills this table. Functions return 0 or
 * MPI's error number. */
#ifndef HARNESS_COMM_H
#define HARNESS_COMM_H

#include <stddef.h>

struct comm {
    int rank, size;
    int local_rank; /* among the processes on this machine */
    /* Copies rank 0's bytes to all ranks. */
    int (*broadcast)(void *bytes, size_t count);
    /* Copies every rank's bytes to all ranks, in the order of the ranks. */
    int (*gather)(const void *bytes, size_t count, void *all);
    /* Replaces each value by its sum over the ranks; host memory. */
    int (*sum)(float *values, size_t count);
    /* Ends every process of the job. */
    void (*abort)(int code);
    int (*close)(void);
};

#define COMM_OPEN_NAME "comm_mpi_open"

/* table_size is the caller's sizeof(struct comm), so that an object of another build is refused. */
typedef int (*comm_open_fn)(size_t table_size, struct comm *out);

#endif
