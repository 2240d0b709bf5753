#include "runtime/base/nearest_names.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_join.h"

namespace braid {
namespace {

constexpr size_t kShown = 3;

// Levenshtein's.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestNames(std::string_view wanted, const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::vector<std::pair<size_t, std::string>> nearest;
  for (const std::string& name : names) nearest.emplace_back(EditDistance(wanted, name), name);
  const size_t shown = std::min(kShown, nearest.size());
  std::partial_sort(nearest.begin(), nearest.begin() + static_cast<std::ptrdiff_t>(shown),
                    nearest.end());
  nearest.resize(shown);
  return absl::StrJoin(nearest, ", ",
                       [](std::string* text, const auto& name) { text->append(name.second); });
}

}  // namespace braid
