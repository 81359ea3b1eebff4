#pragma once

#include "tests/runtime/allreduce/swarm/round_swarm.hpp"
#include "tests/support/seeds.hpp"

namespace waggle::testing {

/// Rounds of each way to lie.
inline const std::uint64_t seeds = number_in("WAGGLE_LIAR_SEEDS", 150);

inline bool is_part(const wire::event& what, wire::part_kind kind) {
  const auto* part = std::get_if<wire::part>(&what);
  return part != nullptr && part->kind == kind;
}

/// Changes the last byte: of the exponent of a float32, or a code.
inline void bend(payload& body, std::byte by = std::byte{1}) {
  auto bytes = std::make_shared<std::vector<std::byte>>(body.view().begin(), body.view().end());
  if (bytes->empty())
    return;
  bytes->back() ^= by;
  body = payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes});
}

/// What a liar says to a member instead; false: nothing.
using speech = std::function<bool(std::size_t to, wire::event& what, payload& body)>;

/// Says something always.
template <class Change>
speech changing(Change change) {
  return [change](std::size_t to, wire::event& what, payload& body) {
    change(to, what, body);
    return true;
  };
}

/// Does what the protocol says, except for what it says.
class liar : public saboteur {
public:
  liar(std::size_t who, speech say) : who_(who), say_(std::move(say)) {}

  bool on_send(round_swarm&, std::size_t from, std::size_t to, wire::event& what,
               payload& body) override {
    return from != who_ || say_(to, what, body);
  }

protected:
  const std::size_t who_;

private:
  const speech say_;
};

/// Nobody pledges: where members do, whoever lies may make the round fail (LyingRelays,
/// LyingReducers).
inline void send_nothing_back(round_scenario& scene) {
  for (auto& run : scene.plan.codecs)
    if (sends_contributions_back(run.codec))
      run.codec = codec_id::none;
}

/// The first violation of a round in which `who` lies, with a description; empty: none. Nothing is
/// promised to whoever lies.
/// @param forgiven whether this violation is none.
inline std::string violation_by(
  round_scenario scene, std::size_t who, saboteur& planted,
  const std::function<bool(const round_swarm&)>& forgiven = [](const auto&) { return false; }) {
  round_swarm swarm{std::move(scene), &planted};
  if (std::getenv("WAGGLE_LIAR_JOURNAL") != nullptr)
    swarm.keep_journal();
  swarm.let_lie(who);
  swarm.run();
  if (swarm.violation().empty() || forgiven(swarm))
    return {};
  return "member " + std::to_string(who) + " lies: " + swarm.violation() + "\n" + swarm.describe()
         + "\n" + swarm.journal();
}

/// The member that lies in the round of this seed.
inline std::size_t liar_of(std::uint64_t seed, const round_scenario& scene, bool leader_lies) {
  return leader_lies ? 0 : 1 + seed % (scene.plan.members.size() - 1);
}

} // namespace waggle::testing
