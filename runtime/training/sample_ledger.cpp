#include "runtime/training/sample_ledger.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

namespace {

constexpr double exact_max = 0x1p24;                          // that a float counts to
constexpr std::uint64_t count_base = std::uint64_t{1} << 24U; // of a number that two floats hold
constexpr double samples_of_claim_max = 0x1p40;
constexpr auto owners_end = static_cast<std::uint32_t>(sample_ledger::members_max) + 1;

std::uint64_t counted(double value) {
  return std::isfinite(value)
           ? static_cast<std::uint64_t>(std::round(std::clamp(value, 0.0, samples_of_claim_max)))
           : 0;
}

} // namespace

sample_ledger::sample_ledger(std::uint64_t samples) : samples_(samples) {
  WAGGLE_CHECK(samples > 0 && samples <= samples_max, std::to_string(samples));
}

sample_ledger::member_name sample_ledger::name_of(const peer_id& peer) {
  byte_reader in{peer.view()};
  auto bits = in.get<std::uint64_t>();
  constexpr std::uint64_t half = (1U << 24U) - 1;
  return {static_cast<std::uint32_t>(bits & half),
          static_cast<std::uint32_t>((bits >> 24U) & half)};
}

/// Plus 1; 0: it has no ranges.
std::size_t sample_ledger::position_of(const peer_id& peer) const {
  auto at = std::find(members_.begin(), members_.end(), name_of(peer));
  return at == members_.end() ? 0 : static_cast<std::size_t>(at - members_.begin()) + 1;
}

bool sample_ledger::owns(const peer_id& peer, std::size_t range) const {
  return owners_[range] != 0 && owners_[range] == position_of(peer);
}

std::uint64_t sample_ledger::left_to(const peer_id& peer) const {
  auto self = position_of(peer);
  std::uint64_t sum = 0;
  for (std::size_t r = 0; self != 0 && r < ranges; ++r)
    sum += owners_[r] == self ? left_of(r) : 0;
  return sum;
}

sample_ledger::account sample_ledger::present() const {
  account out;
  for (auto seen : seen_)
    out.once += seen;
  out.never = samples_ - out.once;
  out.twice = std::min(twice_, out.once);
  out.once -= out.twice;
  return out;
}

sample_ledger::account sample_ledger::last() const {
  if (passes_ == 0)
    return {};
  auto seen = samples_ - last_never_;
  auto twice = std::min(last_twice_, seen);
  return {seen - twice, twice, last_never_};
}

void sample_ledger::write_claims(std::span<const std::uint64_t, ranges> counts,
                                 std::uint64_t samples, std::span<float, ranges> out) {
  for (std::size_t r = 0; r < ranges; ++r)
    out[r] = samples == 0
               ? 0.0F
               : static_cast<float>(static_cast<double>(counts[r]) / static_cast<double>(samples));
}

void sample_ledger::see(std::span<const float> claims, double weight) {
  std::array<std::uint64_t, ranges> claimed{};
  std::uint64_t sum = 0;
  for (std::size_t r = 0; r < ranges; ++r)
    sum += claimed[r] = counted(static_cast<double>(claims[r]) * weight);
  auto in_update = counted(weight);
  // Of blocks, an update weighs more than it claims (sample_draws::weigh).
  auto claims_made = std::min(sum, in_update);
  auto repeated = claims_made;
  if (sum <= in_update)
    for (std::size_t r = 0; r < ranges; ++r) {
      auto held = claimed[r] <= left_of(r) ? claimed[r] : 0;
      seen_[r] += held;
      repeated -= held;
    }
  constexpr auto most = static_cast<std::uint64_t>(exact_max);
  twice_ = std::min(twice_ + repeated, most);
  if (in_update > 0) {
    auto& updates = claims_made == 0 || 2 * repeated > claims_made ? doubtful_ : good_;
    updates = std::min(updates + 1, most);
  }
}

bool sample_ledger::pass_ends() const {
  return present().never == 0 || doubtful_ >= doubtful_base + doubtful_per_good * good_;
}

