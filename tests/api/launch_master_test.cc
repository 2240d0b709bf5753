// What the launchers of several machines are told, whoever says what when: on simulated time.
#include "api/tool/launch_master.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/tool/launch.pb.h"
#include "api/tool/launch_terms.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Told {
  std::string cause;
  int exit_code = 1;
  bool is_own = false;
  double when = 0;  // in seconds, by its machine's clock
};

std::string Failed(const Told& told) {
  launch::Report report;
  launch::Failure& failed = *report.mutable_failed();
  failed.set_cause(told.cause);
  failed.set_exit_code(told.exit_code);
  failed.set_is_own(told.is_own);
  failed.set_when(static_cast<Nanoseconds>(told.when * kSecond));
  failed.set_output("output of " + told.cause);
  return report.SerializeAsString();
}

std::string Signalled(int signal) {
  launch::Report report;
  report.set_signalled(signal);
  return report.SerializeAsString();
}

std::string EndedWith(int exit_code) {
  launch::Report report;
  report.mutable_ended()->set_exit_code(exit_code);
  return report.SerializeAsString();
}

std::string ClockOf(Nanoseconds asked, Nanoseconds shows) {
  launch::Report report;
  report.mutable_clock()->set_asked(asked);
  report.mutable_clock()->set_shows(shows);
  return report.SerializeAsString();
}

std::string WordsOf(const launch::Outcome& outcome) {
  return absl::StrCat(outcome.exit_code(), " '", outcome.cause(), "'",
                      outcome.output().empty() ? "" : " with output");
}

std::string WordsOf(const launch::Order& order) {
  switch (order.kind_case()) {
    case launch::Order::kBegin:
      return absl::StrCat(
          "begin ", order.begin().restarts(), " at ", order.begin().port(),
          order.begin().has_before() ? " after " + WordsOf(order.begin().before()) : "");
    case launch::Order::kEnd:
      return "end";
    case launch::Order::kSignal:
      return absl::StrCat("signal ", order.signal());
    case launch::Order::kFinish:
      return "finish " + WordsOf(order.finish());
    default:
      return "nothing";
  }
}

// Launchers that say what a test lets them say, and what their clocks show when they are asked.
class LaunchMasterTest : public ::testing::Test {
 protected:
  void Start(int machines, int max_restarts) {
    LaunchMaster::Options options{.max_restarts = max_restarts};
    options.choose_port = [this]() -> absl::StatusOr<uint16_t> {
      if (ports_ == 0) return absl::ResourceExhaustedError("no port is left");
      return static_cast<uint16_t>(ports_--);
    };
    orders_.resize(machines);
    for (int machine = 0; machine < machines; ++machine) {
      auto [master_end, own_end] = MakeLoopbackControlPair(reactor_.get(), reactor_.get());
      own_end->SetHandlers(
          [this, machine](const std::string& bytes) {
            launch::Order order;
            EXPECT_TRUE(order.ParseFromString(bytes));
            if (order.has_clock()) return TellTime(machine, order.clock());
            orders_[machine].push_back(WordsOf(order));
            if (order.has_finish()) has_finished_->Set();
          },
          [this, machine](const absl::Status&) { orders_[machine].emplace_back("closed"); });
      channels_.push_back(std::move(own_end));
      options.machines.push_back(
          {.name = absl::StrCat("machine ", machine, " (h)"), .channel = std::move(master_end)});
    }
    master_ = std::make_unique<LaunchMaster>(reactor_.get(), std::move(options));
    reactor_->Post([this] { master_->Start(); });
  }

  // From now on, in seconds.
  void Say(double when, int machine, std::string report) {
    At(when, [this, machine, report] { channels_[machine]->Send(report); });
  }
  void Lose(double when, int machine) {
    At(when,
       [this, machine] { channels_[machine]->Close(absl::UnavailableError("no heartbeat")); });
  }
  void At(double when, std::function<void()> fn) {
    reactor_->Post([this, when, fn = std::move(fn)] {
      reactor_->RunAfter(static_cast<Nanoseconds>(when * kSecond), fn);
    });
  }

