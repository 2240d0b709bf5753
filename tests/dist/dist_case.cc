#include "tests/dist/dist_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "api/dist_init.h"
#include "api/network.h"
#include "comm/loopback_transport.h"
#include "tests/multiprocess/program_run.h"

namespace braid {

WorldEnd RunWorld(int ranks, const RankProgram& program, const std::string& transport, int hosts) {
  LoopbackNetwork loopback;
  WorldEnd end;
  end.programs.resize(ranks);
  end.worlds.resize(ranks);
  const int port = FreePort();
  const absl::Time began = absl::Now();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      dist::InitOptions options;
      options.init_method =
          absl::StrFormat("tcp://127.0.0.1:%d?rank=%d&world_size=%d", port, rank, ranks);
      options.timeout = absl::Seconds(60);
      NetworkOptions network = dist::FindWorld(options).value().value();
      network.transport = transport;
      if (hosts > 1) network.machine = absl::StrFormat("machine %d", rank % hosts);
      if (transport == "loopback") network.loopback = &loopback;
      auto world = dist::World::Join(&network, options);
      if (!world.ok()) {
        end.programs[rank] = end.worlds[rank] = world.status();
        return;
      }
      end.programs[rank] = program(**world);
      end.worlds[rank] = (*world)->Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  end.wall = absl::Now() - began;
  return end;
}

void ExpectAllWell(const WorldEnd& end) {
  EXPECT_THAT(end.programs, ::testing::Each(absl::OkStatus()));
  EXPECT_THAT(end.worlds, ::testing::Each(absl::OkStatus()));
}

}  // namespace braid
