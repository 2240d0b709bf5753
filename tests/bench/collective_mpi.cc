// What collective_bench measures, of MPI. Built by collective_bench.sh.
//
//   mpirun -n 2 collective_mpi [COLLECTIVE]
#include <mpi.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/bench/collective_measure.h"

namespace {

void Call(const std::string& collective, const CollectiveData& data) {
  const auto whole = static_cast<int>(data.whole.size());
  const auto part = static_cast<int>(data.part.size());
  if (collective == "all_reduce") {
    MPI_Allreduce(MPI_IN_PLACE, data.whole.data(), whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (collective == "broadcast") {
    MPI_Bcast(data.whole.data(), whole, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (collective == "all_gather") {
    MPI_Allgather(data.part.data(), part, MPI_FLOAT, data.whole.data(), part, MPI_FLOAT,
                  MPI_COMM_WORLD);
  } else if (collective == "reduce_scatter") {
    MPI_Reduce_scatter_block(data.whole.data(), data.part.data(), part, MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
  } else if (collective == "all_to_all") {
    MPI_Alltoall(data.whole.data(), part, MPI_FLOAT, data.other.data(), part, MPI_FLOAT,
                 MPI_COMM_WORLD);
  } else {
    throw std::runtime_error("there is no collective '" + collective + "'");
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::string collective = argc > 1 ? argv[1] : "all_reduce";
  std::deque<std::vector<float>> memory;
  CollectiveLibrary library;
  MPI_Comm_rank(MPI_COMM_WORLD, &library.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &library.size);
  library.allocate = [&](int64_t count) {
    return std::span(memory.emplace_back(static_cast<size_t>(count)));
  };
  library.all_reduce = [](std::span<float> data) { Call("all_reduce", {.whole = data}); };
  library.broadcast = [](std::vector<int>& data) {
    MPI_Bcast(data.data(), static_cast<int>(data.size()), MPI_INT, 0, MPI_COMM_WORLD);
  };
  library.call = [&](const CollectiveData& data) { Call(collective, data); };
  int code = 0;
  try {
    MeasureSizes(library.rank,
                 [&](int64_t bytes) { return MeasureCollective(library, collective, bytes); });
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    code = 1;
  }
  MPI_Finalize();
  return code;
}
