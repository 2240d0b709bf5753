#include "api/tool/launch_terms.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "comm/cluster/build_fingerprint.h"
#include "comm/cluster/plain_text.h"

namespace braid {
namespace {

std::string DescribeFile(const std::string& path) {
  const absl::StatusOr<std::string> fingerprint = FileFingerprint(path);
  return fingerprint.ok() ? "build " + *fingerprint : std::string(fingerprint.status().message());
}

// A term from a little before `at` on, since long ones are cut.
std::string QuoteFrom(std::string_view line, size_t at) {
  constexpr size_t kBefore = 40;
  const size_t begin = at > 2 * kBefore ? at - kBefore : 0;
  return absl::StrFormat("'%s%s'", begin > 0 ? "..." : "", Excerpt(line.substr(begin)));
}

}  // namespace

std::string TextOfTerms(const LaunchTerms& terms) {
  std::string text = absl::StrFormat("--nproc_per_node=%d\n--max_restarts=%d\n",
                                     terms.ranks_per_machine, terms.max_restarts);
  for (size_t i = 0; i < terms.program.size(); ++i) {
    // What does not print would not be a line, and bytes that are no text do not travel.
    const std::string& word = terms.program[i];
    const std::string shown = absl::CHexEscape(word);
    text += absl::StrFormat("%s %s\n", i == 0 ? "program" : "argument", shown);
    if (i == 0 && word.find('/') != std::string::npos) {
      text += absl::StrFormat("%s: %s\n", shown, absl::CHexEscape(DescribeFile(word)));
    }
  }
  return text;
}

std::string TermsDifference(const std::string& master, const std::string& there) {
  const std::vector<std::string> ours = absl::StrSplit(master, '\n', absl::SkipEmpty());
  const std::vector<std::string> theirs = absl::StrSplit(there, '\n', absl::SkipEmpty());
  size_t line = 0;
  while (line < ours.size() && line < theirs.size() && ours[line] == theirs[line]) ++line;
  const std::string nothing = "no more";
  const std::string& our = line < ours.size() ? ours[line] : nothing;
  const std::string& their = line < theirs.size() ? theirs[line] : nothing;
  const size_t at = std::ranges::mismatch(our, their).in1 - our.begin();
  return absl::StrFormat(
      "was told otherwise: %s on machine 0, %s there; give every launcher the same flags and the "
      "same program",
      QuoteFrom(our, at), QuoteFrom(their, at));
}

}  // namespace braid
