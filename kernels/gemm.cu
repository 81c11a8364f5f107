/* Matrix product by cuBLASLt: c[m][n] = act(alpha * op(a) op(b) + beta * c + bias), all row-major. cuBLASLt's
 * matrices are column-major, where the same memory is the transpose, so it computes c' = op(b)' op(a)'. The
 * plan of a shape (descriptors and the first algorithm of the library's heuristics) is kept in the table. The
 * choice depends on shape, types, alignment and workspace only, so that a run repeats to the bit, unless the
 * table has `tune` set: then the fastest of the first few is measured (gemm_tune.cu). gemm_plain.cu does what
 * cuBLASLt cannot: an epilogue it lacks, or a whole product that it has no algorithm for. The only device
 * memory used is the caller's workspace. The CPU reference is gemm.c. */
#include "kernels/gemm.cuh"

#include <cublasLt.h>
#include <new>
#include <string.h>
#include <type_traits>

enum { BUCKETS = 256, MOST_TRIED = 8 };

/* What the algorithm depends on. Compared as bytes, so it has no padding. */
struct gemm_key {
    int type, c_type, m, n, k, trans_a, trans_b, batch, tf32, epilogue;
    size_t stride_a, stride_b, stride_c, workspace_bytes, aligned;
};
static_assert(std::has_unique_object_representations_v<struct gemm_key>, "padding would be compared");

struct gemm_plan {
    struct gemm_key key;
    struct gemm_plan *next;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    bool usable; /* an algorithm was found */
    bool tuned;  /* the algorithm was measured */
};

struct cuda_gemm {
    cublasLtHandle_t handle;
    struct gemm_plan *plans[BUCKETS];
};

static int status_of(cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return OPS_OK;
    return status == CUBLAS_STATUS_ALLOC_FAILED ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

int cuda_gemm_open(struct cuda_ops *, struct cuda_gemm **out)
{
    struct cuda_gemm *gemm = new (std::nothrow) struct cuda_gemm();
    int status;

    if (!gemm)
        return OPS_OUT_OF_MEMORY;
    status = status_of(cublasLtCreate(&gemm->handle));
    if (status) {
        delete gemm;
        return status;
    }
    *out = gemm;
    return OPS_OK;
}

static void free_plan(struct gemm_plan *plan)
{
    if (plan->operation)
        cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a)
        cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b)
        cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->c)
        cublasLtMatrixLayoutDestroy(plan->c);
    delete plan;
}

void cuda_gemm_close(struct cuda_gemm *gemm)
{
    for (int i = 0; i < BUCKETS; i++) {
        while (gemm->plans[i]) {
            struct gemm_plan *plan = gemm->plans[i];

            gemm->plans[i] = plan->next;
            free_plan(plan);
        }
    }
    cublasLtDestroy(gemm->handle);
    delete gemm;
}

static cudaDataType_t data_type(int type)
{
    return type == OPS_F32 ? CUDA_R_32F : type == OPS_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Returns the epilogue for bias, activation and aux, or -1 if gemm_epilogue() has to follow the product.
 * cuBLASLt takes the bias in c's type and writes aux of gelu only, in rows of a multiple of 8 elements. */
static int choose_epilogue(const struct op_gemm *g)
{
    bool bias = g->bias != NULL;

    if (bias && g->type != g->c_type)
        return -1;
    if (g->aux &&
        (g->act != OPS_ACT_GELU || g->c_type == OPS_F32 || g->n % 8 || (uintptr_t)g->aux % CUDA_PACK_BYTES))
        return -1;
    if (g->act == OPS_ACT_GELU && g->c_type == OPS_F32)
        return -1;
    if (g->act == OPS_ACT_GELU && g->aux)
        return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (g->act == OPS_ACT_GELU)
        return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    if (g->act == OPS_ACT_RELU)
        return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static struct gemm_key make_key(const struct op_gemm *g, int epilogue)
{
    size_t type_bytes = ops_type_bytes(g->type), c_bytes = ops_type_bytes(g->c_type);
    int batch = g->batch > 1 ? g->batch : 1;
    struct gemm_key key;

    key.type = g->type, key.c_type = g->c_type;
    key.m = g->m, key.n = g->n, key.k = g->k;
    key.trans_a = g->trans_a != 0, key.trans_b = g->trans_b != 0;
    key.tf32 = g->type == OPS_F32 && g->tf32;
    key.epilogue = epilogue;
    key.batch = batch;
    key.stride_a = batch > 1 ? g->stride_a : 0;
    key.stride_b = batch > 1 ? g->stride_b : 0;
    key.stride_c = batch > 1 ? g->stride_c : 0;
    key.aligned = cuda_aligned((key.stride_a | key.stride_b) * type_bytes | key.stride_c * c_bytes, g->a,
                               g->b, g->c, g->bias);
    key.workspace_bytes = g->workspace ? g->workspace_bytes : 0;
    return key;
}

static unsigned bucket_of(const struct gemm_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < sizeof(*key); i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return (unsigned)((hash ^ hash >> 32) % BUCKETS);
}

/* A layout of rows x cols in cuBLASLt's columns, that is of a dense row-major [cols][rows]. */
static cublasStatus_t make_layout(cublasLtMatrixLayout_t *out, int type, int rows, int cols, int batch,
                                  size_t stride)
{
    cublasStatus_t status = cublasLtMatrixLayoutCreate(out, data_type(type), rows, cols, rows);
    int64_t offset = (int64_t)stride;

    if (!status && batch > 1)
        status =
            cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch));
    if (!status && batch > 1)
        status = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset,
                                                  sizeof(offset));
    return status;
}