/// @param adds by member in members_: the update has something of it.
void sample_ledger::deal(std::span<const peer_id> members, const std::vector<bool>& adds) {
  auto count = std::min(members.size(), members_max);
  std::vector<member_name> now;
  for (const auto& member : members.first(count))
    now.push_back(name_of(member));
  std::vector<std::uint32_t> moved{0}; // new positions of the old ones
  for (const auto& name : members_) {
    auto at = std::find(now.begin(), now.end(), name);
    moved.push_back(at == now.end() ? 0 : static_cast<std::uint32_t>(at - now.begin()) + 1);
  }
  std::vector<std::size_t> unseen;
  for (std::size_t r = 0; r < ranges; ++r) {
    if (left_of(r) > 0) {
      unseen.push_back(r);
    } else {
      owners_[r] = 0;
      waits_[r] = false;
    }
  }
  members_ = std::move(now);
  auto share = count == 0 ? 0 : (unseen.size() + count - 1) / count;
  std::vector<std::size_t> has(count);
  std::vector<std::size_t> free;
  for (auto r : unseen) {
    bool waited = waits_[r];
    waits_[r] = owners_[r] != 0 && !adds[owners_[r] - 1];
    bool asleep = unseen.size() <= count && waited && waits_[r];
    owners_[r] = moved[owners_[r]];
    if (owners_[r] != 0 && !asleep && has[owners_[r] - 1] < share)
      ++has[owners_[r] - 1];
    else
      free.push_back(r);
  }
  for (auto r : free) {
    std::uint32_t to = 0; // the member with the fewest, and rather another one than before
    for (std::uint32_t i = 1; i <= count; ++i)
      if (to == 0 || has[i - 1] < has[to - 1] || (has[i - 1] == has[to - 1] && to == owners_[r]))
        to = i;
    owners_[r] = to;
    waits_[r] = false;
    if (to != 0)
      ++has[to - 1];
  }
}

void sample_ledger::end_epoch(std::span<const float> claims, double weight,
                              std::span<const peer_id> members) {
  WAGGLE_CHECK(claims.empty() || claims.size() == ranges, std::to_string(claims.size()));
  auto before = seen_;
  if (!claims.empty())
    see(claims, weight);
  std::vector<bool> adds(members_.size());
  for (std::size_t r = 0; r < ranges; ++r)
    if (seen_[r] != before[r] && owners_[r] != 0)
      adds[owners_[r] - 1] = true;
  if (pass_ends()) {
    ++passes_;
    last_never_ = present().never;
    last_twice_ = std::exchange(twice_, 0);
    good_ = doubtful_ = 0;
    seen_ = {};
    adds.assign(adds.size(), true); // nobody could add anything to this pass yet
  }
  deal(members, adds);
}

std::vector<float> sample_ledger::encode() const {
  std::vector<float> out{static_cast<float>(passes_),
                         static_cast<float>(twice_),
                         static_cast<float>(last_twice_),
                         static_cast<float>(members_.size()),
                         static_cast<float>(last_never_ / count_base),
                         static_cast<float>(last_never_ % count_base),
                         static_cast<float>(good_),
                         static_cast<float>(doubtful_)};
  for (auto seen : seen_)
    out.push_back(static_cast<float>(seen));
  for (std::size_t r = 0; r < ranges; ++r)
    out.push_back(static_cast<float>(owners_[r] + (waits_[r] ? owners_end : 0)));
  for (const auto& name : members_)
    for (auto half : name)
      out.push_back(static_cast<float>(half));
  out.resize(value_count);
  return out;
}

result<sample_ledger> sample_ledger::decode(std::uint64_t samples, std::span<const float> values) {
  auto bad = failure{ec::malformed, "the state has an impossible account of its samples"};
  if (values.size() != value_count || !std::all_of(values.begin(), values.end(), [](float v) {
        return v >= 0 && static_cast<double>(v) <= exact_max && v == std::round(v);
      }))
    return bad;
  auto next = values.begin();
  auto take = [&next] { return static_cast<std::uint32_t>(*next++); };
  sample_ledger out{samples};
  out.passes_ = take();
  out.twice_ = take();
  out.last_twice_ = take();
  auto members = take();
  auto never = std::uint64_t{take()} * count_base;
  out.last_never_ = never + take();
  out.good_ = take();
  out.doubtful_ = take();
  if (members > members_max || out.last_never_ > samples)
    return bad;
  for (std::size_t r = 0; r < ranges; ++r)
    if ((out.seen_[r] = take()) > out.size_of(r))
      return bad;
  for (std::size_t r = 0; r < ranges; ++r) {
    auto owner = take();
    out.waits_[r] = owner >= owners_end;
    if ((out.owners_[r] = owner % owners_end) > members)
      return bad;
  }
  for (std::uint32_t i = 0; i < members; ++i) {
    auto low = take();
    out.members_.push_back({low, take()});
  }
  if (out.encode() != std::vector<float>(values.begin(), values.end()))
    return bad;
  return out;
}

} // namespace waggle
