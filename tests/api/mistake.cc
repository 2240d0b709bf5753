#include "tests/api/mistake.h"

#include <cctype>
#include <utility>

#include "gmock/gmock.h"
#include "runtime/base/status.h"
#include "tests/api/training_case.h"

namespace braid {

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

std::string NameOfMistake(const testing::TestParamInfo<Mistake>& info) {
  std::string name;
  bool begins_word = true;
  for (const char c : info.param.name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      begins_word = true;
      continue;
    }
    name += begins_word ? static_cast<char>(std::toupper(c)) : c;
    begins_word = false;
  }
  return name;
}

void ExpectItsError(const Mistake& mistake) {
  const absl::Status status = mistake.make();
  ASSERT_FALSE(status.ok());
  for (const std::string& what : mistake.says) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(what));
  }
}

std::unique_ptr<Session> StartOnTwoDevices() { return StartOrDie({.devices = {2}}); }

Mistake Recorded(const std::string& name, std::function<void(Job&)> record,
                 std::vector<std::string> says, SourceLocation where) {
  const std::string line = where.ToString();
  says.push_back(line.substr(0, line.find(':') + 1));
  return {name, [=] { return StartOnTwoDevices()->Compile("job", record).status(); },
          std::move(says)};
}

Mistake Used(const std::string& name,
             std::function<absl::Status(Session& session, CompiledJob& job)> use,
             std::vector<std::string> says, SourceLocation where) {
  const auto make = [=]() -> absl::Status {
    const auto session = StartOnTwoDevices();
    BRAID_ASSIGN_OR_RETURN(CompiledJob job, session->Compile("job", [=](Job& job) {
      const Tensor v = Variable(job.graph(), {.name = "v", .shape = {2}});
      const Tensor x = job.Input("x", {2}, DType::kF32, where);
      job.Fetch("y", x + v);
      job.Fetch("sum", ReduceSum(x));
    }));
    return use(*session, job);
  };
  return {name, make, std::move(says)};
}

const Array& Two() {
  static const Array two = Array::FromVector<float>({2}, {1, 2});
  return two;
}

absl::StatusOr<RunResult> RunOf(CompiledJob& job) { return job.Run({.feeds = {{"x", Two()}}}); }

Tensor Of(Job& job) { return job.Input("x", {2, 3}); }

}  // namespace braid
