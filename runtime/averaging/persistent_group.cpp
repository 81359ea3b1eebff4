#include "runtime/averaging/persistent_group.hpp"

#include <algorithm>

#include "runtime/core/byte_io.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

round_id following(const round_id& last, epoch_id epoch, const vector_partition* how) {
  sha256_stream stream;
  stream.add("waggle persistent group").add(last.view()).add(little_endian(epoch.value()));
  if (how != nullptr) {
    stream.add(little_endian(how->part_elements));
    for (auto share : how->shares)
      stream.add(little_endian(share));
  }
  auto hash = stream.finish();
  round_id next;
  std::copy_n(hash.bytes.begin(), round_id::size, next.bytes.begin());
  return next;
}

} // namespace

std::optional<round_plan> persistent_group::next(epoch_id epoch, const codec_plan& codecs,
                                                 std::uint32_t expected_peers) const {
  if (!last_ || last_->codecs != codecs)
    return std::nullopt;
  if (expected_peers != 0 && expected_peers != last_->members.size())
    return std::nullopt;
  const vector_partition* how = nullptr;
  if (is_repartitioned()) {
    if (!repartition_->how)
      return std::nullopt;
    how = &*repartition_->how;
  }
  auto plan = *last_;
  plan.id = following(last_->id, epoch, how);
  plan.epoch = epoch;
  if (how != nullptr) {
    plan.shares = how->shares;
    plan.part_elements = how->part_elements;
  }
  return plan;
}

std::optional<round_id> persistent_group::replaced(epoch_id epoch) const {
  if (!is_repartitioned())
    return std::nullopt;
  return following(last_->id, epoch, nullptr);
}

std::optional<vector_partition> persistent_group::on_bandwidth(const round_plan& plan,
                                                               const peer_id& member,
                                                               std::optional<double> bandwidth) {
  if (!bandwidths_.knows(member) || !bandwidths_.report(member, bandwidth))
    return std::nullopt;
  auto next = plan;
  if (repartition_ && repartition_->after == plan.id && repartition_->how) { // announced before
    next.shares = repartition_->how->shares;
    next.part_elements = repartition_->how->part_elements;
  }
  auto better = bandwidths_.better(next, terms_);
  if (better)
    repartition_ = {plan.id, better};
  return better;
}

status persistent_group::on_partition(const round_id& round, const round_plan& plan,
                                      vector_partition how, std::size_t self) {
  auto valid = check_partition(plan, how, terms_, self);
  repartition_ = {round, valid ? std::optional{std::move(how)} : std::nullopt};
  return valid;
}

bool persistent_group::contains(const peer_id& peer) const {
  return last_ && is_member(peer, *last_);
}

} // namespace waggle
