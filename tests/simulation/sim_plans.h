// The plans that simulations run: the examples' jobs in every parallelism, as small as they can be
// and still have every kind of edge. One more plan is one more row in sim_plans.cc.
#pragma once

#include <braid/braid.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/device_mix.h"

namespace braid {

struct SimPlan {
  std::string name;
  std::vector<int> devices = {1};    // of each node
  std::function<void(Job&)> record;  // fetches "loss"
  // A user's own operators and kernels, as MainOptions::extend; may be empty.
  std::function<absl::Status(OpRegistry&, KernelRegistry&)> extend = {};
  std::vector<std::string> kinds = {};  // of the devices, by node; empty: CPUs
  bool collects_between_nodes = false;  // they do, by a LaggingNetwork
};

// Their data are files in `folder`, made here; they have to stay while the plans run.
std::vector<SimPlan> MakeSimPlans(const std::string& folder);

SimPlan WithDevices(SimPlan plan, DeviceMix mix);

// NOT_FOUND lists the names.
absl::StatusOr<SimPlan> FindSimPlan(const std::vector<SimPlan>& plans, const std::string& name);

}  // namespace braid
