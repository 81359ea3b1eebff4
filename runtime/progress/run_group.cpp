#include "runtime/progress/run_group.hpp"

#include <algorithm>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/epoch_limit.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

/// A call may arrive before the report that its sender has reached the epoch.
constexpr std::uint64_t calls_ahead = 2;

} // namespace

void run_group::observe(const swarm_progress& view) {
  others_.clear();
  for (const auto& peer : view.peers) {
    const auto& says = peer.claim;
    // A peer that only reduces is a member, but none to average with, and follows the epochs.
    bool trains = says.ready && !says.reduces_only;
    if (peer.who.id != self_ && says.group_size > 0 && !says.auxiliary
        && peer.epoch.value() <= epoch_max)
      others_.push_back(
        {peer.who.id, says.past.branch, peer.epoch, trains, trains && !peer.who.client_mode});
  }
}

void run_group::enter(const digest& branch, epoch_id epoch) {
  branch_ = branch;
  epoch_ = epoch;
  called_.reset();
}

void run_group::leave() {
  branch_.reset();
  called_.reset();
}

std::vector<const run_group::claim*> run_group::peers_of(const digest& branch) const {
  std::vector<const claim*> all;
  for (const auto& other : others_)
    if (other.branch == branch)
      all.push_back(&other);
  auto connected = [this](const claim* other) { return connected_.contains(other->who); };
  if (std::ranges::any_of(all, connected))
    std::erase_if(all, [&](const claim* other) { return !connected(other); });
  return all;
}

std::optional<epoch_id> run_group::epoch_of(const digest& branch) const {
  std::vector<epoch_id> reached;
  std::vector<epoch_id> reached_by_known;
  std::optional<epoch_id> any;
  for (const auto* other : peers_of(branch)) {
    any = std::max(any.value_or(other->epoch), other->epoch);
    if (other->leads)
      reached.push_back(other->epoch);
    if (other->leads && known_.covers(other->who))
      reached_by_known.push_back(other->epoch);
  }
  if (reached_by_known.size() > 1)
    reached = std::move(reached_by_known);
  if (reached.empty())
    return any;
  std::sort(reached.rbegin(), reached.rend());
  return reached[reached.size() > 1 ? 1 : 0];
}

epoch_id run_group::run_epoch() const {
  auto others = peers_of(*branch_);
  // A peer that holds a state does not follow peers that are still downloading one.
  bool led = std::ranges::any_of(others, [](const claim* c) { return c->leads; });
  return led ? std::max(epoch_, *epoch_of(*branch_)) : epoch_;
}

std::vector<peer_id> run_group::members() const {
  std::vector<peer_id> all{self_};
  for (const auto* other : peers_of(*branch_))
    all.push_back(other->who);
  return all;
}

std::size_t run_group::partners() const {
  auto others = peers_of(*branch_);
  return static_cast<std::size_t>(
    std::ranges::count_if(others, [](const claim* c) { return c->ready; }));
}

void run_group::end_epoch() {
  epoch_ = std::max(epoch_.next(), run_epoch());
}

round_id run_group::call_of(epoch_id epoch) const {
  auto hash = sha256_stream{}
                .add("waggle call")
                .add(branch_->view())
                .add(little_endian(epoch.value()))
                .finish();
  round_id id;
  std::copy_n(hash.bytes.begin(), round_id::size, id.bytes.begin());
  return id;
}

void run_group::on_call(const peer_id& from, const round_id& call) {
  bool member = std::ranges::any_of(
    others_, [&](const claim& other) { return other.who == from && other.branch == *branch_; });
  if (!member)
    return;
  auto epoch = epoch_;
  for (std::uint64_t ahead = 0; ahead <= calls_ahead; ++ahead, epoch = epoch.next())
    if (call == call_of(epoch) && (!called_ || *called_ < epoch))
      called_ = epoch;
}

epoch_id run_group::meeting() const {
  return epoch_id{byte_reader{branch_->view()}.get<std::uint64_t>()};
}

} // namespace waggle