/* cuBLASLt's first operand is our b and its second our a. */
static cublasStatus_t describe(struct gemm_plan *plan)
{
    const struct gemm_key *key = &plan->key;
    cublasComputeType_t compute = key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t op_b = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_a = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)key->epilogue;
    int64_t aux_step = key->n;
    int64_t aux_offset = (int64_t)key->stride_c;
    cublasStatus_t status = cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F);

    if (!status)
        status =
            cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof(op_b));
    if (!status)
        status =
            cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof(op_a));
    if (!status)
        status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                sizeof(epilogue));
    if (!status && (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)) {
        status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                                &aux_step, sizeof(aux_step));
        if (!status && key->batch > 1)
            status = cublasLtMatmulDescSetAttribute(plan->operation,
                                                    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
                                                    &aux_offset, sizeof(aux_offset));
    }
    if (!status)
        status = make_layout(&plan->a, key->type, key->trans_a ? key->m : key->k,
                             key->trans_a ? key->k : key->m, key->batch, key->stride_a);
    if (!status)
        status = make_layout(&plan->b, key->type, key->trans_b ? key->k : key->n,
                             key->trans_b ? key->n : key->k, key->batch, key->stride_b);
    if (!status)
        status = make_layout(&plan->c, key->c_type, key->n, key->m, key->batch, key->stride_c);
    return status;
}

/* Finds at most `most` algorithms, the most promising first. None is no error. */
static cublasStatus_t find_algorithms(struct cuda_gemm *gemm, const struct gemm_plan *plan, int most,
                                      cublasLtMatmulHeuristicResult_t *results, int *found)
{
    cublasLtMatmulPreference_t preference = NULL;
    uint32_t aligned =
        plan->key.aligned ? CUDA_PACK_BYTES : (uint32_t)ops_type_bytes((enum ops_type)plan->key.type);
    uint32_t c_aligned =
        plan->key.aligned ? CUDA_PACK_BYTES : (uint32_t)ops_type_bytes((enum ops_type)plan->key.c_type);
    uint64_t bytes = plan->key.workspace_bytes;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);

    *found = 0;
    if (status)
        return status;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                         sizeof(bytes));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &aligned,
                                         sizeof(aligned));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &aligned,
                                         sizeof(aligned));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c_aligned,
                                         sizeof(c_aligned));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c_aligned,
                                         sizeof(c_aligned));
    /* The fastest of several must not be the one that adds up parts in 16 bits. */
    if (most > 1 && plan->key.c_type != OPS_F32)
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                             sizeof(schemes));
    status = cublasLtMatmulAlgoGetHeuristic(gemm->handle, plan->operation, plan->b, plan->a, plan->c, plan->c,
                                            preference, most, results, found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status)
        *found = 0;
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE
               ? CUBLAS_STATUS_SUCCESS
               : status;
}

static cublasStatus_t choose_algorithm(struct cuda_gemm *gemm, struct gemm_plan *plan)
{
    cublasLtMatmulHeuristicResult_t result;
    int found;
    cublasStatus_t status = find_algorithms(gemm, plan, 1, &result, &found);

    plan->usable = found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    if (plan->usable)
        plan->algorithm = result.algo;
    return status;
}

