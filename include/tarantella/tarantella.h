/* Tarantella: collectives and overlapped gradient reduction for synchronous training. The C API.
 *
 * Conventions, valid for every function unless its comment says otherwise:
 *  - returns tnt_status_t; on anything but TNT_SUCCESS, tnt_last_error() of the calling thread says in one
 *    message what went wrong, on which rank, in which operation, and what to do;
 *  - counts are in elements, sizes in bytes, times in seconds; out-parameters come last but for the stream;
 *  - handles are opaque, owned by the caller, given back by their tnt_..._destroy; NULL is accepted there;
 *  - names and structs passed in are copied; buffers passed in must live until the operation has finished;
 *  - functions may be called from any thread, but collectives on one communicator must be called in the same
 *    order on all of its ranks, so a caller with several threads has to order them itself;
 *  - a failed collective (TNT_TIMEOUT, TNT_PEER_LOST, TNT_MISMATCH, TNT_ABORTED) ends the whole job's communication: every
 *    rank gets the same error from whatever it waits in, and from every later collective.
 */
#ifndef TARANTELLA_TARANTELLA_H
#define TARANTELLA_TARANTELLA_H

#include <stddef.h>
#include <stdint.h>

#define TNT_VERSION_MAJOR 0
#define TNT_VERSION_MINOR 1
#define TNT_VERSION_PATCH 0

#if defined(__GNUC__)
#define TNT_EXPORT __attribute__((visibility("default")))
#else
#define TNT_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tnt_comm* tnt_comm_t;       /* a group of ranks with a transport                 */
typedef struct tnt_work* tnt_work_t;       /* something started and perhaps not yet finished    */
typedef struct tnt_reducer* tnt_reducer_t; /* fused, overlapped gradient reduction              */
typedef void* tnt_stream_t;                /* cudaStream_t, or NULL for host memory: see "streams" */

typedef enum {
  TNT_SUCCESS = 0,
  TNT_INVALID_ARGUMENT = 1, /* the call had no effect; fix the argument and call again    */
  TNT_MISMATCH = 2,         /* ranks called different things: the message names both      */
  TNT_TIMEOUT = 3,          /* a deadline passed: the message names who is missing        */
  TNT_PEER_LOST = 4,        /* a rank died or left: the message names it                  */
  TNT_ABORTED = 5,          /* a rank called tnt_comm_abort: the message is its reason    */
  TNT_SYSTEM = 6,           /* the operating system refused something: memory, files, ... */
  TNT_UNSUPPORTED = 7       /* known, but not available in this build or on this machine  */
} tnt_status_t;

typedef enum {
  TNT_FLOAT32 = 0,
  TNT_FLOAT64 = 1,
  TNT_FLOAT16 = 2,
  TNT_BFLOAT16 = 3,
  TNT_INT8 = 4,
  TNT_UINT8 = 5,
  TNT_INT32 = 6,
  TNT_INT64 = 7
} tnt_dtype_t;

/* Floating-point sums are taken in rank order 0, 1, ... and rounded once (16-bit types accumulate in float32), so
 * the same inputs on the same number of ranks give the same bits, always and on every rank. Between nodes ("hierarchical")
 * large sums of other types than 16-bit ones are taken inside each node first, then in the order of the nodes. TNT_AVG divides
 * the sum by the number of ranks (integers: division truncates). Integer sums and products wrap. */
typedef enum { TNT_SUM = 0, TNT_AVG = 1, TNT_MIN = 2, TNT_MAX = 3, TNT_PROD = 4 } tnt_op_t;

/* ------------------------------------------------------------------------------------------ the library */

/* "0.1.0". Never fails, needs no tnt_init. */
TNT_EXPORT const char* tnt_version(void);

/* The name of a status, "TNT_TIMEOUT" for TNT_TIMEOUT. Never fails. */
TNT_EXPORT const char* tnt_status_name(tnt_status_t status);

/* Bytes of one element; 0 for a value that is no tnt_dtype_t. */
TNT_EXPORT size_t tnt_dtype_size(tnt_dtype_t dtype);

