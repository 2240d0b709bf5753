// Process groups: the user starts one process a rank, and says what each does. Collectives among
// the ranks run over the same links and algorithms as compiled jobs; each call is compared with
// what the other ranks call, and the first failure is the same error on all of them.
//
//   auto world = dist::World::Init();
//   if (!world.ok()) ...
//   std::vector<float> gradient = ...;
//   absl::Status summed = (*world)->AllReduce(gradient, dist::ReduceOp::kAverage);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ranges>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/reduction.h"
#include "comm/cluster/launcher_environment.h"
#include "graph/source_location.h"
#include "runtime/array.h"
#include "runtime/base/memory.h"
#include "runtime/group/element_type.h"

namespace braid {
class Interruption;
struct NetworkOptions;
class Membership;
class WorldSeat;
}  // namespace braid

namespace braid::dist {

// Elements of the caller's: an Array, or a std::span, std::vector, std::array or any contiguous
// range of trivially copyable elements, which stay where they are until the call is done.
struct ConstBuffer {
  template <std::ranges::contiguous_range R>
  requires std::is_trivially_copyable_v<std::ranges::range_value_t<R>> ConstBuffer(
      const R& range)  // NOLINT(google-explicit-constructor)
      : data(std::ranges::data(range)),
        count(static_cast<int64_t>(std::ranges::size(range))),
        type(ElementTypeOf<std::ranges::range_value_t<R>>()),
        element_size(sizeof(std::ranges::range_value_t<R>)) {}
  ConstBuffer(const Array& array);  // NOLINT(google-explicit-constructor)

  const void* data;
  int64_t count;
  ElementType type;
  int64_t element_size;
};

struct Buffer {
  template <std::ranges::contiguous_range R>
  requires std::is_trivially_copyable_v<std::ranges::range_value_t<R>> &&
      (!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
          Buffer(R&& range)  // NOLINT(google-explicit-constructor)
      : data(std::ranges::data(range)),
        count(static_cast<int64_t>(std::ranges::size(range))),
        type(ElementTypeOf<std::ranges::range_value_t<R>>()),
        element_size(sizeof(std::ranges::range_value_t<R>)) {}
  Buffer(Array& array);  // NOLINT(google-explicit-constructor)

  void* data;
  int64_t count;
  ElementType type;
  int64_t element_size;
};

struct CallOptions {
  std::string name = {};  // in messages; the same on all ranks
  // For the whole call; the session ends with DEADLINE_EXCEEDED on all ranks, which names those
  // that did not come. Zero: the world's.
  absl::Duration timeout = absl::ZeroDuration();
};

// A call under way. Movable; its destructor waits. Belongs to one thread at a time.
class Work {
 public:
  Work() = default;  // one that is done
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // Until the call is done: nobody reads its input or touches its output any more.
  absl::Status Wait();
  // Whether Wait would return at once.
  bool Test() const;
  // What Wait would return, once the call is done; OK until then, so ask Test() whether it is. Does
  // not wait.
  absl::Status status() const;

 private:
  friend class Group;
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// One part of an exchange: a send of `data` to a rank of the group, or a receive of it from there.
struct Transfer {
  static Transfer SendTo(int rank, ConstBuffer data, int tag = 0) { return {rank, data, tag}; }
  static Transfer ReceiveFrom(int rank, Buffer data, int tag = 0) { return {rank, data, tag}; }

  int rank;
  std::variant<ConstBuffer, Buffer> data;
  int tag;
};

class Batch;
class Store;
class Window;
class World;
struct GroupCall;

// Some ranks of a world, which make the same calls in the same order. The calls of one group are
// made one after the other, those of several groups beside each other, and so are sends and
// receives, which two ranks make. Belongs to one thread at a time: while one of its calls blocks,
// there is no other. So ranks that block in calls which wait for each other are an error at once.
//
// Errors: INVALID_ARGUMENT for arguments that are wrong by themselves, on this rank, and then the
// call is not made. What only shows when ranks are compared (another kind of call, type, operation,
// count or root; a rank that has ended its part; one that does not come in time) ends the world
// with the same error on all ranks, which names ranks, calls and lines; each later call returns it.
class Group {
 public:
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;  // of this process, in the group
  int size() const;
  // Whether the ranks make calls in each other's memory, without messages: all are of one machine,
  // and links between them are of the transport shm. Known once a collective was made.
  bool IsDirect() const;
  // By which algorithm the last collective of this rank went: "direct", "exchange", "ring",
  // "hierarchical", "doubling", "pairwise" (comm/README.md); "" before the first. For reports.
  std::string LastAlgorithm() const;