  // The `trip`-th question takes so long on its way there, in seconds, and no time back.
  void TellTime(int machine, Nanoseconds asked) {
    const double way = way_ ? way_(machine, trips_[machine]++) : 0;
    At(way, [this, machine, asked] {
      const auto ahead = static_cast<Nanoseconds>(ahead_[machine] * kSecond);
      channels_[machine]->Send(ClockOf(asked, reactor_->Now() + ahead));
    });
  }

  // What each was told, once it is over everywhere.
  const std::vector<std::string>& OrdersOf(int machine) {
    EXPECT_TRUE(environment_->Await(*has_finished_, 1000 * kSecond).ok());
    const std::unique_ptr<Event> has_settled = environment_->MakeEvent();
    At(1, [&] { has_settled->Set(); });
    EXPECT_TRUE(environment_->Await(*has_settled, 1000 * kSecond).ok());
    return orders_[machine];
  }

  ~LaunchMasterTest() override {
    const std::unique_ptr<Event> is_gone = environment_->MakeEvent();
    reactor_->Post([&] {
      master_.reset();
      channels_.clear();
      is_gone->Set();
    });
    EXPECT_TRUE(environment_->Await(*is_gone, 1000 * kSecond).ok());
  }

  int ports_ = 9;                // the next, then one less
  std::map<int, double> ahead_;  // a machine's clock is so many seconds ahead
  std::map<int, int> trips_;
  std::function<double(int machine, int trip)> way_;
  const std::unique_ptr<Environment> environment_ = MakeSimulatedEnvironment(/*seed=*/1);
  const std::unique_ptr<Event> has_finished_ = environment_->MakeEvent();
  std::vector<std::vector<std::string>> orders_;
  std::vector<std::unique_ptr<ControlChannel>> channels_;
  std::unique_ptr<LaunchMaster> master_;
  const std::unique_ptr<Reactor> reactor_ = environment_->StartReactor("launch");
};

TEST_F(LaunchMasterTest, AllEndWell) {
  Start(2, 3);
  Say(1, 0, EndedWith(0));
  Say(2, 1, EndedWith(0));
  for (const int machine : {0, 1}) {
    EXPECT_THAT(OrdersOf(machine), ElementsAre("begin 0 at 9", "finish 0 ''"));
  }
}

TEST_F(LaunchMasterTest, TheFirstByTimeIsTheCauseAlsoIfItIsToldLater) {
  Start(3, 0);
  Say(5, 0, Failed({.cause = "late", .exit_code = 3, .when = 5}));
  Say(5.5, 2, Failed({.cause = "early", .exit_code = 7, .when = 4}));
  for (const int machine : {0, 1, 2}) Say(6, machine, EndedWith(machine));
  EXPECT_THAT(OrdersOf(0), ElementsAre("begin 0 at 9", "end", "finish 7 'early' with output"));
  EXPECT_THAT(OrdersOf(1), ElementsAre("begin 0 at 9", "end", "finish 7 'early'"));
  EXPECT_THAT(OrdersOf(2), ElementsAre("begin 0 at 9", "end", "finish 7 'early' with output"));
}

// Machine 1's clock began long before, and is asked for over a way that is mostly slow.
TEST_F(LaunchMasterTest, WhatAMachinesClockShowsIsAskedForAndNotBelieved) {
  ahead_ = {{0, 0}, {1, 1000}};
  way_ = [](int machine, int trip) { return machine == 1 && trip != 5 ? 0.8 : 0.001; };
  Start(2, 0);
  Say(5, 0, Failed({.cause = "early", .exit_code = 7, .when = 4.9}));
  Say(5, 1, Failed({.cause = "late", .exit_code = 3, .when = 1004.95}));
  for (const int machine : {0, 1}) Say(5, machine, EndedWith(1));
  At(6, [this] { EXPECT_THAT(orders_[0], ElementsAre("begin 0 at 9", "end")); });
  EXPECT_THAT(OrdersOf(0), ElementsAre("begin 0 at 9", "end", "finish 7 'early' with output"));
  EXPECT_EQ(trips_[0], 8);
  EXPECT_EQ(trips_[1], 8);
}