/* What went wrong in the last failed call of this thread; "" if none did. Valid until the thread's next failed call. */
TNT_EXPORT const char* tnt_last_error(void);

/* Where this rank stands in the job. Zero-initialised fields are not used: start from TNT_INIT_OPTIONS_INITIALIZER. */
typedef struct {
  size_t size;            /* sizeof(tnt_init_options_t) of the caller's header                               */
  int rank;               /* this process, from 0                                                            */
  int ranks;              /* processes in the job                                                            */
  const char* rendezvous; /* name of the abstract Unix socket on which the ranks meet; NULL for one rank     */
  const char* token;      /* the job's secret: who does not know it cannot join; NULL for one rank           */
  double join_timeout;    /* seconds until all ranks must have joined; 0: TNT_TIMEOUT                        */
} tnt_init_options_t;
#define TNT_INIT_OPTIONS_INITIALIZER \
  { sizeof(tnt_init_options_t), 0, 1, NULL, NULL, 0.0 }

/* Joins the job. options NULL: from the environment that the launcher sets (TNT_RANK, TNT_SIZE, TNT_RENDEZVOUS, TNT_TOKEN),
 * else as one of the ranks that mpirun or srun started (MPI is initialised, if it is not, and finalized when the process
 * exits); without either the job is this process alone. Blocks until every rank has joined or the deadline (TNT_TIMEOUT,
 * default 600 s) has passed: then TNT_TIMEOUT names who is missing. A second call without tnt_finalize between succeeds and
 * does nothing. */
TNT_EXPORT tnt_status_t tnt_init(const tnt_init_options_t* options);

/* Leaves the job: stops this process' threads, writes the timeline, unmaps shared memory. Does not wait for other ranks; a
 * rank that still waits for this one gets TNT_PEER_LOST. All handles must be destroyed before. Succeeds when not initialised.
 */
TNT_EXPORT tnt_status_t tnt_finalize(void);

/* Nanoseconds of the clock that the timeline uses (CLOCK_MONOTONIC: the same for all processes of a node). */
TNT_EXPORT int64_t tnt_clock_ns(void);

/* Adds a span to the timeline (TNT_TIMELINE); costs nothing when it is off. track: the row it is shown in, such as "step". */
TNT_EXPORT tnt_status_t tnt_trace_span(const char* track, const char* name, int64_t begin_ns, int64_t end_ns);

/* -------------------------------------------------------------------------------------------- streams
 * With a stream, a function takes buffers in the memory of the stream's CUDA device and only enqueues: what the stream has
 * before comes before, what is enqueued on it later comes after; the work runs on streams of the library's own, by NCCL. The
 * host waits for nothing, but for the first such call on a communicator, which is where NCCL connects the ranks. The call's
 * status is that of enqueuing; what goes wrong later, such as a rank that died, is the status of the next call. CUDA's default
 * stream is cudaStreamLegacy or cudaStreamPerThread here, as NULL means host memory. All ranks of a call have their buffers in
 * the same kind of memory. */

/* How many CUDA devices this process can use, and why none: "" if there are some. why may be NULL; static text. Fails only if
 * count is NULL. Needs no tnt_init. */
TNT_EXPORT tnt_status_t tnt_device_count(int* count, const char** why);

/* -------------------------------------------------------------------------------------- communicators */

/* All ranks of the job. Owned by the library: not to be destroyed. */
TNT_EXPORT tnt_status_t tnt_comm_world(tnt_comm_t* comm);

/* Collective. Ranks that pass the same colour >= 0 form a new communicator, ordered by key, then by rank in comm. A negative
 * colour takes part and gets *part = NULL. A communicator of its own also keeps traffic apart: split(comm, 0, 0). */
TNT_EXPORT tnt_status_t tnt_comm_split(tnt_comm_t comm, int color, int key, tnt_comm_t* part);

TNT_EXPORT tnt_status_t tnt_comm_rank(tnt_comm_t comm, int* rank);
TNT_EXPORT tnt_status_t tnt_comm_size(tnt_comm_t comm, int* size);
TNT_EXPORT tnt_status_t tnt_comm_local_rank(tnt_comm_t comm, int* local_rank); /* among comm's ranks of this node */
TNT_EXPORT tnt_status_t tnt_comm_local_size(tnt_comm_t comm, int* local_size);
TNT_EXPORT tnt_status_t tnt_comm_transport(tnt_comm_t comm, const char** name); /* static text: "local", "shm", ... */

