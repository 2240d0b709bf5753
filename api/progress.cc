#include "api/progress.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"

namespace braid {
namespace {

constexpr int kBarWidth = 30;
constexpr Nanoseconds kRedraw = 100 * kMillisecond;

std::string JsonNumber(double value) {
  // JSON has no infinities and NaN; the reader of a log wants to see them all the same.
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return absl::StrFormat("%.17g", value);
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += absl::StrFormat("\\u%04x", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunReporter>> RunReporter::Make(const SessionOptions& options,
                                                               Environment* environment) {
  std::unique_ptr<RunReporter> reporter(new RunReporter());
  reporter->environment_ = environment;
  reporter->has_bar_ = options.progress == Progress::kOn ||
                       (options.progress == Progress::kAuto && isatty(STDERR_FILENO) != 0);
  if (!options.metrics_path.empty()) {
    reporter->metrics_path_ = options.metrics_path;
    reporter->metrics_ = std::fopen(options.metrics_path.c_str(), "w");
    if (reporter->metrics_ == nullptr) {
      return absl::NotFoundError(absl::StrFormat("--metrics_json=%s cannot be written: %s",
                                                 options.metrics_path, std::strerror(errno)));
    }
  }
  return reporter;
}

RunReporter::~RunReporter() {
  if (metrics_ != nullptr) std::fclose(metrics_);
}

void RunReporter::BeginRun(std::string_view job, int64_t steps) {
  job_ = job;
  steps_ = steps;
  first_step_ = -1;
  done_ = 0;
  name_.clear();
  began_ = drawn_ = environment_->Now();
}

void RunReporter::OnScalar(std::string_view job, std::string_view name, int64_t step,
                           double value) {
  if (metrics_ != nullptr) {
    std::fprintf(metrics_, "{\"job\": %s, \"step\": %lld, %s: %s}\n", JsonString(job).c_str(),
                 static_cast<long long>(step), JsonString(name).c_str(), JsonNumber(value).c_str());
  }
  if (!has_bar_) return;
  if (first_step_ < 0) first_step_ = step;
  done_ = step - first_step_ + 1;
  name_ = name;
  value_ = value;
  const Nanoseconds now = environment_->Now();
  if (now - drawn_ < kRedraw) return;
  drawn_ = now;
  Draw();
}

void RunReporter::Draw() {
  const double seconds = static_cast<double>(environment_->Now() - began_) / kSecond;
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  const int filled = static_cast<int>(kBarWidth * done_ / std::max<int64_t>(steps_, 1));
  const double left = rate > 0 ? static_cast<double>(steps_ - done_) / rate : 0;
  const std::string bar = std::string(filled, '=') + std::string(kBarWidth - filled, ' ');
  std::fprintf(stderr, "\r%s [%s] %lld/%lld  %.1f steps/s  %s %.4g  %.0f s left \033[K",
               job_.c_str(), bar.c_str(), static_cast<long long>(done_),
               static_cast<long long>(steps_), rate, name_.c_str(), value_, left);
}

absl::Status RunReporter::EndRun() {
  if (has_bar_ && !name_.empty()) {
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
  }
  if (metrics_ == nullptr) return absl::OkStatus();
  errno = 0;
  const bool was_written = std::ferror(metrics_) == 0;
  if (std::fflush(metrics_) == 0 && was_written) return absl::OkStatus();
  return absl::ErrnoToStatus(
      errno != 0 ? errno : ENOSPC,
      absl::StrFormat("--metrics_json=%s: not all lines could be written", metrics_path_));
}

}  // namespace braid
