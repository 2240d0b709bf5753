// A rank that sums without end: what tests break.
#include <braid/dist.h>

#include <iostream>
#include <memory>
#include <vector>

namespace {

absl::Status Run() {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<braid::dist::World> world,
                         braid::dist::World::Init());
  std::vector<float> data(4 << 20);  // some of it is always on its way
  for (bool is_first = true;; is_first = false) {
    BRAID_RETURN_IF_ERROR(world->AllReduce(data));
    if (is_first) std::cout << "summing" << std::endl;
  }
}

}  // namespace

int main() {
  const absl::Status status = Run();
  std::cerr << "error: " << status.message() << "\n";
  return 1;
}
