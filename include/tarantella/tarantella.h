/* Tarantella: collectives and overlapped gradient reduction for synchronous training. The C API.
 *
 * Conventions. They hold for every function unless its comment says otherwise:
 *  - A function returns tnt_status_t. On anything but TNT_SUCCESS, tnt_last_error() of the calling thread returns one message:
 *    what went wrong, on which rank, in which operation, and what to do.
 *  - Counts are in elements, sizes in bytes, times in seconds. Output parameters come last, before the stream.
 *  - Handles are opaque, and no addresses. The caller owns them and destroys them with tnt_..._destroy, which accepts NULL.
 *    tnt_finalize destroys all that are left. A handle that was destroyed, or that was never returned, is TNT_INVALID_ARGUMENT
 *    in every function; so is destroying a handle, or tnt_finalize, while another thread is inside a call that uses it.
 *  - Names and structs that are passed in are copied. Buffers must live until the operation has finished.
 *  - A struct that may grow begins with size, the sizeof of the caller's header, which its ..._INITIALIZER sets. A caller with
 *    an older header is served: input fields that its struct ends before have their defaults, output fields are not written.
 *    A struct without size (tnt_tensor_t, tnt_statistics_t) is an element of arrays and never grows: more about each tensor
 *    would be an array in tnt_reducer_options_t, as gradient_order is.
 *  - Versions: before 1.0 a program works with all libraries of the minor version that it was compiled with, from 1.0 on with
 *    all of the major version from its own minor version on. The name of the library (libtarantella.so.0.1) and the versions of
 *    its symbols see to it that no other is loaded.
 *  - Functions may be called from any thread. Collectives on one communicator must be called in the same order on all of its
 *    ranks, so a caller with several threads must order them.
 *  - A failed collective (TNT_TIMEOUT, TNT_PEER_LOST, TNT_MISMATCH, TNT_ABORTED) ends the communication of the whole job, or of
 *    its communicator (tnt_comm_set_error_mode). Every rank gets the same error from the call in which it waits and from every
 *    later collective.
 *  - No function is a cancellation point: pthread_cancel takes effect after the call has returned.
 *  - A fork of a process that has joined a job is no rank. It may call exec, compute, and end in any way: the job goes on.
 *    In it tnt_comm_world, tnt_comm_rank, _size, _local_rank, _local_size and _transport answer as in the rank, tnt_finalize
 *    and tnt_..._destroy succeed and do nothing, functions that need no tnt_init work, and all others are TNT_UNSUPPORTED. The
 *    job's shared memory is not mapped in it. A fork that was made before tnt_init or after tnt_finalize may join a job, unless
 *    MPI was initialised.
 */
#ifndef TARANTELLA_TARANTELLA_H
#define TARANTELLA_TARANTELLA_H

#include <stddef.h>
#include <stdint.h>

#define TNT_VERSION_MAJOR 0
#define TNT_VERSION_MINOR 1
#define TNT_VERSION_PATCH 0
#define TNT_VERSION_NUMBER (TNT_VERSION_MAJOR * 10000 + TNT_VERSION_MINOR * 100 + TNT_VERSION_PATCH)

#if defined(__GNUC__)
#define TNT_EXPORT __attribute__((visibility("default")))
#else
#define TNT_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tnt_comm* tnt_comm_t;       /* a group of ranks and the transport between them    */
typedef struct tnt_work* tnt_work_t;       /* an operation that was started                      */
typedef struct tnt_reducer* tnt_reducer_t; /* fused, overlapped gradient reduction               */
typedef void* tnt_stream_t;                /* cudaStream_t, or NULL for host memory: see "streams" */

typedef enum {
  TNT_SUCCESS = 0,
  TNT_INVALID_ARGUMENT = 1, /* the call had no effect: correct the argument and call again */
  TNT_MISMATCH = 2,         /* ranks called different operations: the message names both   */
  TNT_TIMEOUT = 3,          /* a deadline passed: the message names the missing ranks      */
  TNT_PEER_LOST = 4,        /* a rank died or left: the message names it                   */
  TNT_ABORTED = 5,          /* a rank called tnt_comm_abort or _shrink: the message says why */
  TNT_SYSTEM = 6,           /* the operating system refused a request: memory, files, ...  */
  TNT_UNSUPPORTED = 7       /* not available in this build, on this machine or in a fork   */
} tnt_status_t;

/* The 8-bit floats are types in which gradients travel (wire_dtype of tnt_reducer_options_t). No tensor has them and no
 * collective takes them: convert to a wider type, or move bytes as TNT_UINT8. */
typedef enum {
  TNT_FLOAT32 = 0,
  TNT_FLOAT64 = 1,
  TNT_FLOAT16 = 2,
  TNT_BFLOAT16 = 3,
  TNT_INT8 = 4,
  TNT_UINT8 = 5,
  TNT_INT32 = 6,
  TNT_INT64 = 7,
  TNT_UINT32 = 8,
  TNT_UINT64 = 9,
  TNT_FLOAT8_E4M3 = 10, /* 3 bits of mantissa, up to 448, no infinity; "e4m3fn" of frameworks */
  TNT_FLOAT8_E5M2 = 11  /* 2 bits of mantissa, up to 57344 */
} tnt_dtype_t;

/* All reductions combine ranks in one binary tree, neighbours first: (0 + 1) + (2 + 3). For n ranks, with 2^k the largest power
 * of two <= n, the first 2 (n - 2^k) ranks are combined in pairs, and the tree is over the 2^k results and remaining ranks:
 * ((0 + 1) + 2) + (3 + 4) for five. 16-bit types accumulate in float32 and are rounded once. The same inputs on the same number
 * of ranks therefore give the same bits on every rank, in every run, and for every transport, size and algorithm. The one
 * exception: where nodes do not have 2^k consecutive ranks each, the tree is over the ranks of each node first, then over the
 * nodes ("hierarchical"), so the bits also depend on the layout. TNT_AVG divides the sum by the number of ranks (integer
 * division truncates). Integer sums and products wrap.
 * TNT_BAND, TNT_BOR and TNT_BXOR combine the bits of integers. TNT_LAND, TNT_LOR and TNT_LXOR ask of each integer whether it is
 * zero, and give 0 or 1 in its type, also on one rank; booleans are TNT_UINT8. These six need an integer type, else
 * TNT_INVALID_ARGUMENT. NCCL has none of them: with TNT_DEVICE_TRANSPORT=nccl they are TNT_UNSUPPORTED with a stream.
 * This holds in host memory, and on devices with TNT_DEVICE_TRANSPORT=staged. NCCL (nccl, and inside the nodes of hierarchical)
 * takes an order of its own, which may differ from run to run, and its rings and trees round a 16-bit type after each addition:
 * |out - exact| <= n u (sum over the n ranks of |in|) plus terms of higher order, with u as under "precision" below. A reducer
 * can ask for more: tnt_determinism_t. */
