// A queue that keeps its memory: it grows to the most that it ever held and takes none after that.
// For what goes round and round in a step.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace braid {

template <typename T>
class RingBuffer {
 public:
  RingBuffer() = default;
  explicit RingBuffer(size_t capacity) { Reserve(capacity); }

  void Reserve(size_t capacity) {
    size_t wanted = 1;
    while (wanted < capacity) wanted *= 2;
    if (wanted > items_.size()) Grow(wanted);
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return items_[first_]; }
  const T& front() const { return items_[first_]; }
  T& back() { return (*this)[size_ - 1]; }
  // In the order of the pushes.
  T& operator[](size_t i) { return items_[(first_ + i) & (items_.size() - 1)]; }
  const T& operator[](size_t i) const { return items_[(first_ + i) & (items_.size() - 1)]; }

  // Items stay where they are until the buffer grows.
  T& push_back(T item) {
    if (size_ == items_.size()) Grow(items_.empty() ? 1 : 2 * items_.size());
    ++size_;
    return back() = std::move(item);
  }
  // What the item held is freed now.
  void pop_front() {
    front() = T();
    first_ = (first_ + 1) & (items_.size() - 1);
    --size_;
  }
  void pop_back() {
    back() = T();
    --size_;
  }
  void clear() {
    while (!empty()) pop_back();
  }

 private:
  void Grow(size_t capacity) {
    std::vector<T> items(capacity);
    for (size_t i = 0; i < size_; ++i) items[i] = std::move((*this)[i]);
    items_.swap(items);
    first_ = 0;
  }

  std::vector<T> items_;  // a power of two of them, or none
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace braid
