// What calls of oneDNN share: dense memory, and a primitive with its arguments, put in order once:
// dnnl::primitive::execute makes a list of them for every call.
#pragma once

#include <glog/logging.h>
#include <omp.h>

#include <cstddef>
#include <dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

namespace braid::cpu {

// The last axis is contiguous.
inline dnnl::memory::desc DenseDesc(const dnnl::memory::dims& dims, dnnl::memory::data_type type) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return dnnl::memory::desc(dims, type, strides);
}

class DnnlCall {
 public:
  DnnlCall() = default;
  // The memories stay those; where they point to may change.
  DnnlCall(dnnl::primitive primitive, std::unordered_map<int, dnnl::memory> arguments)
      : primitive_(std::move(primitive)), memories_(std::move(arguments)) {
    for (const auto& [argument, memory] : memories_) {
      arguments_.push_back({argument, memory.get()});
    }
  }

  void Run(const dnnl::stream& stream) const {
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive_.get(), stream.get(), static_cast<int>(arguments_.size()), arguments_.data());
    CHECK_EQ(status, dnnl_success) << "dnnl_primitive_execute";
  }

 private:
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// While it lives, oneDNN describes and makes primitives for so many threads: it cuts the work for
// the number that it finds then.
class DnnlThreads {
 public:
  explicit DnnlThreads(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~DnnlThreads() { omp_set_num_threads(before_); }
  DnnlThreads(const DnnlThreads&) = delete;
  DnnlThreads& operator=(const DnnlThreads&) = delete;

 private:
  const int before_;
};

}  // namespace braid::cpu