typedef enum {
  TNT_SUM = 0,
  TNT_AVG = 1,
  TNT_MIN = 2,
  TNT_MAX = 3,
  TNT_PROD = 4,
  TNT_LAND = 5, /* logical */
  TNT_LOR = 6,
  TNT_LXOR = 7,
  TNT_BAND = 8, /* bitwise */
  TNT_BOR = 9,
  TNT_BXOR = 10
} tnt_op_t;

/* ------------------------------------------------------------------------------------------ the library */

/* "0.1.0". Never fails, needs no tnt_init. */
TNT_EXPORT const char* tnt_version(void);

/* TNT_VERSION_NUMBER of the loaded library, such as 100 for 0.1.0; the macro is that of the header. Never fails, needs no
 * tnt_init. */
TNT_EXPORT int tnt_version_number(void);

/* The name of a status, such as "TNT_TIMEOUT". Never fails. */
TNT_EXPORT const char* tnt_status_name(tnt_status_t status);

/* Bytes of one element; 0 for a value that is not a tnt_dtype_t. */
TNT_EXPORT size_t tnt_dtype_size(tnt_dtype_t dtype);

/* The message of the last failed call of this thread; "" if no call has failed. Valid until the thread's next failed call. */
TNT_EXPORT const char* tnt_last_error(void);

/* The place of this rank in the job. Start from TNT_INIT_OPTIONS_INITIALIZER: zero is not the default of every field. */
typedef struct {
  size_t size;            /* sizeof(tnt_init_options_t) of the caller's header                               */
  int rank;               /* this process, from 0                                                            */
  int ranks;              /* processes in the job                                                            */
  const char* rendezvous; /* where rank 0 listens: the name of an abstract Unix socket, for ranks of one     */
                          /* node, or tcp://host:port, for ranks on any nodes; NULL for one rank             */
  const char* token;      /* secret of the job, which a process must know to join; NULL for one rank         */
  double join_timeout;    /* seconds until all ranks must have joined; 0: TNT_TIMEOUT                        */
  const void* mpi_comm;   /* the address of an MPI_Comm whose processes are the ranks, in their order; rank, */
                          /* ranks, rendezvous and token are not read then. NULL: they are                  */
} tnt_init_options_t;
#define TNT_INIT_OPTIONS_INITIALIZER \
  { sizeof(tnt_init_options_t), 0, 1, NULL, NULL, 0.0, NULL }

/* Joins the job and blocks until every rank has joined. TNT_TIMEOUT names the missing ranks if the deadline (the environment
 * variable TNT_TIMEOUT, 600 s by default) passes first. With options NULL the place in the job comes from the environment that
 * the launcher sets (TNT_RANK and so on), else from mpirun or srun: MPI is then initialised, if it
 * is not yet, and finalized when the process exits. Without either, the job is this process alone. With options->mpi_comm it
 * is the processes of a communicator of MPI, all of which call. The program has initialised MPI (with MPI_THREAD_MULTIPLE, of
 * a library with the ABI of Open MPI or of MPICH), and finalizes it after tnt_finalize. The communicator is duplicated.
 * TNT_TRANSPORT decides what carries data, as under mpirun. A second call before tnt_finalize succeeds and does nothing. */
TNT_EXPORT tnt_status_t tnt_init(const tnt_init_options_t* options);

/* Leaves the job: destroys all handles, stops the library's threads, writes the timeline, unmaps shared memory. Waits for the
 * operations that were started, but not for other ranks; a rank that still waits for this one gets TNT_PEER_LOST.
 * TNT_INVALID_ARGUMENT: another thread is inside a call with a handle; nothing has changed then. Succeeds when the library is
 * not initialised. */
TNT_EXPORT tnt_status_t tnt_finalize(void);

/* The value that the library takes for a setting, that is, for an environment variable of docs/settings.md. value: its text in
 * the environment; NULL: it is not set. *canonical: the value, or the default, in one spelling ("DEBUG" for "debug", bytes for
 * "4M", "" for none); valid until the thread's next call. TNT_INVALID_ARGUMENT: there is no such setting (the message names the
 * nearest one), or the value makes no sense. Does not need tnt_init. */
TNT_EXPORT tnt_status_t tnt_setting(const char* name, const char* value, const char** canonical);

/* The file from which a job on this host reads which algorithms to use: in
 * $XDG_CACHE_HOME/tarantella or ~/.cache/tarantella. `tnt-bench tune` writes it. "" if the environment has neither
 * XDG_CACHE_HOME nor HOME. Valid until the thread's next call. Never fails, does not need tnt_init. */
TNT_EXPORT const char* tnt_tuning_file(void);

typedef enum { TNT_LOG_DEBUG = 0, TNT_LOG_INFO = 1, TNT_LOG_WARNING = 2, TNT_LOG_ERROR = 3 } tnt_log_level_t;

/* rank: of this process in the job. message: one line without its end, valid during the call. */
typedef void (*tnt_log_callback_t)(tnt_log_level_t level, int rank, const char* message, void* user_data);

/* The callback gets the library's log lines in place of standard error, those that TNT_LOG_LEVEL and TNT_ON_ALL_RANKS let
 * through. NULL: standard error again. It is called from any thread of the process, but never twice at the same time, and not
 * after this function has returned for another one; it must not call the library. Does not need tnt_init, and lasts longer than
 * tnt_finalize. */
TNT_EXPORT tnt_status_t tnt_set_log_callback(tnt_log_callback_t callback, void* user_data);

/* Nanoseconds of the timeline's clock (CLOCK_MONOTONIC: the same for all processes of a node). */
TNT_EXPORT int64_t tnt_clock_ns(void);

/* Records a timeline from now on: the phases of each bucket of gradients, and the spans of tnt_trace_span, in a file for
 * chrome://tracing or Perfetto. Not collective: the ranks that call it share the file. As TNT_TIMELINE, which does so from the
 * beginning. Gradients on a device are in it if their reducer is made after the call. TNT_INVALID_ARGUMENT: a timeline is being
 * recorded. TNT_SYSTEM: the file cannot be written. Cost: about 100 bytes of memory for each event until it is stopped. */
