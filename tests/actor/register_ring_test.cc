#include "actor/register_ring.h"

#include "gtest/gtest.h"

namespace braid {
namespace {

TEST(InputRingTest, SlotsBecomeReadyInOrderAndServeTheirPeriod) {
  InputRing ring({.slots = 2, .period = 3});
  EXPECT_FALSE(ring.is_ready());
  EXPECT_TRUE(ring.Receive(0, 0));
  EXPECT_TRUE(ring.Receive(1, 1));
  EXPECT_FALSE(ring.Use());
  EXPECT_FALSE(ring.Use());
  EXPECT_TRUE(ring.Use());
  EXPECT_EQ(ring.slot(), 1u);
  EXPECT_EQ(ring.piece(), 1);
  EXPECT_TRUE(ring.Receive(0, 2));
}

TEST(InputRingTest, RefusesWhatCannotBe) {
  InputRing ring({.slots = 2, .initial_tokens = 1});
  EXPECT_TRUE(ring.is_ready());
  EXPECT_FALSE(ring.Receive(0, 0));
  EXPECT_EQ(ring.Objection(0, 0), "slot 0 is already ready (piece 0)");
  EXPECT_FALSE(ring.Receive(2, 1));
  EXPECT_EQ(ring.Objection(2, 1), "slot 2 of 2 does not exist");
  EXPECT_FALSE(ring.Receive(1, 3));
  EXPECT_EQ(ring.Objection(1, 3),
            "slot 1 with piece 3 is out of order: slot 1 with piece 1 is next");
  EXPECT_TRUE(ring.Receive(1, 1));
  EXPECT_FALSE(ring.Receive(0, 2));
  EXPECT_EQ(ring.Objection(0, 2), "slot 0 is written while read: all 2 slots are ready or in use");
  EXPECT_TRUE(ring.Use());
  EXPECT_EQ(ring.Objection(0, 0), "piece 0 was already consumed");
}

TEST(OutputRingTest, ASlotIsFreeWhenAllReadersAcknowledged) {
  OutputRing ring({.slots = 2, .period = 2, .consumers = {{0, 0, 1}, {0, 0, 2}}});
  EXPECT_FALSE(ring.Fill());
  EXPECT_TRUE(ring.is_free());
  EXPECT_TRUE(ring.Fill());  // slot 0
  EXPECT_TRUE(ring.is_free());
  EXPECT_FALSE(ring.Fill());
  EXPECT_TRUE(ring.Fill());  // slot 1
  EXPECT_FALSE(ring.is_free());
  EXPECT_TRUE(ring.Acknowledge(0, 0, 0));
  EXPECT_TRUE(ring.Acknowledge(0, 1, 1));
  EXPECT_FALSE(ring.is_free());
  EXPECT_EQ(ring.Owes(0), -1);
  EXPECT_EQ(ring.Owes(1), 0);
  EXPECT_TRUE(ring.Acknowledge(1, 0, 0));
  EXPECT_TRUE(ring.is_free());
}

TEST(OutputRingTest, RefusesWhatCannotBe) {
  OutputRing ring({.slots = 2, .initial_tokens = 2, .consumers = {{0, 0, 1}, {0, 0, 2}}});
  EXPECT_FALSE(ring.is_free());
  EXPECT_TRUE(ring.Acknowledge(0, 0, 0));
  EXPECT_FALSE(ring.Acknowledge(0, 0, 0));
  EXPECT_EQ(ring.Objection(0, 0, 0), "slot 0 with piece 0 was already acknowledged");
  EXPECT_FALSE(ring.Acknowledge(1, 1, 1));
  EXPECT_EQ(ring.Objection(1, 1, 1),
            "slot 1 with piece 1 is out of order: slot 0 with piece 0 is next");
  EXPECT_TRUE(ring.Acknowledge(0, 1, 1));
  EXPECT_FALSE(ring.Acknowledge(0, 0, 2));
  EXPECT_EQ(ring.Objection(0, 0, 2), "slot 0 with piece 2 was not sent yet");
  EXPECT_FALSE(ring.Acknowledge(1, 7, 0));
  EXPECT_EQ(ring.Objection(1, 7, 0), "slot 7 of 2 does not exist");
}

}  // namespace
}  // namespace braid
