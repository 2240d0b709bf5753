#include "runtime/group/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace braid::dist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

control::RollCall Call(int64_t number) {
  control::RollCall call;
  call.set_group_name("the world");
  call.set_number(number);
  for (const uint32_t node : {4, 5, 6}) call.add_members(node);
  call.set_asker(4);
  return call;
}

control::RollAnswer In(const std::string& text, uint64_t signature) {
  control::RollAnswer answer;
  answer.mutable_call()->set_text(text);
  answer.mutable_call()->set_signature(signature);
  return answer;
}

std::string NameOfNode(int node) { return absl::StrFormat("rank %d", node); }

absl::Status CauseOf(const control::RollCall& call, const RollAnswers& answers) {
  const Verdict verdict = VerdictOf(call, answers, nullptr, NameOfNode);
  EXPECT_FALSE(verdict.needs_another_look);
  return verdict.cause;
}

TEST(RollCallTest, WhoHasNotComeYetIsNoFailure) {
  EXPECT_EQ(CauseOf(Call(7), {{0, In("barrier", 1)}, {1, {}}, {2, In("barrier", 1)}}),
            absl::OkStatus());
}

TEST(RollCallTest, ADifferenceNamesBoth) {
  const absl::Status verdict =
      CauseOf(Call(7), {{0, In("barrier (a.cc:1)", 1)}, {1, {}}, {2, In("reduce (b.cc:2)", 2)}});
  EXPECT_THAT(std::string(verdict.message()),
              AllOf(HasSubstr("call 7"), HasSubstr("rank 4 is in barrier (a.cc:1)"),
                    HasSubstr("rank 6 in reduce (b.cc:2)")));
}

TEST(RollCallTest, ADifferenceOfBatchesNamesThePart) {
  RollAnswers answers = {{0, In("a batch (a.cc:1)", 1)}, {1, In("a batch (a.cc:1)", 2)}};
  const auto add = [&](int rank, uint64_t signature, const std::string& text) {
    control::GroupCall::Part& part = *answers[rank].mutable_call()->add_parts();
    part.set_signature(signature);
    part.set_text(text);
    answers[rank].mutable_call()->set_num_parts(answers[rank].call().parts_size());
  };
  const auto cause = [&] { return std::string(CauseOf(Call(7), answers).message()); };
  for (const int rank : {0, 1}) add(rank, 5, "barrier");
  EXPECT_THAT(cause(), Not(HasSubstr("part ")));
  // One is told more than the other one has.
  add(1, 6, "reduce (b.cc:2)");
  EXPECT_THAT(cause(), HasSubstr("; part 2 is missing on rank 4, and reduce (b.cc:2) on rank 5"));
  add(0, 7, "scatter (c.cc:3)");
  EXPECT_THAT(cause(),
              HasSubstr("; part 2 is scatter (c.cc:3) on rank 4, and reduce (b.cc:2) on "));
  // More than is told.
  for (const int rank : {0, 1}) {
    answers[rank].mutable_call()->mutable_parts(1)->set_signature(8);
    answers[rank].mutable_call()->set_num_parts(3);
  }
  EXPECT_THAT(cause(), HasSubstr("; they differ behind part 2;"));
}