TNT_EXPORT tnt_status_t tnt_timeline_start(const char* file);

/* Writes this rank's part of the timeline; tnt_finalize does so as well. Parts of one job in one file stay, those of another
 * job are replaced. Does nothing if none is recorded. TNT_SYSTEM: the file cannot be written. */
TNT_EXPORT tnt_status_t tnt_timeline_stop(void);

/* Adds a span to the timeline. Costs nothing when none is recorded. track: the row that shows the span, such as "step". */
TNT_EXPORT tnt_status_t tnt_trace_span(const char* track, const char* name, int64_t begin_ns, int64_t end_ns);

/* Says how far this rank's training is, for `tarantella status`: the number of steps it has done, and of samples of all ranks
 * in them. Not collective. Costs about 0.1 us; does nothing if the launcher has not started this process. */
TNT_EXPORT tnt_status_t tnt_progress(uint64_t step, double samples);

/* -------------------------------------------------------------------------------------------- streams
 * A function with a stream takes buffers in the memory of the stream's CUDA device and only enqueues the operation. Work that
 * is on the stream before the call is done first, and work that is enqueued later is done afterwards; the operation itself runs
 * on streams of the library, by NCCL. The host does not wait, except in the first such call on a communicator, where NCCL
 * connects the ranks: all of them make that call. The status is that of enqueuing. A later failure, such as a rank that died,
 * is the status of the next call. CUDA does not report it: work that was aborted ends, so that cudaStreamSynchronize succeeds,
 * but its buffers hold no result. tnt_comm_check and tnt_reducer_check report it, too: call them after the stream was
 * synchronised and before the results leave the program, for example into a file. Use cudaStreamLegacy or cudaStreamPerThread
 * for CUDA's default stream, because NULL means host memory. It is the one of the device that is current in the calling thread.
 * All ranks of a call must have their buffers in the same kind of memory. */

/* The number of CUDA devices that this process can use. *why: the reason if there are none, else ""; static text; why may be
 * NULL. Fails only if count is NULL. Needs no tnt_init. */
TNT_EXPORT tnt_status_t tnt_device_count(int* count, const char** why);

/* Whether a CUDA device can be used: opens it and loads the library's kernels, which fails if its architecture or driver is too
 * old. tnt_last_error says why not. Makes the device's context. Needs no tnt_init. */
TNT_EXPORT tnt_status_t tnt_device_check(int device);

/* -------------------------------------------------------------------------------------- communicators */

/* The communicator of all ranks of the job. The library owns it: do not destroy it. */
TNT_EXPORT tnt_status_t tnt_comm_world(tnt_comm_t* comm);

/* Collective. Ranks that pass the same colour >= 0 form a new communicator, ordered by key, then by rank in comm. A rank with a
 * negative colour takes part in the call and gets *part = NULL. split(comm, 0, 0) duplicates a communicator, so that its
 * traffic is separate. */
TNT_EXPORT tnt_status_t tnt_comm_split(tnt_comm_t comm, int color, int key, tnt_comm_t* part);

/* Collective over the members only, as MPI_Comm_create_group: the ranks of comm that `ranks` lists form a new communicator and
 * are numbered in the order of the list. All members pass the same list and the same tag; other ranks do not call. May be
 * called from any thread, also while a collective of comm runs; groups that several threads create at once need different tags.
 * TNT_MISMATCH: the first member passed another list for this tag. TNT_INVALID_ARGUMENT: a rank is not in comm or is in the
 * list twice, or the calling rank is not in it. Cost: one message from the first member to each of the others. */
TNT_EXPORT tnt_status_t tnt_comm_create_group(tnt_comm_t comm, const int* ranks, size_t n_ranks, int tag, tnt_comm_t* group);

TNT_EXPORT tnt_status_t tnt_comm_rank(tnt_comm_t comm, int* rank);
TNT_EXPORT tnt_status_t tnt_comm_size(tnt_comm_t comm, int* size);
TNT_EXPORT tnt_status_t tnt_comm_local_rank(tnt_comm_t comm, int* local_rank); /* among comm's ranks of this node */
TNT_EXPORT tnt_status_t tnt_comm_local_size(tnt_comm_t comm, int* local_size);
TNT_EXPORT tnt_status_t tnt_comm_transport(tnt_comm_t comm, const char** name); /* static text: "local", "shm", ... */

/* Ends the communication of the job, or with TNT_ERRORS_RETURN that of the communicator: the waits of all of its ranks fail
 * with TNT_ABORTED and "rank R: reason". The first abort wins. Not collective, never blocks, may be called from any thread. */
TNT_EXPORT tnt_status_t tnt_comm_abort(tnt_comm_t comm, const char* reason);

/* How far the errors of a communicator reach. */
typedef enum {
  TNT_ERRORS_END_JOB = 0, /* all communication of the job; the default                                      */
  TNT_ERRORS_RETURN = 1   /* the communicator, on all of its ranks; the others are alive. See below for TCP */
} tnt_error_mode_t;

/* Collective; all ranks pass the same mode, else TNT_MISMATCH, and nothing has changed. With TNT_ERRORS_RETURN an error of the
 * communicator (a rank that died or left, a deadline, different calls, tnt_comm_abort) is returned on all of its ranks by the
 * call in which they wait and by all later ones. Ranks may notice it in different calls: some may have finished a call that
 * fails on others. The communicator then stays failed; destroy it, or make one of those alive (tnt_comm_shrink). Other
 * communicators are not concerned, except that the errors of those that end the job end this one, too. Communicators and
 * reducers that are made of this one afterwards begin with its mode; a reducer also fails when its communicator fails.
 * Over TCP an error still ends all communication of the job, and TNT_ERRORS_RETURN means that those alive can go on: each rank
 * opens a port, at which the others reach it after the error. Communicators that are made of this one begin with
 * TNT_ERRORS_END_JOB there: set the mode of each that shall be shrunk.
 * The mode also holds for its GPUs: NCCL's communicators are then aborted on all ranks, and the smaller communicator opens new
 * ones. TNT_INVALID_ARGUMENT: the communicator has used GPUs before. TNT_UNSUPPORTED: the ranks communicate by MPI, which ends
 * a job of which a process has died. */
TNT_EXPORT tnt_status_t tnt_comm_set_error_mode(tnt_comm_t comm, tnt_error_mode_t mode);

