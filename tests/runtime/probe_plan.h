// A small plan for the tests of executors, nodes and coordinators: every node runs a kernel of the
// test's own, a probe, on its rows of a random tensor, and node 0 fetches all rows as "y".
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "compiler/plan/physical_graph.h"
#include "runtime/host_io.h"
#include "runtime/kernels/kernel.h"

namespace braid {

// What the kernels do beside passing on what they read. Any of them may be empty.
struct Probe {
  std::function<absl::Status()> make;
  std::function<absl::Status()> run;
  std::function<void()> end;  // in the destructor
};

inline constexpr char kProbeJob[] = "probe";

KernelRegistry ProbeKernels(const Probe* probe);  // borrowed
compiler::PhysicalGraph ProbeGraph(int nodes);    // of one device each

// Takes what is fetched, and counts.
class CountingReceiver final : public FetchReceiver {
 public:
  Array& Place(std::string_view, int64_t, DType dtype, const Shape& shape) override {
    if (value_.dtype() != dtype || value_.shape() != shape) value_ = Array(dtype, shape);
    return value_;
  }
  absl::Status OnFetched(std::string_view, int64_t, const Array&) override {
    ++count_;
    return absl::OkStatus();
  }
  int count() const { return count_; }

 private:
  Array value_;
  int count_ = 0;
};

}  // namespace braid
