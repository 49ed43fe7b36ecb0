// Compares plans across ranks: one small collective if they agree, and a message that names the difference if they do not.
#include <algorithm>
#include <string_view>

#include "base/hash.hpp"
#include "reducer/plan.hpp"

namespace tnt {
namespace {

constexpr std::string_view end_of_tensors = "nothing more";

std::string describe(const TensorSpec& tensor) {
  const std::string owner = tensor.owner ? fmt::format(", owned by rank {}", *tensor.owner) : "";
  return fmt::format("'{}' ({} {}{})", tensor.name, tensor.count, dtype_name(tensor.dtype), owner);
}

std::string describe(const Bucket& bucket) {
  return fmt::format("{} tensors ({} {})", bucket.tensors.size(), bucket.count, dtype_name(bucket.dtype));
}

// The text of a plan. Ranks compare its hash, and its lines if the hash differs: the context, the wire type, one line for each
// tensor, one for each in gradient_order, one for each bucket.
std::vector<std::string> lines_of(const Plan& plan, const std::string& context) {
  std::vector<std::string> lines{fmt::format("Tarantella {}{}{}", tnt_version(), context.empty() ? "" : ", ", context)};
  lines.emplace_back(plan.wire() ? dtype_name(*plan.wire()) : "each tensor's own");
  for (const TensorSpec& tensor : plan.tensors()) lines.push_back(describe(tensor));
  lines.emplace_back(end_of_tensors);
  for (const std::size_t tensor : plan.gradient_order()) lines.push_back(describe(plan.tensors()[tensor]));
  for (const Bucket& bucket : plan.buckets()) lines.push_back(describe(bucket));
  return lines;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) (text += line) += '\n';
  return text;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string difference(int rank, const std::vector<std::string>& theirs, const std::vector<std::string>& ours) {
  const std::size_t common = std::min(theirs.size(), ours.size());
  std::size_t line = 0;
  while (line < common && theirs[line] == ours[line]) ++line;
  const std::string their = line < theirs.size() ? theirs[line] : "nothing more";
  const std::string our = line < ours.size() ? ours[line] : "nothing more";
  const auto end = static_cast<std::size_t>(std::find(ours.begin(), ours.end(), end_of_tensors) - ours.begin());
  const std::size_t buckets = end + 1 + (end - 2);  // the first line of the buckets, if all tensors agree
  const std::string where = line == 0         ? "version"
                            : line == 1       ? "the type on the wire (gradient_dtype, TNT_GRADIENT_DTYPE)"
                            : line <= end     ? fmt::format("tensor {}", line - 2)
                            : line >= buckets ? fmt::format("bucket {} (TNT_FUSION_THRESHOLD)", line - buckets)
                                              : fmt::format("gradient_order[{}]", line - end - 1);
  return fmt::format("rank {} and rank 0 do not train the same model: {} is {} on rank {}, {} on rank 0", rank, where, their,
                     rank, our);
}

}  // namespace

void compare_plans(const Plan& plan, const std::string& context, Communicator& comm, const CallContext& call) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::string text = join(lines_of(plan, context));
  struct Summary {
    std::uint64_t hash;
    std::uint64_t bytes;
  };
  const Summary own{hash(text), text.size()};
  std::vector<Summary> summaries(ranks);
  comm.run({{.kind = Call::all_gather, .count = sizeof(Summary)}, &own, summaries.data()}, call);
  const auto differs = [&](const Summary& other) {
    return other.hash != summaries[0].hash || other.bytes != summaries[0].bytes;
  };
  if (std::none_of(summaries.begin(), summaries.end(), differs)) return;

  std::size_t longest = 0;
  for (const Summary& summary : summaries) longest = std::max<std::size_t>(longest, summary.bytes);
  std::string padded = text;
  padded.resize(longest);
  std::string all(longest * ranks, '\0');
  comm.run({{.kind = Call::all_gather, .count = longest}, padded.data(), all.data()}, call);
  const auto text_of = [&](std::size_t rank) {
    return split(std::string_view(all).substr(rank * longest, summaries[rank].bytes));
  };
  const auto first = std::find_if(summaries.begin(), summaries.end(), differs);
  const auto rank = static_cast<std::size_t>(first - summaries.begin());
  fail(TNT_MISMATCH, "{}", difference(static_cast<int>(rank), text_of(rank), text_of(0)));
}

}  // namespace tnt
