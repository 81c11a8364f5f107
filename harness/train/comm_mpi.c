/* libtrain_mpi.so: struct comm by MPI. The only file that sees mpi.h. */
#include <limits.h>
#include <mpi.h>

#include "harness/train/comm.h"

static int broadcast(void *bytes, size_t count)
{
    return count > INT_MAX ? MPI_ERR_COUNT : MPI_Bcast(bytes, (int)count, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static int gather(const void *bytes, size_t count, void *all)
{
    return count > INT_MAX
               ? MPI_ERR_COUNT
               : MPI_Allgather(bytes, (int)count, MPI_BYTE, all, (int)count, MPI_BYTE, MPI_COMM_WORLD);
}

static int sum(float *values, size_t count)
{
    const size_t most = INT_MAX;
    int error = MPI_SUCCESS;

    while (count > 0 && !error) {
        size_t part = count < most ? count : most;

        error = MPI_Allreduce(MPI_IN_PLACE, values, (int)part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        values += part;
        count -= part;
    }
    return error;
}

static void end_all(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static int end(void)
{
    return MPI_Finalize();
}

/* The one name that is exported. */
__attribute__((visibility("default"))) int comm_mpi_open(size_t table_size, struct comm *out);

int comm_mpi_open(size_t table_size, struct comm *out)
{
    int provided = 0;
    int error;
    MPI_Comm local;

    if (table_size != sizeof(*out))
        return MPI_ERR_ARG;
    error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (error)
        return error;
    *out =
        (struct comm){.broadcast = broadcast, .gather = gather, .sum = sum, .abort = end_all, .close = end};
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &out->size);
    error = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, out->rank, MPI_INFO_NULL, &local);
    if (error)
        return error;
    MPI_Comm_rank(local, &out->local_rank);
    return MPI_Comm_free(&local);
}
