#include "comm/rdma/verbs.h"

#include <dlfcn.h>

#include "absl/strings/str_format.h"

namespace braid {
namespace {

constexpr char kVerbsFile[] = "libibverbs.so.1";

template <typename Function>
void FindVerb(void* library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

}  // namespace

// It stays open: what it gives is used as long as the process lasts.
absl::StatusOr<Verbs> OpenVerbs() {
  void* const library = dlopen(kVerbsFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s cannot be opened (%s); install the packages libibverbs1 and "
                        "ibverbs-providers",
                        kVerbsFile, dlerror()));
  }
  Verbs verbs;
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    FindVerb(library, name, function, missing);
  };
  find("ibv_get_device_list", verbs.get_device_list);
  find("ibv_free_device_list", verbs.free_device_list);
  find("ibv_get_device_name", verbs.get_device_name);
  find("ibv_open_device", verbs.open_device);
  find("ibv_close_device", verbs.close_device);
  find("ibv_query_device", verbs.query_device);
  find("ibv_query_port", verbs.query_port);
  find("_ibv_query_gid_ex", verbs.query_gid);
  find("ibv_alloc_pd", verbs.alloc_pd);
  find("ibv_dealloc_pd", verbs.dealloc_pd);
  find("ibv_reg_mr", verbs.reg_mr);
  find("ibv_dereg_mr", verbs.dereg_mr);
  find("ibv_create_comp_channel", verbs.create_comp_channel);
  find("ibv_destroy_comp_channel", verbs.destroy_comp_channel);
  find("ibv_create_cq", verbs.create_cq);
  find("ibv_destroy_cq", verbs.destroy_cq);
  find("ibv_get_cq_event", verbs.get_cq_event);
  find("ibv_ack_cq_events", verbs.ack_cq_events);
  find("ibv_create_qp", verbs.create_qp);
  find("ibv_modify_qp", verbs.modify_qp);
  find("ibv_destroy_qp", verbs.destroy_qp);
  find("ibv_get_async_event", verbs.get_async_event);
  find("ibv_ack_async_event", verbs.ack_async_event);
  find("ibv_wc_status_str", verbs.wc_status_str);
  find("ibv_event_type_str", verbs.event_type_str);
  if (missing.empty()) return verbs;
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s has no function %s; install the package libibverbs1 of version 32 or newer", kVerbsFile,
      missing));
}

}  // namespace braid
