#include "runtime/averaging/standing_group.hpp"

#include <algorithm>
#include <array>

#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

round_id following(const round_id& last, epoch_id epoch) {
  std::array<std::byte, 8> number{};
  for (std::size_t i = 0; i < number.size(); ++i)
    number[i] = static_cast<std::byte>(epoch.value() >> (8 * i));
  auto hash = sha256_stream{}.add("waggle standing group").add(last.view()).add(number).finish();
  round_id next;
  std::copy_n(hash.bytes.begin(), round_id::size, next.bytes.begin());
  return next;
}

} // namespace

std::optional<round_plan> standing_group::next(epoch_id epoch, const codec_plan& codecs,
                                               std::uint32_t expected_peers) const {
  if (!last_ || last_->codecs != codecs)
    return std::nullopt;
  if (expected_peers != 0 && expected_peers != last_->members.size())
    return std::nullopt;
  auto plan = *last_;
  plan.id = following(last_->id, epoch);
  plan.epoch = epoch;
  return plan;
}

bool standing_group::contains(const peer_id& peer) const {
  return last_
         && std::any_of(last_->members.begin(), last_->members.end(),
                        [&](const round_member& m) { return m.peer.id == peer; });
}

} // namespace waggle
