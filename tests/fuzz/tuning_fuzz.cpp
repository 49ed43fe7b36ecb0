// Tuning files: TNT_INTERNAL_TUNING, and the one in the user's cache.
#include "comm/shm/tuning.hpp"
#include "common/error.hpp"
#include "fuzz/fuzz.hpp"

namespace {

void check(const tnt::Tuning& tuning) {
  using tnt::Tuning;
  tnt::fuzz::require(tuning.ll_bytes <= tnt::LLBuffer::max_bytes, "ll_bytes fits the buffer");
  tnt::fuzz::require(tuning.one_shot_bytes <= Tuning::max_one_shot, "one_shot_bytes fits the slot");
  tnt::fuzz::require(tuning.chunk_bytes >= Tuning::min_chunk && tuning.chunk_bytes <= tnt::Slots::slot_bytes,
                     "chunk_bytes fits the slot");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto table = tnt::TuningTable::from_json(tnt::fuzz::text_of(data, size));
    for (const std::size_t ranks : {0, 1, 2, 3, 64, 511, 512}) check(table.of(ranks));
  } catch (const tnt::Error& error) {
    tnt::fuzz::require(error.status() == TNT_INVALID_ARGUMENT, "a wrong table is TNT_INVALID_ARGUMENT");
    tnt::fuzz::require_sentence(error.what());
  }
  return 0;
}
