#include "api/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iostream>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr int kBarWidth = 30;
constexpr Nanoseconds kRedraw = 100 * kMillisecond;

// Of a terminal (ECMA-48; DECSC and DECRC of the VT100): what is behind and below the cursor goes,
// the bar included; the cursor goes to the start of the line below, which is there then, and back
// to where it was.
constexpr char kErase[] = "\033[J";
constexpr char kToLineBelow[] = "\033D\033[A\0337\r\033[B";
constexpr char kBack[] = "\0338";

// How many columns a line of the terminal has; 0: not known.
size_t Columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// A line is written to the file's own buffer as it is made: a step takes no memory.
void WriteJsonNumber(double value, std::FILE* file) {
  // JSON has no infinities and NaN; the reader of a log wants to see them all the same.
  if (std::isnan(value)) {
    std::fputs("\"nan\"", file);
  } else if (std::isinf(value)) {
    std::fputs(value > 0 ? "\"inf\"" : "\"-inf\"", file);
  } else {
    std::fprintf(file, "%.17g", value);
  }
}

void WriteJsonString(std::string_view text, std::FILE* file) {
  std::fputc('"', file);
  for (const char c : text) {
    if (c == '"' || c == '\\') std::fputc('\\', file);
    if (static_cast<unsigned char>(c) < 0x20) {
      std::fprintf(file, "\\u%04x", static_cast<unsigned>(c));
    } else {
      std::fputc(c, file);
    }
  }
  std::fputc('"', file);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunReporter>> RunReporter::Make(const SessionOptions& options,
                                                               Environment* environment) {
  std::unique_ptr<RunReporter> reporter(new RunReporter());
  reporter->environment_ = environment;
  reporter->started_ = environment->Now();
  reporter->has_bar_ = options.progress == Progress::kOn ||
                       (options.progress == Progress::kAuto && isatty(STDERR_FILENO) != 0);
  if (!options.metrics_path.empty()) {
    reporter->metrics_path_ = options.metrics_path;
    reporter->metrics_ = std::fopen(options.metrics_path.c_str(), "a");
    if (reporter->metrics_ == nullptr) {
      return absl::NotFoundError(absl::StrFormat("--metrics_json=%s cannot be written: %s",
                                                 options.metrics_path, std::strerror(errno)));
    }
    // Line by line, for those who follow the file; and a full disk is found at once.
    std::setvbuf(reporter->metrics_, nullptr, _IOLBF, BUFSIZ);
  }
  return reporter;
}

RunReporter::~RunReporter() {
  Erase();
  if (metrics_ != nullptr) std::fclose(metrics_);
}

void RunReporter::BeginRun(const RunInfo& run) {
  const bool begins = metrics_ != nullptr && run.is_users && !std::exchange(has_begun_, true);
  if (begins && !run.is_resumed) {
    // A pipe has nothing from before, and cannot be cut.
    [[maybe_unused]] const int cut = ftruncate(fileno(metrics_), 0);
  }
  is_users_ = run.is_users;
  if (!run.is_users) return;
  if (run.steps == 1 && steps_ == 1 && job_ == run.job) return;  // the same row
  Erase();
  job_ = run.job;
  steps_ = run.steps;
  samples_ = run.samples;
  paces_.try_emplace(job_);
  first_step_ = -1;
  done_ = 0;
  scalars_.clear();
  began_ = drawn_ = environment_->Now();
}

absl::Status RunReporter::OnScalar(std::string_view job, std::string_view name, int64_t step,
                                   double value) {
  if (metrics_ != nullptr && is_users_) {
    errno = 0;
    std::fputs("{\"job\": ", metrics_);
    WriteJsonString(job, metrics_);
    std::fprintf(metrics_, ", \"step\": %lld, ", static_cast<long long>(step));
    WriteJsonString(name, metrics_);
    std::fputs(": ", metrics_);
    WriteJsonNumber(value, metrics_);
    WriteTimes(job, step);
    std::fputs("}\n", metrics_);
    BRAID_RETURN_IF_ERROR(MetricsStatus());
  }
  if (!has_bar_ || !is_users_) return absl::OkStatus();
  if (first_step_ < 0 || step < first_step_) first_step_ = step;
  done_ = step - first_step_ + 1;
  const auto same = std::find_if(scalars_.begin(), scalars_.end(),
                                 [&](const auto& scalar) { return scalar.first == name; });
  if (same != scalars_.end()) {
    same->second = value;
  } else {
    scalars_.emplace_back(name, value);
  }
  const Nanoseconds now = environment_->Now();
  if (now - drawn_ < kRedraw) return absl::OkStatus();
  drawn_ = now;
  Draw();
  return absl::OkStatus();
}

void RunReporter::WriteTimes(std::string_view job, int64_t step) {
  Pace& pace = paces_.find(job)->second;
  if (step != pace.step) {
    const Nanoseconds now = environment_->Now();
    const double seconds = static_cast<double>(now - pace.time) / kSecond;
    const bool is_known = pace.step >= 0 && step > pace.step && seconds > 0;
    pace = {step, now, is_known ? static_cast<double>(samples_ * (step - pace.step)) / seconds : 0};
  }
  const double time = static_cast<double>(pace.time - started_) / kSecond;
  std::fprintf(metrics_, ", \"time\": %.3f", time);
  if (pace.samples_per_second > 0) {
    std::fprintf(metrics_, ", \"samples_per_second\": %.6g", pace.samples_per_second);
  }
}

absl::Status RunReporter::MetricsStatus() const {
  if (std::ferror(metrics_) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(
      errno != 0 ? errno : ENOSPC,
      absl::StrFormat("--metrics_json=%s: not all lines could be written", metrics_path_));
}

std::string RunReporter::BarText() const {
  const double seconds = static_cast<double>(environment_->Now() - began_) / kSecond;
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  const int filled = static_cast<int>(kBarWidth * done_ / std::max<int64_t>(steps_, 1));
  const double left = rate > 0 ? static_cast<double>(steps_ - done_) / rate : 0;
  constexpr char kFull[] = "==============================";
  static_assert(sizeof(kFull) == kBarWidth + 1);
  // Nobody knows how long a row of Runs will go on.
  std::string text = steps_ == 1 ? absl::StrFormat("%s step %d", job_, done_)
                                 : absl::StrFormat("%s [%.*s%*s] %d/%d", job_, filled, kFull,
                                                   kBarWidth - filled, "", done_, steps_);
  absl::StrAppendFormat(&text, "  %.1f steps/s", rate);
  if (samples_ > 0) {
    absl::StrAppendFormat(&text, "  %.4g samples/s", rate * static_cast<double>(samples_));
  }
  for (const auto& [name, value] : scalars_) absl::StrAppendFormat(&text, "  %s %.4g", name, value);
  if (steps_ > 1) absl::StrAppendFormat(&text, "  %.0f s left", left);
  return text;
}

void RunReporter::Draw() {
  std::string text = BarText();
  // A line that wraps around would stay.
  if (const size_t columns = Columns(); columns > 0 && text.size() > columns) text.resize(columns);
  std::fprintf(stderr, "%s%s%s%s", kErase, kToLineBelow, text.c_str(), kBack);
  std::fflush(stderr);
  is_drawn_ = true;
}

void RunReporter::Erase() {
  if (!std::exchange(is_drawn_, false)) return;
  std::fputs(kErase, stderr);
  std::fflush(stderr);
}

void RunReporter::Print(const std::string& line) {
  Erase();
  std::cout << line << "\n" << std::flush;
}

absl::Status RunReporter::EndRun() {
  if (is_users_ && steps_ != 1) Erase();
  if (metrics_ == nullptr) return absl::OkStatus();
  errno = 0;
  std::fflush(metrics_);
  return MetricsStatus();
}

}  // namespace braid
