#include "actors/loop/shards.hpp"

#include <stdexcept>
#include <string>

#include "actors/loop/swarm_session.hpp"

namespace waggle {

namespace {

// A look at the first batch, say, is no mistake.
constexpr int in_vain_max = 8;

} // namespace

result<shards> shards::of(const swarm& in, std::uint64_t samples, std::uint64_t passes) {
  const auto& session = in.shared_session();
  if (auto dealt = session->deal(samples, passes); !dealt)
    return in_members(dealt.error());
  return shards{session};
}

bool shards::await(const is_over& over) {
  if (!session_->started())
    throw std::logic_error{"shards deal no samples before the optimizer of their swarm is "
                           "constructed"};
  return session_->await_samples(over ? over : [this] { return session_->over(); });
}

bool shards::begin(const is_over& over) {
  auto& draws = *session_->draws();
  auto again = draws.ahead();
  draws.put_back(again);
  auto stepped = session_->offered();
  if (again == 0 || stepped != steps_until_)
    in_vain_ = 0;
  else if (++in_vain_ > in_vain_max)
    throw std::logic_error{std::to_string(again)
                           + " samples were handed out again and again, and no step was over them: "
                             "each batch must be in a step, also one with fewer samples than the "
                             "others (drop_last of a DataLoader must be False)"};
  steps_until_ = stepped;
  if (!await(over))
    return false;
  pass_ = draws.passes();
  return true;
}

std::vector<std::uint64_t> shards::ready(std::uint64_t most) {
  return session_->draws()->draw(most, pass_);
}

std::vector<std::uint64_t> shards::next(std::uint64_t most, const is_over& over) {
  auto& draws = *session_->draws();
  auto out = ready(most);
  // A wait for the samples of others would not end while they wait for those that are ahead.
  if (!out.empty() || draws.ahead() > 0 || draws.passes() != pass_ || !await(over))
    return out;
  return ready(most);
}

std::uint64_t shards::passes_complete() const {
  return session_->draws()->passes();
}

} // namespace waggle