TEST(RollCallTest, TimeoutsNameWhoIsMissing) {
  control::RollCall call = Call(7);
  call.set_overdue(2'500'000'000);
  RollAnswers answers = {{0, In("barrier", 1)}, {1, {}}, {2, In("barrier", 1)}};
  answers[1].mutable_last()->set_number(3);
  answers[1].mutable_last()->set_text("scatter (c.cc:3)");
  EXPECT_EQ(
      CauseOf(call, answers),
      absl::DeadlineExceededError(
          "the world: call 7, barrier, of rank 4 was not done within 2.5 s: waited for rank 5 "
          "(its last call here was call 3, scatter (c.cc:3))"));
  answers[1] = In("barrier", 1);
  EXPECT_THAT(std::string(CauseOf(call, answers).message()), HasSubstr("all ranks are in it"));
}

// What came and no rank's call explains is not lost.
TEST(RollCallTest, EvidenceWithoutADifferenceIsAnError) {
  control::RollCall call = Call(0);
  call.set_evidence("rank 2 sent 5 bytes");
  const absl::Status verdict =
      CauseOf(call, {{0, In("barrier", 1)}, {1, In("barrier", 1)}, {2, In("barrier", 1)}});
  EXPECT_TRUE(absl::IsInternal(verdict)) << verdict;
  EXPECT_THAT(std::string(verdict.message()), HasSubstr("rank 2 sent 5 bytes"));
}

// A rank that is in a collective, or in a transfer with a rank, and the collectives it has made.
control::RollAnswer BlockedIn(const std::string& text, int64_t collectives, int64_t number) {
  control::RollAnswer answer;
  answer.set_blocked_in(text);
  answer.set_blocked_number(number);
  answer.set_collectives(collectives);
  answer.set_calls(10);
  return answer;
}

void AddTransfer(control::RollAnswer& answer, int peer, bool is_send, uint32_t tag,
                 int64_t number) {
  control::GroupTransfer& transfer = *answer.add_transfers();
  transfer.set_peer(static_cast<uint32_t>(peer));
  transfer.set_is_send(is_send);
  transfer.set_tag(tag);
  transfer.set_number(number);
  transfer.set_is_blocking(!answer.blocked_in().empty());
  transfer.set_text(absl::StrFormat("%s of rank %d", is_send ? "send" : "receive", peer));
}

void AddOffer(control::RollAnswer& answer, int peer, int64_t number) {
  answer.add_offers()->set_peer(static_cast<uint32_t>(peer));
  answer.mutable_offers(0)->set_number(number);
}

// Rank 0 sends with tag 1, rank 1 receives with tag 2, rank 2 waits in a barrier for both.
RollAnswers Circle() {
  RollAnswers answers;
  answers[0] = BlockedIn("send", 3, -1);
  AddTransfer(answers[0], 1, true, 1, -1);
  AddOffer(answers[0], 1, 0);
  answers[1] = BlockedIn("receive", 3, -1);
  AddTransfer(answers[1], 0, false, 2, 0);
  answers[2] = BlockedIn("barrier", 4, 3);
  return answers;
}

TEST(RollCallTest, ACircleThatTwoLooksSeeIsAnError) {
  const RollAnswers answers = Circle();
  EXPECT_TRUE(VerdictOf(Call(2), answers, nullptr, NameOfNode).needs_another_look);
  const Verdict verdict = VerdictOf(Call(2), answers, &answers, NameOfNode);
  EXPECT_FALSE(verdict.needs_another_look);
  EXPECT_EQ(verdict.cause,
            absl::FailedPreconditionError(
                "the world: ranks wait for each other: rank 4 is in send and waits for a call of "
                "rank 5, rank 5 is in receive and waits for a call of rank 4; no call of these is "
                "ever done"));
  // Rank 1 was in another call before.
  RollAnswers before = answers;
  before[1].set_calls(9);
  EXPECT_EQ(VerdictOf(Call(2), answers, &before, NameOfNode).cause, absl::OkStatus());
  before[1] = answers.at(1);
  before[1].set_blocked_in("");
  EXPECT_EQ(VerdictOf(Call(2), answers, &before, NameOfNode).cause, absl::OkStatus());
}

TEST(RollCallTest, NoCircleIsSeenWhereSomethingIsOnItsWay) {
  RollAnswers answers = Circle();
  answers[0].clear_offers();  // it has been matched, or has not arrived
  EXPECT_EQ(CauseOf(Call(2), answers), absl::OkStatus());
  answers = Circle();
  answers[0].mutable_transfers(0)->set_number(5);  // it has been matched, and rank 1 is to get it
  EXPECT_EQ(CauseOf(Call(2), answers), absl::OkStatus());
  answers = Circle();
  AddTransfer(answers[1], 0, false, 1, 1);  // its offer is on its way
  EXPECT_EQ(CauseOf(Call(2), answers), absl::OkStatus());
  answers = Circle();
  answers[1].set_is_cut(true);  // it may be there
  EXPECT_EQ(CauseOf(Call(2), answers), absl::OkStatus());
  answers = Circle();
  answers[1].set_blocked_in("");  // its program may make the call
  EXPECT_EQ(CauseOf(Call(2), answers), absl::OkStatus());
}

TEST(RollCallTest, ATransferWithARankThatHasEndedIsAnError) {
  RollAnswers answers = Circle();
  answers[1] = {};
  answers[1].set_has_ended(true);
  control::RollCall call = Call(2);
  call.set_transfer("send");
  call.set_transfer_peer(1);
  EXPECT_TRUE(VerdictOf(call, answers, nullptr, NameOfNode).needs_another_look);
  EXPECT_EQ(VerdictOf(call, answers, &answers, NameOfNode).cause,
            absl::FailedPreconditionError(
                "the world: rank 5 has ended its part, and rank 4 waits for it in send of rank 1; "
                "it has made no call here"));
  // Rank 1 may have received it, and ended, after rank 0 had answered: before it is asked again.
  RollAnswers before = answers;
  before[1].set_has_ended(false);
  EXPECT_EQ(VerdictOf(call, answers, &before, NameOfNode).cause, absl::OkStatus());
  RollAnswers after = answers;
  after[0].clear_transfers();
  EXPECT_EQ(VerdictOf(call, after, &answers, NameOfNode).cause, absl::OkStatus());
  // What it wrote before may still be on its way to a receive.
  answers = {{0, {}}, {1, {}}, {2, {}}};
  answers[0].set_has_ended(true);
  AddTransfer(answers[1], 0, false, 2, 0);
  EXPECT_EQ(CauseOf(call, answers), absl::OkStatus());
  AddOffer(answers[0], 1, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(VerdictOf(call, answers, &answers, NameOfNode).cause));
}

// Rank 0 waits for a signal, rank 1 has ended, rank 2 waits in a barrier.
RollAnswers OutOfSignals() {
  RollAnswers answers;
  answers[0] = BlockedIn("wait_signal", 3, -1);
  answers[0].set_awaits_signal(true);
  answers[1].set_has_ended(true);
  answers[2] = BlockedIn("barrier", 4, 3);
  return answers;
}

control::RollCall WaitForSignal() {
  control::RollCall call = Call(2);
  call.set_transfer("wait_signal");
  for (int rank = 0; rank < 3; ++rank) call.add_raised(0);
  return call;
}

TEST(RollCallTest, ASignalThatNobodyCanRaiseIsAnErrorAfterTwoLooks) {
  const RollAnswers answers = OutOfSignals();
  EXPECT_TRUE(VerdictOf(WaitForSignal(), answers, nullptr, NameOfNode).needs_another_look);
  EXPECT_EQ(VerdictOf(WaitForSignal(), answers, &answers, NameOfNode).cause,
            absl::FailedPreconditionError(
                "the world: nobody is left who could raise a signal that is waited for: rank 4 is "
                "in wait_signal, rank 5 has ended its part, rank 6 is in barrier; no call of these "
                "is ever done"));
  // At the first look a signal was on its way, a rank had not ended, or one was in another call.
  RollAnswers before = answers;
  before[1].add_signalling(0);
  EXPECT_EQ(VerdictOf(WaitForSignal(), answers, &before, NameOfNode).cause, absl::OkStatus());
  before = answers;
  before[1].set_has_ended(false);
  EXPECT_EQ(VerdictOf(WaitForSignal(), answers, &before, NameOfNode).cause, absl::OkStatus());
  before = answers;
  before[2].set_calls(9);
  EXPECT_EQ(VerdictOf(WaitForSignal(), answers, &before, NameOfNode).cause, absl::OkStatus());
  before = answers;
  before[0].set_calls(9);
  EXPECT_EQ(VerdictOf(WaitForSignal(), answers, &before, NameOfNode).cause, absl::OkStatus());
}

TEST(RollCallTest, ASignalThatAnyRankMayRaiseIsWaitedFor) {
  RollAnswers answers = OutOfSignals();
  answers[1].set_has_ended(false);
  EXPECT_EQ(CauseOf(WaitForSignal(), answers), absl::OkStatus());
  answers = OutOfSignals();
  answers[1].add_signalling(0);
  EXPECT_EQ(CauseOf(WaitForSignal(), answers), absl::OkStatus());
  answers[1].set_signalling(0, 2);  // not to rank 0
  EXPECT_TRUE(VerdictOf(WaitForSignal(), answers, nullptr, NameOfNode).needs_another_look);
  answers = OutOfSignals();
  answers[2].set_blocked_in("put");  // which no program has to answer
  answers[2].set_blocked_number(-1);
  EXPECT_EQ(CauseOf(WaitForSignal(), answers), absl::OkStatus());
}

TEST(RollCallTest, ASignalThatDoesNotComeInTimeNamesWhoHasNotRaisedIt) {
  control::RollCall call = Call(2);
  call.set_overdue(500'000'000);
  call.set_transfer("wait_signal for 3");
  for (const int64_t times : {0, 2, 0}) call.add_raised(times);
  RollAnswers answers = {{0, {}}, {1, {}}, {2, {}}};
  answers[2].set_has_ended(true);
  EXPECT_EQ(CauseOf(call, answers),
            absl::DeadlineExceededError("the world: wait_signal for 3, of rank 4 was not done "
                                        "within 0.5 s: waited for rank 6 (it has ended its part)"));
  call.set_raised(2, 1);
  EXPECT_THAT(std::string(CauseOf(call, answers).message()),
              HasSubstr("waited for rank 5 (it has made no call here), rank 6 ("));
}

TEST(RollCallTest, OneInquiryAGroupAtATime) {
  std::vector<uint16_t> asked;
  std::vector<absl::Status> failures;
  RollCalls calls(
      {.send = [&](uint16_t node, const control::ControlMessage&) { asked.push_back(node); },
       .fail = [&](const absl::Status& cause) { failures.push_back(cause); },
       .name_of = NameOfNode,
       .now = [] { return 0; }});
  calls.OnAsked(Call(7));
  calls.OnAsked(Call(8));
  EXPECT_EQ(asked, (std::vector<uint16_t>{4, 5, 6}));
  calls.OnAnswer(4, In("barrier", 1));
  calls.OnAnswer(5, In("reduce", 2));
  EXPECT_TRUE(failures.empty()) << "one answer is missing";
  calls.OnAnswer(6, In("barrier", 1));
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(failures[0]));
  calls.OnAsked(Call(9));
  EXPECT_EQ(asked.size(), 6u) << "the one before is over";
  // A circle is looked at twice.
  RollAnswers circle = Circle();
  for (int look = 0; look < 2; ++look) {
    EXPECT_EQ(asked.size(), 6u + 3 * look);
    for (int rank = 0; rank < 3; ++rank)
      calls.OnAnswer(static_cast<uint16_t>(4 + rank), circle[rank]);
  }
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_TRUE(absl::IsFailedPrecondition(failures[1]));
}

