// What fusers write.
#pragma once

#include <string>
#include <vector>

#include "runtime/kernels/cuda/programs.h"

namespace braid::cuda {

// Keeps the texts, and compiles nothing.
class ProgramTexts final : public Programs {
 public:
  int Add(const std::string& text) override {
    texts.push_back(text);
    return static_cast<int>(texts.size()) - 1;
  }
  void Compile() override {}
  void* Find(int /*number*/) override { return nullptr; }
  Error Launch(const Queue& /*queue*/, void* /*kernel*/, unsigned /*blocks*/,
               const FusedOperands& /*operands*/) override {
    return kLibraryFailed;
  }
  std::vector<std::string> texts;
};

}  // namespace braid::cuda