  // Each returns when this rank's part is done, which may be when all ranks have come. Start...
  // returns at once; the buffers stay until its Work is done. Counts are in elements.

  // In place: the sum (or what `op` says) over all ranks, the same bits on each.
  absl::Status AllReduce(Buffer data, const Reduction& op = ReduceOp::kSum,
                         const CallOptions& options = {}, SourceLocation where = Here());
  Work StartAllReduce(Buffer data, const Reduction& op = ReduceOp::kSum,
                      const CallOptions& options = {}, SourceLocation where = Here());
  // The same, but only at the root; elsewhere `data` stays as it is.
  absl::Status Reduce(Buffer data, int root, const Reduction& op = ReduceOp::kSum,
                      const CallOptions& options = {}, SourceLocation where = Here());
  Work StartReduce(Buffer data, int root, const Reduction& op = ReduceOp::kSum,
                   const CallOptions& options = {}, SourceLocation where = Here());
  // Every rank gets the root's data.
  absl::Status Broadcast(Buffer data, int root, const CallOptions& options = {},
                         SourceLocation where = Here());
  Work StartBroadcast(Buffer data, int root, const CallOptions& options = {},
                      SourceLocation where = Here());
  // `output`: the inputs of all ranks in their order. `counts`: of each rank; empty: all alike.
  absl::Status AllGather(ConstBuffer input, Buffer output, const std::vector<int64_t>& counts = {},
                         const CallOptions& options = {}, SourceLocation where = Here());
  Work StartAllGather(ConstBuffer input, Buffer output, const std::vector<int64_t>& counts = {},
                      const CallOptions& options = {}, SourceLocation where = Here());
  // The same, but only at the root; elsewhere `output` may be empty, and so may `counts`, of which
  // the others know their own.
  absl::Status Gather(ConstBuffer input, Buffer output, int root,
                      const std::vector<int64_t>& counts = {}, const CallOptions& options = {},
                      SourceLocation where = Here());
  Work StartGather(ConstBuffer input, Buffer output, int root,
                   const std::vector<int64_t>& counts = {}, const CallOptions& options = {},
                   SourceLocation where = Here());
  // `input`: a block for each rank in their order; `output`: the own one, reduced over all ranks.
  absl::Status ReduceScatter(ConstBuffer input, Buffer output, const Reduction& op = ReduceOp::kSum,
                             const std::vector<int64_t>& counts = {},
                             const CallOptions& options = {}, SourceLocation where = Here());
  Work StartReduceScatter(ConstBuffer input, Buffer output, const Reduction& op = ReduceOp::kSum,
                          const std::vector<int64_t>& counts = {}, const CallOptions& options = {},
                          SourceLocation where = Here());
  // The root's input has a block for each rank; elsewhere it may be empty.
  absl::Status Scatter(ConstBuffer input, Buffer output, int root,
                       const std::vector<int64_t>& counts = {}, const CallOptions& options = {},
                       SourceLocation where = Here());
  Work StartScatter(ConstBuffer input, Buffer output, int root,
                    const std::vector<int64_t>& counts = {}, const CallOptions& options = {},
                    SourceLocation where = Here());
  // A block to each rank, one from each, in their order. `sends`, `receives`: how many elements;
  // empty: all alike.
  absl::Status AllToAll(ConstBuffer input, Buffer output, const std::vector<int64_t>& sends = {},
                        const std::vector<int64_t>& receives = {}, const CallOptions& options = {},
                        SourceLocation where = Here());
  Work StartAllToAll(ConstBuffer input, Buffer output, const std::vector<int64_t>& sends = {},
                     const std::vector<int64_t>& receives = {}, const CallOptions& options = {},
                     SourceLocation where = Here());
  // Returns when all ranks have called it.
  absl::Status Barrier(const CallOptions& options = {}, SourceLocation where = Here());
  Work StartBarrier(const CallOptions& options = {}, SourceLocation where = Here());

