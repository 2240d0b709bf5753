#include "comm/control/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "comm/control/secret.h"
#include "comm/little_endian.h"
#include "glog/logging.h"
#include "runtime/base/random_bytes.h"
#include "runtime/base/status.h"

namespace braid {
namespace {

constexpr std::string_view kHandshakeMagic = "BRAIDCTL";
constexpr size_t kNonceBytes = 32;
constexpr size_t kProofBytes = 32;
constexpr size_t kNonceAt = 16;
constexpr size_t kGreetingBytes = kNonceAt + kNonceBytes;
constexpr size_t kVerdictBytes = 4 + kProofBytes;
constexpr uint32_t kHasSecret = 1;
constexpr uint32_t kAccepted = 1;
constexpr uint32_t kWrongSecret = 2;

using Greeting = std::array<std::byte, kGreetingBytes>;
using Proof = std::array<std::byte, kProofBytes>;

Greeting MakeGreeting(bool has_secret) {
  Greeting greeting;
  std::memcpy(greeting.data(), kHandshakeMagic.data(), kHandshakeMagic.size());
  PutLittleEndian(std::span<std::byte>(greeting), 8, kControlWireVersion);
  PutLittleEndian(std::span<std::byte>(greeting), 12, has_secret ? kHasSecret : 0u);
  CHECK(FillRandom(std::span(greeting).subspan(kNonceAt)).ok());
  return greeting;
}

class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  Handshake(Socket socket, HandshakeOptions options,
            std::function<void(absl::StatusOr<Socket>)> done)
      : options_(std::move(options)),
        is_dialer_(options_.side == HandshakeSide::kDialer),
        socket_(std::move(socket)),
        done_(std::move(done)),
        own_(MakeGreeting(!options_.secret.empty())) {}

  void Start() {
    const absl::Status watched =
        options_.reactor->Watch(socket_.descriptor(), {.readable = true},
                                [self = shared_from_this()](Reactor::Readiness) { self->Read(); });
    if (!watched.ok()) return Finish(watched);
    timer_ = options_.reactor->RunAfter(options_.timeout, [self = shared_from_this()] {
      self->timer_.reset();
      self->Finish(absl::DeadlineExceededError(absl::StrFormat(
          "%s said nothing that could be Braid's greeting within %.1f s", self->options_.peer,
          static_cast<double>(self->options_.timeout) / kSecond)));
    });
    if (is_dialer_ && !Write(own_)) return;
    Expect(kGreetingBytes, &Handshake::OnGreeting);
  }

 private:
  using Step = void (Handshake::*)();

  void Expect(size_t bytes, Step step) {
    expected_ = bytes;
    step_ = step;
    in_.clear();
  }

  // These few bytes always fit into a fresh socket's buffer.
  bool Write(std::span<const std::byte> bytes) {
    const IoResult sent = socket_.Write(bytes);
    if (sent.bytes == bytes.size()) return true;
    Finish(absl::UnavailableError(absl::StrFormat(
        "%s: %s", options_.peer, sent.error != 0 ? sent.ErrorText() : "it takes no greeting")));
    return false;
  }

  // Never reads more than what is expected: what follows is for others.
  void Read() {
    const auto self = shared_from_this();
    while (!is_done_) {
      std::array<std::byte, 64> buffer;
      const size_t wanted = std::min(buffer.size(), expected_ - in_.size());
      const IoResult got = socket_.Read(std::span(buffer).first(wanted));
      if (got.is_blocked()) return;
      if (got.bytes == 0) {
        return Finish(absl::UnavailableError(absl::StrFormat(
            "%s %s", options_.peer,
            got.error != 0 ? got.ErrorText() : "closed the connection during the greeting")));
      }
      in_.insert(in_.end(), buffer.begin(), buffer.begin() + got.bytes);
      if (in_.size() == expected_) (this->*step_)();
    }
  }