/* Collective over the ranks of comm that are alive. *smaller: a communicator of these, in the same order, with the mode and the
 * deadline of comm. comm must have TNT_ERRORS_RETURN. It fails now if it has not yet (TNT_ABORTED), so that all ranks learn
 * that they have to call; what was started on it ends. Waits until each rank of comm has called or has ended. A rank that has
 * not called when the deadline of the first one passes is left out, and gets TNT_TIMEOUT when it calls. All ranks get the same
 * members, whenever one dies: a rank that dies after it has called may be among them, and the first collective then says so.
 * Once for each communicator; TNT_INVALID_ARGUMENT afterwards. Cost: as a barrier.
 * Over TCP smaller is a job of its own, in which errors name its own ranks, and has the transport that tnt_init would choose.
 * A rank has ended if its host refuses a connection to it, or if it has destroyed comm. At the deadline those that have called
 * go on only if they are more than half of all ranks of comm, or half with rank 0: else a host that is cut off would go on
 * twice. Otherwise they get TNT_TIMEOUT, as does a rank that is left out, at the latest after its own deadline. A rank that
 * calls when all others have ended goes on alone. If ranks die in the call, it may take up to twice the deadline, and then what
 * tnt_init may take. Cost: as tnt_init. */
TNT_EXPORT tnt_status_t tnt_comm_shrink(tnt_comm_t comm, tnt_comm_t* smaller);

/* Where processes meet, and the secret by which they know one another: text that the program passes on by means of its own, to
 * nobody else. The rest is zero bytes. */
#define TNT_UNIQUE_ID_BYTES 256
typedef struct {
  char text[TNT_UNIQUE_ID_BYTES];
} tnt_unique_id_t;

/* A new id. rendezvous: tcp://host:port, where rank 0 of the new communicator will listen and no other program does; NULL: all
 * of its ranks are on this node. TNT_INVALID_ARGUMENT: rendezvous is something else. Does not need tnt_init. */
TNT_EXPORT tnt_status_t tnt_unique_id(const char* rendezvous, tnt_unique_id_t* id);

/* *larger: a communicator of the ranks of comm and of newcomers, `ranks` in all. The ranks of comm keep their numbers. All of
 * them call, with rank -1 and the same number of ranks, at a point that they have agreed on; id: of rank 0, which passes it on
 * to the newcomers, and NULL on the others. Newcomers are processes of other jobs, or a job each, after tnt_init: they call
 * with comm NULL, the id, and their rank in larger. With comm NULL on all, any processes form a communicator, for example those
 * that are left after an error has ended a job.
 * Waits for all ranks. TNT_TIMEOUT after the deadline of comm, or for newcomers that of TNT_TIMEOUT, names those that are
 * missing; comm is as it was then, and all may call again with the same id. TNT_MISMATCH: members passed different arguments, a
 * newcomer came for another number of ranks, or two processes came as one rank. TNT_INVALID_ARGUMENT: ranks is not above the
 * size of comm, or id is none. larger has the transport that tnt_init would choose, the deadline of comm, and
 * TNT_ERRORS_END_JOB, where the job is larger: its errors do not concern comm, nor those of comm larger. Destroy comm if it is
 * not needed any more. Cost: as tnt_init. */
TNT_EXPORT tnt_status_t tnt_comm_grow(tnt_comm_t comm, const tnt_unique_id_t* id, int ranks, int rank, tnt_comm_t* larger);

/* The deadline of the communicator's operations that begin from now on, in seconds, in place of TNT_TIMEOUT; 0: TNT_TIMEOUT
 * again. Each operation has it: collectives, messages, split and create_group, works, and the steps of reducers that are
 * created afterwards. Communicators that are made of this one afterwards begin with it. GPUs take the deadline of the moment in
 * which they are connected. Not collective: ranks may have different deadlines, and the first that passes ends the
 * communication of the job. TNT_INVALID_ARGUMENT: seconds is negative, above 1e9 or not a number. Costs nothing. */
TNT_EXPORT tnt_status_t tnt_comm_set_timeout(tnt_comm_t comm, double seconds);

/* Collective. Connects the communicator's GPUs now; each rank names its own, by the index of a CUDA device. Without this call
 * the first call with a stream connects them, on the stream's device, and waits for the other ranks meanwhile. Connecting again
 * with the same device succeeds and does nothing. TNT_INVALID_ARGUMENT: there is no such device (on all ranks, if one rank has
 * none), or the communicator works on another one already. Cost: up to seconds, in NCCL. */
TNT_EXPORT tnt_status_t tnt_comm_connect_device(tnt_comm_t comm, int device);

/* The asynchronous error of the communicator: what a call on it would return for an error of any rank that is known here. In
 * host memory, an error of the job or of the communicator; with streams, TNT_SUCCESS if all operations whose stream has been
 * synchronised have a result. Not collective, does not wait, any thread. */
TNT_EXPORT tnt_status_t tnt_comm_check(tnt_comm_t comm);

/* Destroys a communicator that is not the one of tnt_comm_world, after the operations that were started on it have
 * finished. TNT_INVALID_ARGUMENT: a CUDA graph with operations of it still exists. */
TNT_EXPORT tnt_status_t tnt_comm_destroy(tnt_comm_t comm);

/* ---------------------------------------------------------------------------------------- collectives
 * With work NULL, a call returns when the operation is done; with a stream, when it is enqueued, and the stream waits for it.
 * Otherwise *work becomes a handle for tnt_work_wait and tnt_work_test, which the caller destroys, and a stream does not wait.
 * The operations of one communicator run one after another in the order of the calls. in == out reduces in place wherever both
 * have the same size; buffers that overlap in another way are TNT_INVALID_ARGUMENT. Counts may be zero. Costs below are the
 * memory traffic of all n ranks together, for S bytes. */

/* out[i] = op over ranks of in[i]; both have count elements. Cost: 2nS; intermediate data stays in the caches. */
TNT_EXPORT tnt_status_t tnt_all_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                       tnt_stream_t stream, tnt_work_t* work);

/* out[i] = sum over ranks of scale * in[i], where each rank has a scale of its own; both have count elements. dtype is a
 * floating-point type. Each product is rounded to dtype before the sum, and 0 * in is 0 whatever in holds; otherwise this is
 * tnt_all_reduce with TNT_SUM, which other ranks may call instead. With a stream and NCCL (its PreMulSum) the scale is rounded
 * to dtype first, and 0 times an infinity or NaN is NaN. TNT_INVALID_ARGUMENT: scale is not finite. Cost: as tnt_all_reduce. */
