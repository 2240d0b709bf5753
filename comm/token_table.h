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

// A link's table of memory that is lent for a while has room for so many from the start.
inline constexpr size_t kFirstLent = 64;

template <typename T>
class TokenTable {
 public:
  // With room for so many.
  explicit TokenTable(size_t first = 0) { entries_.reserve(first); }

  // Room for so many more than there are.
  void MakeRoom(size_t more) {
    if (entries_.capacity() < entries_.size() + more)
      entries_.reserve(2 * (entries_.size() + more));
  }
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
