// The master's part of the store, with requests that no rank sends among them.
#include "runtime/group/stored_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "runtime/control.pb.h"

namespace braid::dist {
namespace {

using control::StoreRequest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StoredKeysTest : public ::testing::Test {
 protected:
  // Of node 7.
  static StoreRequest Request(uint64_t number, StoreRequest::Kind kind,
                              const std::vector<std::string>& names) {
    StoreRequest request;
    request.set_number(number);
    request.set_kind(kind);
    request.set_timeout(kSecond);
    for (const std::string& name : names) request.add_keys(name);
    return request;
  }

  absl::Status Ask(StoreRequest request) {
    absl::Status status;
    InReactor([&] { status = keys_.OnRequest(7, &request); });
    return status;
  }
  absl::Status Set(uint64_t number, const std::string& key) {
    return Ask(Request(number, StoreRequest::SET, {key}));
  }
  void Close() {
    InReactor([this] { keys_.Close(); });
  }

  void Pass(Nanoseconds time) {
    const std::unique_ptr<Event> never = environment_->MakeEvent();
    environment_->Await(*never, time).IgnoreError();
  }

  // "3: the error's words", or "3" if there is none, of each answer since the last call.
  std::vector<std::string> Answers() {
    std::vector<std::string> answers;
    for (const auto& answer : std::exchange(answers_, {})) {
      answers.push_back(absl::StrFormat("%d", answer.number()));
      if (answer.has_error()) answers.back() += ": " + answer.error().message();
    }
    return answers;
  }

 private:
  void InReactor(std::function<void()> fn) {
    const std::unique_ptr<Event> is_done = environment_->MakeEvent();
    reactor_->Post([&] {
      fn();
      is_done->Set();
    });
    EXPECT_EQ(environment_->Await(*is_done, kSecond), absl::OkStatus());
  }

  const std::unique_ptr<Environment> environment_ = MakeSimulatedEnvironment(1);
  const std::unique_ptr<Reactor> reactor_ = environment_->StartReactor("coordinator");
  std::vector<control::StoreAnswer> answers_;
  StoredKeys keys_{{.reactor = reactor_.get(),
                    .send = [this](uint16_t node, const control::ControlMessage& message) {
                      EXPECT_EQ(node, 7);
                      answers_.push_back(message.store_answer());
                    }}};
};

TEST_F(StoredKeysTest, ARequestWhoseTimeIsOverIsForgotten) {
  EXPECT_EQ(Ask(Request(1, StoreRequest::GET, {"a"})), absl::OkStatus());
  Pass(kSecond / 2);
  EXPECT_EQ(Ask(Request(2, StoreRequest::GET, {"a"})), absl::OkStatus());
  EXPECT_THAT(Answers(), IsEmpty());
  Pass(kSecond * 3 / 4);
  EXPECT_THAT(Answers(), ElementsAre("1: no rank has set the key 'a' within 1s"));
  EXPECT_EQ(Set(3, "a"), absl::OkStatus());
  EXPECT_THAT(Answers(), ElementsAre("2", "3"));
  Pass(2 * kSecond);
  EXPECT_THAT(Answers(), IsEmpty());
  // Its number is free.
  EXPECT_EQ(Ask(Request(1, StoreRequest::GET, {"b"})), absl::OkStatus());
}

TEST_F(StoredKeysTest, AKeyThatCameWhileARequestWaitsMayGoAgain) {
  EXPECT_EQ(Ask(Request(1, StoreRequest::WAIT, {"a", "b", "a"})), absl::OkStatus());
  EXPECT_EQ(Set(2, "a"), absl::OkStatus());
  EXPECT_EQ(Ask(Request(3, StoreRequest::DELETE, {"a"})), absl::OkStatus());
  EXPECT_THAT(Answers(), ElementsAre("2", "3"));
  EXPECT_EQ(Ask(Request(4, StoreRequest::ADD, {"b"})), absl::OkStatus());
  EXPECT_THAT(Answers(), ElementsAre("1", "4"));
}

TEST_F(StoredKeysTest, OfManyKeysSomeAreNamed) {
  std::vector<std::string> names;
  for (int i = 10; i < 30; ++i) names.push_back(absl::StrFormat("%d", i));
  names.push_back(std::string(70, '\n'));
  EXPECT_EQ(Ask(Request(1, StoreRequest::WAIT, names)), absl::OkStatus());
  EXPECT_EQ(Set(2, "11"), absl::OkStatus());
  Pass(2 * kSecond);
  std::string shown = "'";
  for (int i = 0; i < 64; ++i) shown += "\\n";
  EXPECT_THAT(Answers(),
              ElementsAre("2", "1: of 21 keys, no rank has set " + shown +
                                   "'... of 70 bytes, '10', '12', '13', '14', '15', '16', '17', 12 "
                                   "more within 1s"));
}

TEST_F(StoredKeysTest, NothingIsAnsweredOnceItIsClosed) {
  EXPECT_EQ(Ask(Request(1, StoreRequest::GET, {"a"})), absl::OkStatus());
  Close();
  Pass(2 * kSecond);
  EXPECT_EQ(Set(2, "a"), absl::OkStatus());
  EXPECT_THAT(Answers(), IsEmpty());
}

TEST_F(StoredKeysTest, WhatNoRankAsksIsAnError) {
  using R = StoreRequest;
  EXPECT_EQ(Ask(Request(1, R::GET, {"a"})), absl::OkStatus());
  const std::vector<std::pair<StoreRequest, std::string>> mistakes = {
      {Request(1, R::GET, {"a"}), "number 1 of it comes again before it is answered"},
      {Request(2, R::NONE, {"a"}), "there is none of kind 0 with 1 keys"},
      {Request(2, static_cast<R::Kind>(77), {}), "there is none of kind 77 with 0 keys"},
      {Request(2, R::SET, {}), "there is none of kind 1 with 0 keys"},
      {Request(2, R::GET, {"a", "b"}), "there is none of kind 2 with 2 keys"},
      {Request(2, R::ADD, {}), "there is none of kind 3 with 0 keys"},
      {Request(2, R::DELETE, {}), "there is none of kind 5 with 0 keys"},
      {Request(2, R::COMPARE_SET, {}), "there is none of kind 6 with 0 keys"},
      {Request(2, R::NUM_KEYS, {"a"}), "there is none of kind 7 with 1 keys"},
      {Request(2, R::SET, {""}), "the key is empty"},
      {Request(2, R::SET, {std::string(kMostStoreKeyBytes + 1, 'k')}), "at most 65536"}};
  for (const auto& [request, words] : mistakes) {
    const absl::Status status = Ask(request);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  StoreRequest request = Request(2, R::GET, {"a"});
  for (const Nanoseconds timeout : {Nanoseconds{0}, -kSecond}) {
    request.set_timeout(timeout);
    EXPECT_THAT(std::string(Ask(request).message()), HasSubstr("more than zero was expected"));
  }
  EXPECT_THAT(Answers(), IsEmpty());
}

}  // namespace
}  // namespace braid::dist
