// round ─► add_contribution, reduce_over ─► all wanted are here? ─► part_reduced ─► round
//                                                └ NaN, wrong length ─► part_refused ─► round

#include "actors/allreduce_part.hpp"

#include <vector>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = allreduce_part_actor::stateful_pointer<allreduce_part_state>;

/// Memory for one more reduction.
std::shared_ptr<float> output(allreduce_part_state& st, const part_assignment& assignment) {
  if (!st.home_used) {
    st.home_used = true;
    return assignment.home;
  }
  auto fresh = std::make_shared<std::vector<float>>(assignment.elements);
  return {fresh, fresh->data()};
}

void reduce_if_complete(self_pointer self, const part_assignment& assignment,
                        const part_listener_actor& round) {
  auto& st = self->state;
  if (st.wanted.empty() || !st.reducer->present().contains(st.wanted))
    return;
  auto out = output(st, assignment);
  std::span<float> values{out.get(), assignment.elements};
  auto outcome = st.reducer->reduce(st.wanted, values);
  auto contributors = std::exchange(st.wanted, {});
  if (!outcome.poisoned.empty()) {
    self->send(round, part_refused{assignment.index, outcome.poisoned.bits(), ec::non_finite});
    return;
  }
  payload bytes{
    std::shared_ptr<const std::byte>{out, reinterpret_cast<const std::byte*>(out.get())},
    values.size_bytes()};
  if (assignment.codec != codec_id::none) {
    auto encoded =
      std::make_shared<std::vector<std::byte>>(encoded_size(assignment.codec, assignment.elements));
    encode(assignment.codec, values, *encoded);
    bytes = payload_of(std::shared_ptr<const std::vector<std::byte>>{encoded});
  }
  self->send(round, part_reduced{assignment.index, contributors.bits(), outcome.weight_sum,
                                 std::move(bytes)});
}

} // namespace

allreduce_part_actor::behavior_type allreduce_part(self_pointer self, node_context ctx,
                                                   part_assignment assignment,
                                                   part_listener_actor round) {
  end_on_exception(self, ctx);
  self->state.reducer.emplace(assignment.codec, assignment.elements);
  return {
    [self, assignment, round](add_contribution& msg) {
      auto added = self->state.reducer->add(msg.member, msg.weight, std::move(msg.values));
      if (added)
        return reduce_if_complete(self, assignment, round);
      self->send(
        round, part_refused{assignment.index, std::uint64_t{1} << msg.member, added.error().code});
    },
    [self, assignment, round](const reduce_over& msg) {
      self->state.wanted = member_set{msg.contributors};
      reduce_if_complete(self, assignment, round);
    },
  };
}

} // namespace waggle
