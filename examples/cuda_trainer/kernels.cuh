// Dense layers with one thread for each result, written to be readable and not fast. Matrices are row-major. One thread
// computes every sum in one order, so that runs give the same bits.
#pragma once

#include <cuda_runtime.h>

inline __device__ int thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

// out = tanh(in W + b), or without tanh.
__global__ void forward(const float* in, const float* weights, const float* biases, float* out, int samples, int n_in,
                        int n_out, bool squash) {
  if (thread() >= samples * n_out) return;
  const int s = thread() / n_out;
  const int o = thread() % n_out;
  float sum = biases[o];
  for (int i = 0; i < n_in; ++i) sum += in[s * n_in + i] * weights[i * n_out + o];
  out[thread()] = squash ? tanhf(sum) : sum;
}

// Cross entropy of the softmax, and its derivative with respect to the logits.
__global__ void loss_and_delta(const float* logits, const int* labels, float* deltas, float* losses, int samples, int classes) {
  const int s = thread();
  if (s >= samples) return;
  const float* logit = logits + s * classes;
  float* delta = deltas + s * classes;
  float largest = logit[0];
  for (int c = 1; c < classes; ++c) largest = fmaxf(largest, logit[c]);
  float sum = 0.0F;
  for (int c = 0; c < classes; ++c) sum += delta[c] = expf(logit[c] - largest);
  for (int c = 0; c < classes; ++c) delta[c] = delta[c] / sum - (c == labels[s] ? 1.0F : 0.0F);
  losses[s] = logf(sum) + largest - logit[labels[s]];
}

// Summed over samples. The biases are an additional row of the weights, with an input of 1.
__global__ void gradients(const float* in, const float* delta, float* by_weights, float* by_biases, int samples, int n_in,
                          int n_out) {
  if (thread() >= (n_in + 1) * n_out) return;
  const int i = thread() / n_out;
  const int o = thread() % n_out;
  float sum = 0.0F;
  for (int s = 0; s < samples; ++s) sum += (i < n_in ? in[s * n_in + i] : 1.0F) * delta[s * n_out + o];
  (i < n_in ? by_weights[thread()] : by_biases[o]) = sum;
}

// in: the outputs of the previous layer; the derivative of tanh is 1 - in^2.
__global__ void delta_before(const float* delta, const float* weights, const float* in, float* before, int samples, int n_in,
                             int n_out) {
  if (thread() >= samples * n_in) return;
  const int s = thread() / n_in;
  const int i = thread() % n_in;
  float sum = 0.0F;
  for (int o = 0; o < n_out; ++o) sum += delta[s * n_out + o] * weights[i * n_out + o];
  before[thread()] = sum * (1.0F - in[thread()] * in[thread()]);
}

__global__ void descend(float* weights, const float* gradient, float rate, int count) {
  if (thread() < count) weights[thread()] -= rate * gradient[thread()];
}