TEST_F(LaunchMasterTest, AClockIsToldWhenItIsAskedFor) {
  Start(2, 5);
  Say(1, 1, ClockOf(0, 5));
  Say(2, 0, EndedWith(0));
  EXPECT_THAT(OrdersOf(0), ElementsAre("begin 0 at 9", "end",
                                       "finish 1 'machine 1 (h) lost: it says what its clock "
                                       "shows, and was not asked'"));
}

// Who is lost is not waited for.
TEST_F(LaunchMasterTest, AMachineMayBeLostBeforeItSaysWhatItsClockShows) {
  way_ = [](int machine, int) { return machine == 1 ? 1000 : 0; };
  Start(2, 0);
  Say(1, 0, Failed({.cause = "no bread", .exit_code = 7, .is_own = true, .when = 1}));
  for (const int machine : {0, 1}) Say(1, machine, EndedWith(1));
  Lose(2, 1);
  EXPECT_THAT(OrdersOf(0), ElementsAre("begin 0 at 9", "end", "finish 7 'no bread' with output"));
}

TEST_F(LaunchMasterTest, WhatWasKilledCountsBeforeWhatReturned) {
  Start(2, 0);
  Say(1, 0, Failed({.cause = "lost the other"}));
  Say(2, 1, Failed({.cause = "killed", .exit_code = 137, .is_own = true}));
  Say(3, 1, Failed({.cause = "killed, too", .exit_code = 137, .is_own = true}));
  for (const int machine : {0, 1}) Say(4, machine, EndedWith(1));
  EXPECT_THAT(OrdersOf(1), ElementsAre("begin 0 at 9", "end", "finish 137 'killed' with output"));
}

TEST_F(LaunchMasterTest, AnAttemptBeginsWhenAllHaveEndedTheOneBefore) {
  Start(2, 2);
  Say(1, 0, Failed({.cause = "a", .exit_code = 5}));
  Say(1.1, 0, EndedWith(5));
  At(8, [this] {
    EXPECT_THAT(orders_[0], ElementsAre("begin 0 at 9", "end"));
    EXPECT_EQ(
        master_->Describe(),
        "a launch on 2 machines, restarted 0 of 2 times; its ranks meet at port 9 of machine 0 "
        "(h)\nmachine 0 (h): its ranks have ended\nmachine 1 (h): its ranks run\nthey are "
        "ended: a\n");
  });
  Say(9, 1, EndedWith(0));
  Say(10, 1, Failed({.cause = "b", .exit_code = 6, .when = 10}));
  for (const int machine : {0, 1}) Say(11, machine, EndedWith(6));
  Say(12, 1, Failed({.cause = "c", .exit_code = 7}));
  for (const int machine : {0, 1}) Say(13, machine, EndedWith(7));
  EXPECT_THAT(
      OrdersOf(0),
      ElementsAre("begin 0 at 9", "end", "begin 1 at 8 after 5 'a' with output", "end",
                  "begin 2 at 7 after 6 'b' with output", "end", "finish 7 'c' with output"));
  EXPECT_THAT(OrdersOf(1), ElementsAre("begin 0 at 9", "end", "begin 1 at 8 after 5 'a'", "end",
                                       "begin 2 at 7 after 6 'b' with output", "end",
                                       "finish 7 'c' with output"));
}

TEST_F(LaunchMasterTest, AMachineThatIsLostIsTheEnd) {
  Start(3, 5);
  Say(1, 0, Failed({.cause = "lost the others"}));
  Lose(2, 1);
  Say(3, 0, EndedWith(1));
  Say(4, 2, EndedWith(0));
  EXPECT_THAT(OrdersOf(0),
              ElementsAre("begin 0 at 9", "end", "finish 1 'machine 1 (h) lost: no heartbeat'"));
}

