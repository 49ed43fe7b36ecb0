// The cases of tnt_gpu_bench; each prints its lines.
#pragma once

#include <cstddef>

#include "benchmarks/gpu/trainer.hpp"
#include "benchmarks/models.hpp"

namespace tnt::bench {

// Pack and unpack of the model's tensors in buckets of several sizes and types, beside copies of the same number of bytes.
void run_bucket_cases(const Model& model, double seconds);

// The host time of each call of a step.
void run_reducer_case(const Trainer& trainer, const Model& model);

// The part of the reduction that a backward pass of this many microseconds does not hide.
void run_overlap_case(const Trainer& trainer, const Model& model, double backward_us);

// Sums of steps that are replayed from a CUDA graph. Throws Failure for a wrong one.
void run_capture_case(const Trainer& trainer);

// Reports what the other ranks are told when one leaves, and how soon. Throws Failure unless the message names that rank. Ends
// the process.
void run_abort_case(const Trainer& trainer);

// Through the C API and NCCL, for sizes from 4 bytes. repeats: how often each size is timed.
void run_all_reduce_cases(const Trainer& trainer, std::size_t max_bytes, int repeats);

}  // namespace tnt::bench
