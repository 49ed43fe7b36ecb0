/* A job: its ranks join, check what they call, and end together. The first failure is said and told to all other ranks. */
#ifndef JOB_H
#define JOB_H

#include <stdio.h>
#include <stdlib.h>
#include <tarantella/tarantella.h>

#include "problem.h"

typedef struct {
  tnt_comm_t comm;
  int rank;
  int ranks;
  int local_rank;
} job_t;

static job_t job; /* one in a process */

static void give_up(const char* what, const char* reason) {
  char message[1024];
  snprintf(message, sizeof message, "%s: %s", what, reason);
  fprintf(stderr, "rank %d: %s\n", job.rank, message);
  if (job.comm != NULL) tnt_comm_abort(job.comm, message);
  exit(1);
}

static void check(tnt_status_t status, const char* call) {
  if (status != TNT_SUCCESS) give_up(call, tnt_last_error());
}
#define CHECK(call) check(call, #call)

static void use_comm(tnt_comm_t comm) {
  job.comm = comm;
  CHECK(tnt_comm_rank(comm, &job.rank));
  CHECK(tnt_comm_size(comm, &job.ranks));
  CHECK(tnt_comm_local_rank(comm, &job.local_rank));
}

static void join_job(void) {
  const char* transport = NULL;
  tnt_comm_t world = NULL;
  CHECK(tnt_init(NULL));
  CHECK(tnt_comm_world(&world));
  use_comm(world);
  CHECK(tnt_comm_transport(job.comm, &transport));
  if (job.rank == 0) fprintf(stderr, "%d rank%s, transport %s\n", job.ranks, job.ranks == 1 ? "" : "s", transport);
}

/* For the TENSORS gradients of the problem. Ranks compare context: one that was given other options is named on all. */
static tnt_reducer_t make_reducer(tnt_reducer_options_t options, const char* context) {
  tnt_tensor_t tensors[TENSORS];
  tnt_reducer_t reducer = NULL;
  size_t n_buckets = 0;
  size_t i;
  for (i = 0; i < TENSORS; ++i) {
    tensors[i].name = tensor_names[i];
    tensors[i].count = tensor_count((int)i);
    tensors[i].dtype = TNT_FLOAT32;
  }
  options.context = context;
  CHECK(tnt_reducer_create(job.comm, tensors, TENSORS, &options, &reducer));
  CHECK(tnt_reducer_bucket_count(reducer, &n_buckets));
  for (i = 0; job.rank == 0 && i < n_buckets; ++i) {
    tnt_bucket_t bucket = TNT_BUCKET_INITIALIZER;
    CHECK(tnt_reducer_bucket(reducer, i, &bucket));
    fprintf(stderr, "%s\n", bucket.description);
  }
  return reducer;
}

/* Data-parallel training keeps the same weights on all ranks, to the bit: this says whether it did. */
static void check_same_on_all_ranks(uint64_t hash) {
  int64_t least = (int64_t)hash;
  int64_t most = (int64_t)hash;
  CHECK(tnt_all_reduce(job.comm, &least, &least, 1, TNT_INT64, TNT_MIN, NULL, NULL));
  CHECK(tnt_all_reduce(job.comm, &most, &most, 1, TNT_INT64, TNT_MAX, NULL, NULL));
  if (least != most) give_up("training", "the ranks hold different weights");
}

#endif