/* Finds the plan of a key; makes it at first use. */
static int find_plan(struct cuda_gemm *gemm, const struct gemm_key *key, struct gemm_plan **out)
{
    struct gemm_plan **bucket = &gemm->plans[bucket_of(key)];
    struct gemm_plan *plan = *bucket;
    cublasStatus_t status;

    while (plan && memcmp(&plan->key, key, sizeof(*key)) != 0)
        plan = plan->next;
    if (!plan) {
        plan = new (std::nothrow) gemm_plan();
        if (!plan)
            return OPS_OUT_OF_MEMORY;
        plan->key = *key;
        status = describe(plan);
        if (!status)
            status = choose_algorithm(gemm, plan);
        if (status) {
            free_plan(plan);
            return status_of(status);
        }
        plan->next = *bucket;
        *bucket = plan;
    }
    *out = plan;
    return OPS_OK;
}

static int run_plan(struct cuda_gemm *gemm, const struct gemm_plan *plan, const struct op_gemm *g,
                    ops_stream stream)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (g->bias && plan->key.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias,
                                                sizeof(g->bias));
    if (!status && g->aux && plan->key.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                &g->aux, sizeof(g->aux));
    if (!status)
        status = cublasLtMatmul(gemm->handle, plan->operation, &g->alpha, g->b, plan->b, g->a, plan->a,
                                &g->beta, g->c, plan->c, g->c, plan->c, &plan->algorithm, g->workspace,
                                plan->key.workspace_bytes, stream);
    return status_of(status);
}

/* What gemm_tune_fastest runs. */
struct trial {
    struct cuda_gemm *gemm;
    struct gemm_plan *plan;
    const struct op_gemm *args;
    cublasLtMatmulHeuristicResult_t results[MOST_TRIED];
};

static int run_trial(void *arg, int candidate, ops_stream stream)
{
    struct trial *trial = (struct trial *)arg;

    if (trial->results[candidate].state != CUBLAS_STATUS_SUCCESS)
        return cudaErrorUnknown;
    trial->plan->algorithm = trial->results[candidate].algo;
    return run_plan(trial->gemm, trial->plan, trial->args, stream);
}

/* Measures the plan's algorithms and keeps the fastest. A trial writes what the product itself is about to
 * overwrite, so beta must be 0, and the stream must not be captured. */
static void tune(struct cuda_gemm *gemm, struct gemm_plan *plan, const struct op_gemm *args,
                 ops_stream stream)
{
    struct trial trial = {gemm, plan, args, {}};
    cublasLtMatmulAlgo_t first = plan->algorithm;
    int found = 0, fastest = -1;

    if (find_algorithms(gemm, plan, MOST_TRIED, trial.results, &found) == CUBLAS_STATUS_SUCCESS)
        fastest = gemm_tune_fastest(run_trial, &trial, found, stream);
    plan->algorithm = fastest >= 0 ? trial.results[fastest].algo : first;
    plan->tuned = true;
}

/* Finds the plan of a product; makes it at first use, and tunes it as soon as it can be. A product that adds
 * to c is tuned by one of the same shape that does not. */
static int prepare(struct cuda_ops *ops, ops_stream stream, const struct op_gemm *args, int epilogue,
                   struct gemm_plan **plan)
{
    struct gemm_key key = make_key(args, epilogue);
    int status = find_plan(ops->gemm, &key, plan);

    if (!status && ops->table.tune && (*plan)->usable && !(*plan)->tuned && args->beta == 0.0f &&
        !cuda_capturing(stream))
        tune(ops->gemm, *plan, args, stream);
    return status;
}

int cuda_gemm(struct cuda_ops *ops, ops_stream stream, const struct op_gemm *args)
{
    int epilogue = choose_epilogue(args);
    struct gemm_plan *plan = NULL;
    int status;

    if (args->m == 0 || args->n == 0)
        return OPS_OK;
    if (args->k == 0)
        return gemm_plain(stream, args);
    if (epilogue >= 0) {
        status = prepare(ops, stream, args, epilogue, &plan);
        if (status)
            return status;
        if (plan->usable)
            return run_plan(ops->gemm, plan, args, stream);
    }
    status = prepare(ops, stream, args, CUBLASLT_EPILOGUE_DEFAULT, &plan);
    if (status)
        return status;
    if (!plan->usable)
        return gemm_plain(stream, args);
    status = run_plan(ops->gemm, plan, args, stream);
    if (!status && (args->bias || args->aux || args->act != OPS_ACT_NONE))
        status = gemm_epilogue(stream, args);
    return status;
}
