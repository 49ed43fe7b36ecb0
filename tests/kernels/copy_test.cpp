// Copies of any length between any addresses, with ordinary and with streaming stores.
#include "kernels/cpu/copy.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tnt {
namespace {

TEST(Copy, CopiesWhatItShouldAndNothingElse) {
  std::vector<unsigned char> from(1000);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
  for (const Store store : {Store::cached, Store::streaming}) {
    for (const std::size_t bytes : {0U, 1U, 15U, 16U, 63U, 64U, 65U, 127U, 128U, 200U, 700U}) {
      for (const std::size_t to_offset : {0U, 1U, 8U, 63U}) {
        for (const std::size_t from_offset : {0U, 3U, 17U}) {
          std::vector<unsigned char> to(1000);
          copy(to.data() + to_offset, from.data() + from_offset, bytes, store);
          std::vector<unsigned char> expected(1000);
          std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_offset), bytes,
                      expected.begin() + static_cast<std::ptrdiff_t>(to_offset));
          ASSERT_EQ(to, expected) << bytes << " bytes from +" << from_offset << " to +" << to_offset;
        }
      }
    }
  }
}

TEST(Copy, OntoItselfIsNothing) {
  std::vector<unsigned char> bytes(300, 7);
  copy(bytes.data(), bytes.data(), bytes.size(), Store::streaming);
  EXPECT_EQ(bytes, std::vector<unsigned char>(300, 7));
}

}  // namespace
}  // namespace tnt