TNT_EXPORT tnt_status_t tnt_all_reduce_scaled(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype,
                                              double scale, tnt_stream_t stream, tnt_work_t* work);

/* in: n*count elements, out: count. Rank r gets elements [r*count, (r+1)*count) of the reduction. Cost: 3nS, S = all of in. */
TNT_EXPORT tnt_status_t tnt_reduce_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype,
                                           tnt_op_t op, tnt_stream_t stream, tnt_work_t* work);

/* in: count elements, out: n*count, rank r's at [r*count, (r+1)*count). In place: in is this rank's part of out.
 * Cost: 2S + 2nS, S = all of out. */
TNT_EXPORT tnt_status_t tnt_all_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype,
                                       tnt_stream_t stream, tnt_work_t* work);

/* out on every rank = in on root; in is ignored elsewhere and may be NULL there. Cost: 2(n+1)S. */
TNT_EXPORT tnt_status_t tnt_broadcast(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                                      tnt_stream_t stream, tnt_work_t* work);

/* in and out: n*count elements. Rank r gets the r-th block of count elements of every rank's in; the block of rank s is at
 * [s*count, (s+1)*count) of out. Cost: 4nS, S = all of in. */
TNT_EXPORT tnt_status_t tnt_all_to_all(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype,
                                       tnt_stream_t stream, tnt_work_t* work);

/* out on root[i] = op over ranks of in[i], with the bits of tnt_all_reduce; both have count elements. out is ignored elsewhere
 * and may be NULL there. In place on root: in == out. Cost: nS less than tnt_all_reduce in shared memory, half of it between
 * nodes over MPI and TCP, and all of it for "hierarchical". */
TNT_EXPORT tnt_status_t tnt_reduce(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, tnt_op_t op,
                                   int root, tnt_stream_t stream, tnt_work_t* work);

/* in: count elements, out on root: n*count, rank r's at [r*count, (r+1)*count). out is ignored elsewhere and may be NULL there.
 * In place on root: in is root's part of out. Cost: 4S, S = all of out. */
TNT_EXPORT tnt_status_t tnt_gather(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                                   tnt_stream_t stream, tnt_work_t* work);

/* in on root: n*count elements, out: count. Rank r gets elements [r*count, (r+1)*count). in is ignored elsewhere and may be
 * NULL there. In place on root: out is root's part of in. Cost: 4S, S = all of in. */
TNT_EXPORT tnt_status_t tnt_scatter(tnt_comm_t comm, const void* in, void* out, size_t count, tnt_dtype_t dtype, int root,
                                    tnt_stream_t stream, tnt_work_t* work);

/* The uneven forms: blocks of different sizes, one after another in the order of the ranks, without gaps. Lists of counts have
 * one entry for each rank, which may be 0; they are copied. With a stream, tnt_all_gather_v and tnt_all_to_all_v are n sends
 * and n receives of each rank, in one group of NCCL. */

/* As tnt_all_gather, but rank r contributes counts[r] elements. All ranks pass the same list, else TNT_MISMATCH (with a stream
 * it is not compared). In place: in is this rank's part of out. Cost: 2S + 2nS, S = all of out. */
TNT_EXPORT tnt_status_t tnt_all_gather_v(tnt_comm_t comm, const void* in, void* out, const size_t* counts, tnt_dtype_t dtype,
                                         tnt_stream_t stream, tnt_work_t* work);

/* As tnt_reduce_scatter, but rank r gets counts[r] elements. All ranks pass the same list, else TNT_MISMATCH. Cost: 3nS, S =
 * all of in. With a stream, NCCL, which has no such call, makes a reduction to each rank, all in one launch: as many bytes as
 * tnt_reduce_scatter, but more latency. Small blocks of nearly the same size are faster if they are padded to the largest for
 * tnt_reduce_scatter. */
TNT_EXPORT tnt_status_t tnt_reduce_scatter_v(tnt_comm_t comm, const void* in, void* out, const size_t* counts,
                                             tnt_dtype_t dtype, tnt_op_t op, tnt_stream_t stream, tnt_work_t* work);

/* As tnt_all_to_all, but in has send_counts[r] elements for rank r, and out gets recv_counts[r] from it. recv_counts[r] must be
 * what rank r sends, else TNT_MISMATCH (with a stream and NCCL it is not compared). Not in place. Cost: 4nS, S = all of in, and
 * one more barrier or round of messages, in which ranks compare their counts. */
TNT_EXPORT tnt_status_t tnt_all_to_all_v(tnt_comm_t comm, const void* in, void* out, const size_t* send_counts,
                                         const size_t* recv_counts, tnt_dtype_t dtype, tnt_stream_t stream, tnt_work_t* work);

/* Returns (or the work finishes) after every rank has called it. */
TNT_EXPORT tnt_status_t tnt_barrier(tnt_comm_t comm, tnt_stream_t stream, tnt_work_t* work);

/* Point-to-point messages, independent of the collectives. A tnt_recv of the same count and dtype on rank `to` receives a
 * message, in the order in which messages were sent; another count or dtype is TNT_MISMATCH. A send may return before its
 * message is received, but do not rely on it: of two ranks that send to each other, one passes a work, or both use a group.
 * Works of different peers or directions proceed concurrently; those of one peer and direction proceed in the order of the
 * calls. A rank cannot send to itself. Cost: 4S. With a stream and NCCL, messages to higher ranks and messages to lower ranks
 * proceed concurrently, so that two ranks can send to each other first; within each kind they proceed in the order of the
 * calls, and those to lower ranks in one order with the collectives. Through pinned memory (TNT_DEVICE_TRANSPORT staged or
 * hierarchical) the order of the calls on one rank must match that of its peers. */
TNT_EXPORT tnt_status_t tnt_send(tnt_comm_t comm, const void* in, size_t count, tnt_dtype_t dtype, int to, tnt_stream_t stream,
                                 tnt_work_t* work);
TNT_EXPORT tnt_status_t tnt_recv(tnt_comm_t comm, void* out, size_t count, tnt_dtype_t dtype, int from, tnt_stream_t stream,
                                 tnt_work_t* work);