/* Ends the job's communication: every rank's waits fail with TNT_ABORTED and "rank R: reason". The first abort wins. Not
 * collective, never blocks, safe from any thread. */
TNT_EXPORT tnt_status_t tnt_comm_abort(tnt_comm_t comm, const char* reason);

/* Gives back a communicator made by tnt_comm_split, after the operations that were started on it have finished. */
TNT_EXPORT tnt_status_t tnt_comm_destroy(tnt_comm_t comm);

/* ---------------------------------------------------------------------------------------- collectives
 * work NULL: returns when done; with a stream, when it is enqueued, and the stream waits. Else *work is a handle for
 * tnt_work_wait/test, to be destroyed by the caller, and a stream does not wait by itself; operations of one communicator run
 * one after another in the order of the calls. in == out works in place wherever both have the same
 * size. Zero counts are allowed. Cost below: S bytes, n ranks, memory traffic of all ranks together. */

/* out[i] = op over ranks of in[i]; both count elements. Cost: 2nS; what is between stays in the caches. */
TNT_EXPORT tnt_status_t tnt_all_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                       tnt_stream_t stream, tnt_work_t* work);

/* in: n*count elements, out: count. Rank r gets elements [r*count, (r+1)*count) of the reduction. Cost: 3nS, S = all of in. */
TNT_EXPORT tnt_status_t tnt_reduce_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype,
                                           tnt_op_t op, tnt_stream_t stream, tnt_work_t* work);

/* in: count elements, out: n*count, rank r's at [r*count, (r+1)*count). Cost: 2S + 2nS, S = all of out. */
TNT_EXPORT tnt_status_t tnt_all_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype,
                                       tnt_stream_t stream, tnt_work_t* work);

/* out on every rank = in on root; in is ignored elsewhere and may be NULL there. Cost: 2(n+1)S. */
TNT_EXPORT tnt_status_t tnt_broadcast(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                                      tnt_stream_t stream, tnt_work_t* work);

/* in and out: n*count elements. Rank r gets the r-th block of count elements of every rank's in; rank s' block is at
 * [s*count, (s+1)*count) of out. Cost: 4nS, S = all of in. */
TNT_EXPORT tnt_status_t tnt_all_to_all(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype,
                                       tnt_stream_t stream, tnt_work_t* work);

/* Returns (or the work finishes) after every rank has called it. */
TNT_EXPORT tnt_status_t tnt_barrier(tnt_comm_t comm, tnt_stream_t stream, tnt_work_t* work);

/* From one rank to another, apart from the collectives. A message of count elements is received by a tnt_recv of the same
 * count and dtype on rank `to`, in the order in which it was sent; anything else is TNT_MISMATCH. A send may return before it
 * is received, but must not be relied on to: ranks that send to each other give one of the two a work. Works of different
 * peers or directions proceed side by side, those of one peer and direction in the order of the calls. A rank cannot send to
 * itself. Cost: 4S. */
TNT_EXPORT tnt_status_t tnt_send(tnt_comm_t comm, const void* in, size_t count, tnt_dtype_t dtype, int to, tnt_stream_t stream,
                                 tnt_work_t* work);
TNT_EXPORT tnt_status_t tnt_recv(tnt_comm_t comm, void* out, size_t count, tnt_dtype_t dtype, int from, tnt_stream_t stream,
                                 tnt_work_t* work);

/* Waits until the operation has finished and returns its status. seconds: this wait's own deadline, negative for none
 * (the operation still has the job's, TNT_TIMEOUT). TNT_TIMEOUT from a shorter wait leaves the operation running. */
TNT_EXPORT tnt_status_t tnt_work_wait(tnt_work_t work, double seconds);

/* *finished = 1 if tnt_work_wait would not block. Returns the operation's status once it has finished. */
TNT_EXPORT tnt_status_t tnt_work_test(tnt_work_t work, int* finished);

