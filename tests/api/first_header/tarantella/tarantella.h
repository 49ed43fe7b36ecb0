/* The part of the first header that old_caller.c needs. It is never changed: later versions of the structs have more fields. */
#ifndef TARANTELLA_TARANTELLA_H
#define TARANTELLA_TARANTELLA_H

#include <stddef.h>
#include <stdint.h>

typedef struct tnt_comm* tnt_comm_t;
typedef struct tnt_reducer* tnt_reducer_t;
typedef void* tnt_stream_t;
typedef enum { TNT_SUCCESS = 0, TNT_INVALID_ARGUMENT = 1 } tnt_status_t;
typedef enum { TNT_FLOAT32 = 0 } tnt_dtype_t;

typedef struct {
  size_t size;
  int rank;
  int ranks;
  const char* rendezvous;
  const char* token;
} tnt_init_options_t;
#define TNT_INIT_OPTIONS_INITIALIZER \
  { sizeof(tnt_init_options_t), 0, 1, NULL, NULL }

typedef struct {
  const char* name;
  size_t count;
  tnt_dtype_t dtype;
} tnt_tensor_t;

typedef struct {
  size_t size;
  const char* name;
  const char* context;
  size_t fusion_threshold;
} tnt_reducer_options_t;
#define TNT_FUSION_DEFAULT SIZE_MAX
#define TNT_REDUCER_OPTIONS_INITIALIZER \
  { sizeof(tnt_reducer_options_t), NULL, NULL, TNT_FUSION_DEFAULT }

typedef struct {
  size_t size;
  size_t count;
  size_t bytes;
  tnt_dtype_t dtype;
  const size_t* tensors;
  size_t n_tensors;
} tnt_bucket_t;
#define TNT_BUCKET_INITIALIZER \
  { sizeof(tnt_bucket_t), 0, 0, TNT_FLOAT32, NULL, 0 }

typedef struct {
  size_t size;
  uint64_t steps;
  uint64_t bytes;
  double busy;
  double exposed;
} tnt_reducer_stats_t;
#define TNT_REDUCER_STATS_INITIALIZER \
  { sizeof(tnt_reducer_stats_t), 0, 0, 0.0, 0.0 }

typedef struct {
  size_t size;
  size_t index;
  void* data;
  size_t count;
  tnt_dtype_t dtype;
  const size_t* tensors;
  size_t n_tensors;
  char reason[256];
} tnt_packed_bucket_t;
typedef int (*tnt_bucket_hook_t)(tnt_packed_bucket_t* bucket, void* user_data);

const char* tnt_last_error(void);
tnt_status_t tnt_init(const tnt_init_options_t* options);
tnt_status_t tnt_finalize(void);
tnt_status_t tnt_comm_world(tnt_comm_t* comm);
tnt_status_t tnt_reducer_create(tnt_comm_t comm, const tnt_tensor_t* tensors, size_t n_tensors,
                                const tnt_reducer_options_t* options, tnt_reducer_t* reducer);
tnt_status_t tnt_reducer_bucket(tnt_reducer_t reducer, size_t index, tnt_bucket_t* bucket);
tnt_status_t tnt_reducer_set_hook(tnt_reducer_t reducer, tnt_bucket_hook_t hook, void* user_data);
tnt_status_t tnt_reducer_ready(tnt_reducer_t reducer, size_t tensor, const void* gradient, void* out, double scale,
                               tnt_stream_t stream);
tnt_status_t tnt_reducer_finish(tnt_reducer_t reducer, tnt_stream_t stream);
tnt_status_t tnt_reducer_stats(tnt_reducer_t reducer, tnt_reducer_stats_t* stats);
tnt_status_t tnt_reducer_destroy(tnt_reducer_t reducer);

#endif
