// How processes become the nodes of a cluster: the master listens, every other node dials it and
// asks to join; what must be equal everywhere is compared; then each has a control connection to
// the master. Says who is missing while it waits, and why nobody joins that should not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/control/control_connection.h"
#include "comm/network/acceptor.h"
#include "comm/network/network.h"
#include "runtime/base/reactor.h"

namespace braid {

namespace join {
class JoinRequest;
class Opening;
}  // namespace join

// What a process says of itself.
struct NodeIdentity {
  uint16_t node = 0;
  int num_nodes = 1;
  std::string build;  // fingerprint of the program's file
  // What was given to all alike, as one text: the canonical node list, or what `braid launch` was
  // told. "": nothing, as where only a launcher knows the nodes.
  std::string agreed;
  std::string devices;  // "cpu:2"
  std::string host;     // the system's name
  uint32_t pid = 0;
  uint64_t memory_bytes = 0;   // of the machine
  uint64_t process_bytes = 0;  // that the process may take of them; 0: all
  std::string rates;           // what the machine was measured to do; "": it was not
  // How its devices do collectives with those of other nodes, and which cards they are
  // (ReachBetweenNodes); "": they do not.
  std::string device_library;
  std::vector<std::string> cards;
};

// "has another node list: ...; give the same file to every node".
std::string NodeListDifference(const std::string& master_list, const std::string& node_list);

// What users call what they have to change, for messages.
struct JoiningWords {
  std::string member = "node";
  std::string limit = "--join_timeout";
  std::string what = "node rank";
  std::string number = "--node_rank";
  std::string list = "node list";
  std::string port = "the node list's, or --ctrl_port";
};

// How a process reaches the master.
struct WayToMaster {
  std::vector<SocketAddress> addresses;  // tried in order
  SocketAddress from;                    // none: the system knows the way
};

struct RendezvousOptions {
  Environment* environment = nullptr;
  NodeIdentity self;
  std::string secret;
  Nanoseconds join_timeout = 60 * kSecond;
  Nanoseconds progress_interval = 5 * kSecond;
  Nanoseconds heartbeat = kSecond;
  Nanoseconds heartbeat_limit = 5 * kSecond;
  // "node 2 (10.0.0.3)", for messages.
  std::function<std::string(int node)> name_of;
  JoiningWords words = {};
  // What the master says of a member whose `agreed` is another: "has another node list: ...".
  std::function<std::string(const std::string& master, const std::string& member)> difference =
      NodeListDifference;
  Network* network = SystemNetwork();  // where a client dials
  // The nodes that are at this address, whatever the port, as far as that is known. May be empty.
  std::function<std::vector<int>(const SocketAddress&)> nodes_at;
  // Where the master says anew how it is reached and what proves that one belongs to it, a client
  // asks this before each round of dialing, on the reactor's thread. UNAVAILABLE: it has not said
  // so yet; any other error ends the joining. Empty: all is known from the start.
  struct Master {
    WayToMaster way;
    std::string secret;
    bool is_certain = false;  // false: it may be one that has gone, and another's port by now
  };
  std::function<absl::StatusOr<Master>()> find_master;
};

// A node that has joined, as the master sees it.
struct JoinedNode {
  NodeIdentity identity;
  std::shared_ptr<ControlConnection> connection;
};

// The master's side: lives as long as the session, since `braid status` asks it, too.
class RendezvousServer {
 public:
  // Listens at once: who dials early waits in the sockets' backlog.
  RendezvousServer(RendezvousOptions options, std::vector<Socket> listeners);
  // Closes what is still open; what was sent last still goes out.
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  // The host thread waits: all other nodes, in order. DEADLINE_EXCEEDED names those that did not
  // come; any other error is why one of them must not, which every process is told that came by
  // then or half a second later.
  absl::StatusOr<std::vector<JoinedNode>> Join();
  // Ends Join. Any thread.
  void Abort(const absl::Status& reason);

  // Answers `braid status`: `source` is called on the reactor's thread and calls back at most once
  // with the text, from any thread. Waits until an earlier one is not called any more.
  using StatusSource = std::function<void(std::function<void(std::string)>)>;
  void SetStatusSource(StatusSource source);

  Reactor& reactor() { return *reactor_; }

 private:
  // All on the reactor's thread.
  void Accept(Socket socket);
  void OnGreeted(const SocketAddress& address, absl::StatusOr<Socket> socket);
  void OnOpening(uint64_t stranger, const std::string& bytes);
  void OnJoinRequest(uint64_t stranger, const join::JoinRequest& request);
  absl::Status CheckRequest(const join::JoinRequest& request, const std::string& who) const;
  void Refuse(ControlConnection& connection, const absl::Status& reason);
  void OnLost(uint16_t node, const absl::Status& reason);
  void DropStranger(uint64_t stranger);
  void Report();
  void SayWhoIsMissing();
  std::vector<std::string> Missing() const;
  std::string DescribeMissing() const;
  // `delay`: how long others may still come and be told before Join returns.
  void Finish(const absl::Status& status, Nanoseconds delay = 0);
  // Behind all that connections were told to send so far.
  void EndJoin();

