/* What tests tell the fake NCCL library (fake_nccl.cpp), which they load like any NCCL and ask by dlsym. */
#ifndef TARANTELLA_TESTS_FAKE_NCCL_H
#define TARANTELLA_TESTS_FAKE_NCCL_H

/* Everything as at the start: NCCL 2.28.9, which does no wrong. Communicators that are left stay as they are. */
typedef void tnt_fake_nccl_reset_t(void);

/* key, for the calls of one rank or of all (-1):
 *   version                                       the library's: 21805, 23003, ...
 *   init_polls enqueue_polls split_polls finalize_polls   how often such a call is still in progress when it is asked for; as
 *                                                 with NCCL, only calls of communicators that do not block. From 2.23 on their
 *                                                 operations start a thread each and are in progress for a while in any case
 *   never_joins                                   the rank's initialisation stays in progress
 *   fails_at                                      the n-th operation of the rank's communicators (from 1) returns
 *                                                 ncclInvalidArgument
 *   remote_error_at system_error_at               after the n-th operation, an asynchronous error
 *   never_ends_at                                 the rank's device never comes to the end of the n-th operation
 *   blocks_at                                     the n-th operation's call does not return until the communicator is aborted
 *   co_resident                                   each device has room for one operation, as where kernels fill the device: the
 *                                                 next one in the order of the calls begins when it has ended
 *   no_windows                                    these GPUs have no symmetric memory: a window is NULL
 *   window_fails                                  ncclCommWindowRegister returns ncclSystemError
 *   unique_id_fails                               ncclGetUniqueId returns ncclSystemError
 *   mismatch_hangs                                ranks that call different things wait for ever, as with NCCL, in place of an
 *                                                 error
 * The environment variable FAKE_NCCL="key=value,key@rank=value" says the same when the library is loaded. */
typedef void tnt_fake_nccl_set_t(const char* key, int rank, long value);

/* How often a function was called: "ncclCommAbort"; "communicators": how many were neither destroyed nor aborted; "threads":
 * how many threads the operations of communicators that do not block have started. */
typedef long tnt_fake_nccl_count_t(const char* what);

/* What no program may do to NCCL: "ncclAllReduce on a communicator that was aborted"; "" if nothing was. */
typedef const char* tnt_fake_nccl_misuse_t(void);

#endif
