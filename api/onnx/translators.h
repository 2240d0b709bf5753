// The ONNX operators that Braid translates, by name: one file per family adds its own.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "api/onnx/node_view.h"

namespace braid::onnx {

// For nodes that take or make sequences, or know their outputs' numbers.
using ValueFunction = std::function<absl::StatusOr<std::vector<Value>>(const NodeView& n)>;

// How many inputs a node has: the first `least` must be there.
struct Arity {
  int least = 1;
  int most = 1;
};
constexpr int kAnyNumber = 1 << 20;

// One of both.
struct Translator {
  Arity arity;
  TranslateFunction translate;
  ValueFunction translate_values;
};

class Translators {
 public:
  // `op` is the operator's name, behind the domain and a dot if that is not ONNX's own.
  void Add(std::string op, Arity arity, TranslateFunction translate) {
    translators_.insert_or_assign(std::move(op), Translator{arity, std::move(translate), nullptr});
  }
  void AddValues(std::string op, Arity arity, ValueFunction translate) {
    translators_.insert_or_assign(std::move(op), Translator{arity, nullptr, std::move(translate)});
  }
  const Translator* Find(std::string_view op) const {
    const auto found = translators_.find(op);
    return found != translators_.end() ? &found->second : nullptr;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, translator] : translators_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, Translator, std::less<>> translators_;
};

void AddConstant(Translators& all);            // what is known: constants, shapes, ranges
void AddControl(Translators& all);             // if, loops
void AddSequence(Translators& all);            // sequences and optionals
void AddSignal(Translators& all);              // windows, Fourier transforms, bands of frequencies
void AddRandom(Translators& all);              // random numbers, dropout
void AddMath(Translators& all);                // elementwise, matrices
void AddActivations(Translators& all);         // activations
void AddDeterminant(Translators& all);         // determinants
void AddReduce(Translators& all);              // reductions, argmax, cumulative sums and products
void AddLayout(Translators& all);              // shapes, joining, cutting, padding
void AddIndex(Translators& all);               // gather, scatter, one-hot, sorting
void AddSelect(Translators& all);              // results whose size the values decide
void AddConv(Translators& all);                // convolution, pooling
void AddUnpool(Translators& all);              // images from windows
void AddGrid(Translators& all);                // sampling at grids, bent kernels
void AddRegions(Translators& all);             // pooling and choice of regions
void AddChannelNorm(Translators& all);         // batch and instance normalization
void AddNgrams(Translators& all);              // counts of sequences of words
void AddResize(Translators& all);              // interpolation
void AddNorm(Translators& all);                // normalization, softmax
void AddRnn(Translators& all);                 // recurrent networks
void AddLoss(Translators& all);                // losses
void AddQuantize(Translators& all);            // quantization
void AddTraining(Translators& all);            // optimizers
void AddMlFeatures(Translators& all);          // ai.onnx.ml: features made ready
void AddMlLinear(Translators& all);            // ai.onnx.ml: linear models
void AddMlSvm(Translators& all);               // ai.onnx.ml: support vector machines
void AddMlTrees(Translators& all);             // ai.onnx.ml: ensembles of trees
void AddAttention(Translators& all);           // attention, rotary embeddings, caches
void AddLinearAttention(Translators& all);     // attention without a softmax
void AddMicrosoft(Translators& all);           // ONNX Runtime's products, norms, embeddings
void AddMicrosoftAttention(Translators& all);  // and its forms of attention
// And its quantized operators; borrows translators of the standard's, which stand there already.
void AddMicrosoftQuantize(Translators& all);

Translators AllTranslators();

// What depends on the numbers of operands that are u64, beside their lowest bits.
enum class U64 { kNothing, kOrder };
// For operators of numbers: `f` is made for f32, f64, i32, i64 and u8. Operands of i8, i16 and u16
// reach it as i32, of u32 and u64 as i64; the outputs `narrowed` become what the first operand is.
TranslateFunction OnWideNumbers(TranslateFunction f, U64 u64 = U64::kNothing,
                                std::vector<int> narrowed = {0});

// The common forms.
TranslateFunction Unary(Tensor (*f)(Tensor, SourceLocation));
TranslateFunction Binary(std::function<Tensor(Tensor, Tensor, SourceLocation)> f);
// f over any number of inputs, from the left.
TranslateFunction Folded(Tensor (*f)(Tensor, Tensor, SourceLocation));

}  // namespace braid::onnx
