// The command lines of tnt-bench, of its compare and of its tune: each line is a word.
#include "benchmarks/flags.hpp"
#include "benchmarks/options.hpp"
#include "benchmarks/parsing.hpp"
#include "fuzz/fuzz.hpp"

namespace {

using tnt::fuzz::require;

template <typename Read>
void read(const std::vector<const char*>& words, const Read& parse) {
  try {
    parse(static_cast<int>(words.size()), words.data());
  } catch (const tnt::bench::Failure& failure) {
    require(failure.code() == 0 || failure.code() == 2, "a command line is right, or wrong with code 2");
    tnt::fuzz::require_sentence(failure.what());
  }
}

void check(const tnt::bench::Options& options) {
  require(!options.sizes.empty() || options.collective == tnt::bench::Collective::barrier, "there is something to measure");
  require(!options.dtypes.empty() && !options.ops.empty() && !options.backends.empty(), "there is a way to measure");
  for (const auto& size : options.sizes) {
    if (options.collective == tnt::bench::Collective::barrier) break;
    require(size.bytes > 0, "sizes are above 0");
    for (const tnt_dtype_t dtype : options.dtypes) {
      require(!options.model.empty() || size.bytes % tnt_dtype_size(dtype) == 0, "sizes are whole elements");
    }
  }
  require(!options.ranks || (*options.ranks >= 1 && *options.ranks <= tnt::bench::max_ranks), "ranks are in range");
  require(options.target > 0 && options.max_time > 0 && options.timeout > 0, "times are above 0");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::string> lines = tnt::fuzz::parts_of(tnt::fuzz::text_of(data, size), '\n');
  std::vector<const char*> words{"tnt-bench"};
  for (const std::string& line : lines) {
    if (line.find('/') != std::string::npos) return 0;  // no file of the machine is read
    words.push_back(line.c_str());
  }
  read(words, [](int argc, const char* const* argv) { check(tnt::bench::parse(argc, argv)); });
  read(words, [](int argc, const char* const* argv) {
    const auto flags = tnt::bench::read_compare_flags(argc, argv);
    require(flags.files.size() == 2, "two files are compared");
    const double share = tnt::bench::parse_fraction("--threshold", flags.threshold);
    require(share > 0 && share < 1, "a share is below 1");
  });
  read(words, [](int argc, const char* const* argv) { (void)tnt::bench::read_tune_flags(argc, argv); });
  return 0;
}