/* Group calls, as in NCCL. Collectives, sends and receives that a thread calls between start and end are checked at once and
 * begin together in tnt_group_end. None waits for another, except for earlier collectives of the same communicator and for
 * earlier messages of the same peer and direction: ranks may call in different orders otherwise. Buffers are the library's
 * until tnt_group_end has returned, or until the stream has passed it. Groups nest; the outermost end begins the operations.
 * tnt_group_end first enqueues the operations with streams: on each communicator its collectives in order, then its messages,
 * in one group of NCCL. They come after the earlier work of all streams that the group uses on the communicator, and all these
 * streams wait for all of them. Devices that are not connected yet are connected in the order of the first calls, which must
 * then be the same on all ranks, as it must always be through pinned memory. tnt_group_end then runs the operations without a
 * stream, and returns when these are done.
 * Both calls return the first error: when a call is refused, the group begins nothing, and tnt_group_end returns that error
 * once more. When operations fail, it is the error of the first one in the order of the calls. TNT_INVALID_ARGUMENT: an end
 * without a start; and between the two, a work that is not NULL, tnt_comm_split, _create_group, _shrink, _set_error_mode,
 * _connect_device and _destroy, tnt_reducer_create and tnt_finalize. Functions of reducers and works do not belong to the group
 * and act at once. Cost: an allocation for each call. The last operation without a stream runs in the caller's thread; the
 * others wake a thread of the library, one for each communicator's collectives, and for each peer and direction. */
TNT_EXPORT tnt_status_t tnt_group_start(void);
TNT_EXPORT tnt_status_t tnt_group_end(void);

/* Waits until the operation has finished and returns its status. seconds: the deadline of this wait; negative for none (the
 * operation still has the job's deadline, TNT_TIMEOUT). If this wait's deadline passes, the operation goes on. */
TNT_EXPORT tnt_status_t tnt_work_wait(tnt_work_t work, double seconds);

/* Waits until one of n operations has finished. *index: its place in works (the first, if several have). Returns its status.
 * NULL in works is skipped; works of NULL only are TNT_INVALID_ARGUMENT. seconds: as for tnt_work_wait. If none has finished by
 * then, *index is n. */
TNT_EXPORT tnt_status_t tnt_work_wait_any(const tnt_work_t* works, size_t n, double seconds, size_t* index);

/* *finished = 1 if tnt_work_wait would not block. Returns the operation's status once it has finished. */
TNT_EXPORT tnt_status_t tnt_work_test(tnt_work_t work, int* finished);

/* Destroys the handle. An operation that still runs goes on, and its buffers must stay valid. */
TNT_EXPORT tnt_status_t tnt_work_destroy(tnt_work_t work);

/* -------------------------------------------------------------------------------------------- reducer
 * Gradients go in, and their sum over ranks comes out. Gradients are packed into buckets, and a thread of the library reduces
 * the buckets in one fixed order while the caller goes on. All reducers of a process share this thread. Another one starts only
 * if several reducers have buckets at the same time, so that none waits for another. The caller gives the tensors in the order
 * of the layers. Buckets are filled in the order in which backward produces gradients; if the caller does not know it, from the
 * last tensor to the first.
 */

/* Never grows: see the conventions. */
typedef struct {
  const char* name; /* not NULL, and no other tensor's of the reducer */
  size_t count;
  tnt_dtype_t dtype;
} tnt_tensor_t;

typedef struct {
  /* sizeof(tnt_reducer_options_t) of the caller's header */
  size_t size;
  /* Name in errors and in the timeline; NULL: "gradients". */
  const char* name;
  /* Text that must be equal on all ranks, such as the framework's version; NULL: "". */
  const char* context;
  /* A bucket is closed when it holds this many bytes as they travel. 0: one tensor in each bucket. TNT_FUSION_DEFAULT: the
   * value of TNT_FUSION_THRESHOLD (kilobytes), else a value that the library chooses from the tensors' bytes and from the
   * measured latency and bandwidth of the communicator. */
  size_t fusion_threshold;
  /* TNT_FLOAT16 or TNT_BFLOAT16: float32 and float64 tensors travel in this type. TNT_FLOAT8_E4M3 or TNT_FLOAT8_E5M2: likewise,
   * for gradients on a device and TNT_DETERMINISM_RANKS only, because NCCL would round each partial sum to so few bits.
   * TNT_WIRE_OWN: each tensor travels in its own type; also the default if size ends before this field. TNT_WIRE_DEFAULT: the
   * value of TNT_GRADIENT_DTYPE, else as TNT_WIRE_OWN. Must be equal on all ranks. */
  int wire_dtype;
  /* The index of every tensor once, in the order in which backward produces the gradients; NULL: from the last to the first.
   * Must be equal on all ranks. */
  const size_t* gradient_order;
  /* Index of the CUDA device whose memory holds the gradients; TNT_DEVICE_HOST: host memory. */
  int device;
  /* A tnt_determinism_t, equal on all ranks. */
  int determinism;
  /* Not 0: the reducer computes tnt_reducer_statistics. For gradients on a device only. */
  int statistics;
  /* The maximum number of thread blocks that packing, unpacking and NCCL may each take from the caller's kernels; 0: no limit.
   * For gradients on a device only. */
  int max_ctas;
  /* n > 0: tnt_reducer_stats has the seconds of a device, from events with times: five more for each bucket in the first n
   * steps and in every n-th one. The other steps count as the last one whose times are known. 1: every step, as a timeline has.
   * For gradients on a device only. */
  int timing;
  /* Not 0: results are float32, whatever the type of the gradients, and each sum over ranks is added to what is there: main
   * gradients of a trainer that computes in 16 bits. The caller sets them to zero before the first of several steps. The
   * gradients travel in float32 or fewer bits. A result is another array than its gradient. For gradients on a device only. */
  int accumulate;
  /* Above 0: the results of a step are multiplied by clip_norm / norm if the norm of all of them, before that, is finite and
   * above clip_norm. The norm is the square root of the sum of all squares, equal on all ranks. A norm that is infinite or NaN
   * changes nothing, so that loss scaling sees it. Results are there after tnt_reducer_finish; tnt_reducer_wait_bucket is
   * refused. Cost: memory of all buckets, and one more read of them. Not with accumulate. For gradients on a device only. */
  double clip_norm;
  /* For each tensor, the rank of the communicator that needs its sum, as when each rank updates a part of the weights; NULL:
   * all ranks need all sums. The sum is written on that rank alone; out of tnt_reducer_ready is ignored on the others. The
   * sums have the same bits as without owners, but for a wire dtype between nodes ("precision" below). Over a network and with
   * NCCL a bucket is reduced and scattered, and half of the bytes of an all_reduce travel: (n-1)/n of the gradients for each
   * of n ranks if each owns as many bytes. Within a node no results are copied that nobody needs. TNT_DETERMINISM_RANKS on a
   * device sends as much as without owners. Must be equal on all ranks. Not with statistics or clip_norm, which are of all
   * sums. */
  const int* owners;
  /* Not 0: each bucket has memory of its own, and tnt_reducer_gradient_buffer says where a gradient lies in it, so that it can
   * be computed there. Must be equal on all ranks. Cost: the bytes of all buckets. For gradients on a device only. */
  int gradients_in_buckets;
} tnt_reducer_options_t;
#define TNT_DEVICE_HOST (-1)
#define TNT_FUSION_DEFAULT SIZE_MAX
#define TNT_WIRE_DEFAULT (-1)
#define TNT_WIRE_OWN (-2)
#define TNT_REDUCER_OPTIONS_INITIALIZER                                                                     \
  {                                                                                                         \
    sizeof(tnt_reducer_options_t), NULL, NULL, TNT_FUSION_DEFAULT, TNT_WIRE_DEFAULT, NULL, TNT_DEVICE_HOST, \
        TNT_DETERMINISM_DEFAULT, 0, 0, 0, 0, 0.0, NULL, 0                                                   \
  }