/* Gives the handle back. An operation that still runs goes on (its buffers must stay). */
TNT_EXPORT tnt_status_t tnt_work_destroy(tnt_work_t work);

/* -------------------------------------------------------------------------------------------- reducer
 * Gradients in, their sum over ranks out, packed into buckets that are reduced in one fixed order by a thread of the
 * library while the caller goes on. Tensors are given in the order of the layers; buckets are filled in the order in which
 * backward makes gradients: if the caller does not know it, from the last tensor to the first. */

typedef struct {
  const char* name;
  size_t count;
  tnt_dtype_t dtype;
} tnt_tensor_t;

typedef struct {
  size_t size;                  /* sizeof(tnt_reducer_options_t) of the caller's header                                     */
  const char* name;             /* shown in errors and in the timeline; NULL: "gradients"                                   */
  const char* context;          /* must be equal on all ranks, such as the framework's version; NULL: ""                    */
  size_t fusion_threshold;      /* bytes at which a bucket is closed; 0: one tensor each; TNT_FUSION_DEFAULT: from the
                                   environment (TNT_FUSION_THRESHOLD, kilobytes), else chosen from the tensors' bytes and the
                                   measured latency and bandwidth of the communicator. Bytes as they travel                 */
  int wire_dtype;               /* TNT_FLOAT16 or TNT_BFLOAT16: float32 and float64 tensors travel so; TNT_WIRE_OWN: each tensor
                                   in its own type, also taken if size ends before this field; TNT_WIRE_DEFAULT: from the
                                   environment (TNT_GRADIENT_DTYPE), else as TNT_WIRE_OWN. Equal on all ranks               */
  const size_t* gradient_order; /* the index of every tensor once, in the order in which gradients come; NULL: from the last to
                            the first. Equal on all ranks                                                            */
  int device;                   /* index of the CUDA device in whose memory gradients lie; TNT_DEVICE_HOST: host memory      */
  int determinism;              /* a tnt_determinism_t, equal on all ranks                                                  */
  int statistics;               /* not 0: tnt_reducer_statistics. Of gradients on a device                                  */
  int max_ctas; /* thread blocks that packing, unpacking and NCCL each take from the caller's kernels at most; 0:
                   as many as are of use. Of gradients on a device                                          */
} tnt_reducer_options_t;
#define TNT_DEVICE_HOST (-1)
#define TNT_FUSION_DEFAULT SIZE_MAX
#define TNT_WIRE_DEFAULT (-1)
#define TNT_WIRE_OWN (-2)
#define TNT_REDUCER_OPTIONS_INITIALIZER                                                                     \
  {                                                                                                         \
    sizeof(tnt_reducer_options_t), NULL, NULL, TNT_FUSION_DEFAULT, TNT_WIRE_DEFAULT, NULL, TNT_DEVICE_HOST, \
        TNT_DETERMINISM_DEFAULT, 0, 0                                                                       \
  }

/* Which runs give the same bits. In host memory every run on the same ranks does. */
typedef enum {
  TNT_DETERMINISM_DEFAULT = 0, /* on a device: as NCCL chooses, run by run                                             */
  TNT_DETERMINISM_RUN = 1,     /* every run on the same ranks: NCCL's ring, with fixed channels                        */
  TNT_DETERMINISM_RANKS = 2    /* on 1, 2, 4, 8, ... ranks, if their gradients are sums in the same tree: the reducer sums over
                                  ranks as (0 + 1) + (2 + 3), neighbours first; what has none goes up. tnt_add_scaled adds
                                  so within a rank. On any transport and in buckets of any size, of float32, float64 and
                                  integers; 16-bit types, also on the wire, are summed in float32 and rounded once, which
                                  gives the same bits for the same number of ranks only                                */
} tnt_determinism_t;