  void OnGreeting() {
    std::memcpy(peer_.data(), in_.data(), kGreetingBytes);
    if (std::memcmp(peer_.data(), kHandshakeMagic.data(), kHandshakeMagic.size()) != 0) {
      return Finish(absl::InvalidArgumentError(
          absl::StrFormat("%s is not Braid: its first bytes are '%s'", options_.peer,
                          absl::CHexEscape(std::string(reinterpret_cast<const char*>(peer_.data()),
                                                       kHandshakeMagic.size())))));
    }
    if (!is_dialer_ && !Write(own_)) return;
    const auto version = GetLittleEndian<uint32_t>(peer_, 8);
    if (version != kControlWireVersion) {
      return Finish(absl::FailedPreconditionError(absl::StrFormat(
          "%s speaks version %d of the control protocol and this binary version %d; start the "
          "same binary on every node",
          options_.peer, version, kControlWireVersion)));
    }
    const bool has_secret = (GetLittleEndian<uint32_t>(peer_, 12) & kHasSecret) != 0;
    if (has_secret == options_.secret.empty()) {
      return Finish(absl::UnauthenticatedError(
          absl::StrFormat("%s has %s shared secret and this process has %s; give both the same by "
                          "BRAID_AUTH_TOKEN or --auth_token_file",
                          options_.peer, has_secret ? "a" : "no", has_secret ? "none" : "one")));
    }
    if (is_dialer_) {
      if (!Write(ProofOf("dialer"))) return;
      return Expect(kVerdictBytes, &Handshake::OnVerdict);
    }
    Expect(kProofBytes, &Handshake::OnProof);
  }

  void OnProof() {
    const Proof own = ProofOf("dialer");
    const bool is_right = CRYPTO_memcmp(in_.data(), own.data(), own.size()) == 0;
    std::array<std::byte, kVerdictBytes> verdict{};
    PutLittleEndian(std::span<std::byte>(verdict), 0, is_right ? kAccepted : kWrongSecret);
    if (is_right) {
      const Proof proof = ProofOf("listener");
      std::memcpy(verdict.data() + 4, proof.data(), proof.size());
    }
    if (!Write(verdict)) return;
    Finish(is_right ? absl::OkStatus() : SecretsDiffer());
  }

  void OnVerdict() {
    const Proof own = ProofOf("listener");
    const auto verdict = GetLittleEndian<uint32_t>(in_, 0);
    const bool is_right =
        verdict == kAccepted && CRYPTO_memcmp(in_.data() + 4, own.data(), own.size()) == 0;
    Finish(is_right ? absl::OkStatus() : SecretsDiffer());
  }

  absl::Status SecretsDiffer() const {
    return absl::UnauthenticatedError(absl::StrFormat(
        "%s has another shared secret than this process; give both the same by BRAID_AUTH_TOKEN or "
        "--auth_token_file",
        options_.peer));
  }

  Proof ProofOf(std::string_view role) const {
    const Greeting& dialer = is_dialer_ ? own_ : peer_;
    const Greeting& listener = is_dialer_ ? peer_ : own_;
    std::string message(role);
    for (const Greeting* greeting : {&dialer, &listener}) {
      message.append(reinterpret_cast<const char*>(greeting->data()), greeting->size());
    }
    Proof proof;
    unsigned bytes = 0;
    CHECK(HMAC(EVP_sha256(), options_.secret.data(), static_cast<int>(options_.secret.size()),
               reinterpret_cast<const unsigned char*>(message.data()), message.size(),
               reinterpret_cast<unsigned char*>(proof.data()), &bytes) != nullptr);
    CHECK_EQ(bytes, proof.size());
    return proof;
  }

  void Finish(const absl::Status& status) {
    if (std::exchange(is_done_, true)) return;
    options_.reactor->Unwatch(socket_.descriptor());
    if (timer_.has_value()) options_.reactor->CancelTimer(*timer_);
    options_.reactor->Post([self = shared_from_this(), status] {
      const auto done = std::exchange(self->done_, nullptr);
      if (status.ok()) return done(std::move(self->socket_));
      // What the peer has not read yet would be thrown away by a reset if we left unread bytes.
      self->socket_.ShutdownWrite();
      std::array<std::byte, 4096> rest;
      for (int i = 0; i < 4; ++i) {
        if (self->socket_.Read(rest).bytes == 0) break;
      }
      self->socket_.Close();
      done(status);
    });
  }

  const HandshakeOptions options_;
  const bool is_dialer_;
  Socket socket_;
  std::function<void(absl::StatusOr<Socket>)> done_;
  const Greeting own_;
  Greeting peer_{};
  std::vector<std::byte> in_;
  size_t expected_ = 0;
  Step step_ = nullptr;
  std::optional<TimerId> timer_;
  bool is_done_ = false;
};

}  // namespace

void StartHandshake(Socket socket, HandshakeOptions options,
                    std::function<void(absl::StatusOr<Socket>)> done) {
  CHECK(options.reactor->InThread());
  std::make_shared<Handshake>(std::move(socket), std::move(options), std::move(done))->Start();
}

}  // namespace braid
