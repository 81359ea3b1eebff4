// What must hold when a round has ended: see round_swarm.

#include <algorithm>
#include <cmath>

#include "tests/runtime/allreduce/swarm/round_swarm.hpp"

namespace waggle::testing {

namespace {

/// A part's values as the others decode them.
payload encoded(codec_id codec, std::span<const float> values) {
  auto bytes = std::make_shared<std::vector<std::byte>>(encoded_size(codec, values.size()));
  encode(codec, values, *bytes);
  return payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes});
}

bool same_bytes(const float_vector& a, const float_vector& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

} // namespace

/// A member applies the result over a set. Then a quorum must hold that result, whichever member is
/// lost next.
void round_swarm::check_quorum(std::size_t finisher) {
  if (first_view(plan()).contributors == 0)
    return; // nothing to agree on
  auto decided = promise_of(finisher).view;
  member_set holders;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    auto s = promise_of(i);
    if (s.view.contributors == decided.contributors && (s.prepared || s.committed))
      holders.insert(i);
  }
  if (!round_rules{plan()}.is_quorum(holders))
    violated("member " + std::to_string(finisher) + " finished with a set that only "
             + std::to_string(holders.size()) + " of " + std::to_string(members_.size())
             + " have prepared");
}

void round_swarm::check_end(const member& m) {
  const auto& report = m.end->report;
  if (report.outcome == round_outcome::failed) {
    if (report.values)
      violated("a failed round has values");
    if (report.why.code == ec::none)
      violated("a round failed without a reason");
    if (report.why.code == ec::internal && !m.broken_off)
      violated("a round broke off: " + waggle::to_string(report.why));
    return;
  }
  if (!report.values || report.values->size() != plan().elements)
    return violated("a finished round has no values");
  std::vector<peer_id> all;
  first_view(plan()).contributor_set().for_each(
    [&](std::size_t i) { all.push_back(plan().members[i].peer.id); });
  bool whole = report.contributors == all || all.empty();
  if (whole != (report.outcome == round_outcome::complete))
    violated("a round is reported as " + std::string{waggle::to_string(report.outcome)}
             + " and is not");
}

void round_swarm::check_agreement() {
  const member* first = nullptr;
  for (const auto& m : members_) {
    if (!m.end || m.end->report.outcome == round_outcome::failed || !m.end->report.values)
      continue;
    const auto& mine = m.end->report;
    if (mine.weight_sum == 0) {
      if (!same_bytes(*mine.values, m.values_before))
        violated("nobody contributed, and a member has other values than its own");
    } else if (first == nullptr) {
      check_values(mine);
    }
    if (first == nullptr) {
      first = &m;
      continue;
    }
    const auto& theirs = first->end->report;
    if (mine.contributors != theirs.contributors)
      violated("a mixed round: two members finished with different contributors");
    if (mine.weight_sum != theirs.weight_sum)
      violated("a mixed round: two members finished with different weights");
    if (mine.weight_sum != 0 && !same_bytes(*mine.values, *theirs.values))
      violated("a mixed round: two members finished with different bytes");
  }
}

/// The values must be the aggregate over the reported set, computed from the inputs and the plan.
void round_swarm::check_values(const round_report& report) {
  part_table parts{plan()};
  bool plain = plan().reduce_by.how == aggregator::mean;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto& part = parts[p];
    part_reducer again{part.codec, part.count, plan().reduce_by};
    member_set over;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const auto& id = plan().members[i].peer.id;
      if (std::find(report.contributors.begin(), report.contributors.end(), id)
          == report.contributors.end())
        continue;
      over.insert(i);
      auto values = std::span{members_[i].values_before}.subspan(part.offset, part.count);
      if (!again.add(i, scene_.weights[i], encoded(part.codec, values)))
        violated("an input does not encode");
    }
    float_vector expected(part.count);
    auto sum = again.reduce(over, expected);
    if (sum.weight_sum != report.weight_sum)
      violated("the weight is not that of the contributors");
    // Equal contributions are passed on unchanged: encoding them again would change them.
    auto same = again.unanimous(over);
    auto sent = same ? *same : encoded(part.codec, expected);
    bool exact = part.codec == codec_id::none || sends_contributions_back(part.codec);
    if (!exact && !decode(part.codec, sent.view(), expected))
      violated("a result does not decode");
    auto got = std::span{*report.values}.subspan(part.offset, part.count);
    if (std::memcmp(got.data(), expected.data(), got.size_bytes()) != 0) {
      auto at = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
      return violated("a mixed round: part " + std::to_string(p) + " (codec "
                      + std::string{to_string(part.codec)} + ", " + std::to_string(part.count)
                      + " values) is not the aggregate over the contributors from value "
                      + std::to_string(at) + " on");
    }
    if (!plain || part.codec != codec_id::none)
      continue;
    for (std::size_t k = 0; k < part.count; ++k) {
      long double mean = 0;
      over.for_each([&](std::size_t i) {
        mean +=
          static_cast<long double>(scene_.weights[i]) * members_[i].values_before[part.offset + k];
      });
      mean /= report.weight_sum;
      if (std::abs(static_cast<double>(mean - got[k])) > 1e-6 * (1 + std::abs(got[k])))
        return violated("a value is not the mean");
    }
  }
}

