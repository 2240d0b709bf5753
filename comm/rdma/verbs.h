// What Braid calls of libibverbs, which is opened when the program runs: where it is missing the
// program starts all the same, and everything but rdma works. Its header has the types, and what a
// device's driver does without the library: posting and polling.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace braid {

// As in the header; what is a macro there is a function of the same meaning here.
struct Verbs {
  decltype(&ibv_get_device_list) get_device_list = nullptr;
  decltype(&ibv_free_device_list) free_device_list = nullptr;
  decltype(&ibv_get_device_name) get_device_name = nullptr;
  decltype(&ibv_open_device) open_device = nullptr;
  decltype(&ibv_close_device) close_device = nullptr;
  decltype(&ibv_query_device) query_device = nullptr;
  int (*query_port)(ibv_context* context, uint8_t port,
                    _compat_ibv_port_attr* attributes) = nullptr;
  int (*query_gid)(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                   uint32_t flags, size_t entry_bytes) = nullptr;
  decltype(&ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&ibv_dealloc_pd) dealloc_pd = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* address, size_t bytes, int access) = nullptr;
  decltype(&ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&ibv_create_cq) create_cq = nullptr;
  decltype(&ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&ibv_create_qp) create_qp = nullptr;
  decltype(&ibv_modify_qp) modify_qp = nullptr;
  decltype(&ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&ibv_get_async_event) get_async_event = nullptr;
  decltype(&ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&ibv_wc_status_str) wc_status_str = nullptr;
  decltype(&ibv_event_type_str) event_type_str = nullptr;
};

// FAILED_PRECONDITION: the library is not here, with what the loader says and the package to
// install; or it is too old.
absl::StatusOr<Verbs> OpenVerbs();

}  // namespace braid
