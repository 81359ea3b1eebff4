#include "runtime/progress/progress_ledger.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/epoch_limit.hpp"

namespace waggle {

namespace {

constexpr std::uint8_t record_version = 7; // later ones append fields
constexpr std::uint8_t phase_max = 7;      // of trainer_phase
constexpr double nothing = 1e-20; // samples per second: keeps the ETA finite while no peer reports

/// Host names and addresses only: the text ends up in logs and on web pages.
bool plain_host(std::string_view host) {
  return std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.'
           || c == '-' || c == '_' || c == ':' || c == '%';
  });
}

/// Phase (255: none), loss and seconds of a pass (NaN: none): 9 bytes.
void write_vitals(const peer_vitals& vitals, byte_writer& out) {
  constexpr auto none = std::numeric_limits<float>::quiet_NaN();
  out.put(vitals.phase.value_or(255), vitals.loss.value_or(none),
          vitals.pass_seconds.value_or(none));
}

/// False: out of bounds.
bool read_vitals(byte_reader& in, peer_vitals& out) {
  if (auto phase = in.get<std::uint8_t>(); phase <= phase_max)
    out.phase = phase;
  auto loss = in.get<float>();
  auto seconds = in.get<float>();
  if (std::isinf(loss) || seconds < 0 || seconds > vitals_seconds_max)
    return false;
  if (!std::isnan(loss))
    out.loss = loss;
  if (!std::isnan(seconds))
    out.pass_seconds = seconds;
  return true;
}

/// The rate (NaN: none), shares, settings and priority (NaN: none).
void write_shares(const peer_vitals& vitals, byte_writer& out) {
  constexpr auto none = std::numeric_limits<float>::quiet_NaN();
  out.put(vitals.samples_per_second.value_or(none),
          static_cast<std::uint8_t>(peer_shares::names.size()), vitals.shares.thousandths());
  out.put_text<std::uint16_t>(std::string_view{vitals.settings}.substr(0, settings_bytes_max));
  out.put(vitals.share_priority.value_or(none));
}

constexpr float share_priority_max = 1e6F; // as of the option

/// False: a rate or priority out of bounds, or settings that are no plain text, or too long.
bool read_shares(byte_reader& in, peer_vitals& out) {
  if (auto rate = in.get<float>(); std::isinf(rate) || rate < 0)
    return false;
  else if (!std::isnan(rate))
    out.samples_per_second = rate;
  auto shares = in.get<std::uint8_t>();
  for (std::size_t i = 0; i < shares; ++i)
    out.shares.read_thousandths(i, in.get<std::uint16_t>());
  out.settings = in.get_text<std::uint16_t>();
  auto priority = in.get<float>();
  if (std::abs(priority) > share_priority_max)
    return false;
  out.share_priority = std::isnan(priority) ? std::nullopt : std::optional{priority};
  return out.settings.size() <= settings_bytes_max && std::ranges::all_of(out.settings, [](char c) {
           return c == '\n' || (c >= ' ' && c <= '~');
         });
}

} // namespace

void peer_shares::set(std::size_t place, double value) {
  if (place < values_.size() && value >= 0)
    values_[place] = static_cast<std::uint16_t>(std::min(std::round(value * 1000), none - 1.0));
}

std::optional<double> peer_shares::at(std::size_t place) const {
  if (place >= values_.size() || values_[place] == none)
    return std::nullopt;
  return values_[place] / 1000.0;
}

double parameter_sketch::distance_to(const parameter_sketch& other) const {
  double squares = 0;
  for (std::size_t i = 0; i < sums.size(); ++i)
    squares += std::pow(static_cast<double>(sums[i]) - static_cast<double>(other.sums[i]), 2);
  return std::sqrt(squares);
}

