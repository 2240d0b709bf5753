#include "runtime/kernels/cuda/fused_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "runtime/kernels/cuda/piece_text.h"

namespace braid::cuda {
namespace {

constexpr int kWidest = 8;  // elements of a group: 16 bytes of a narrow type, twice that of f32

int64_t LastStride(const Walk& walk, int operand) {
  return walk.rank == 0 ? 0 : walk.stride[operand][walk.rank - 1];
}
int64_t LastSize(const Walk& walk) { return walk.rank == 0 ? 1 : walk.size[walk.rank - 1]; }

class Writer {
 public:
  Writer(const std::vector<FusedRead>& reads, const std::vector<FusedStep>& steps)
      : reads_(reads), steps_(steps), elements_(steps[0].piece->walk.elements) {
    ChooseGroup();
  }

  FusedKernelText Write() {
    FusedKernelText kernel = {.groups = elements_ / group_, .group = group_};
    std::string body;
    for (size_t k = 0; k < reads_.size(); ++k) absl::StrAppend(&body, ReadText(k));
    for (const FusedStep& step : steps_) {
      if (step.output < 0) continue;
      absl::StrAppendFormat(&body, "    %s y%d[%d];\n", TypeText(step.piece->makes), step.output,
                            group_);
    }
    absl::StrAppendFormat(&body, "    BRAID_UNROLL\n    for (int j = 0; j < %d; ++j) {\n", group_);
    for (size_t i = 0; i < steps_.size(); ++i) absl::StrAppend(&body, StepText(i));
    absl::StrAppend(&body, "    }\n");
    for (const FusedStep& step : steps_) {
      if (step.output < 0) continue;
      absl::StrAppendFormat(&body, "    StoreStored<%s>(o.at[%d], i, %d, y%d);\n",
                            TypeText(step.piece->output), reads_.size() + step.output, group_,
                            step.output);
    }
    const bool is_small = elements_ <= INT32_MAX;
    kernel.text = absl::StrFormat(
        "(const braid::cuda::FusedOperands o) {\n"
        "  using namespace braid::cuda;\n"
        "  for (int64_t g = FirstIndex(); g < %d; g += IndexStep()) {\n"
        "    const %s i = static_cast<%s>(g * %d);\n%s  }\n}\n",
        kernel.groups, is_small ? "int32_t" : "int64_t", is_small ? "int32_t" : "int64_t", group_,
        body);
    return kernel;
  }

 private:
  bool IsRepeated(size_t read) const {
    const FusedRead& of = reads_[read];
    return !IsDense(of.piece->walk, of.input + 1) && LastStride(of.piece->walk, of.input + 1) == 0;
  }

  // The widest in which each operand has whole groups, in one piece or of one element.
  void ChooseGroup() {
    bool has_eight = false;
    int64_t most = kWidest;
    for (const FusedStep& step : steps_) has_eight |= SizeOf(step.piece->output) == 8;
    for (const FusedRead& read : reads_) {
      const Walk& walk = read.piece->walk;
      has_eight |= SizeOf(read.piece->inputs[read.input]) == 8;
      if (IsDense(walk, read.input + 1)) continue;
      const int64_t stride = LastStride(walk, read.input + 1);
      if (stride > 1) most = 1;
      while (LastSize(walk) % most != 0) most /= 2;
    }
    if (has_eight) most = std::min<int64_t>(most, 4);
    while (elements_ % most != 0) most /= 2;
    group_ = static_cast<int>(most);
  }

  // Where element i of the output is in what is read.
  std::string PlaceText(const Walk& walk, int operand) const {
    if (IsDense(walk, operand)) return "i";
    std::string place;
    int64_t inner = 1;
    for (int d = walk.rank - 1; d >= 0; --d) {
      const int64_t stride = walk.stride[operand][d];
      if (stride != 0) {
        std::string index = inner == 1 ? "i" : absl::StrFormat("i / %d", inner);
        if (d > 0) index = absl::StrFormat("%s %% %d", index, walk.size[d]);
        // Offsets may be larger than places in the output.
        absl::StrAppendFormat(&place, "%sint64_t{%s} * %d", place.empty() ? "" : " + ", index,
                              stride);
      }
      inner *= walk.size[d];
    }
    return place.empty() ? "0" : place;
  }

  std::string ReadText(size_t k) const {
    const PointwisePiece& piece = *reads_[k].piece;
    const int operand = reads_[k].input + 1;
    const DType stored = piece.inputs[reads_[k].input];
    const std::string place = PlaceText(piece.walk, operand);
    const std::string type = TypeText(FusedType(stored));
    if (IsRepeated(k)) {
      return absl::StrFormat("    const %s x%d = Load(static_cast<const %s*>(o.at[%d]) + (%s));\n",
                             type, k, TypeText(stored), k, place);
    }
    return absl::StrFormat("    %s x%d[%d];\n    LoadStored<%s>(o.at[%d], %s, %d, x%d);\n", type, k,
                           group_, TypeText(stored), k, place, group_, k);
  }

  std::string ValueText(const FusedInput& input) const {
    if (input.step >= 0) return absl::StrCat("v", input.step);
    return absl::StrCat("x", input.operand, IsRepeated(input.operand) ? "" : "[j]");
  }

  std::string StepText(size_t i) const {
    const PointwisePiece& piece = *steps_[i].piece;
    std::vector<std::pair<std::string, std::string>> values;
    for (size_t k = 0; k < steps_[i].inputs.size(); ++k) {
      values.emplace_back(absl::StrCat("$", k), ValueText(steps_[i].inputs[k]));
    }
    std::string value = absl::StrReplaceAll(piece.function, values);
    if (IsNarrow(piece.output)) {
      value = absl::StrFormat("Widened(Rounded<%s>(%s))", TypeText(piece.output), value);
    } else if (IsFloating(piece.makes)) {
      value = absl::StrFormat("Kept(%s)", value);  // a product and a sum are rounded each
    }
    std::string text =
        absl::StrFormat("      const %s v%d = %s;\n", TypeText(piece.makes), i, value);
    if (steps_[i].output >= 0)
      absl::StrAppendFormat(&text, "      y%d[j] = v%d;\n", steps_[i].output, i);
    return text;
  }

  const std::vector<FusedRead>& reads_;
  const std::vector<FusedStep>& steps_;
  const int64_t elements_;
  int group_ = 1;
};

}  // namespace

bool IsDense(const Walk& walk, int operand) {
  int64_t stride = 1;
  for (int d = walk.rank - 1; d >= 0; --d) {
    if (walk.stride[operand][d] != stride) return false;
    stride *= walk.size[d];
  }
  return true;
}

FusedKernelText TextOf(const std::vector<FusedRead>& reads, const std::vector<FusedStep>& steps) {
  return Writer(reads, steps).Write();
}

}  // namespace braid::cuda