// Two groups of nodes 4 and 5, whose calls the master is asked about.
class TwoGroupsTest : public ::testing::Test {
 protected:
  // Rank `rank` of group `group` is in a barrier there, for 300 ms, and the other is not.
  void Ask(uint64_t group, int rank, Nanoseconds overdue = 0) {
    control::RollCall call;
    call.set_group(group);
    call.set_group_name(absl::StrFormat("group %d", group));
    call.set_waited(waited_);
    call.set_overdue(overdue);
    for (const uint32_t node : {4, 5}) call.add_members(node);
    call.set_asker(static_cast<uint32_t>(4 + rank));
    calls_.OnAsked(call);
    for (const int other : {0, 1}) {
      control::RollAnswer answer;
      answer.set_blocked_number(-1);
      if (other == rank) {
        answer = In("barrier (a.cc:1)", 1);
        answer.set_blocked_in("barrier (a.cc:1)");
        answer.set_collectives(1);
      } else if (is_elsewhere_) {
        answer.add_elsewhere(absl::StrFormat("barrier (a.cc:1), of group %d", 3 - group));
      }
      answer.set_group(group);
      calls_.OnAnswer(static_cast<uint16_t>(4 + other), answer);
    }
  }

  Nanoseconds now_ = 5 * kSecond;
  Nanoseconds waited_ = 300 * kMillisecond;
  bool is_elsewhere_ = true;
  std::vector<absl::Status> failures_;
  RollCalls calls_{{.send = [](uint16_t, const control::ControlMessage&) {},
                    .fail = [this](const absl::Status& cause) { failures_.push_back(cause); },
                    .name_of = NameOfNode,
                    .now = [this] { return now_; },
                    .stall_timeout = 3 * kSecond}};
};

