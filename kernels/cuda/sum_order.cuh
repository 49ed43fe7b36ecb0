// The sum of n terms in a fixed order. Four loads are issued before the first result is needed, and no array is indexed at run
// time, so that everything stays in registers.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace tnt::gpu {

inline constexpr int group = 4;

// Terms: issue(i) -> Pending starts to load term i; complete(i, pending) -> Value returns it.
template <typename Terms>
__device__ __forceinline__ void issue_group(const Terms& terms, int first, int n,
                                            typename Terms::Pending (&pending_loads)[group]) {
  TNT_UNROLL
  for (int i = 0; i < group; ++i) {
    if (first + i < n) pending_loads[i] = terms.issue(first + i);
  }
}

// ((0 + 1) + 2) + 3
template <typename Terms>
__device__ __forceinline__ typename Terms::Value sum_in_order(const Terms& terms, int n) {
  typename Terms::Value sum = {};
  for (int first = 0; first < n; first += group) {
    typename Terms::Pending pending_loads[group] = {};
    issue_group(terms, first, n, pending_loads);
    TNT_UNROLL
    for (int i = 0; i < group; ++i) {
      if (first + i >= n) break;
      const typename Terms::Value term = terms.complete(first + i, pending_loads[i]);
      sum = first + i == 0 ? term : sum + term;  // not 0 + term, which would lose the sign of a zero
    }
  }
  return sum;
}

// The tree over the terms [first + at, first + at + 2^level) of a group that ends at n.
template <int level, int at, typename Terms>
__device__ __forceinline__ typename Terms::Value tree_in_group(const Terms& terms, int first, int n,
                                                               const typename Terms::Pending (&pending_loads)[group]) {
  if constexpr (level == 0) {
    return terms.complete(first + at, pending_loads[at]);
  } else {
    constexpr int half = 1 << (level - 1);
    const typename Terms::Value left = tree_in_group<level - 1, at>(terms, first, n, pending_loads);
    if (first + at + half >= n) return left;
    return left + tree_in_group<level - 1, at + half>(terms, first, n, pending_loads);
  }
}

// Groups are added like a binary counter: pending[k] is the sum of 2^k groups that waits for its neighbour. At the end, a sum
// without a neighbour is passed up, from the last to the first.
template <typename Terms>
__device__ __forceinline__ typename Terms::Value sum_in_tree(const Terms& terms, int n) {
  constexpr int levels = 5;
  static_assert(group << (levels - 1) == max_sources && group == 4);
  typename Terms::Value pending[levels] = {};
  const int groups = (n + group - 1) / group;
  for (int index = 0; index < groups; ++index) {
    typename Terms::Pending pending_loads[group] = {};
    issue_group(terms, index * group, n, pending_loads);
    typename Terms::Value sum = tree_in_group<2, 0>(terms, index * group, n, pending_loads);
    bool waits = false;
    TNT_UNROLL
    for (int level = 0; level < levels; ++level) {
      if (waits) continue;
      if ((index >> level & 1) != 0) {
        sum = pending[level] + sum;
      } else {
        pending[level] = sum;
        waits = true;
      }
    }
  }
  typename Terms::Value total = {};
  bool has_total = false;
  TNT_UNROLL
  for (int level = 0; level < levels; ++level) {
    if ((groups >> level & 1) == 0) continue;
    total = has_total ? pending[level] + total : pending[level];
    has_total = true;
  }
  return total;
}

template <Order order, typename Terms>
__device__ __forceinline__ typename Terms::Value sum_of(const Terms& terms, int n) {
  if constexpr (order == Order::ranks) {
    return sum_in_order(terms, n);
  } else {
    return sum_in_tree(terms, n);
  }
}

}  // namespace tnt::gpu