std::string encode_progress(const progress_report& report) {
  auto addresses = std::min(report.who.addresses.size(), addresses_max);
  byte_writer out;
  out.put(record_version, report.who.client_mode, report.epoch, report.samples,
          report.samples_per_second, to_nanoseconds(report.time), report.parameters,
          static_cast<std::uint8_t>(addresses));
  for (std::size_t i = 0; i < addresses; ++i)
    out.put_text<std::uint16_t>(to_string(report.who.addresses[i]));
  const auto& claim = report.claim;
  auto flags =
    static_cast<std::uint8_t>((claim.ready ? 1U : 0U) | (claim.provisional ? 2U : 0U)
                              | (claim.auxiliary ? 4U : 0U) | (claim.reduces_only ? 8U : 0U));
  const auto& past = claim.past;
  out.put(past.branch, past.parent, past.forked_at, past.work, claim.group_size, flags,
          claim.target_batch_size);
  write_vitals(report.vitals, out);
  out.put(report.sketch.rounding, report.sketch.sums);
  write_shares(report.vitals, out);
  return out.take();
}

result<progress_report> decode_progress(const public_key& owner, const peer_id& who,
                                        std::string_view value) {
  byte_reader in{value};
  progress_report report;
  report.who.id = who;
  report.who.key = owner;
  if (in.get<std::uint8_t>() < record_version)
    return failure{ec::malformed, "a progress record of another version"};
  in.read(report.who.client_mode, report.epoch, report.samples, report.samples_per_second);
  report.time = swarm_time_from(in.get<std::int64_t>());
  in.read(report.parameters);
  auto addresses = in.get<std::uint8_t>();
  if (!in.ok() || report.epoch.value() > epoch_max || addresses > addresses_max
      || !std::isfinite(report.samples_per_second) || report.samples_per_second < 0)
    return failure{ec::malformed, "a progress record with a field out of its range"};
  for (std::size_t i = 0; i < addresses; ++i) {
    auto where = parse_endpoint(in.get_text<std::uint16_t>());
    if (!in.ok() || !where || !plain_host(where->host))
      return failure{ec::malformed, "a progress record with a broken address"};
    report.who.addresses.push_back(*where);
  }
  auto& claim = report.claim;
  auto& past = claim.past;
  in.read(past.branch, past.parent, past.forked_at, past.work, claim.group_size);
  auto flags = in.get<std::uint8_t>();
  claim.ready = (flags & 1U) != 0;
  claim.provisional = (flags & 2U) != 0;
  claim.auxiliary = (flags & 4U) != 0;
  claim.reduces_only = (flags & 8U) != 0;
  in.read(claim.target_batch_size);
  if (!read_vitals(in, report.vitals))
    return failure{ec::malformed, "a progress record with vitals out of their bounds"};
  in.read(report.sketch.rounding, report.sketch.sums);
  if (!std::ranges::all_of(report.sketch.sums, [](float x) { return std::isfinite(x); }))
    return failure{ec::malformed, "a progress record with a sketch that is not finite"};
  if (!read_shares(in, report.vitals))
    return failure{ec::malformed, "a progress record with a rate or settings out of bounds"};
  if (!in.ok())
    return failure{ec::malformed, "a progress record that is cut off"};
  if (claim.auxiliary && claim.reduces_only)
    return failure{ec::malformed, "a progress record of a peer that has a state and has none"};
  return report;
}

// -- who is remembered ----------------------------------------------------------------------------

progress_ledger::rank progress_ledger::entry::standing() const {
  if (from.member)
    return rank::member;
  if (!report)
    return rank::gone;
  if (from.connected)
    return rank::connected;
  return from.host.empty() ? rank::found : rank::gone;
}

void progress_ledger::enter_rank(const peer_id& who, const entry& e) {
  ranks_[e.standing()][e.from.host].emplace(e.heard, who);
  ++held_[e.standing()];
}

