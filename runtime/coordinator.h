// The master's end of the control plane: joins the nodes, hands out plans and credits, spreads the
// first failure. While a Run is going it only waits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control_channel.h"
#include "compiler/plan.pb.h"
#include "runtime/base/mutex.h"
#include "runtime/base/reactor.h"

namespace braid {

namespace control {
class ControlMessage;
class Hello;
}  // namespace control

// Called by one host thread; each call waits. After a failure every call returns its cause.
class Coordinator {
 public:
  explicit Coordinator(Environment* environment);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Where the channels' handlers run.
  Reactor& reactor() { return *reactor_; }

  // Takes the nodes' channels, node by node, waits for their hellos and tells each where the others
  // are. DEADLINE_EXCEEDED names the nodes that did not come.
  absl::Status Join(std::vector<std::unique_ptr<ControlChannel>> channels, Nanoseconds timeout);

  struct LoadRequest {
    uint16_t job = 0;
    std::vector<plan::Plan> plans;  // by node
    uint32_t first_collective = 0;
  };
  // Returns when every node is ready to run the job, or the first node's reason why not; then the
  // job is nowhere.
  absl::Status Load(LoadRequest request);

  struct RunRequest {
    uint16_t job = 0;
    int64_t first_step = 0;
    int64_t steps = 1;
  };
  absl::Status Run(const RunRequest& request);
  void Unload(uint16_t job);
  // What every actor of the job waits for, a line each.
  absl::StatusOr<std::vector<std::string>> Describe(uint16_t job);

  // Ends the session on all nodes and waits until nothing runs there any more.
  void Close();

 private:
  // What the host thread waits for.
  struct Wait {
    int kind = 0;  // of the message that answers
    uint16_t job = 0;
    std::set<uint16_t> nodes;  // that have not answered
    absl::Status status;       // the first error
    std::vector<std::string> lines;
    std::unique_ptr<Event> event;
  };
  struct Peer {
    std::unique_ptr<ControlChannel> channel;
    std::unique_ptr<control::Hello> hello;
    bool is_closed = false;  // by the reactor's thread, under mutex_
  };

  void OnMessage(uint16_t node, const std::string& bytes);
  void OnFailure(uint16_t node, const absl::Status& cause);
  void Send(uint16_t node, const control::ControlMessage& message);
  void SendAll(const control::ControlMessage& message);
  void BeginWait(int kind, uint16_t job);
  // `answer` counts only for what is waited for: others came too late.
  struct AnswerFrom {
    uint16_t node;
    int kind;
    uint32_t job;
  };
  void Answer(const AnswerFrom& from, const absl::Status& status,
              std::vector<std::string> lines = {});
  absl::StatusOr<std::vector<std::string>> FinishWait(Nanoseconds timeout);

  Environment* const environment_;
  std::unique_ptr<Reactor> reactor_;
  std::vector<Peer> peers_;  // fixed after Join
  Mutex mutex_;
  Wait wait_ GUARDED_BY(mutex_);
  absl::Status failure_ GUARDED_BY(mutex_);
  bool is_closing_ GUARDED_BY(mutex_) = false;
};

}  // namespace braid
