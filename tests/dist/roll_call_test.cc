#include "runtime/group/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace braid::dist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

TEST(RollCallTest, WhoHasNotComeYetIsNoFailure) {
  EXPECT_EQ(VerdictOf(Call(7), {{0, In("barrier", 1)}, {1, {}}, {2, In("barrier", 1)}}, NameOfNode),
            absl::OkStatus());
}

TEST(RollCallTest, ADifferenceNamesBoth) {
  const absl::Status verdict =
      VerdictOf(Call(7), {{0, In("barrier (a.cc:1)", 1)}, {1, {}}, {2, In("reduce (b.cc:2)", 2)}},
                NameOfNode);
  EXPECT_THAT(std::string(verdict.message()),
              AllOf(HasSubstr("call 7"), HasSubstr("rank 4 is in barrier (a.cc:1)"),
                    HasSubstr("rank 6 in reduce (b.cc:2)")));
}

TEST(RollCallTest, TimeoutsNameWhoIsMissing) {
  control::RollCall call = Call(7);
  call.set_overdue(2'500'000'000);
  RollAnswers answers = {{0, In("barrier", 1)}, {1, {}}, {2, In("barrier", 1)}};
  answers[1].mutable_last()->set_number(3);
  answers[1].mutable_last()->set_text("scatter (c.cc:3)");
  EXPECT_EQ(
      VerdictOf(call, answers, NameOfNode),
      absl::DeadlineExceededError(
          "the world: call 7, barrier, of rank 4 was not done within 2.5 s: waited for rank 5 "
          "(its last call here was call 3, scatter (c.cc:3))"));
  answers[1] = In("barrier", 1);
  EXPECT_THAT(std::string(VerdictOf(call, answers, NameOfNode).message()),
              HasSubstr("all ranks are in it"));
}

// What came and no rank's call explains is not lost.
TEST(RollCallTest, EvidenceWithoutADifferenceIsAnError) {
  control::RollCall call = Call(0);
  call.set_evidence("rank 2 sent 5 bytes");
  const absl::Status verdict = VerdictOf(
      call, {{0, In("barrier", 1)}, {1, In("barrier", 1)}, {2, In("barrier", 1)}}, NameOfNode);
  EXPECT_TRUE(absl::IsInternal(verdict)) << verdict;
  EXPECT_THAT(std::string(verdict.message()), HasSubstr("rank 2 sent 5 bytes"));
}

TEST(RollCallTest, OneInquiryAGroupAtATime) {
  std::vector<uint16_t> asked;
  std::vector<absl::Status> failures;
  RollCalls calls(
      {.send = [&](uint16_t node, const control::ControlMessage&) { asked.push_back(node); },
       .fail = [&](const absl::Status& cause) { failures.push_back(cause); },
       .name_of = NameOfNode});
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
}

}  // namespace
}  // namespace braid::dist
