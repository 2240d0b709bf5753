// The actor threads of one node, and the way from one actor to another: straight, through the other
// thread's mailbox, or out of the node through whoever knows its links.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actor/actor.h"
#include "actor/actor_spec.h"
#include "actor/actor_thread.h"
#include "actor/mailbox.h"
#include "actor/message.h"
#include "actor/remote_sender.h"

namespace braid {

class MessageBus {
 public:
  // `remote` may be nullptr where no actor has a peer on another node.
  MessageBus(uint16_t node, RemoteSender* remote);
  MessageBus(const MessageBus&) = delete;
  MessageBus& operator=(const MessageBus&) = delete;

  // After the last AddActor: checks that both ends of each edge inside the node say the same,
  // resolves peers to addresses, and lets the reactors poll their threads. INVALID_ARGUMENT names
  // the two ends that disagree.
  absl::Status Start();

  // A message from another node. Any thread, after all threads were made. INVALID_ARGUMENT if it is
  // for no thread of this node; whatever else is wrong with it fails the thread that it is for.
  absl::Status Deliver(const Message& message);

  uint16_t node() const { return node_; }
  // nullptr where no actor has a peer on another node.
  RemoteSender* remote() const { return remote_; }

  // For ActorThread's constructor. There is one thread of each number.
  void AddThread(ActorThread* thread);

 private:
  size_t MailsFromOthers(const ActorThread& thread) const;
  absl::Status ConnectInput(Actor& actor, uint32_t port);
  absl::Status ConnectOutput(Actor& actor, uint32_t port);
  absl::StatusOr<OtherEnd> FindProducer(const Actor& actor, const InputSpec& input) const;
  absl::StatusOr<OtherEnd> FindConsumer(const Actor& actor, const OutputSpec& output,
                                        const ActorId& id) const;
  // If `end` is on another thread than `actor`, gives it an inbox and a mail for each slot in place
  // of its actor. `message`: what all these mails say.
  void MakeMails(const Actor& actor, uint32_t slots, const Message& message, OtherEnd& end);
  // The actor with this address; nullptr if its node has none. For addresses of this node.
  Actor* Find(const ActorId& id) const;

  const uint16_t node_;
  RemoteSender* const remote_;
  std::vector<ActorThread*> threads_;  // by number; nullptr where there is none
  // Owned here because a mail may lie unread in one thread when another is destroyed.
  std::vector<std::unique_ptr<Mail[]>> mails_;
};

}  // namespace braid
