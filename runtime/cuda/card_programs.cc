#include "runtime/cuda/card_programs.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "runtime/cuda/module.h"

namespace braid::cuda {

CardPrograms::~CardPrograms() {
  MutexLock lock(mutex_);
  for (void* const program : programs_) options_.module->programs.unload(options_.card, program);
}

int CardPrograms::Add(const std::string& text) {
  MutexLock lock(mutex_);
  const auto [it, is_new] = numbers_.try_emplace(text, static_cast<int>(entries_.size()));
  if (is_new) entries_.push_back({.text = &it->first});
  return it->second;
}

void CardPrograms::Compile() {
  MutexLock lock(mutex_);
  CompileLocked();
}

void* CardPrograms::Find(int number) {
  MutexLock lock(mutex_);
  if (!entries_[number].was_tried) CompileLocked();
  return entries_[number].kernel;
}

Error CardPrograms::Launch(const Queue& queue, void* kernel, unsigned blocks,
                           const FusedOperands& operands) {
  return options_.module->programs.launch(queue, kernel, blocks, kThreads, &operands);
}

void CardPrograms::CompileLocked() {
  // In the order of their texts, so that a job's program is the same in every run.
  std::vector<int> numbers;
  std::string source = "#include \"runtime/kernels/cuda/fused_prelude.h\"\n";
  for (const auto& [text, number] : numbers_) {
    if (std::exchange(entries_[number].was_tried, true)) continue;
    absl::StrAppend(&source, "extern \"C\" __global__ void __launch_bounds__(", kThreads,
                    ") fused_", numbers.size(), text);
    numbers.push_back(number);
  }
  if (numbers.empty()) return;
  CardInfo info = {};
  if (options_.module->describe(options_.card, &info) != kDone) return;
  const std::string code = options_.compiler->Code(info.major, info.minor, source);
  if (code.empty() || LoadLocked(code, numbers)) return;
  LOG(WARNING) << "cuda: card " << options_.card
               << " does not load what was compiled for it; its kernels run one by one";
}

bool CardPrograms::LoadLocked(const std::string& code, const std::vector<int>& numbers) {
  const ProgramTable& table = options_.module->programs;
  void* program = nullptr;
  if (table.load(options_.card, code.data(), &program) != kDone) return false;
  programs_.push_back(program);
  std::vector<void*> kernels(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (table.find(program, absl::StrCat("fused_", i).c_str(), &kernels[i]) != kDone) return false;
  }
  for (size_t i = 0; i < numbers.size(); ++i) entries_[numbers[i]].kernel = kernels[i];
  return true;
}

}  // namespace braid::cuda