std::size_t round_swarm::left_out() const {
  auto senders = first_view(plan()).contributor_set();
  member_set out;
  blameless().for_each([&](std::size_t i) {
    if (!members_[i].end || members_[i].end->report.outcome == round_outcome::failed)
      return out.insert(i);
    const auto& counted = members_[i].end->report.contributors;
    (senders & blameless()).for_each([&](std::size_t sender) {
      if (std::find(counted.begin(), counted.end(), plan().members[sender].peer.id)
          == counted.end())
        out.insert(sender);
    });
  });
  return out.size();
}

void round_swarm::check_blameless() {
  auto good = blameless();
  auto reducers = good;
  bool reducible = false;
  reducers.for_each(
    [&](std::size_t i) { reducible = reducible || plan().members[i].mode != member_mode::client; });
  auto senders = good & first_view(plan()).contributor_set();
  if (!round_rules{plan()}.is_quorum(good) || !reducible || senders.empty())
    return;
  if (finished() == 0 && struck_.size() > 1)
    return; // no member was excluded: there was no round
  auto bound = transfer_bound();
  for (const auto& f : struck_)
    bound += recovery_bound(f, scene_);
  good.for_each([&](std::size_t i) {
    const auto& m = members_[i];
    if (!m.end || m.end->report.outcome == round_outcome::failed)
      return violated("member " + std::to_string(i) + " did nothing wrong and has no result");
    const auto& contributors = m.end->report.contributors;
    senders.for_each([&](std::size_t sender) {
      if (std::find(contributors.begin(), contributors.end(), plan().members[sender].peer.id)
          == contributors.end())
        violated("member " + std::to_string(sender) + " did nothing wrong and was left out");
    });
    if (struck_.empty() || m.ended_at <= last_strike_)
      return;
    auto took = m.ended_at - last_strike_;
    recovery_ = std::max<duration>(recovery_, took);
    if (took > bound)
      violated("member " + std::to_string(i) + " took " + std::to_string(seconds_of(took))
               + " s from the last fault on, more than " + std::to_string(seconds_of(bound)));
  });
}

/// A generous bound on the duration of a round: the transfer of the busiest member's parts four
/// times (its own and the others', in both directions), the delays if every part waits for the
/// window, and the intervals of clock checks.
round_swarm::duration round_swarm::transfer_bound() const {
  part_table parts{plan()};
  std::vector<double> bytes(members_.size());
  std::size_t most = 0;
  std::vector<std::size_t> count(members_.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto result = static_cast<double>(result_bytes(plan(), parts[i].codec, parts[i].count));
    bytes[parts[i].default_owner] += std::max(4.0 * parts[i].count, result);
    most = std::max(most, ++count[parts[i].default_owner]);
  }
  auto busiest = *std::max_element(bytes.begin(), bytes.end());
  // Where sums are checked, contributions are sent a second time.
  auto shown = plan().reduce_by.check_share * static_cast<double>(members_.size());
  auto sending = std::chrono::duration<double>((4 + shown) * busiest / scene_.net.bytes_per_second);
  auto bodies = static_cast<std::size_t>(static_cast<double>(most) * (1 + shown)) + 4;
  auto filling =
    scene_.fills.empty() ? duration{} : *std::max_element(scene_.fills.begin(), scene_.fills.end());
  return std::chrono::duration_cast<duration>(sending) + bodies * 4 * scene_.net.delay_max + 1s
         + filling;
}

void round_swarm::check_left_behind() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    bool filled = !members_[i].fills || members_[i].fills->has(0, plan().elements);
    if (filled && !same_bytes(*members_[i].values, members_[i].values_before))
      violated("member " + std::to_string(i) + " has other values than it gave");
  }
  for (const auto& body : net_.receipts())
    if (net_.alive(body->to()) && !body->settled())
      violated("a body was released " + std::to_string(body->releases()) + " times by member "
               + std::to_string(body->to()));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    auto& m = members_[i];
    m.engine.reset();
    m.rounds.reset();
    if (m.end)
      m.end->report.values.reset();
    if (net_.alive(i) && !m.engine_alive.expired())
      violated("a round outlived its end");
    if (net_.alive(i) && m.memory.vectors->lent() != 0)
      violated("a round's buffers were not given back");
  }
}

} // namespace waggle::testing
