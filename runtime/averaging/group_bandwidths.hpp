#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/averaging/bandwidth_estimator.hpp"
#include "runtime/averaging/group_majority.hpp"
#include "runtime/averaging/partition.hpp"

namespace waggle {

/// The bandwidths of a group's members as far as its leader knows them, and which partition they
/// make worth announcing. Not thread-safe.
class group_bandwidths {
public:
  void set(const peer_id& who, member_bandwidth bandwidth) {
    known_.insert_or_assign(who, bandwidth);
  }
  void assign(const round_plan& plan, const member_bandwidths& all) {
    clear();
    for (std::size_t i = 0; i < std::min(all.size(), plan.members.size()); ++i)
      set(plan.members[i].peer.id, all[i]);
  }
  void clear() { known_.clear(); }

  /// A member reports what it measured, or 0: it leaves soon and reduces no more. False: that
  /// changes nothing, because its operator declared a bandwidth, or because it does not reduce.
  bool report(const peer_id& who, std::optional<double> measured) {
    auto& known = known_[who];
    if (known.bytes_per_second == 0.0 || (known.declared && measured != 0.0))
      return false;
    known = measured;
    return true;
  }

  [[nodiscard]] bool knows(const peer_id& who) const { return known_.contains(who); }
  [[nodiscard]] member_bandwidth of(const peer_id& who) const {
    auto known = known_.find(who);
    return known == known_.end() ? member_bandwidth{} : known->second;
  }
  /// Of all members of the plan, in their order. One that is not known and has no share never
  /// reduces: another leader knew why.
  [[nodiscard]] member_bandwidths of(const round_plan& plan) const {
    member_bandwidths all;
    for (std::size_t i = 0; i < plan.members.size(); ++i) {
      const auto& who = plan.members[i].peer.id;
      bool left_out = plan.shares[i] == 0 && plan.gathered[i] != newcomer_mark && !knows(who);
      all.push_back(left_out ? member_bandwidth{0.0} : of(who));
    }
    return all;
  }
  /// The partition for the rounds after that of `plan`, if it is worth announcing.
  [[nodiscard]] std::optional<vector_partition> better(const round_plan& plan,
                                                       partition_terms terms) const {
    terms.bandwidths = of(plan);
    return better_partition(plan, terms);
  }

private:
  std::map<peer_id, member_bandwidth> known_;
};

/// This peer's measured bandwidth, as the others know it. Not thread-safe.
class own_bandwidth {
public:
  /// @param estimator null, or `measures` false: nothing is ever new.
  own_bandwidth(std::shared_ptr<bandwidth_estimator> estimator, bool measures)
    : estimator_(measures ? std::move(estimator) : nullptr) {}

  /// Measures. True if the value has changed since the last call: the others must learn it.
  bool update(steady_time now) {
    if (!estimator_)
      return false;
    auto known = estimator_->bytes_per_second(now);
    return std::exchange(reported_, known) != known;
  }
  /// Bytes per second; nothing: not known.
  [[nodiscard]] std::optional<double> reported() const { return reported_; }

private:
  std::shared_ptr<bandwidth_estimator> estimator_;
  std::optional<double> reported_;
};

} // namespace waggle
