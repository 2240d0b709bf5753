// Large f32 products of a compiled job beside oneDNN alone, one thread: GFLOP/s of both, taking
// turns, and the median ratio. The job multiplies two variables and fetches one element of the
// product, so that it has all that a step has; the results are compared.
//
//   OMP_NUM_THREADS=1 taskset -c 0 build/release/bin/matmul_bench [turns] [seconds a turn]

#include <braid/braid.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <functional>
#include <vector>

#include "runtime/base/status.h"

namespace {

struct Shape {
  int64_t m, n, k;
};

// Multiplications a second of run(count), over about `seconds`.
absl::StatusOr<double> Rate(double seconds, const std::function<absl::Status(int64_t)>& run) {
  using Clock = std::chrono::steady_clock;
  for (int64_t count = 1;; count *= 4) {
    const auto begin = Clock::now();
    BRAID_RETURN_IF_ERROR(run(count));
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (took.count() >= seconds / 4) return static_cast<double>(count) / took.count();
  }
}

absl::Status Compare(const Shape& shape, int turns, double seconds) {
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  BRAID_ASSIGN_OR_RETURN(const auto session,
                         braid::Session::Start({.progress = braid::Progress::kOff}));
  BRAID_ASSIGN_OR_RETURN(auto job, session->Compile("product", [&](braid::Job& job) {
    const braid::Tensor a =
        braid::Variable(job.graph(), {.name = "a", .shape = {m, k}, .init = "ones"});
    const braid::Tensor b =
        braid::Variable(job.graph(), {.name = "b", .shape = {k, n}, .init = "ones"});
    job.Fetch("corner", Slice(MatMul(a, b), {0, 0}, {1, 1}));
  }));
  std::vector<float> a(m * k, 1), b(k * n, 1), c(m * n);
  float corner = 0;
  const auto by_job = [&](int64_t count) -> absl::Status {
    BRAID_ASSIGN_OR_RETURN(const auto result, job.Run({.steps = count}));
    corner = static_cast<float>(result.Scalars("corner").back());
    return absl::OkStatus();
  };
  const auto by_library = [&](int64_t count) -> absl::Status {
    for (int64_t i = 0; i < count; ++i) {
      const dnnl_status_t status =
          dnnl_sgemm('N', 'N', m, n, k, 1.0f, a.data(), k, b.data(), n, 0.0f, c.data(), n);
      if (status != dnnl_success) return absl::InternalError("dnnl_sgemm failed");
    }
    return absl::OkStatus();
  };
  BRAID_RETURN_IF_ERROR(by_job(2));
  BRAID_RETURN_IF_ERROR(by_library(2));
  std::vector<double> ours, theirs, ratios;
  for (int turn = 0; turn < turns; ++turn) {
    BRAID_ASSIGN_OR_RETURN(const double job_rate, Rate(seconds, by_job));
    BRAID_ASSIGN_OR_RETURN(const double library_rate, Rate(seconds, by_library));
    const double flops =
        2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    ours.push_back(job_rate * flops);
    theirs.push_back(library_rate * flops);
    ratios.push_back(job_rate / library_rate);
  }
  const bool is_right = corner == c[0] && corner == static_cast<float>(k);
  if (!is_right) return absl::InternalError("wrong product");
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  std::printf("%5lld x %5lld x %5lld: braid %.1f GFLOP/s, oneDNN %.1f, median ratio %.3f\n",
              static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k),
              median(ours), median(theirs), median(ratios));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 9;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.5;
  for (const Shape& shape : {Shape{1024, 1024, 1024}, Shape{2048, 2048, 2048},
                             Shape{2048, 1536, 384}, Shape{2048, 384, 1536}}) {
    if (const absl::Status status = Compare(shape, turns, seconds); !status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      return 1;
    }
  }
  return 0;
}