  // Of one rank to another, or to itself. Two ranks match their calls with one tag (0 or more) in
  // the order in which they make them; elements, count, tag and name must be the same. A send is
  // done when `data` may be changed, which is not before the other rank has come to its receive:
  // ranks that send to each other do so in one Exchange, or start one of the two.
  absl::Status Send(ConstBuffer data, int to, int tag = 0, const CallOptions& options = {},
                    SourceLocation where = Here());
  Work StartSend(ConstBuffer data, int to, int tag = 0, const CallOptions& options = {},
                 SourceLocation where = Here());
  absl::Status Receive(Buffer data, int from, int tag = 0, const CallOptions& options = {},
                       SourceLocation where = Here());
  Work StartReceive(Buffer data, int from, int tag = 0, const CallOptions& options = {},
                    SourceLocation where = Here());
  // All of these sends and receives beside each other.
  absl::Status Exchange(const std::vector<Transfer>& transfers, const CallOptions& options = {},
                        SourceLocation where = Here());
  Work StartExchange(const std::vector<Transfer>& transfers, const CallOptions& options = {},
                     SourceLocation where = Here());

  // All ranks call it, and each opens memory of its own to the others, of any size, but of one
  // element type (api/dist_window.h). The memory lasts until the window is closed or destroyed. The
  // timeout is also that of the window's calls.
  absl::StatusOr<std::unique_ptr<Window>> MakeWindow(Buffer memory, const CallOptions& options = {},
                                                     SourceLocation where = Here());
  // The calls of a batch (api/dist_batch.h). The timeout is that of each of them.
  absl::Status Run(const Batch& batch, const CallOptions& options = {},
                   SourceLocation where = Here());
  Work StartRun(const Batch& batch, const CallOptions& options = {}, SourceLocation where = Here());