/* Which runs give the same bits. In host memory every run on the same ranks does. */
typedef enum {
  /* On a device, NCCL chooses its algorithm in each run. */
  TNT_DETERMINISM_DEFAULT = 0,
  /* Every run on the same ranks gives the same bits: NCCL uses its ring with a fixed number of channels. */
  TNT_DETERMINISM_RUN = 1,
  /* 1, 2, 4, 8, ... ranks give the same bits, if their gradients are sums in the same tree: that of tnt_op_t, in which
   * tnt_add_scaled sums within a rank. On a device, the ranks exchange slices and sum them in this tree. In host memory all
   * sums are taken in it anyway; where nodes do not have 2^k consecutive ranks each, the reducer then uses the flat algorithm
   * over all ranks, which sends more over the network. This holds for any bucket size, for float32, float64 and integers.
   * 16-bit types are rounded after the sum over ranks, so they give the same bits for the same number of ranks only. */
  TNT_DETERMINISM_RANKS = 2
} tnt_determinism_t;

/* out = the sum over i of scales[i] * terms[i]. The bits are those of a reducer in host memory on n ranks of one node that pass
 * these terms with these scales: each product is rounded to dtype before the addition, neighbours first. 0 * term is 0 whatever
 * the term holds; it is not read and may be NULL. A rank uses this function to sum the gradients of several parts of its batch
 * in host memory, in the lower levels of the tree: all at once or a power of two at a time. It then passes the result to the
 * reducer with scale 1. terms: n buffers of count elements; out may be one of them. TNT_INVALID_ARGUMENT: n is 0, or a scale is
 * not finite or, for integers, neither 0 nor 1. Cost: one read of each term and one write. */
TNT_EXPORT tnt_status_t tnt_add_scaled(const void* const* terms, const double* scales, size_t n, void* out, size_t count,
                                       tnt_dtype_t dtype);

/* Precision of a wire dtype: a tensor's contribution scale * gradient is rounded once to this type when it is packed. The sum
 * over ranks is taken in float32, rounded once, and converted back to the tensor's type: |out - exact| <= u (sum over ranks of
 * |scale * gradient| + |exact|) plus terms of higher order, with u = 2^-8 for bfloat16, 2^-11 for float16, 2^-4 for e4m3 and
 * 2^-3 for e5m2, on any number of ranks including one. On a device, NCCL rounds each partial sum: |out - exact| <= n u (sum
 * over n ranks of |scale * gradient|) plus terms of higher order, unless determinism is TNT_DETERMINISM_RANKS. Between nodes
 * ("hierarchical"), large buckets stay float32 inside a node and are rounded for the network only, within the same bound: the
 * bits then depend on the layout and on the sizes of buckets. float16 ends at 65504: a larger value becomes infinite on all
 * ranks, where loss scaling sees it, and a value below 2^-25 becomes 0. bfloat16 has the range of float32. e5m2 ends at 57344,
 * above which values become infinite, and e4m3 at 448, above which they become NaN; values up to 2^-17 and 2^-10 become 0, so
 * gradients in 8 bits need a loss scale that lifts them above. Integers and 16-bit tensors travel unchanged. */

/* One bucket of the plan. dtype: the type in which it travels. tensors: indices in the order of the bucket. All pointers are
 * valid as long as the reducer. */
typedef struct {
  size_t size; /* sizeof(tnt_bucket_t) of the caller's header */
  size_t count;
  size_t bytes;
  tnt_dtype_t dtype;
  const size_t* tensors;
  size_t n_tensors;
  const char* description; /* for people: "bucket 0: 1.0 MiB, 14 tensors, dense_9/bias ..." */
} tnt_bucket_t;
#define TNT_BUCKET_INITIALIZER \
  { sizeof(tnt_bucket_t), 0, 0, TNT_FLOAT32, NULL, 0, NULL }

/* The reducer's work so far, summed over steps, in seconds of this rank. busy: packing, reducing (including waits for other
 * ranks) and unpacking. exposed: the time from the last gradient of a step being ready to the end of the step's last bucket;
 * the rest of busy is hidden behind the caller's work. */
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

/* Collective. Makes the plan, and compares it (and options->context and the library's version) on all ranks.
 * TNT_MISMATCH names the rank and the tensor that differ; the communicator stays usable then. options may be NULL. */
TNT_EXPORT tnt_status_t tnt_reducer_create(tnt_comm_t comm, const tnt_tensor_t* tensors, size_t n_tensors,
                                           const tnt_reducer_options_t* options, tnt_reducer_t* reducer);

/* The fusion threshold of the plan, as given or as chosen. */
TNT_EXPORT tnt_status_t tnt_reducer_fusion_threshold(tnt_reducer_t reducer, size_t* bytes);

TNT_EXPORT tnt_status_t tnt_reducer_bucket_count(tnt_reducer_t reducer, size_t* n_buckets);
TNT_EXPORT tnt_status_t tnt_reducer_bucket(tnt_reducer_t reducer, size_t index, tnt_bucket_t* bucket);

