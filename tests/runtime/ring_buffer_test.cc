#include "runtime/base/ring_buffer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "runtime/base/timer_queue.h"

namespace braid {
namespace {

TEST(RingBufferTest, KeepsTheOrderWhileItGrows) {
  RingBuffer<int> buffer;
  int next_in = 0, next_out = 0;
  for (int round = 1; round < 40; ++round) {
    for (int i = 0; i < round; ++i) buffer.push_back(next_in++);
    for (size_t i = 0; i < buffer.size(); ++i) {
      EXPECT_EQ(buffer[i], next_out + static_cast<int>(i));
    }
    EXPECT_EQ(buffer.back(), next_in - 1);
    for (int i = 0; i < round / 2 + 1 && !buffer.empty(); ++i) {
      EXPECT_EQ(buffer.front(), next_out++);
      buffer.pop_front();
    }
  }
  EXPECT_EQ(buffer.size(), static_cast<size_t>(next_in - next_out));
  buffer.clear();
  EXPECT_TRUE(buffer.empty());
}

// What an item owns goes when the item does, not when its place is taken again.
TEST(RingBufferTest, FreesWhatItemsHold) {
  RingBuffer<std::shared_ptr<int>> buffer(4);
  const auto held = std::make_shared<int>(7);
  buffer.push_back(held);
  buffer.push_back(held);
  EXPECT_EQ(held.use_count(), 3);
  buffer.pop_front();
  EXPECT_EQ(held.use_count(), 2);
  buffer.pop_back();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(RingBufferTest, StaysWhereItIsWithinItsCapacity) {
  RingBuffer<std::string> buffer(5);
  const std::string* const first = &buffer.push_back("first");
  for (int i = 0; i < 7; ++i) buffer.push_back("more");
  EXPECT_EQ(first, &buffer.front());
}

TEST(TimerQueueTest, ServesTimersInOrderOnTheMemoryOfOldOnes) {
  TimerQueue<std::shared_ptr<int>> timers;
  const auto held = std::make_shared<int>(7);
  TimerId id = 0;
  for (int round = 0; round < 10; ++round) {
    timers.Add(++id, 30, 0, std::make_shared<int>(3));
    timers.Add(++id, 10, 0, std::make_shared<int>(1));
    timers.Add(++id, 20, 0, std::make_shared<int>(2));
    timers.Add(++id, 15, 0, held);
    EXPECT_EQ(held.use_count(), 2);
    timers.Cancel(id);
    EXPECT_EQ(held.use_count(), 1) << "what a timer held goes with it";
    timers.Cancel(id);
    for (int expected = 1; expected <= 3; ++expected) {
      EXPECT_EQ(timers.earliest(), 10 * expected);
      EXPECT_EQ(*timers.TakeEarliest(), expected);
    }
    EXPECT_TRUE(timers.empty());
  }
}

}  // namespace
}  // namespace braid
