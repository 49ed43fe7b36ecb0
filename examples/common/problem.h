/* The problem both trainers solve: points around CLASSES centres, to be told apart by a network of three dense layers. Every
 * number is a function of the seed and of its place, so that each rank makes only the samples that it trains on. */
#ifndef PROBLEM_H
#define PROBLEM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { FEATURES = 16, HIDDEN = 128, CLASSES = 8, LAYERS = 3, TENSORS = 2 * LAYERS, SAMPLES = 2048 };

#define LEARNING_RATE 0.1f

/* Layer l has widths[l] inputs and widths[l + 1] outputs; tensor 2 l is its weights, tensor 2 l + 1 its biases. */
static const int widths[LAYERS + 1] = {FEATURES, HIDDEN, HIDDEN, CLASSES};
static const char* const tensor_names[TENSORS] = {"layer 0/weights", "layer 0/biases",  "layer 1/weights",
                                                  "layer 1/biases",  "layer 2/weights", "layer 2/biases"};

static size_t tensor_count(int tensor) {
  const int layer = tensor / 2;
  return (size_t)widths[layer + 1] * (tensor % 2 == 0 ? (size_t)widths[layer] : 1);
}

/* Between -1 and 1; splitmix64 of three numbers. */
static float made_up(uint64_t seed, uint64_t what, uint64_t index) {
  uint64_t x = (seed * 1000003u + what) * 0x9e3779b97f4a7c15u + index * 0xd1b54a32d192ed03u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return (float)(x >> 40) / 8388608.0f - 1.0f;
}

enum { A_CENTRE = 100, A_SAMPLE, AN_ORDER }; /* beside the numbers of the tensors */

static void make_weights(uint64_t seed, int tensor, float* weights) {
  const float range = tensor % 2 == 0 ? 1.7f / sqrtf((float)widths[tensor / 2]) : 0.0f;
  size_t i;
  for (i = 0; i < tensor_count(tensor); ++i) weights[i] = range * made_up(seed, (uint64_t)tensor, i);
}

/* Returns the sample's class. */
static int make_sample(uint64_t seed, int sample, float* features) {
  const int label = sample % CLASSES;
  int i;
  for (i = 0; i < FEATURES; ++i) {
    const float centre = made_up(seed, A_CENTRE, (uint64_t)(label * FEATURES + i));
    features[i] = centre + 1.5f * made_up(seed, A_SAMPLE, (uint64_t)sample * FEATURES + (uint64_t)i);
  }
  return label;
}

/* The order in which an epoch goes through the samples: the same on all ranks. */
static void shuffle(uint64_t seed, long epoch, int* order) {
  int i;
  for (i = 0; i < SAMPLES; ++i) order[i] = i;
  for (i = SAMPLES - 1; i > 0; --i) {
    const float draw = (made_up(seed, AN_ORDER, (uint64_t)epoch * SAMPLES + (uint64_t)i) + 1.0f) / 2.0f;
    const int j = (int)(draw * (float)i);
    const int kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

/* The most samples that a rank has of a batch. */
static long largest_share(long batch, int ranks) { return ((batch < SAMPLES ? batch : (long)SAMPLES) + ranks - 1) / ranks; }

/* Rank r of n trains on samples r, r + n, r + 2 n ... of the batch that begins at first. Makes them; returns how many. */
static int make_share(uint64_t seed, const int* order, long first, long size, int rank, int ranks, float* features,
                      int* labels) {
  int mine = 0;
  long i;
  for (i = rank; i < size; i += ranks, ++mine) {
    labels[mine] = make_sample(seed, order[first + i], features + (size_t)mine * FEATURES);
  }
  return mine;
}

/* Results, for stdout. */
static void report_epoch(long epoch, double sum_of_losses) {
  printf("epoch %ld loss %.6f\n", epoch + 1, sum_of_losses / SAMPLES);
  fflush(stdout);
}

static void report_weights(float* const weights[TENSORS]) {
  double sum = 0.0;
  int t;
  size_t i;
  for (t = 0; t < TENSORS; ++t) {
    for (i = 0; i < tensor_count(t); ++i) sum += fabs((double)weights[t][i]);
  }
  printf("sum of absolute weights %.4f\n", sum);
}

/* Of every bit: equal weights have equal hashes. */
static uint64_t hash_of_weights(float* const weights[TENSORS]) {
  uint64_t hash = 14695981039346656037u;
  int t;
  size_t i;
  for (t = 0; t < TENSORS; ++t) {
    for (i = 0; i < tensor_count(t); ++i) {
      uint32_t bits;
      memcpy(&bits, &weights[t][i], sizeof bits);
      hash = (hash ^ bits) * 1099511628211u;
    }
  }
  return hash;
}

#endif