void progress_ledger::leave_rank(const entry& e) {
  auto hosts = ranks_.find(e.standing());
  auto peers = hosts->second.find(e.from.host);
  peers->second.erase(e.heard);
  if (peers->second.empty())
    hosts->second.erase(peers);
  if (hosts->second.empty())
    ranks_.erase(hosts);
  --held_[e.standing()];
}

template <class Change>
void progress_ledger::update(const peer_id& who, entry& e, Change change) {
  leave_rank(e);
  change();
  e.heard = ++signs_;
  enter_rank(who, e);
  if (auto standing = e.standing();
      standing < rank::connected && held_[standing] > options_.unconnected_max)
    forget_one(standing, std::nullopt); // it was of another rank before
}

bool progress_ledger::is_full(rank which) const {
  auto held = held_.find(which);
  return which < rank::connected && held != held_.end() && held->second > 0
         && held->second >= options_.unconnected_max;
}

bool progress_ledger::make_room(rank of_newcomer, const std::string& host) {
  if (is_full(of_newcomer)) {
    forget_one(of_newcomer, host);
    return true;
  }
  if (entries_.size() < options_.peers_max)
    return true;
  auto lowest = ranks_.empty() ? rank::member : ranks_.begin()->first;
  if (ranks_.empty() || lowest > of_newcomer) {
    ++dropped_;
    return false;
  }
  forget_one(lowest, lowest == of_newcomer ? std::optional{host} : std::nullopt);
  return true;
}

void progress_ledger::forget_one(rank which, const std::optional<std::string>& newcomers_host) {
  const peers_by_age* heaviest = nullptr;
  std::size_t most = 0;
  for (const auto& [name, peers] : ranks_.find(which)->second) {
    // The newcomer counts as one of its host's: with an equal share, its host makes room for it.
    auto held = peers.size() + (name == newcomers_host ? 1 : 0);
    if (held < most || (held == most && peers.begin()->first > heaviest->begin()->first))
      continue;
    most = held;
    heaviest = &peers;
  }
  auto forgotten = entries_.find(heaviest->begin()->second);
  dropped_ += forgotten->second.report ? 1 : 0;
  leave_rank(forgotten->second);
  entries_.erase(forgotten);
}

// -- what is known of them ------------------------------------------------------------------------

bool progress_ledger::record(const progress_report& report, swarm_time expiration,
                             const report_source& from) {
  const auto& who = report.who.id;
  if (who == self_)
    return false; // our own state is newer than a record of it
  entry fresh{report, report.time, expiration, false, from, 0};
  auto found = entries_.find(who);
  if (found == entries_.end()) {
    if (!make_room(fresh.standing(), from.host))
      return false;
    fresh.heard = ++signs_;
    enter_rank(who, entries_.emplace(who, std::move(fresh)).first->second);
    return true;
  }
  auto& known = found->second;
  bool news = report.time > known.time;
  update(who, known, [&] {
    if (!news) {
      known.from.member = from.member;
      known.from.connected = from.connected;
      return;
    }
    // The DHT does not tell where a connected peer is.
    if (fresh.from.host.empty() && fresh.from.connected)
      fresh.from.host = std::move(known.from.host);
    known = std::move(fresh);
  });
  return news;
}

bool progress_ledger::note(const peer_id& peer, epoch_id epoch, const digest& branch,
                           std::uint64_t samples, double samples_per_second, swarm_time now) {
  auto found = entries_.find(peer);
  if (found == entries_.end() || !found->second.report)
    return false;
  auto& report = *found->second.report;
  if (epoch.value() > epoch_max || report.claim.past.branch != branch || epoch < report.epoch
      || (epoch == report.epoch && samples <= report.samples))
    return false;
  update(peer, found->second, [&] {
    if (epoch > report.epoch)
      report.parameters = {}; // they belong to the previous epoch
    report.epoch = epoch;
    report.samples = samples;
    report.samples_per_second = samples_per_second;
    report.time = now;
  });
  return true;
}

