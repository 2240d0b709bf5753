// What a Run says while it goes: a bar on a terminal, a JSON line per fetched scalar in a file.
// Runs of one step of the same job, one after another, have one bar, which counts them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "api/session.h"
#include "runtime/base/reactor.h"

namespace braid {

// One per Session. Called from one thread at a time.
class RunReporter {
 public:
  // NOT_FOUND or PERMISSION_DENIED naming the file if it cannot be made.
  static absl::StatusOr<std::unique_ptr<RunReporter>> Make(const SessionOptions& options,
                                                           Environment* environment);
  ~RunReporter();

  struct RunInfo {
    std::string_view job;
    int64_t steps = 0;
    int64_t samples = 0;      // of a step; 0: not known
    bool is_users = true;     // not a session's own, which has no lines
    bool is_resumed = false;  // after a checkpoint was loaded: what the file has stays
  };
  void BeginRun(const RunInfo& run);
  // RESOURCE_EXHAUSTED or the like names the file if not all lines could be written.
  absl::Status OnScalar(std::string_view job, std::string_view name, int64_t step, double value);
  // A line of standard output, in front of the bar.
  void Print(const std::string& line);
  absl::Status EndRun();

 private:
  RunReporter() = default;
  // The bar is on the line below the cursor's, so that what the program writes has its own.
  void Draw();
  void Erase();  // if it is there
  std::string BarText() const;
  // Of the step that a line is written for: the seconds since the session's start, and samples a
  // second since the job's step before, if there was one.
  void WriteTimes(std::string_view job, int64_t step);
  // What the lines written since errno was cleared came to.
  absl::Status MetricsStatus() const;

  Environment* environment_ = nullptr;
  bool has_bar_ = false;
  std::FILE* metrics_ = nullptr;  // owned
  std::string metrics_path_;
  bool has_begun_ = false;  // with the file: what was in it before is gone or stays
  struct Pace {
    int64_t step = -1;
    Nanoseconds time = 0;
    double samples_per_second = 0;  // 0: not known
  };
  std::map<std::string, Pace, std::less<>> paces_;  // by job
  int64_t samples_ = 0;
  bool is_users_ = true;
  std::string job_;
  int64_t steps_ = 0;  // of the Run; of a row of Runs of one step, 1
  int64_t first_step_ = -1;
  int64_t done_ = 0;
  bool is_drawn_ = false;
  Nanoseconds started_ = 0;  // the session
  Nanoseconds began_ = 0;
  Nanoseconds drawn_ = 0;
  // Their newest scalars, by the order in which they first came.
  std::vector<std::pair<std::string, double>> scalars_;
};

}  // namespace braid
