#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/frame_limits.hpp"
#include "runtime/core/time.hpp"

namespace waggle::net {

using work = std::chrono::microseconds;

/// Estimates of the time that it takes to process what a peer sends. Measured with the flood of
/// tests/processes/attacks on one core of 2.5 GHz.
namespace cost {
constexpr work frame{10};             // decode, one message to an actor, perhaps a short answer
constexpr work signature{150};        // verify an Ed25519 signature of a record
constexpr work lookup{50};            // the nearest peers to a key
constexpr work handshake{250};        // sign our proof, verify the peer's
constexpr std::size_t byte_part = 64; // encoding or decoding this many bytes takes 1 us
} // namespace cost

/// An amount of work that grows back with time. Not thread-safe.
class work_bucket {
public:
  explicit work_bucket(work per_second) : per_second_(per_second), left_(per_second) {}

  /// True if at least `amount` is left, which is then taken. At most one second's work is saved up.
  [[nodiscard]] bool take(work amount, steady_time now);
  /// Adds the part of `amount` that could not be taken to a debt, which later refills pay first.
  void owe(work amount) { left_ -= amount; }
  [[nodiscard]] bool in_debt(steady_time now);
  /// Whether as much is left as can be saved up.
  [[nodiscard]] bool is_full(steady_time now);

private:
  void refill(steady_time now);

  const work per_second_;
  work left_;
  std::optional<steady_time> as_of_;
};

class link_budget;

/// Bytes of one kind that the links of all strangers have together. Thread-safe.
class common_bytes {
public:
  explicit common_bytes(std::size_t max) : max_(max) {}

  /// False: they would be more than `max`; nothing was taken. REQUIRES: they are not more now.
  [[nodiscard]] bool take(std::size_t more) {
    auto before = bytes_.load();
    while (more <= max_ - before)
      if (bytes_.compare_exchange_weak(before, before + more))
        return true;
    return false;
  }
  /// What one link has of them has changed, whatever the maximum is.
  void change(std::size_t before, std::size_t after) { bytes_ += after - before; }
  [[nodiscard]] bool too_many() const { return bytes_ > max_; }
  [[nodiscard]] std::size_t now() const { return bytes_; }

private:
  const std::size_t max_;
  std::atomic<std::size_t> bytes_{0};
};

/// What all strangers together may cost this peer beyond what each link may cost by itself. A
/// stranger is a peer with which this one has not averaged yet: anybody can make up any number of
/// them. Thread-safe.
class stranger_budget {
public:
  struct limits {
    /// In addition to each link's own work. A tenth of a core of a machine with two cores.
    work work_per_second{200'000};
    /// Bodies and long headers of strangers in memory: parts of rounds that nobody has announced
    /// here, and bodies that have not arrived completely. The largest body, and many of the usual
    /// size beside it.
    std::size_t body_bytes_max = 20_MiB;
    /// Messages of strangers that wait for an actor, and ours that strangers have not read. Beyond
    /// it, a link has no more than its own share (link_budget).
    std::size_t queue_bytes_max = 8_MiB;
    /// Pieces of states that strangers have asked for and not read. Beyond it, a link has no more
    /// than its own share (link_budget).
    std::size_t unread_bodies_max = 16_MiB;
  };

  explicit stranger_budget(limits limits)
    : bodies(limits.body_bytes_max), queues(limits.queue_bytes_max),
      unread_bodies(limits.unread_bodies_max), surplus_(limits.work_per_second) {}
  stranger_budget() : stranger_budget(limits{}) {}

  [[nodiscard]] bool take_work(work amount, steady_time now);

  /// `link` has a body that waits for memory.
  void wait(std::weak_ptr<link_budget> link);
  /// Memory was returned: offers it to the links that wait, in the order in which they began to.
  /// Call this without a lock.
  /// @param welcome whether a body is welcome may have changed, too: asks the links that wait.
  void offer(bool welcome = false);

