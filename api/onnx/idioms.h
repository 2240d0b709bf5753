// What exporters write as several operators and Braid has as one: activations and norms.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/logical_graph.h"

namespace braid::onnx {

// The operator that known numbers which are all the same become.
inline constexpr char kNumber[] = "constant";

// Looks at the operators that a product or sum stands behind. Those that are not needed any more
// stay in the graph, where the compiler drops them.
class Idioms {
 public:
  Idioms();
  ~Idioms();
  Idioms(const Idioms&) = delete;
  Idioms& operator=(const Idioms&) = delete;

  // a * b and a + b: as such, or as the operator that they are the end of.
  Tensor Product(Tensor a, Tensor b, SourceLocation where) const;
  Tensor Sum(Tensor a, Tensor b, SourceLocation where) const;

 private:
  struct Term;
  struct Idiom;
  struct Found;

  // `last` applied to a and b; nothing: no idiom.
  std::optional<Tensor> Find(std::string_view last, Tensor a, Tensor b, SourceLocation where) const;

  std::vector<Idiom> idioms_;
};

}  // namespace braid::onnx
