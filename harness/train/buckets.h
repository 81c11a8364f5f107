/* The gradients of a replica in buckets, which NCCL averages on a stream of its own while the backward pass
 * goes on: a bucket is queued when the last of its gradients is complete. The first buckets hold the last
 * layers' gradients. Only queues work, in the same order on every replica, so that a step can be captured. */
#ifndef HARNESS_BUCKETS_H
#define HARNESS_BUCKETS_H

#include "harness/model/model.h"
#include "harness/profile/profile.h"
#include "harness/train/nccl.h"

struct bucket {
    int first, count; /* of buckets.order */
    int last_layer;   /* after whose backward pass all its gradients are complete */
    cudaEvent_t ready;
};

struct buckets {
    struct nccl_comm *comm;
    cudaStream_t stream; /* NCCL's */
    cudaEvent_t averaged;
    int *order; /* trained parameters, by when their gradients are complete */
    struct nccl_part *parts;
    struct bucket *bucket;
    int bucket_count;
    int next;                /* bucket to queue */
    struct profile *profile; /* the active profile, or NULL; set by the owner */
};

/* Plans buckets of about `bytes` for an open model on the current device. Call buckets_close also after a
 * failure. */
enum status buckets_open(struct buckets *buckets, const struct model *model, struct nccl_comm *comm,
                         size_t bytes);

/* Waits for the stream. Accepts a zeroed one. */
void buckets_close(struct buckets *buckets);

/* Call after the backward pass of each layer: queues the buckets that are complete. */
enum status buckets_layer_done(struct buckets *buckets, struct model *model, int layer);

/* Call after the backward pass: makes the model's stream wait for the averages. */
enum status buckets_join(struct buckets *buckets, struct model *model);

#endif
