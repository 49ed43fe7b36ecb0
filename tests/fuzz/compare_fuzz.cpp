// The rows that tnt-bench compare reads. A line "==" separates the two files; without one the file is compared with itself.
#include <sys/mman.h>
#include <unistd.h>

#include "base/file_descriptor.hpp"
#include "benchmarks/compare.hpp"
#include "benchmarks/types.hpp"
#include "fuzz/fuzz.hpp"

namespace {

using tnt::fuzz::require;

class File {
 public:
  explicit File(const std::string& text) : file_(::memfd_create("rows", MFD_CLOEXEC)) {
    require(::write(file_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()), "a file is written");
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  tnt::FileDescriptor file_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::FILE* const out = std::fopen("/dev/null", "w");
  const std::string text = tnt::fuzz::text_of(data, size);
  constexpr const char* separator = "\n==\n";
  const std::size_t middle = text.find(separator);
  const File before(text.substr(0, middle));
  const File after(middle == std::string::npos ? text : text.substr(middle + 4));
  try {
    const int code = tnt::bench::compare(before.path(), after.path(), 0.1, out);
    require(code == 0 || code == 1, "a comparison ends with 0 or 1");
    const bool wrong = text.find("wrong") != std::string::npos || text.find('\\') != std::string::npos;
    require(code == 0 || middle != std::string::npos || wrong, "a file is not slower than itself");
  } catch (const tnt::bench::Failure& failure) {
    require(failure.code() == 2, "a file that is no result ends with code 2");
    tnt::fuzz::require_sentence(failure.what());
  }
  return 0;
}
