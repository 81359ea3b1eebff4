#include "runtime/averaging/result_digest.hpp"

#include <algorithm>

#include "runtime/crypto/digest.hpp"
#include "runtime/crypto/poly1305.hpp"

namespace waggle {

namespace {

template <class Number>
byte_span bytes_of(const Number& number) {
  return std::as_bytes(std::span{&number, 1});
}

} // namespace

part_groups::part_groups(const part_table& parts) {
  // Each owner's last group may be short, so an owner may have one group more.
  auto groups = std::max<std::size_t>(result_groups_max - round_members_max, 1);
  auto parts_per_group = std::max<std::size_t>((parts.size() + groups - 1) / groups, 1);
  std::map<std::uint32_t, std::size_t> last; // group of each owner
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    auto [open, first] = last.try_emplace(parts[i].default_owner, groups_.size());
    if (first || groups_[open->second].size() == parts_per_group) {
      open->second = groups_.size();
      groups_.emplace_back();
    }
    groups_[open->second].push_back(i);
    group_of_.push_back(open->second);
  }
}

std::optional<std::size_t> part_groups::reducer(std::size_t group, const part_table& parts,
                                                const round_view& view) const {
  std::optional<std::size_t> reducer;
  for (auto part : groups_[group]) {
    auto owner = parts.owner(part, view);
    if (reducer && *reducer != owner)
      return std::nullopt;
    reducer = owner;
  }
  return reducer;
}

digest group_digest(const result_terms& of, const std::vector<std::uint32_t>& group,
                    const part_values& values) {
  sha256_stream hash;
  hash.add(bytes_of(of.weight_sum));
  for (auto part : group)
    hash.add(std::as_bytes(values(part)));
  return hash.finish();
}

digest result_digest(const result_terms& of, std::span<const digest> groups) {
  sha256_stream hash;
  hash.add("waggle result").add(of.round.raw()).add(bytes_of(of.contributors));
  for (const auto& group : groups)
    hash.add(group.raw());
  return hash.finish();
}

digest keyed_result_digest(const result_terms& of, const digest& key, const part_groups& groups,
                           const part_values& values) {
  poly1305 tagger{key};
  sha256_stream hash;
  hash.add("waggle keyed result").add(key.raw()).add(of.round.raw()).add(bytes_of(of.contributors));
  hash.add(bytes_of(of.weight_sum));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    tagger.begin();
    for (auto part : groups[g])
      tagger.add(std::as_bytes(values(part)));
    hash.add(byte_span{tagger.finish()});
  }
  return hash.finish();
}

digest result_key(const by_view<digest>& shares, const round_view& view) {
  sha256_stream hash;
  hash.add("waggle result key");
  view.participant_set().for_each(
    [&](std::size_t member) { hash.add(shares.of(member, view.number).raw()); });
  return hash.finish();
}

} // namespace waggle