/* out = the sum over i of scales[i] * terms[i], to the bits that a reducer with TNT_DETERMINISM_RANKS gives n ranks which hand
 * over these terms with these scales: each product is rounded to dtype before they are added, neighbours first, and 0 * term is
 * 0 whatever the term holds (it is not read then and may be NULL). With it a rank sums the gradients of several parts of its
 * batch, in host memory, in the lower levels of the tree, at once or a power of two at a time; what it then hands to the
 * reducer it scales by 1. terms: n buffers of count elements; out may be one of them. TNT_INVALID_ARGUMENT: n is 0, or a scale
 * is not finite or, of integers, neither 0 nor 1. Cost: a read of each term and one write. */
TNT_EXPORT tnt_status_t tnt_add_scaled(const void* const* terms, const double* scales, size_t n, void* out, size_t count,
                                       tnt_dtype_t dtype);

/* With a wire dtype a tensor's contribution scale * gradient is rounded once to 16 bits when it is packed, summed over ranks in
 * float32, the sum rounded once, and given back in the tensor's type: |out - exact| <= u (sum over ranks of |scale * gradient|
 * + |exact|) and terms of higher order, u = 2^-8 for bfloat16 and 2^-11 for float16, on any number of ranks, one included.
 * Between nodes ("hierarchical") large buckets stay float32 inside a node and are rounded for the network only: the same bound;
 * not with TNT_DETERMINISM_RANKS, which is the same on every transport.
 * float16 ends at 65504: what is beyond becomes infinite on all ranks alike, where loss scaling sees it, and what is below
 * 2^-25 becomes 0. bfloat16 has float32's range. Integers and 16-bit tensors are left alone. */

/* One bucket of the plan. dtype: in which it travels. tensors: indices in the order in which they lie in the bucket; lives as
 * long as the reducer. */
typedef struct {
  size_t count;
  size_t bytes;
  tnt_dtype_t dtype;
  const size_t* tensors;
  size_t n_tensors;
  const char* description; /* for people: "bucket 0: 1.0 MiB, 14 tensors, dense_9/bias ..."; lives as long as the reducer */
} tnt_bucket_t;

/* What the reducer has done so far, summed over steps; seconds of this rank. busy: packing, reducing (waits for other ranks
 * included) and unpacking. exposed: from the moment the last gradient of a step was handed over to the end of its last
 * bucket; what lies before is hidden behind the caller's work. */
typedef struct {
  size_t size; /* sizeof(tnt_reducer_stats_t) of the caller's header */
  uint64_t steps;
  uint64_t bytes;
  double busy;
  double exposed;
  double pack; /* the parts of busy */
  double wait;
  double reduce;
  double unpack;
} tnt_reducer_stats_t;
#define TNT_REDUCER_STATS_INITIALIZER \
  { sizeof(tnt_reducer_stats_t), 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 }

/* Collective. Makes the plan, compares it (and options->context, and the library's version) on all ranks and starts the
 * thread. TNT_MISMATCH names the rank and the tensor that differ; the communicator stays usable then. options may be NULL. */
TNT_EXPORT tnt_status_t tnt_reducer_create(tnt_comm_t comm, const tnt_tensor_t* tensors, size_t n_tensors,
                                           const tnt_reducer_options_t* options, tnt_reducer_t* reducer);

/* The threshold of the plan: as it was given, or as it was chosen. */
TNT_EXPORT tnt_status_t tnt_reducer_fusion_threshold(tnt_reducer_t reducer, size_t* bytes);

TNT_EXPORT tnt_status_t tnt_reducer_bucket_count(tnt_reducer_t reducer, size_t* n_buckets);
TNT_EXPORT tnt_status_t tnt_reducer_bucket(tnt_reducer_t reducer, size_t index, tnt_bucket_t* bucket);

/* A bucket as a hook sees it: count elements of dtype, the type in which they travel, packed in the order of tensors (each
 * with the count it was given to tnt_reducer_create). data may be changed in place. All of it is valid during the call only. */
typedef struct {
  size_t index; /* of the bucket */
  void* data;
  size_t count;
  tnt_dtype_t dtype;
  const size_t* tensors;
  size_t n_tensors;
  char reason[256]; /* a hook that fails may write why; shown on all ranks */
} tnt_packed_bucket_t;

/* Returns 0, or another number to end the job's communication: every rank gets TNT_ABORTED and one message with the rank, the
 * bucket and the reason (or the number). */
