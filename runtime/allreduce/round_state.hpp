#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/allreduce/inbound_event.hpp"
#include "runtime/allreduce/own_parts.hpp"
#include "runtime/allreduce/result_assembly.hpp"
#include "runtime/allreduce/round_config.hpp"
#include "runtime/allreduce/round_port.hpp"
#include "runtime/allreduce/round_watch.hpp"
#include "runtime/allreduce/round_weights.hpp"
#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_protocol.hpp"
#include "runtime/averaging/transfer_state.hpp"
#include "runtime/core/buffer_pool.hpp"
#include "runtime/core/filling.hpp"
#include "runtime/core/time.hpp"
#include "runtime/core/vector_pool.hpp"

namespace waggle {

/// Whether a part of this codec is the floats that it has in memory.
inline bool travels_as_floats(codec_id codec) {
  return bits_per_value(codec) == 32;
}

/// The input of a round.
struct round_request {
  round_plan plan; // validated; this peer is member `self_index`
  std::size_t self_index = 0;
  /// plan.elements values. If one is not finite, the round goes on without us.
  std::shared_ptr<const float_vector> values;
  double weight = 1;
  bool open_group = false; // plan.gathered holds the marks of group_majority.hpp
  member_set slow{};       // members that are not awaited for long (patience)
  /// Which of `values` are there already. Null: all. If it fails, the round goes on without us.
  std::shared_ptr<filling> fills{};
};

/// Memory for a round's result and for encoded parts. Neither is null.
struct round_memory {
  std::shared_ptr<vector_pool> vectors;
  std::shared_ptr<buffer_pool> encoded;
};

/// What one member knows of its round, and how it speaks to the other members: shared by the
/// classes that carry the round out (round_engine, result_settlement, sum_audit, decision_proofs).
///
/// Not thread-safe: under the engine's lock. A call of `perform`, `suspect` or `refuse` may begin
/// another view or end the round.
struct round_state {
  using clock = std::function<steady_time()>;

  round_state(round_request what, round_config with, const round_memory& memory,
              std::shared_ptr<round_port> via, clock time, round_protocol::options how);
  round_state(const round_state&) = delete;
  round_state& operator=(const round_state&) = delete;

  [[nodiscard]] const round_plan& plan() const { return request.plan; }
  [[nodiscard]] std::size_t self() const { return request.self_index; }
  [[nodiscard]] const round_view& view() const { return transfers.view(); }
  [[nodiscard]] const part_table& parts() const { return transfers.parts(); }
  [[nodiscard]] bool is_client(std::size_t member) const {
    return plan().members[member].mode == member_mode::client;
  }
  [[nodiscard]] std::string name_of(std::size_t member) const {
    return short_name(plan().members[member].peer.id);
  }

  void tell(std::size_t member, const wire::event& what, payload body = {});
  /// To these members, in this order; not to ourselves.
  void send_to(const std::vector<std::size_t>& members, const wire::event& what,
               const payload& body = {});
  void send_to(member_set members, const wire::event& what, const payload& body = {});
  /// The announcement of a part in the current view.
  [[nodiscard]] wire::part header(std::uint32_t index, wire::part_kind kind) const;
  /// Whether a part announced so, of `bytes` bytes, is one of this round.
  [[nodiscard]] bool fits(const wire::part& head, std::size_t bytes) const;
  /// Our values of a part, encoded; without a copy if the codec is none. Nothing: they cannot be
  /// encoded because one is not finite. (With codec none, the reducer detects that.) Thread-safe.
  [[nodiscard]] std::optional<payload> contribution(std::uint32_t index) const;
  /// What is sent for a sum, and the values that the other members read from it, in its place.
  [[nodiscard]] payload encode_sum(std::uint32_t index, const part_reducer& contributions,
                                   member_set over, const std::shared_ptr<float>& out) const;
  /// The inverse: the values of a result that another member sent, which are finite. With codecs
  /// that send the contributions back they are summed here, as their owner did. Fails if it is not
  /// one of them, or, where nobody pledges (sum_audit), if our contribution is not in it as we sent
  /// it. REQUIRES: `fits`.
  [[nodiscard]] status read_result(const wire::part& head, const payload& body,
                                   std::span<float> out) const;
  /// With codecs that send contributions back: one of those that `body`, a result, consists of.
  struct sent_back {
    std::size_t member = 0;
    double weight = 0;
    payload values;
  };
  /// All of them, in the order of the members. REQUIRES: `fits`, and as many weights.
  [[nodiscard]] std::vector<sent_back> contributions_in(const wire::part& head,
                                                        const payload& body) const;
  /// Whether our values of the part are there.
  [[nodiscard]] bool is_filled(std::uint32_t part) const {
    const auto& cut = parts()[part];
    return !request.fills || request.fills->has(cut.offset, cut.offset + cut.count);
  }
  /// Whether one more part of `from` may be kept for later. Unreleased bodies hold back the
  /// sender's window, but many small ones fit into it.
  [[nodiscard]] bool may_park(std::size_t from, std::size_t most) {
    return ++parked_from[from] <= most;
  }

  /// Whether `from` may pass on what `of` reports of the view. Clients have no links with each
  /// other: the leader passes on what they report before the round is decided.
  [[nodiscard]] bool may_say(std::size_t from, std::size_t of, std::uint32_t view) const;
  [[nodiscard]] member_set clients_besides(std::size_t member) const;

  /// `member` sent what no correct member sends.
  void refuse(std::size_t member, ec reason);
  /// The same for each, until the round is over. `why` is logged, behind the member's name.
  void refuse(member_set members, ec reason, const std::string& why = {});
  void suspect(std::size_t member, ec reason);

  const round_request request;
  const round_config config;
  const std::shared_ptr<round_port> port;
  const clock now;
  const std::shared_ptr<buffer_pool> buffers; // for encoded parts
  round_protocol protocol;
  transfer_state transfers;
  own_parts own;
  result_assembly result;
  round_weights weights;
  round_watch watch;
  round_marks marks;
  /// What we contributed to each part whose contributions are sent back.
  std::map<std::uint32_t, payload> contributed;
  std::map<std::size_t, ec> seen; // what we noticed ourselves, by member; the first fault of each
  std::vector<inbound_event> parked;              // parts of a view that we have not received yet
  std::map<std::size_t, std::size_t> parked_from; // how many were parked, by member
  bool over = false;                              // reported
  /// Does what the protocol decides. Set by the engine.
  std::function<void(const round_protocol::actions&)> perform;
};

} // namespace waggle