/* A bucket as a hook sees it: count elements of dtype, the type in which they travel. The tensors lie in their order, each from
 * its offset on, with the count that was passed to tnt_reducer_create. On a device there is padding between them, which is
 * zero and has to stay so. The hook may change data in place. Everything is valid during the call only. */
typedef struct {
  size_t size;  /* sizeof(tnt_packed_bucket_t) of the library: fields beyond it do not exist */
  size_t index; /* of the bucket */
  void* data;
  size_t count;
  tnt_dtype_t dtype;
  const size_t* tensors;
  size_t n_tensors;
  char reason[256];      /* a hook that fails may write its reason here; all ranks show it */
  const size_t* offsets; /* in elements, of each tensor */
  tnt_stream_t stream;   /* data is device memory: enqueue on this stream what reads or writes it; NULL: it is host memory */
} tnt_packed_bucket_t;

/* Returns 0 on success. Any other number ends the communication of the job: every rank gets TNT_ABORTED and one message with
 * the rank, the bucket and the reason (or the number). */
typedef int (*tnt_bucket_hook_t)(tnt_packed_bucket_t* bucket, void* user_data);

/* Registers a hook that is called for each bucket of each step, after packing and before sending: for statistics, or to change
 * the data that is sent. One call is made at a time; the hook must not call this reducer. NULL removes the hook. Not
 * collective: ranks may have different hooks or none. Allowed between steps only, else TNT_INVALID_ARGUMENT. In host memory it
 * is called on a thread of the library or on one that waits for a bucket. Cost there: memory of the largest bucket and one copy
 * each way; with a wire dtype, contributions are then rounded before they are added up inside a node. On a device it is called
 * by the tnt_reducer_ready that completes a bucket, and must not wait for the device: the data is there, and may be changed, in
 * work that it enqueues on bucket->stream. A capture records that work, and replays do not call the hook. */
TNT_EXPORT tnt_status_t tnt_reducer_set_hook(tnt_reducer_t reducer, tnt_bucket_hook_t hook, void* user_data);

/* Marks one gradient of the current step as ready. It contributes scale * gradient; 0 * gradient is 0 whatever the gradient
 * holds (it is not read and may be NULL). The sum over ranks is in out (which may equal gradient; NULL: not wanted) after
 * tnt_reducer_wait_bucket of its bucket. Until then both buffers belong to the reducer. Does not block.
 * stream, for options->device: the stream that computes the gradient; all work on it so far is done first. The call enqueues
 * the bucket when it is full. A step can be captured in a CUDA graph, including tnt_reducer_finish, after one step has run
 * without capture on the same stream. A graph keeps the addresses and scales of its capture. Destroy the graph before the
 * reducer. TNT_INVALID_ARGUMENT: the tensor was already marked ready in this step. */
TNT_EXPORT tnt_status_t tnt_reducer_ready(tnt_reducer_t reducer, size_t tensor, const void* gradient, void* out, double scale,
                                          tnt_stream_t stream);

/* Marks n gradients of the current step as ready, in this order: the same as n calls of tnt_reducer_ready with tensors[i],
 * gradients[i], outs[i] and scales[i], in one call. outs NULL: no result is wanted. scales NULL: all are 1. The arrays are read
 * before the call returns. After an error about one tensor, those before it in the list are marked. Cost on a device: one check
 * of the handle, the stream and the communicator for all of them. */
TNT_EXPORT tnt_status_t tnt_reducer_ready_many(tnt_reducer_t reducer, const size_t* tensors, const void* const* gradients,
                                               void* const* outs, const double* scales, size_t n, tnt_stream_t stream);

/* Waits until the bucket's current reduction has finished. May be called before all its gradients are ready (another thread
 * must then supply them), but not before the bucket's first step has begun. With a stream, the stream waits and the host does
 * not; all gradients of this bucket and of the buckets before it must be ready. */
TNT_EXPORT tnt_status_t tnt_reducer_wait_bucket(tnt_reducer_t reducer, size_t bucket, tnt_stream_t stream);

/* Ends a step: waits for all buckets; with a stream, the stream waits. TNT_INVALID_ARGUMENT names a tensor that was not marked
 * ready. Nothing is lost then: mark it ready and call again. */
TNT_EXPORT tnt_status_t tnt_reducer_finish(tnt_reducer_t reducer, tnt_stream_t stream);

/* The error of the steps so far: TNT_SUCCESS if the results of all steps that were waited for are there. With a stream, after
 * the stream was synchronised. Not collective, does not wait. */
TNT_EXPORT tnt_status_t tnt_reducer_check(tnt_reducer_t reducer);

/* For gradients on a device: the address of the tensor in its bucket, so that the caller can compute the gradient in place. If
 * gradient == out == *buffer and scale is 1, tnt_reducer_ready neither packs nor unpacks it. With options->gradients_in_buckets
 * and for tensors that travel in their own type, else TNT_INVALID_ARGUMENT. The reducer owns the memory. */
TNT_EXPORT tnt_status_t tnt_reducer_gradient_buffer(tnt_reducer_t reducer, size_t tensor, void** buffer);

/* Statistics of one reduced bucket: the sum of the squares of its elements, and how many are infinite or NaN. Never grows. */
typedef struct {
  double sum_of_squares;
  uint64_t non_finite;
} tnt_statistics_t;

/* *statistics: one entry for each bucket, in device memory, of the last step that the stream has waited for. They are of all
 * gradients of the bucket, also of those that lie in it or whose result is not wanted, and are computed while buckets are
 * unpacked. TNT_INVALID_ARGUMENT without options->statistics. */
TNT_EXPORT tnt_status_t tnt_reducer_statistics(tnt_reducer_t reducer, const tnt_statistics_t** statistics);

/* The number of times the tensor was reduced. */
TNT_EXPORT tnt_status_t tnt_reducer_tensor_steps(tnt_reducer_t reducer, size_t tensor, uint64_t* steps);
TNT_EXPORT tnt_status_t tnt_reducer_stats(tnt_reducer_t reducer, tnt_reducer_stats_t* stats);

/* Not collective. Abandons a bucket that still waits for other ranks. On a device, waits until the
 * enqueued work has ended (after an error, gradients and results belong to the reducer until then) and frees gradient buffers
 * and statistics. TNT_INVALID_ARGUMENT: a CUDA graph that captured steps of the reducer still exists. */
TNT_EXPORT tnt_status_t tnt_reducer_destroy(tnt_reducer_t reducer);

#ifdef __cplusplus
}
#endif

#endif /* TARANTELLA_TARANTELLA_H */