// Such a failure does not follow from the loss.
TEST_F(LaunchMasterTest, WhatFailedOnAMachineBeforeItWasLostIsTheCause) {
  Start(2, 5);
  Say(1, 1, Failed({.cause = "no bread", .exit_code = 7}));
  Lose(2, 1);
  Say(3, 0, EndedWith(1));
  EXPECT_THAT(OrdersOf(0), ElementsAre("begin 0 at 9", "end", "finish 7 'no bread' with output"));
}

TEST_F(LaunchMasterTest, ASignalGoesToTheOthersAndIsTheEnd) {
  Start(2, 5);
  Say(1, 1, Signalled(15));
  Say(2, 0, Failed({.cause = "ended", .exit_code = 143}));
  Say(3, 0, EndedWith(143));
  Say(4, 1, EndedWith(0));
  const std::string outcome = "finish 143 'machine 1 (h): ended by signal 15 (Terminated)'";
  EXPECT_THAT(OrdersOf(0), ElementsAre("begin 0 at 9", "signal 15", "end", outcome));
  EXPECT_THAT(OrdersOf(1), ElementsAre("begin 0 at 9", "end", outcome));
}

TEST_F(LaunchMasterTest, AFailureBeforeASignalIsTheCauseAndNotTriedAgain) {
  Start(1, 5);
  Say(1, 0, Failed({.cause = "no bread", .exit_code = 7}));
  Say(2, 0, Signalled(2));
  Say(3, 0, EndedWith(7));
  EXPECT_THAT(OrdersOf(0), ElementsAre("begin 0 at 9", "end", "finish 7 'no bread' with output"));
}

TEST_F(LaunchMasterTest, WithoutAPortItEnds) {
  ports_ = 1;
  Start(2, 5);
  Say(1, 0, Failed({.cause = "a", .exit_code = 5}));
  for (const int machine : {0, 1}) Say(2, machine, EndedWith(5));
  EXPECT_THAT(OrdersOf(1), ElementsAre("begin 0 at 1", "end", "finish 1 'no port is left'"));
}

TEST_F(LaunchMasterTest, AReportThatCannotBeReadLosesItsMachine) {
  Start(2, 5);
  Say(1, 1, "\xff\xff\xff");
  Say(2, 0, EndedWith(0));
  EXPECT_THAT(OrdersOf(0),
              ElementsAre("begin 0 at 9", "end",
                          "finish 1 'machine 1 (h) lost: its report of 3 bytes cannot be read'"));
  EXPECT_THAT(OrdersOf(1), ElementsAre("begin 0 at 9", "closed"));
}

TEST(LaunchTermsTest, ArgumentsMayHoldAnyBytes) {
  const std::string text = TextOfTerms({.program = {"a\xff", "\"b\"\n\x01"}});
  EXPECT_EQ(text,
            "--nproc_per_node=1\n--max_restarts=0\nprogram a\\xff\nargument \\\"b\\\"\\n\\x01\n");
}

TEST(LaunchTermsTest, ALongArgumentIsShownWhereItDiffers) {
  LaunchTerms terms{.program = {"bash", "-c", std::string(500, 'x') + " one\nend"}};
  const std::string master = TextOfTerms(terms);
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(master, '\n')).size(), 6u);
  terms.program[2] = std::string(500, 'x') + " two\nend";
  const std::string difference = TermsDifference(master, TextOfTerms(terms));
  EXPECT_THAT(difference, HasSubstr("xx one\\\\nend' on machine 0, '...xxx"));
  EXPECT_THAT(difference, HasSubstr("xx two\\\\nend' there"));
  EXPECT_LT(TermsDifference(master, std::string(100'000, '\xff')).size(), 1000u);
}

}  // namespace
}  // namespace braid