TEST_F(TwoGroupsTest, CallsThatWaitForLongAreToldOnceInSoLong) {
  is_elsewhere_ = false;
  const auto told_at = [this](Nanoseconds waited) {
    now_ += kSecond / 2;
    waited_ = waited;
    testing::internal::CaptureStderr();
    Ask(1, 0);
    Ask(2, 1);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told_at(2900 * kMillisecond), "");
  EXPECT_THAT(
      told_at(3 * kSecond),
      AllOf(HasSubstr("a call of a process group has waited for 3 s (--stall_timeout): group "
                      "1: call 0, barrier (a.cc:1), of rank 4 has waited 3.0 s for rank 5"),
            HasSubstr("\n  group 2: ")));
  EXPECT_EQ(told_at(3500 * kMillisecond), "");
  now_ += 2 * kSecond;
  EXPECT_THAT(told_at(6 * kSecond), HasSubstr("has waited for 6 s (--stall_timeout): group 1"));
}

TEST_F(TwoGroupsTest, RanksThatWaitForEachOtherAreShown) {
  Ask(1, 0);
  EXPECT_THAT(calls_.Waits(),
              ElementsAre("group 1: call 0, barrier (a.cc:1), of rank 4 has waited 0.3 s for rank "
                          "5 (it is in barrier (a.cc:1), of group 2)"));
  now_ += 100 * kMillisecond;
  Ask(2, 1);
  const std::string circle =
      "ranks wait for each other in several groups: rank 4 is in barrier (a.cc:1), of group 1, and "
      "waits for a call of rank 5; rank 5 is in barrier (a.cc:1), of group 2, and waits for a call "
      "of rank 4; none of these is ever done, unless other threads of these ranks make the calls";
  EXPECT_THAT(calls_.Waits(), ElementsAre(circle, HasSubstr("rank 4 has waited 0.4 s for rank 5 ("),
                                          HasSubstr("rank 5 has waited 0.3 s for rank 4 (")));
  EXPECT_TRUE(failures_.empty()) << "other threads may make the calls";
  Ask(1, 0, /*overdue=*/2 * kSecond);
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(failures_[0]));
  EXPECT_THAT(std::string(failures_[0].message()),
              AllOf(HasSubstr("not done within 2.0 s: waited for rank 5 (it is in barrier"),
                    HasSubstr(circle)));
}

