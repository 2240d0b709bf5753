// What a link knows by tokens, in their order; none of it has memory of its own, for collectives
// add and take some in every piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace braid {

template <typename T>
class TokenTable {
 public:
  void Add(uint64_t token, T value) {
    const auto place = std::ranges::lower_bound(entries_, token, {}, &Entry::first);
    entries_.emplace(place, token, std::move(value));
  }
  // Null: there is none. Until the next Add or Take.
  const T* Find(uint64_t token) const {
    const auto found = std::ranges::lower_bound(entries_, token, {}, &Entry::first);
    return found != entries_.end() && found->first == token ? &found->second : nullptr;
  }
  std::optional<T> Take(uint64_t token) {
    const auto found = std::ranges::lower_bound(entries_, token, {}, &Entry::first);
    if (found == entries_.end() || found->first != token) return std::nullopt;
    std::optional<T> value = std::move(found->second);
    entries_.erase(found);
    return value;
  }

  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  void clear() { entries_.clear(); }

 private:
  using Entry = std::pair<uint64_t, T>;
  std::vector<Entry> entries_;
};

}  // namespace braid