 protected:
  class Impl;
  explicit Group(std::unique_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;  // its windows have it, too
  friend class World;
  friend class Window;

 private:
  // The calls of its windows.
  static absl::Status RunCalls(Impl& impl, absl::StatusOr<std::vector<GroupCall>> calls,
                               const CallOptions& options);
  static Work StartCalls(Impl& impl, absl::StatusOr<std::vector<GroupCall>> calls,
                         const CallOptions& options);
};

struct GroupOptions {
  // The only algorithm of its collectives, to measure it: "direct" (where links are of the
  // transport shm), "exchange", "ring", "hierarchical", "doubling", "pairwise" (comm/README.md);
  // what it cannot do is an error on each rank, but direct calls on memory that cannot be lent go
  // by the ring. "": by the table.
  std::string algorithm = {};
};

struct InitOptions {
  // "env://": the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (29500 if it is not set).
  // "tcp://HOST:PORT?rank=R&world_size=N": rank 0 listens at HOST:PORT; what is not in the address
  // is taken from below. "file:///PATH?rank=R&world_size=N": rank 0 listens at a free port, of this
  // machine only if there is no secret, says so in the file, which all ranks can read, and removes
  // it at the end; what an earlier run left there is replaced, and what is not in the address is
  // taken from below or from RANK and WORLD_SIZE. "": "env://" if RANK or WORLD_SIZE is set, else
  // what mpirun, mpiexec, srun or `braid launch` of nodes say (comm/cluster/launcher_environment.h;
  // the port is MASTER_PORT, or 29500), else a world of one.
  std::string init_method = {};
  int rank = -1;        // -1: as the method says
  int world_size = -1;  // -1: as the method says
  // Of the joining, and of each call that says no other.
  absl::Duration timeout = absl::Minutes(5);
  // As a session's (README, "Several machines"). "": BRAID_AUTH_TOKEN.
  std::string secret = {};
  bool is_insecure = false;  // other addresses than loopback, too, without a secret
  std::string interface = {};
  std::string transport = {};  // those that may be used, "tcp"; "": shm and tcp
  // For the transport rdma: the device, "mlx5_0:1" or "mlx5_0", and the number of the GID in its
  // port's table. With "" and -1 both are chosen by this rank's address on the way to each other.
  std::string rdma_device = {};
  int rdma_gid = -1;
  // Without progress for so long, in a call or in a session's job, rank 0 prints what everything
  // waits for. 0: never.
  absl::Duration stall_timeout = absl::Seconds(60);
  std::string event_dump = {};  // as a session's
  EnvironmentVariables environment = EnvironmentVariable;
  // As a session's. Borrowed; ends the world on all ranks with its reason.
  Interruption* interruption = nullptr;
  // The first cause of a failure of the world, as soon as it is known here; any thread, maybe
  // twice.
  std::function<void(const absl::Status&)> on_failure = {};
};

// All ranks: the group that calls are made on, and the making of smaller ones. Made and destroyed
// by one thread; several worlds in a process do not know of each other.
class World : public Group {
 public:
  // Waits for all ranks. Errors, on every rank that came: a variable that is missing or no number,
  // a rank that is out of range or taken twice, other world sizes, other binaries, a rank that did
  // not come.
  static absl::StatusOr<std::unique_ptr<World>> Init(const InitOptions& options = {});
  // As Init, but `network` (api/network.h) says where the ranks meet, who this one is, and by whose
  // clock and sockets it waits; its cluster's nodes are the ranks. Null: a world of one. Of the
  // options only timeout, stall_timeout, event_dump, interruption and on_failure are read, and of
  // the environment what local_rank and local_size are taken from.
  static absl::StatusOr<std::unique_ptr<World>> Join(const NetworkOptions* network,
                                                     const InitOptions& options = {});
  // Closes it, unless that was done.
  ~World();

  // Of this process among those that a launcher started on this machine, from 0, and how many these
  // are: LOCAL_RANK and LOCAL_WORLD_SIZE, as Spawn, `braid launch --nproc_per_node` and torchrun
  // set them, else what mpirun, mpiexec or srun say (comm/cluster/launcher_environment.h). 0 and 1
  // if none of them says it; the size is 0 if there is LOCAL_RANK alone.
  int local_rank() const;
  int local_size() const;

  // The ranks of the world that are in the list, in its order: rank i of the group is ranks[i].
  // Only they call it, each with the same list and options; a list that was used before gives
  // another group. INVALID_ARGUMENT for a rank that is twice in it or not in the world, if this one
  // is not in it, and for an algorithm that there is not.
  absl::StatusOr<std::unique_ptr<Group>> NewGroup(const std::vector<int>& ranks,
                                                  const GroupOptions& options = {});

  // Zeros that the other ranks of this machine read and write where they lie, if the transport can.
  // Alloc (api/dist_memory.h) has them as elements. INVALID_ARGUMENT for a negative number,
  // RESOURCE_EXHAUSTED for more than this process may have. Any thread.
  absl::StatusOr<Memory> Allocate(int64_t bytes);

  // What all ranks know by name (api/dist_store.h), as long as this world is. Any thread.
  Store& store() const;

  // This rank makes no calls any more. Waits until no rank does and returns OK, or the cause if the
  // world has failed. With a `cause`: ends the world with it on all ranks at once.
  absl::Status Close(const absl::Status& cause = absl::OkStatus());

 private:
  class Member;
  World(std::unique_ptr<Impl> impl, std::shared_ptr<Member> member);
  const std::shared_ptr<Membership>& membership() const;
  friend class Group;
  friend class braid::WorldSeat;
  const std::shared_ptr<Member> member_;
};

}  // namespace braid::dist