// The first call was done meanwhile; whoever was in it waits for nobody now.
TEST_F(TwoGroupsTest, WhoHasGoneOnIsInNoCircle) {
  Ask(1, 0);
  now_ += 300 * kMillisecond;
  is_elsewhere_ = false;
  Ask(2, 1);
  EXPECT_THAT(calls_.Waits(), ElementsAre(HasSubstr("group 1: "), HasSubstr("group 2: ")));
}

TEST_F(TwoGroupsTest, WhatWasLongAgoIsNot) {
  Ask(1, 0);
  now_ += 900 * kMillisecond;
  Ask(2, 1);
  EXPECT_EQ(calls_.Waits().size(), 3u);
  now_ += 200 * kMillisecond;
  EXPECT_THAT(calls_.Waits(), ElementsAre(HasSubstr("group 2: ")));
  now_ += kSecond;
  EXPECT_TRUE(calls_.Waits().empty());
}

TEST_F(TwoGroupsTest, ARankThatIsInNoCallWaitsForNone) {
  is_elsewhere_ = false;
  Ask(1, 0);
  Ask(2, 0);
  EXPECT_THAT(calls_.Waits(), ElementsAre(HasSubstr("rank 5 (it has made no call here)"),
                                          HasSubstr("rank 5 (it has made no call here)")));
}

}  // namespace
}  // namespace braid::dist
