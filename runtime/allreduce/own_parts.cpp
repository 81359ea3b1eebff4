#include "runtime/allreduce/own_parts.hpp"

#include <utility>

namespace waggle {

own_parts::own_part& own_parts::at(std::uint32_t part) {
  auto found = known_.find(part);
  if (found == known_.end()) {
    const auto& cut = parts_[part];
    found =
      known_.emplace(part, own_part{part_reducer{cut.codec, cut.count, reduce_by_}, {}, 0}).first;
  }
  return found->second;
}

void own_parts::want(std::uint32_t part, member_set contributors) {
  if (auto& own = at(part); own.sent_over != contributors.bits())
    own.wanted = contributors;
}

status own_parts::add(std::uint32_t part, std::size_t member, double weight, payload values) {
  return at(part).reducer.add(member, weight, std::move(values));
}

std::optional<member_set> own_parts::due(std::uint32_t part) {
  auto& own = at(part);
  if (own.wanted.empty() || !own.reducer.present().contains(own.wanted))
    return std::nullopt;
  return std::exchange(own.wanted, {});
}

bool own_parts::mark_sent(std::uint32_t part, std::uint64_t contributors) {
  return std::exchange(at(part).sent_over, contributors) != contributors;
}

void own_parts::forget_sent() {
  for (auto& [part, own] : known_)
    own.sent_over = 0;
}

} // namespace waggle
