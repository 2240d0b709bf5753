// A rank that sums without end or, told to `wait`, waits in the store for what does not come: what
// tests break.
#include <braid/dist.h>

#include <iostream>
#include <memory>
#include <string_view>
#include <vector>

namespace {

absl::Status Run(bool waits) {
  BRAID_ASSIGN_OR_RETURN(const std::unique_ptr<braid::dist::World> world,
                         braid::dist::World::Init());
  if (waits) {
    BRAID_RETURN_IF_ERROR(world->Barrier());
    std::cout << "waiting" << std::endl;
    return world->store().Get("what does not come").status();
  }
  std::vector<float> data(4 << 20);  // some of it is always on its way
  for (bool is_first = true;; is_first = false) {
    BRAID_RETURN_IF_ERROR(world->AllReduce(data));
    if (is_first) std::cout << "summing" << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 && std::string_view(argv[1]) == "wait");
  std::cerr << "error: " << status.message() << "\n";
  return 1;
}
