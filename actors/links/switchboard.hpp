#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <variant>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/links/peer_link.hpp"
#include "actors/node_context.hpp"
#include "runtime/net/dial_limits.hpp"
#include "runtime/net/dial_policy.hpp"

namespace waggle {

struct switchboard_config {
  /// How long dialling one address may take. Raise it on links with seconds of delay.
  milliseconds dial_timeout{5'000};
  /// Links at once, both directions.
  std::size_t links_max = 256;
  /// Of these, links that strangers have opened: peers with which we have not averaged, and which
  /// the operator has not named. The others are kept for peers that we dial, and for those with
  /// which we average. If all are taken, the host with the most of them gives one up for a host
  /// that has fewer; otherwise the newcomer is told ec::overloaded.
  std::size_t stranger_links_max = 128;
  /// Links that this peer opened to strangers, e.g. to those that a lookup found; a further one
  /// ends the oldest of them. More than the members of a group, which are strangers before its
  /// first round.
  std::size_t dialled_strangers_max = 96;
  /// Which announced addresses are dialled; nothing: all, as in a simulation.
  std::optional<net::dial_policy> announced_addresses{};
  /// Attempts to dial announced addresses: at once, and begun per second. As many as a group has
  /// members; more fail with ec::overloaded.
  std::size_t dials_max = 64;
  /// If an address of a peer has not answered after this time, the next one is dialled, too
  /// (RFC 8305).
  milliseconds dials_apart{250};
  /// Links with one peer: two that were dialled at the same time, and some that are about to end.
  std::size_t links_per_peer_max = 4;
  /// A second process with the identity of a connected peer replaces it if the connected one does
  /// not answer within this time. Raise it if living peers are replaced.
  milliseconds identity_timeout{1'000};
  /// Messages that wait for a dial to one peer; more are refused (calls) or dropped (events).
  std::size_t waiting_max = 1024;
  link_config link{};
};

/// To itself: a dial of the transport has ended.
struct dial_ended {
  std::uint64_t dial = 0;
  endpoint where;
  bool announced = false;          // not given by the operator
  std::shared_ptr<net::link> link; // null: failed
  failure why;
};
/// To itself: a member's time on the list is over.
struct members_due {
  std::uint64_t number = 0; // only the one that was set last counts
};
/// To itself: the next address of a dial may be due.
struct dial_next {
  std::uint64_t dial = 0;
  std::uint64_t step = 0; // only the one that was set last counts
};
/// To itself: calls that wait for this dial may have timed out.
struct dial_overdue {
  std::uint64_t dial = 0;
};

using dial_listener_actor = caf::typed_actor<caf::reacts_to<dial_ended>>;

using switchboard_base =
  wired_switchboard_actor::extend<caf::reacts_to<dial_overdue>, caf::reacts_to<dial_next>,
                                  caf::reacts_to<members_due>>::extend_with<dial_listener_actor>::
    extend_with<link_owner_actor>::base;

/// Sends both members_changed whenever another list says who belongs to the run, and now. `book`
/// may be null.
void notify_of_lists(const node_context& ctx, const wired_switchboard_actor& links,
                     const link_listener_actor& book);

/// Holds the links to all peers. One peer has one entry, however many sockets: of two connections
/// that both sides dialled at once, both sides use the one dialled by the smaller id and let the
/// other end once it is unused (link_config::unused_for). A newer connection in the same
/// direction replaces an older one in the same way.
///
/// If a second process presents the identity of a connected peer, either the peer was started again
/// before its old links were given up, or two processes run with one identity. The connected
/// process is asked for a sign of life: if it answers, the newcomer is refused, otherwise the
/// newcomer replaces it.
class switchboard final : public switchboard_base {
public:
  switchboard(caf::actor_config& cfg, node_context ctx, switchboard_config config,
              std::shared_ptr<net::transport> transport);

  const char* name() const override { return "switchboard"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct connection {
    std::uint64_t number = 0;
    std::shared_ptr<net::link> link;
    wired_peer_link_actor actor;
    bool outbound = false;
    std::string host; // where it comes from
  };
  struct peer_entry {
    peer_record record;
    std::uint64_t instance = 0;          // of its process; 0: unknown
    std::vector<connection> connections; // in order of arrival; never empty
    /// Link of a second process with this identity. Not null: the connected process is being asked
    /// whether it is alive.
    std::shared_ptr<net::link> newcomer;
  };
  /// A call that waits for a dial.
  struct waiting_call {
    caf::typed_response_promise<peer_answer> promise;
    wire::request what;
    steady_time deadline;
  };
  struct waiting_event {
    wire::event what;
    payload body;
  };
  struct dial_attempt {
    peer_id peer;                   // zero: connect_address
    std::deque<endpoint> addresses; // still to try
    std::set<endpoint> under_way;
    std::uint64_t step = 0;
    failure why{ec::timeout, "no time was left"}; // of the attempt that failed last
    bool refused = false;                         // an address did: the attempt was not cut short
    steady_time deadline;                         // the latest deadline of all waiting callers
    std::optional<endpoint> given; // by the operator; nothing: the addresses were announced
    std::vector<std::variant<waiting_call, waiting_event>> waiting; // in order
    std::vector<caf::typed_response_promise<peer_connected>> connects;
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }

  // What our own actors send to peers.
  caf::result<peer_answer> call(call_peer& msg);
  void tell(notify_peer& msg);
  caf::result<peer_connected> connect(const connect_address& msg);
  void call_over(const peer_link_actor& link, caf::typed_response_promise<peer_answer> promise,
                 wire::request what, milliseconds timeout);

  // Dials.
  dial_attempt* reach(const peer_record& to, milliseconds timeout);
  void try_next_address(std::uint64_t number);
  void begin_attempt(std::uint64_t number, dial_attempt& dial, const endpoint& where);
  void on_dial_next(const dial_next& msg);
  void on_dial_ended(const dial_ended& msg);
  void on_dial_overdue(const dial_overdue& msg);
  void give_up(std::uint64_t number);
  void refuse_waiting(dial_attempt& dial, const failure& why);
  void send_waiting(const peer_link_actor& link, dial_attempt& dial);

  // Links.
  void enter(const std::shared_ptr<net::link>& link);
  void on_link_down(const link_down& msg);
  void on_record_changed(const peer_record& now);
  [[nodiscard]] const connection& used(const peer_id& peer,
                                       const std::vector<connection>& all) const;
  [[nodiscard]] std::size_t connection_count() const;
  [[nodiscard]] bool is_known(const peer_id& peer) const;
  [[nodiscard]] bool make_room(const net::link& fresh);
  enum class age { newest, oldest };
  bool close_one(age which, bool outbound, const std::string* host = nullptr);
  [[nodiscard]] std::size_t dialled_strangers() const;
  void count_connections();

  // Two processes with one identity.
  void ask_for_sign_of_life(const peer_id& peer);
  void settle_identity(const peer_id& peer, bool alive);
  bool first_time(const peer_id& peer);

  // Who belongs to the run.
  void on_members_changed();
  void on_members_due(const members_due& msg);
  [[nodiscard]] run_members::judgement judge(const peer_id& peer) const;
  void end_links_of_others();

  // Connecting the actors, and the end.
  void set_service(const serve& msg);
  void add_listener(const listen_links& msg);
  caf::result<caf::unit_t> hang_up_all();
  void on_down(const caf::down_msg& down);

  const node_context ctx_;
  const switchboard_config config_;
  const std::shared_ptr<net::transport> transport_;
  service_table services_;
  std::vector<link_listener_actor> listeners_;
  std::map<peer_id, peer_entry> peers_;
  std::map<std::uint64_t, dial_attempt> dials_;
  std::map<peer_id, std::uint64_t> dialling_;
  std::uint64_t numbers_ = 0;               // links and dials
  std::set<peer_id> shared_identities_;     // that were logged; bounded by links_max
  std::set<peer_id> configured_;            // reached at an address of the operator; the same bound
  std::optional<net::dial_policy> dialled_; // of announced addresses
  std::optional<peer_record> announced_;    // in place of the record of our start
  net::dial_limits limits_;                 // of announced addresses
  std::optional<steady_time> members_changed_;
  std::uint64_t members_checks_ = 0;
  bool hung_up_ = false;
  std::vector<caf::typed_response_promise<caf::unit_t>> all_ended_; // of those who hung up
};

} // namespace waggle
