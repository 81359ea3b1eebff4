#include "runtime/averaging/round_pledges.hpp"

#include <array>

#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

template <class Number>
byte_span bytes_of(const Number& number) {
  return std::as_bytes(std::span{&number, 1});
}

digest digest_of(std::string_view what, std::span<const digest> all) {
  sha256_stream hash;
  hash.add(what);
  for (const auto& each : all)
    hash.add(each.raw());
  return hash.finish();
}

} // namespace

digest contribution_digest(double weight, byte_span encoded) {
  return sha256_stream{}.add(bytes_of(weight)).add(encoded).finish();
}

digest share_commitment(const round_id& round, std::uint32_t view, std::size_t member,
                        const digest& share) {
  auto who = static_cast<std::uint32_t>(member);
  return sha256_stream{}
    .add("waggle share")
    .add(round.raw())
    .add(bytes_of(view))
    .add(bytes_of(who))
    .add(share.raw())
    .finish();
}

bool round_pledges::add(std::size_t member, std::uint32_t number, const digest& commitment,
                        std::vector<digest> contributions) {
  if (contributions.size() != (contributors_.contains(member) ? parts_ : 0))
    return false;
  auto list = digest_of("waggle contributions", contributions);
  if (auto [known, first] = lists_.try_emplace(member, list); first)
    contributions_.emplace(member, std::move(contributions));
  else if (known->second != list)
    return false;
  commitments_.add(member, number, commitment);
  return true;
}

bool round_pledges::covers(std::size_t member, std::uint32_t part,
                           const digest& contribution) const {
  auto known = contributions_.find(member);
  return known != contributions_.end() && part < known->second.size()
         && known->second[part] == contribution;
}

bool round_pledges::opens(const round_id& round, const round_view& view, std::size_t member,
                          const digest& share) const {
  const auto* known = commitments_.find(member, view.number);
  return known != nullptr && *known == share_commitment(round, view.number, member, share);
}

std::vector<digest> round_pledges::each_of(const round_view& view) const {
  std::vector<digest> out;
  view.participant_set().for_each([&](std::size_t member) {
    out.push_back(digest_of("waggle pledge",
                            std::array{commitments_.of(member, view.number), lists_.at(member)}));
  });
  return out;
}

member_set round_pledges::unequal(const round_view& view,
                                  const std::map<std::size_t, std::vector<digest>>& lists,
                                  std::size_t self) {
  member_set out;
  std::size_t position = 0;
  view.participant_set().for_each([&](std::size_t member) {
    std::map<digest, std::size_t> heard;
    for (const auto& [by, list] : lists)
      ++heard[list[position]];
    auto is_most = [&](const digest& value) { return 2 * heard[value] > lists.size(); };
    auto itself = lists.find(member);
    if (!is_most(lists.at(self)[position])
        || (itself != lists.end() && !is_most(itself->second[position])))
      out.insert(member);
    ++position;
  });
  return out;
}

digest round_pledges::of(const round_view& view) const {
  return digest_of("waggle pledges", each_of(view));
}

} // namespace waggle
