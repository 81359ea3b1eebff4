#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/averaging/round_view.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/transport.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle::testing {

/// The members' network, on virtual time: a link in each direction between any two members, with
/// its own delay, bandwidth, window and two lanes. Each lane keeps its order; control overtakes
/// bulk. Bodies that have a place at the receiver are written there in two halves, as from a
/// socket.
///
/// A link is lost at both ends: at once by a reset, or, if it is silent, when the failure detector
/// of an end fires. Messages in transit when it is lost still arrive up to some time, and not after
/// that.
///
/// Single-threaded. The same seed and the same calls give the same trace.
class round_net {
public:
  using duration = std::chrono::nanoseconds;

  struct options {
    std::size_t members = 0;
    duration delay_min = 100us;
    duration delay_max = 20ms;
    double bytes_per_second = 1e6;
    std::size_t window_bytes = 0; // at least the largest body
    /// How long a link must be silent to count as dead; each link's detector is up to a fifth early
    /// or late.
    duration detector = 2'500ms;
  };

  /// The members' side of the network.
  class listener {
  public:
    virtual ~listener() = default;
    virtual std::shared_ptr<std::byte> destination(std::size_t to, std::size_t from,
                                                   const wire::part& head, std::size_t bytes) = 0;
    virtual void arrived(std::size_t to, std::size_t from, wire::event what, payload body,
                         const std::shared_ptr<net::link>& via) = 0;
    virtual void lost(std::size_t at, std::size_t whom) = 0;
    virtual void violated(const std::string& what) = 0;
  };

  /// The fate of a body: stands for the link over which it arrived, as far as the receiver can see.
  class receipt final : public net::link {
  public:
    receipt(round_net& net, std::size_t from, std::size_t to, std::size_t bytes,
            std::uint64_t generation)
      : net_(net), from_(from), to_(to), bytes_(bytes), generation_(generation) {}

    [[nodiscard]] std::size_t to() const { return to_; }
    [[nodiscard]] std::size_t releases() const { return releases_; }
    [[nodiscard]] bool settled() const { return releases_ == 1 && granted_ == bytes_; }

    [[nodiscard]] const peer_record& remote() const override { return nobody_; }
    [[nodiscard]] bool outbound() const override { return false; }
    void start(std::shared_ptr<net::link_listener>) override {}
    bool send(net::frame) override { return false; }
    void grant(std::size_t bytes) override;
    [[nodiscard]] bool idle() const override { return true; }
    void close(failure) override {}

  private:
    round_net& net_;
    std::size_t from_;
    std::size_t to_;
    std::size_t bytes_;
    std::uint64_t generation_;
    std::size_t granted_ = 0;
    std::size_t releases_ = 0;
    peer_record nobody_;
  };

  round_net(std::uint64_t seed, options opts, listener& members);

  // -- time ---------------------------------------------------------------------------------------

  [[nodiscard]] steady_time now() const { return now_; }
  /// Runs the next event. False: there is none.
  bool step();
  void at(duration delay, std::function<void()> what);
  /// Runs `what` on this member: later if it is frozen then, never if it is dead.
  void on_member(std::size_t member, duration delay, std::function<void()> what);

  // -- traffic ------------------------------------------------------------------------------------

  void send(std::size_t from, std::size_t to, wire::event what, payload body);
  /// For two clients: they have no link, and none is expected.
  void never_link(std::size_t a, std::size_t b);

  // -- faults -------------------------------------------------------------------------------------

  void crash(std::size_t who, bool silently);
  /// The member neither reads nor writes nor checks its clock.
  void freeze(std::size_t who, duration lasts);
  /// Nothing gets through between `side` and the others.
  void partition(member_set side, duration lasts);
  /// Nothing gets through from `a` to `b` any more.
  void half_open(std::size_t a, std::size_t b);
  /// Nothing gets through between them any more.
  void cut(std::size_t a, std::size_t b);
  /// The connection is reset; a new one follows soon.
  void reset(std::size_t a, std::size_t b);
  void slow_down(std::size_t a, std::size_t b, double bytes_per_second);

  // -- observation --------------------------------------------------------------------------------

  [[nodiscard]] bool alive(std::size_t who) const { return members_[who].alive; }
  [[nodiscard]] const std::vector<std::shared_ptr<receipt>>& receipts() const { return receipts_; }
  /// A hash over all deliveries so far: time, ends, kinds, bytes.
  [[nodiscard]] std::uint64_t trace_hash() const { return trace_; }

private:
  struct member_state {
    bool alive = true;
    steady_time frozen_until{};
    std::vector<std::function<void()>> backlog; // of a frozen member
  };
  struct parcel {
    std::size_t from;
    std::size_t to;
    wire::event what;
    payload body;
    std::uint64_t checksum;
    std::uint64_t generation;
    std::shared_ptr<std::byte> place;
  };
  using parcel_ptr = std::shared_ptr<parcel>;
  struct direction {
    duration delay{};
    double bytes_per_second = 0;
    std::size_t window = 0;
    std::deque<parcel_ptr> waiting;
    bool sending = false;
    int blocked = 0;   // number of faults that hold back arriving messages
    bool down = false; // connections cannot be made
    std::vector<std::function<void()>> held;
    steady_time last_control{};
    steady_time ready_at{}; // when it is connected again
    std::uint64_t generation = 0;
    steady_time cutoff{}; // for what was sent over the link before this one
  };

  direction& link(std::size_t from, std::size_t to) { return links_[from * options_.members + to]; }
  duration some(duration up_to);
  duration detection();
  [[nodiscard]] bool frozen(std::size_t who) const { return now_ < members_[who].frozen_until; }
  void run_on(std::size_t member, std::function<void()> what);
  void thaw(std::size_t who);

  void pump(std::size_t from, std::size_t to);
  [[nodiscard]] bool under_way(const parcel& p);
  void announce(const parcel_ptr& p);
  void arrive(const parcel_ptr& p);
  void send_part(parcel& p);
  void widen(std::size_t from, std::size_t to, std::size_t bytes, std::uint64_t generation);

  void block(std::size_t from, std::size_t to) { ++link(from, to).blocked; }
  void unblock(std::size_t from, std::size_t to);
  /// Both directions; messages in transit still arrive for `grace`.
  void break_link(std::size_t a, std::size_t b, duration grace, bool for_good);
  void reconnect(std::size_t a, std::size_t b, duration after);
  void report_lost(std::size_t at, std::size_t whom, duration after);
  /// Runs `what` if the link between them is still the same one then.
  void if_still_linked(std::size_t a, std::size_t b, duration after, std::function<void()> what);

  random_source random_;
  options options_;
  listener& listener_;
  std::vector<member_state> members_;
  std::vector<direction> links_;
  std::map<std::pair<steady_time, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t sequence_ = 0;
  steady_time now_{};
  std::vector<std::shared_ptr<receipt>> receipts_;
  std::uint64_t trace_ = 0xcbf29ce484222325U;
};

} // namespace waggle::testing
