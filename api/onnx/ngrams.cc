// Counts of short sequences of words in texts, whose words are numbers.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/onnx/translators.h"
#include "graph/functional.h"
#include "runtime/base/status.h"

namespace braid::onnx {
namespace {

// The sequences of one length, and the result's column of each.
struct Ngrams {
  int64_t length = 1;
  std::vector<Ints> words;
  Ints columns;
};

struct Vocabulary {
  std::vector<Ngrams> by_length;  // only those that are counted
  int64_t columns = 0;
};

// ngram_counts says where in the pool the sequences of length 1, 2, ... begin.
absl::StatusOr<Vocabulary> VocabularyOf(const NodeView& n) {
  const Ints pool = n.List("pool_int64s").value_or(Ints());
  const Ints begins = n.List("ngram_counts").value_or(Ints());
  const Ints columns = n.List("ngram_indexes").value_or(Ints());
  const int64_t shortest = n.Int("min_gram_length", 1), longest = n.Int("max_gram_length", 1);
  if (n.Has("pool_strings")) return Lacking("words that are strings");
  Vocabulary vocabulary;
  for (int64_t column : columns) {
    if (column < 0) return Wrong(absl::StrCat("ngram_indexes has ", column));
    vocabulary.columns = std::max(vocabulary.columns, column + 1);
  }
  size_t number = 0;  // of the sequence, over all lengths
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto all = static_cast<int64_t>(pool.size());
    const auto length = static_cast<int64_t>(i) + 1;
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] : all;
    if (begins[i] < 0 || end < begins[i] || end > all || (end - begins[i]) % length != 0) {
      return Wrong(absl::StrCat("the sequences of length ", length, " are words ", begins[i],
                                " to ", end, " of ", all));
    }
    std::map<Ints, int64_t> column_of;  // the last one's, of equals
    for (auto at = pool.begin() + begins[i]; at != pool.begin() + end; at += length) {
      if (number >= columns.size()) return Wrong("ngram_indexes has too few numbers");
      column_of.insert_or_assign(Ints(at, at + length), columns[number++]);
    }
    if (length < shortest || length > longest || column_of.empty()) continue;
    Ngrams& ngrams = vocabulary.by_length.emplace_back(Ngrams{.length = length});
    for (const auto& [words, column] : column_of) {
      ngrams.words.push_back(words);
      ngrams.columns.push_back(column);
    }
  }
  return vocabulary;
}

// How often each sequence stands in each text [batch, words], its words `distance` apart: f32
// [batch, sequences]. Invalid if the texts are too short.
Tensor CountsOf(Tensor texts, const Ngrams& ngrams, int64_t distance) {
  LogicalGraph& graph = *texts.graph();
  const int64_t places = texts.shape()[1] - (ngrams.length - 1) * distance;
  if (places <= 0) return Tensor();
  const auto sequences = static_cast<int64_t>(ngrams.words.size());
  Tensor is_there;  // [batch, places, sequences]
  for (int64_t k = 0; k < ngrams.length; ++k) {
    Ints words;  // number k of each sequence
    for (const Ints& sequence : ngrams.words) words.push_back(sequence[k]);
    const Tensor wanted = Literal(graph, {DType::kI64, {sequences}}, words);
    const Tensor here = SliceAxis(texts, 1, {.begin = k * distance, .end = k * distance + places});
    const Tensor is_equal = Equal(ExpandDims(here, 2), wanted);
    is_there = k == 0 ? is_equal : LogicalAnd(is_there, is_equal);
  }
  return ReduceSum(Cast(is_there, DType::kF32), {.axes = {1}});
}

// f32 [columns].
absl::StatusOr<std::optional<Tensor>> WeightsOf(const NodeView& n, const Vocabulary& vocabulary) {
  const std::optional<std::vector<double>> weights = n.Floats("weights");
  if (!weights || weights->empty()) return std::nullopt;
  const Ints columns = n.List("ngram_indexes").value_or(Ints());
  Ints bits(vocabulary.columns, 0);
  if (weights->size() != columns.size()) return Wrong("there is not a weight for each sequence");
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto column = static_cast<size_t>(columns[i]);
    // The standard says that weight i is that of sequence i, and computes as if it were column i's.
    if (column >= weights->size() || (*weights)[i] != (*weights)[column]) {
      return Lacking("weights of sequences that have other columns than their own");
    }
    bits[column] = std::bit_cast<int64_t>((*weights)[i]);
  }
  return Literal(n.graph(), {DType::kF32, {vocabulary.columns}}, bits);
}

absl::StatusOr<Tensors> TranslateTfIdf(const NodeView& n) {
  BRAID_ASSIGN_OR_RETURN(const Vocabulary vocabulary, VocabularyOf(n));
  const std::string mode = n.Text("mode", "");
  const int64_t most_skipped = n.Int("max_skip_count", 0);
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") {
    return Wrong(absl::StrCat("mode is '", mode, "'; TF, IDF or TFIDF is needed"));
  }
  if (most_skipped < 0 || most_skipped > 64) {
    return Lacking(absl::StrCat("a max_skip_count of ", most_skipped));
  }
  const Shape shape = n.shape();
  if (shape.rank() > 2) return Wrong(absl::StrCat("the texts are ", shape.ToString()));
  const int64_t batch = shape.rank() == 2 ? shape[0] : 1;
  const int64_t words = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const Tensor texts = Reshape(Cast(n.in(0), DType::kI64), {batch, words});
  if (!texts.valid()) return n.graph().status();
  Tensor y = Constant(n.graph(), 0, {.dtype = DType::kF32, .shape = {batch, vocabulary.columns}});
  for (const Ngrams& ngrams : vocabulary.by_length) {
    // Words that stand alone have no distance.
    const int64_t distances = ngrams.length == 1 ? 1 : most_skipped + 1;
    for (int64_t distance = 1; distance <= distances; ++distance) {
      const Tensor counts = CountsOf(texts, ngrams, distance);
      if (!counts.valid()) break;
      const auto sequences = static_cast<int64_t>(ngrams.columns.size());
      y = IndexAdd(y, Literal(n.graph(), {DType::kI64, {sequences}}, ngrams.columns), counts, 1);
    }
  }
  BRAID_ASSIGN_OR_RETURN(const std::optional<Tensor> weights, WeightsOf(n, vocabulary));
  if (mode == "IDF") {
    y = Cast(Greater(y, Constant(n.graph(), 0, {.dtype = DType::kF32})), DType::kF32);
  }
  if (weights && mode != "TF") y = Mul(y, *weights);
  return Tensors{shape.rank() == 2 ? y : Reshape(y, {vocabulary.columns})};
}

}  // namespace

void AddNgrams(Translators& all) { all.Add("TfIdfVectorizer", {}, TranslateTfIdf); }

}  // namespace braid::onnx
