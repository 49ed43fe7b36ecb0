// Gradients of real models, as lists of tensors in the order of the layers: models/*.json, built into the program.
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
  std::string source;             // origin of the list
  std::string published;          // the authors' figure: "25.6 M (where)"
  double published_millions = 0;  // the same figure, for a check
  std::size_t parameters = 0;     // exact: the sum over tensors
  std::vector<ModelTensor> tensors;
};

[[nodiscard]] std::vector<std::string> model_names();

// The reference is valid as long as the program. Throws Failure that lists the known models. flag: the flag to name in the
// error.
[[nodiscard]] const Model& find_model(std::string_view name, std::string_view flag = "--model ");

// This many equal tensors of this many bytes in total.
[[nodiscard]] Model equal_tensors(std::size_t tensors, std::size_t bytes, std::string name);

// From the generated source: the files of models/.
struct ModelText {
  std::string_view name;
  std::string_view json;
};
[[nodiscard]] std::span<const ModelText> model_texts();

}  // namespace tnt::bench