bool progress_ledger::forget(const peer_id& peer, swarm_time time, swarm_time expiration) {
  auto found = entries_.find(peer);
  if (found == entries_.end() || found->second.time > time)
    return false;
  bool news = found->second.report.has_value();
  update(peer, found->second, [&] {
    found->second = {std::nullopt, time, expiration, false, std::move(found->second.from), 0};
  });
  return news;
}

bool progress_ledger::lose(const peer_id& peer, swarm_time now, swarm_time expiration) {
  auto found = entries_.find(peer);
  if (found == entries_.end() || !found->second.report)
    return false;
  auto& known = found->second;
  // Its clock may be ahead of ours: none of its reports so far counts, whatever their timestamps.
  update(peer, known, [&] {
    known = {std::nullopt, std::max(now, known.time), expiration, true, std::move(known.from), 0};
  });
  return true;
}

void progress_ledger::found_again(const peer_id& peer) {
  auto found = entries_.find(peer);
  if (found == entries_.end())
    return;
  auto& known = found->second;
  if (!known.lost)
    return update(peer, known, [&] { known.from.connected = true; });
  leave_rank(known);
  entries_.erase(found);
}

bool progress_ledger::purge(swarm_time now) {
  bool news = false;
  std::erase_if(entries_, [&](const auto& item) {
    if (item.second.expiration >= now)
      return false;
    news = news || item.second.report.has_value();
    leave_rank(item.second);
    return true;
  });
  return news;
}

// -- the view -------------------------------------------------------------------------------------

bool progress_ledger::advances(const progress_report& report) {
  return !report.who.client_mode && (!report.claim.auxiliary || report.claim.group_size > 0);
}

epoch_id progress_ledger::global_epoch(const std::optional<progress_report>& own,
                                       swarm_time now) const {
  auto furthest = own ? own->epoch : epoch_id{};
  for (const auto& [id, e] : entries_)
    if (e.report && e.expiration >= now && advances(*e.report))
      furthest = std::max(furthest, e.report->epoch);
  return furthest;
}

swarm_progress progress_ledger::view(const std::optional<progress_report>& own,
                                     swarm_time now) const {
  std::vector<const progress_report*> valid;
  for (const auto& [id, e] : entries_)
    if (e.report && e.expiration >= now)
      valid.push_back(&*e.report);
  if (own)
    valid.insert(
      std::lower_bound(valid.begin(), valid.end(), own->who.id,
                       [](const progress_report* a, const peer_id& id) { return a->who.id < id; }),
      &*own);

  swarm_progress out{.global_epoch = global_epoch(own, now)};

  double rate = nothing;
  double extrapolated = 0;
  for (const auto* p : valid) {
    out.peers.push_back(*p);
    if (p->claim.auxiliary || p->claim.reduces_only) { // it does not train
      ++out.num_auxiliaries;
      continue;
    }
    ++out.num_peers;
    rate += p->samples_per_second; // includes peers behind: they will catch up
    out.num_clients += p->who.client_mode ? 1 : 0;
    if (p->epoch != out.global_epoch)
      continue;
    auto age = std::max(0.0, seconds_of(difference(now, p->time)));
    extrapolated += static_cast<double>(p->samples) + age * p->samples_per_second;
  }
  out.samples_per_second = rate;
  auto target = static_cast<double>(options_.target_batch_size);
  out.eta_seconds = std::max(0.0, target - extrapolated) / rate;
  if (valid.size() <= (own ? 1U : 0U)) {
    out.refresh_seconds = seconds_of(options_.refresh_default);
  } else {
    auto peers = static_cast<double>(valid.size());
    auto expected =
      std::max(peers + options_.expected_drift_peers, peers * (1 + options_.expected_drift_rate));
    out.refresh_seconds =
      std::clamp(out.eta_seconds * peers / expected, seconds_of(options_.refresh_min),
                 seconds_of(options_.refresh_max));
  }
  return out;
}

} // namespace waggle