typedef int (*tnt_bucket_hook_t)(tnt_packed_bucket_t* bucket, void* user_data);

/* Calls hook for each bucket of each step after it is packed and before it is sent: for statistics, or to change what is
 * sent. One call at a time, on the reducer's thread or on one that waits for a bucket; the hook must not call this reducer.
 * NULL takes it away. Not collective: ranks may have different hooks, or none. Between steps only, else TNT_INVALID_ARGUMENT.
 * Cost: memory of the largest bucket and a copy each way; between nodes, 16-bit buckets go from rank to rank. */
TNT_EXPORT tnt_status_t tnt_reducer_set_hook(tnt_reducer_t reducer, tnt_bucket_hook_t hook, void* user_data);

/* Hands over one gradient of the current step. Its contribution is scale * gradient, and 0 * gradient is 0 whatever the
 * gradient holds (it is not read then and may be NULL). The sum over ranks will be in out (may equal gradient; NULL: not
 * wanted) after tnt_reducer_wait_bucket of its bucket; until then both buffers belong to the reducer. Does not block. stream:
 * that computes the gradient, with options->device; all work on it so far comes before. Enqueues the bucket when it is full. A
 * step can be captured in a CUDA graph, finish included, once one has run outside on the same stream; a graph has the
 * addresses and scales it was captured with, and up to four different sets of them can be captured.
 * TNT_INVALID_ARGUMENT: the tensor was handed over already in this step. */
TNT_EXPORT tnt_status_t tnt_reducer_ready(tnt_reducer_t reducer, size_t tensor, const void* gradient, void* out, double scale,
                                          tnt_stream_t stream);

/* Waits until the bucket's current reduction has finished. May be called before all its gradients are ready (another thread
 * has to bring them), but not before any step was begun. With a stream: the stream waits, the host does not, and all gradients
 * of this bucket and of those before it have to be handed over. */
TNT_EXPORT tnt_status_t tnt_reducer_wait_bucket(tnt_reducer_t reducer, size_t bucket, tnt_stream_t stream);

/* Ends a step: waits for all buckets; with a stream, the stream waits. TNT_INVALID_ARGUMENT names a tensor that was not handed
 * over; nothing is lost: hand it over and call again. */
TNT_EXPORT tnt_status_t tnt_reducer_finish(tnt_reducer_t reducer, tnt_stream_t stream);

/* Gradients on a device: where tensor lies in its bucket, for a gradient that is computed right there. Handed over from there,
 * with gradient == out == *buffer and scale 1, it is neither packed nor unpacked. Before the first step only, and for tensors
 * that travel in their own type, else TNT_INVALID_ARGUMENT. Device memory of the reducer's; costs the bytes of all buckets. */
TNT_EXPORT tnt_status_t tnt_reducer_gradient_buffer(tnt_reducer_t reducer, size_t tensor, void** buffer);

/* Of one reduced bucket: the sum of the squares of its elements, and how many of them are infinite or not a number. */
typedef struct {
  double sum_of_squares;
  uint64_t non_finite;
} tnt_statistics_t;

/* *statistics: one for each bucket, in device memory, as of the last step that the stream has waited for; computed while
 * buckets are unpacked. TNT_INVALID_ARGUMENT without options->statistics. */
TNT_EXPORT tnt_status_t tnt_reducer_statistics(tnt_reducer_t reducer, const tnt_statistics_t** statistics);

/* How often the tensor was reduced. */
TNT_EXPORT tnt_status_t tnt_reducer_tensor_steps(tnt_reducer_t reducer, size_t tensor, uint64_t* steps);
TNT_EXPORT tnt_status_t tnt_reducer_stats(tnt_reducer_t reducer, tnt_reducer_stats_t* stats);

/* Not collective. Stops the thread. A bucket that still waits for other ranks is given up. On a device: waits until what was
 * enqueued has ended (after an error, gradients and results are the reducer's until here); gradient buffers and statistics go.
 */
TNT_EXPORT tnt_status_t tnt_reducer_destroy(tnt_reducer_t reducer);

#ifdef __cplusplus
}
#endif

#endif /* TARANTELLA_TARANTELLA_H */
