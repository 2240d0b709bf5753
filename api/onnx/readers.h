// Which nodes read a value, those behind nodes that only give it another name included.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace braid::onnx {

class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;

// What the nodes of a graph do with a value.
struct Use {
  const NodeProto* node = nullptr;  // none: somebody whom we do not know
  int input = 0;
  bool is_in_function = false;  // so that the names at the node are the function's
};
using Uses = std::multimap<std::string, Use>;

class Readers {
 public:
  // Borrows the model, whose nodes must stay where they are.
  explicit Readers(const ModelProto& model);

  // The nodes of the model's graph, and of graphs in them, that read a value of it, by its name.
  const Uses& direct() const { return graph_.uses; }
  // The same, where those behind Identity and Cast stand in the place of these, and those in the
  // functions of the model in the place of the functions' calls.
  std::vector<Use> Of(const std::string& name) const;
  // Of the model's graph.
  const std::set<std::string>& outputs() const { return outputs_; }

 private:
  struct Body {  // of the model's graph or of a function
    Uses uses;
    std::set<std::string> leaving;  // outputs of graphs in nodes, which these nodes give out
  };
  struct Function {
    const FunctionProto* proto = nullptr;
    Body body;
  };
  struct Call {
    const Body* around = nullptr;  // where the call is
    const NodeProto* node = nullptr;
    const Function* function = nullptr;
    const Call* outer = nullptr;
  };
  // A name, and the call that it is in.
  struct Named {
    std::string name;
    const Body* body = nullptr;
    const Call* call = nullptr;
  };

  template <class Nodes>
  static void Collect(const Nodes& nodes, bool is_in_function, Body& body);
  // False if there are more than are followed.
  bool Follow(const Named& value, int depth, int& steps, std::vector<Use>& found) const;

  Body graph_;
  std::set<std::string> outputs_;
  std::map<std::pair<std::string, std::string>, Function> functions_;  // by domain and name
};

}  // namespace braid::onnx