  const RendezvousOptions options_;
  std::unique_ptr<Event> finished_;
  std::unique_ptr<Event> flushed_;

  // The reactor's thread only; what Join reads, it reads after finished_.
  std::optional<Acceptor> acceptor_;  // since the thread has begun
  std::map<uint16_t, JoinedNode> nodes_;
  std::map<uint64_t, std::shared_ptr<ControlConnection>> strangers_;  // that have not said why
  std::vector<std::weak_ptr<ControlConnection>> asking_;              // for the status
  uint64_t next_stranger_ = 1;
  int came_ = 0;      // requests to join
  int greeting_ = 0;  // handshakes under way
  int sockets_ = 0;   // connections whose sockets are open
  bool is_finished_ = false;
  bool is_ending_ = false;
  absl::Status status_;
  std::string last_refusal_;
  struct Refusal {
    std::string why;
    Nanoseconds when = 0;
  };
  std::map<uint16_t, Refusal> refusal_of_;  // the last, of whom the address is known
  int refusals_ = 0;
  Nanoseconds began_ = 0;
  StatusSource status_source_;

  // Last: while it ends it still calls what is above, which finds it here.
  std::unique_ptr<Reactor> reactor_;
};

// The other nodes' side.
class RendezvousClient {
 public:
  // `master`: its addresses, tried in order and again until the join timeout; none if there is a
  // find_master. `from`: the local address to use, or none.
  RendezvousClient(RendezvousOptions options, std::vector<SocketAddress> master,
                   SocketAddress from);
  ~RendezvousClient();
  RendezvousClient(const RendezvousClient&) = delete;
  RendezvousClient& operator=(const RendezvousClient&) = delete;

  // The host thread waits: this node's connection to the master once everybody is there.
  absl::StatusOr<std::shared_ptr<ControlConnection>> Join();
  // The same without waiting: `joined` is called once, on the reactor's thread, at the latest while
  // this is destroyed.
  using JoinedCallback =
      std::function<void(absl::StatusOr<std::shared_ptr<ControlConnection>> connection)>;
  void StartJoin(JoinedCallback joined);
  // What the job waits for, as `braid status` prints it.
  absl::StatusOr<std::string> AskStatus();
  // Ends Join or AskStatus. Any thread.
  void Abort(const absl::Status& reason);

  // The address by which this node reached the master; after Join.
  const SocketAddress& local_address() const { return local_address_; }
  Reactor& reactor() { return *reactor_; }

 private:
  // `opened` is called as Finish is.
  void Open(const join::Opening& opening, std::function<void(const absl::Status&)> opened);
  absl::Status AwaitFinished();
  // All on the reactor's thread.
  void Dial();
  bool FindMaster();  // false: not now
  void OnDialed(Socket socket, const SocketAddress& address);
  void Retry(const SocketAddress& address, const absl::Status& reason);
  void OnGreeted(const SocketAddress& address, absl::StatusOr<Socket> socket);
  void OnAnswer(const std::string& bytes);
  void Report();
  void Finish(const absl::Status& status);

  const RendezvousOptions options_;
  std::unique_ptr<Event> finished_;
  std::unique_ptr<Event> flushed_;

  // The reactor's thread only; what the host thread reads, it reads after finished_.
  RendezvousOptions::Master master_;
  std::string what_;        // what this end wants, for messages
  std::string limit_flag_;  // by which its limit can be changed
  std::string opening_;
  size_t next_address_ = 0;
  std::string attempt_;      // of dialing, that is under way
  std::string last_error_;   // of dialing
  std::string waiting_for_;  // the master says, once it has accepted
  Socket dialing_;
  std::optional<TimerId> dial_timer_;
  std::shared_ptr<ControlConnection> connection_;
  std::weak_ptr<ControlConnection> given_away_;
  SocketAddress local_address_;
  std::function<void(const absl::Status&)> opened_;
  absl::StatusOr<std::shared_ptr<ControlConnection>> joined_;
  std::string text_;
  int sockets_ = 0;
  bool is_finished_ = false;
  bool is_ending_ = false;
  absl::Status status_;
  Nanoseconds began_ = 0;

  // Last: while it ends it still calls what is above, which finds it here.
  std::unique_ptr<Reactor> reactor_;
};

}  // namespace braid
