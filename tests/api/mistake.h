// Mistakes of users as data, for suites that try each of them: what is done wrong, and what the
// error of the next call that returns one says.
#pragma once

#include <braid/braid.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace braid {

struct Mistake {
  std::string name;
  std::function<absl::Status()> make;
  std::vector<std::string> says;
};

void PrintTo(const Mistake& mistake, std::ostream* out);
// The mistake's words in one, as GoogleTest names tests.
std::string NameOfMistake(const testing::TestParamInfo<Mistake>& info);

// Makes it and expects an error that says all it should.
void ExpectItsError(const Mistake& mistake);

std::unique_ptr<Session> StartOnTwoDevices();

// Of a function that records a job. The error names a line of the file that calls this.
Mistake Recorded(const std::string& name, std::function<void(Job&)> record,
                 std::vector<std::string> says, SourceLocation where = Here());

// Of what is done with a session and a job that runs: x f32 [2], an input of the caller's line, is
// fetched as y and as sum.
Mistake Used(const std::string& name,
             std::function<absl::Status(Session& session, CompiledJob& job)> use,
             std::vector<std::string> says, SourceLocation where = Here());

// What the job of Used may be fed, and a Run of it.
const Array& Two();
absl::StatusOr<RunResult> RunOf(CompiledJob& job);

// An input f32 [2, 3].
Tensor Of(Job& job);

}  // namespace braid