  common_bytes bodies;
  common_bytes queues;
  common_bytes unread_bodies;

private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<link_budget>> waiting_; // some may not wait any more
  work_bucket surplus_;
};

static_assert(stranger_budget::limits{}.body_bytes_max >= frame_body_bytes_max,
              "the largest body of a stranger must be able to arrive");

/// What the peer at the other end of one link may make us process. Over a limit nothing is dropped:
/// the link is held, so that the rest waits at the sender, and is resumed when there is room again.
/// Thread-safe.
class link_budget : public std::enable_shared_from_this<link_budget> {
public:
  struct limits {
    /// Messages that wait for an actor. Fits the largest message, and some hundred usual ones.
    std::size_t waiting_bytes_max = 256_KiB;
    /// Messages to a stranger that it has not read. Fits the largest answer, and many usual ones.
    std::size_t unread_bytes_max = 256_KiB;
    /// What a stranger's link may have in both queues however much other strangers have there.
    std::size_t queue_share = 32_KiB;
    /// Bodies in answers to a peer, member or not, that it has not read: what a download may have
    /// requested at the same time, and a little more.
    std::size_t unread_bodies_max = 20_MiB;
    /// What a stranger's link may have of them however much other strangers have.
    std::size_t unread_bodies_share = 2_MiB;
    /// Each waiting message counts as this many bytes more: what the actors' queues need for it.
    std::size_t message_overhead = 256;
    /// A stranger's work that is done in any case, however much other strangers send. 32 reports
    /// with signatures, or 500 short messages.
    work work_per_second{5'000};
  };

  /// `held` is called whenever the link is to be held (true) or resumed (false), by any thread.
  /// REQUIRES: it does not block, and does not call this object.
  link_budget(std::function<void(bool)> held, std::shared_ptr<stranger_budget> common,
              limits limits);
  ~link_budget();
  link_budget(const link_budget&) = delete;
  link_budget& operator=(const link_budget&) = delete;

  /// The peer has averaged with this one: from now on only what waits for an actor is limited. Its
  /// bodies no longer count: they may be needed until the end of a round that waits for others.
  void become_member();

  /// A message of `bytes` bytes is passed on to an actor. It waits as long as a copy of the result
  /// exists.
  [[nodiscard]] std::shared_ptr<void> admit(std::size_t bytes);

  /// Whether an answer of this size may be queued for the peer: it reads what it asks for.
  [[nodiscard]] bool may_answer(std::size_t header_bytes, std::size_t body_bytes) const;
  /// Our messages that the peer has not read take `bytes` bytes now, and their bodies
  /// `body_bytes`.
  void unread(std::size_t bytes, std::size_t body_bytes);

  /// A stranger has caused `amount`.
  void charge(work amount, steady_time now);

  /// Room for a body of a stranger, or for a header that is too long for the link's usual buffer,
  /// until the result is released. If all strangers have used up theirs, the link is held before
  /// the body is read: memory that nobody writes to costs nothing.
  /// @param welcome true: the body does not count, because there is another limit for it. Also
  /// asked by `retry` while the body waits. May be empty. Called without a lock.
  [[nodiscard]] std::shared_ptr<void> room(std::size_t bytes, std::function<bool()> welcome = {});
  /// The same with memory for the body, which returns to the system when it is released.
  [[nodiscard]] std::shared_ptr<std::byte> body(std::size_t bytes,
                                                std::function<bool()> welcome = {});

  /// Resumes the link if it was held for work or memory that is there now. Call this now and then.
  void retry(steady_time now);
  /// Resumes the link if it was held for memory that is there now.
  /// @param welcome whether the body that waits has become welcome is asked, too.
  /// @returns false if one still waits.
  [[nodiscard]] bool retry_body(bool welcome);

  [[nodiscard]] bool held() const;

private:
  struct announced {
    std::size_t bytes = 0;
    std::function<bool()> welcome; // may be empty
    bool counted = false;          // in the strangers' budget, unless the peer is a member now
  };

  void leave(std::size_t bytes);
  void queued(std::size_t waiting, std::size_t unread);
  bool take(announced& what);
  void end(const std::shared_ptr<announced>& what);
  void update();

  const std::function<void(bool)> hold_;
  const std::shared_ptr<stranger_budget> common_;
  const limits limits_;
  mutable std::mutex mutex_;
  bool is_member_ = false;
  std::size_t body_bytes_ = 0; // counted in the strangers' budget
  std::size_t waiting_ = 0;
  std::size_t unread_ = 0;
  std::size_t unread_bodies_ = 0;
  work_bucket own_;
  bool in_debt_ = false;
  std::shared_ptr<announced> blocked_; // waits for memory; null: none does
  bool held_ = false;
};

} // namespace waggle::net
