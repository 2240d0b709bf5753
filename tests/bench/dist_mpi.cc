// What dist_bench measures, of MPI. Built by dist_bench.sh.
//
//   mpirun -n 2 dist_mpi
#include <mpi.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <span>
#include <vector>

#include "tests/bench/dist_measure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  DistLibrary library;
  MPI_Comm_rank(MPI_COMM_WORLD, &library.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &library.size);
  library.all_reduce = [](std::span<float> data) {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  };
  library.broadcast = [](std::vector<int>& data) {
    MPI_Bcast(data.data(), static_cast<int>(data.size()), MPI_INT, 0, MPI_COMM_WORLD);
  };
  int code = 0;
  try {
    MeasureSizes(library.rank, [&](int64_t bytes) { return MeasureAllReduce(library, bytes); });
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    code = 1;
  }
  MPI_Finalize();
  return code;
}
