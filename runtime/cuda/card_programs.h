// The programs of a card that are compiled when jobs are loaded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/cuda/module_table.h"
#include "runtime/cuda/program_compiler.h"
#include "runtime/kernels/cuda/programs.h"

namespace braid::cuda {

class CardPrograms final : public Programs {
 public:
  struct Options {
    const ModuleTable* module = nullptr;  // borrowed
    std::shared_ptr<ProgramCompiler> compiler;
    int card = 0;
  };
  explicit CardPrograms(Options options) : options_(std::move(options)) {}
  ~CardPrograms() override;

  int Add(const std::string& text) override;
  void Compile() override;
  void* Find(int number) override;
  Error Launch(const Queue& queue, void* kernel, unsigned blocks,
               const FusedOperands& operands) override;

 private:
  struct Entry {
    const std::string* text = nullptr;
    bool was_tried = false;
    void* kernel = nullptr;
  };
  // All that were not tried, as one program.
  void CompileLocked() BRAID_REQUIRES(mutex_);
  bool LoadLocked(const std::string& code, const std::vector<int>& numbers) BRAID_REQUIRES(mutex_);

  const Options options_;
  Mutex mutex_;
  std::map<std::string, int> numbers_ BRAID_GUARDED_BY(mutex_);  // by text
  std::vector<Entry> entries_ BRAID_GUARDED_BY(mutex_);          // by number
  std::vector<void*> programs_ BRAID_GUARDED_BY(mutex_);
};

}  // namespace braid::cuda
