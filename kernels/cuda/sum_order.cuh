// The sum of n terms in the tree of kernels/cpu/register_sums.hpp. Four loads are issued before the first result is needed, and
// no array is indexed at run time, so that everything stays in registers.
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

// The largest power of two <= n.
__device__ __forceinline__ int power_below(int n) {
  int power = 1;
  while (2 * power <= n) power *= 2;
  return power;
}

// With 2^k <= n and r = n - 2^k, the tree has r leaves of two terms, then leaves of one. A group is four leaves if all have one
// term, else two leaves. Groups are added like a binary counter: pending[k] is the sum of 2^k groups that waits for its
// neighbour. The number of groups is a power of two, so the last sum is the total.
template <typename Terms>
__device__ __forceinline__ typename Terms::Value sum_of(const Terms& terms, int n) {
  constexpr int levels = 5;
  static_assert(group << (levels - 1) == max_sources && group == 4);
  typename Terms::Value pending[levels] = {};
  typename Terms::Value sum = {};
  const int leaves = power_below(n);
  const int pairs = n - leaves;
  const int leaves_of_group = pairs == 0 ? 4 : 2;
  int first = 0;
  for (int leaf = 0; leaf < leaves; leaf += leaves_of_group) {
    const int leaf_end = leaf + leaves_of_group < leaves ? leaf + leaves_of_group : leaves;
    const int end = leaf_end + (leaf_end < pairs ? leaf_end : pairs);
    typename Terms::Pending pending_loads[group] = {};
    issue_group(terms, first, end, pending_loads);
    sum = tree_in_group<2, 0>(terms, first, end, pending_loads);
    first = end;
    const int index = leaf / leaves_of_group;
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
  return sum;
}

}  // namespace tnt::gpu
