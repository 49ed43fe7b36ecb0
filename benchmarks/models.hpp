// The gradients of real models, as lists of tensors in the order of the layers: models/*.json, built into the program.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tnt::bench {

struct ModelTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::size_t count = 0;  // elements
};

struct Model {
  std::string name;
  std::string source;             // where the list comes from, and what it follows
  std::string published;          // "25.6 M (where)": the figure of the authors
  double published_millions = 0;  // the same, to check against
  std::size_t parameters = 0;     // exact: the sum over tensors
  std::vector<ModelTensor> tensors;
};

[[nodiscard]] std::vector<std::string> model_names();

// The reference lives as long as the program. Throws Failure that lists the known ones; flag: what it names as the cause.
[[nodiscard]] const Model& find_model(std::string_view name, std::string_view flag = "--model ");

// So many equal tensors of so many bytes in all: a bucket of a size of one's choice.
[[nodiscard]] Model equal_tensors(std::size_t tensors, std::size_t bytes, std::string name);

// From the generated source: the files of models/.
struct ModelText {
  std::string_view name;
  std::string_view json;
};
[[nodiscard]] std::span<const ModelText> model_texts();

}  // namespace tnt::bench
