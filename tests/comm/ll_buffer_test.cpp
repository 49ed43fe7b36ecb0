// Messages that carry their own flags (LL): complete, of every size, between ranks of different speed.
#include "comm/shm/ll_buffer.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

namespace tnt {
namespace {

struct Memory {
  explicit Memory(std::size_t members) : bytes(LLBuffer::bytes(members) + 64) {}
  [[nodiscard]] std::byte* data() {
    void* pointer = bytes.data();
    std::size_t space = bytes.size();
    return static_cast<std::byte*>(std::align(64, 1, pointer, space));
  }
  std::vector<std::byte> bytes;
};

std::vector<unsigned char> message(std::size_t member, std::size_t round) {
  std::vector<unsigned char> result((round * 7 + 1) % (LLBuffer::max_bytes + 1));
  std::iota(result.begin(), result.end(), static_cast<unsigned char>(member * 31 + round));
  return result;
}

TEST(LLBuffer, EverybodyReadsEverybodysMessages) {
  for (const std::size_t members : {std::size_t{2}, std::size_t{3}, LLBuffer::max_members}) {
    Memory memory(members);
    std::vector<std::thread> threads;
    for (std::size_t self = 0; self < members; ++self) {
      threads.emplace_back([&, self] {
        LLBuffer lines(memory.data(), self);
        for (std::size_t round = 0; round < 300; ++round) {
          const auto own = message(self, round);
          lines.write(own.data(), own.size(), round);
          for (std::size_t member = 0; member < members; ++member) {
            std::vector<unsigned char> theirs(own.size());
            while (lines.read(member, theirs.data(), theirs.size(), round) == LLBuffer::Status::incomplete)
              std::this_thread::yield();
            EXPECT_EQ(theirs, message(member, round)) << "of " << member << " in round " << round;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(LLBuffer, AMessageThatIsNotThereIsMissing) {
  Memory memory(2);
  LLBuffer first(memory.data(), 0);
  LLBuffer second(memory.data(), 1);
  char data[8] = "message";
  char read[8] = "";
  first.write(data, sizeof(data), 1);
  EXPECT_EQ(first.read(1, read, sizeof(read), 1), LLBuffer::Status::incomplete);
  second.write(data, sizeof(data), 1);
  EXPECT_EQ(first.read(1, read, sizeof(read), 1), LLBuffer::Status::complete);
  EXPECT_STREQ(read, "message");
}

TEST(LLBuffer, AnotherSignatureIsToldApart) {
  Memory memory(2);
  LLBuffer first(memory.data(), 0);
  LLBuffer second(memory.data(), 1);
  char data[8] = "message";
  char read[8] = "";
  first.write(data, sizeof(data), 1);
  second.write(data, sizeof(data), 2);
  EXPECT_EQ(first.read(1, read, sizeof(read), 1), LLBuffer::Status::mismatch);
  EXPECT_STREQ(read, "");
}

}  // namespace
}  // namespace tnt
