// The matchmaker finds a place in a group that peers enter between rounds:
//
//   find_place ─► wire::enter_group ─► accepted ─► the leader's plan, to the group_averager ─► judged
//                   └ refused, or another leader named ─► the next peer; none left ─► the answer

#include <spdlog/logger.h>

#include "actors/averaging/matchmaker.hpp"
#include "actors/caf_error.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

namespace {

/// How long after it accepted us a leader is asked again. It admits us between two rounds. Asking
/// again costs nothing, and a leader that has left its group meanwhile answers that it has.
constexpr auto ask_again_after = 2s;

} // namespace

caf::result<place_found> matchmaker::begin(find_place& msg) {
  if (place_)
    return to_caf(ec::overloaded, "one search at a time");
  auto promise = make_response_promise<place_found>();
  entry_search search{msg.through, msg.branch, ctx_.record.id};
  place_.emplace(place_search{std::move(search), std::move(msg), clock().now(), promise});
  delayed_send(this, place_->what.deadline, place_expired{++places_});
  ask_next();
  return promise;
}

void matchmaker::ask_next() {
  if (place_->search.next())
    ask_leader();
  else
    end_place(failure{place_->search.why()});
}

void matchmaker::ask_leader() {
  const auto& search = place_->search;
  wire::enter_group question{
    config_.prefix,         place_->what.schema,           ctx_.mode(mode_),
    place_->what.bandwidth, config_.bandwidth.has_value(), search.branch(),
    search.unreached()};
  request(switchboard_, config_.request_timeout + 1s,
          call_peer{search.asked(), question, config_.request_timeout})
    .then(
      [this, number = places_, from = search.asked().id](const peer_answer& answer) {
        const auto* reply = std::get_if<wire::join_reply>(&answer.what);
        on_answer(number, from,
                  reply != nullptr ? *reply : wire::join_reply{ec::protocol_violation, {}});
      },
      [this, number = places_, from = search.asked().id](const caf::error& why) {
        if (place_ && number == places_ && place_->search.asks(from))
          on_refusal(from_caf(why));
      });
}

void matchmaker::on_answer(std::uint64_t search, const peer_id& from,
                           const wire::join_reply& reply) {
  if (!place_ || search != places_ || !place_->search.asks(from))
    return;
  if (reply.code != ec::none)
    return on_refusal({reply.code, "it refused"}, reply.suggested);
  if (place_->search.accepted()) {
    ctx_.log->debug("peer {} accepts us and does not admit us: asking others", short_name(from));
    return ask_leader();
  }
  // Next: its plan arrives, its link breaks, or the deadline passes.
  delayed_send(this, ask_again_after, ask_again{search, from});
}

void matchmaker::on_refusal(failure why, const std::vector<peer_record>& suggested) {
  auto& search = place_->search;
  log_about about{{.remote = search.asked().id, .reason = why.code}};
  ctx_.log->debug("peer {} does not admit us: {}", short_name(search.asked().id), to_string(why));
  if (ctx_.unreached && (why.code == ec::unreachable || why.code == ec::timeout))
    ctx_.unreached(search.asked());
  search.refused(std::move(why), suggested);
  ask_next();
}

void matchmaker::judged(const plan_judged& plan) {
  if (!place_) // it ended meanwhile
    return;
  if (plan.refused.code != ec::none) {
    if (place_->search.asks(plan.from))
      on_refusal(plan.refused);
    return;
  }
  auto found = std::move(*place_);
  place_.reset();
  ctx_.metrics->count_matchmaking(ec::none, seconds_of(clock().now() - found.began),
                                  static_cast<double>(plan.members));
  found.promise.deliver(place_found{plan.from});
}

void matchmaker::end_place(const failure& why) {
  auto ended = std::move(*place_);
  place_.reset();
  ctx_.metrics->count_matchmaking(why.code, seconds_of(clock().now() - ended.began), 0);
  ended.promise.deliver(to_caf(why));
}

} // namespace waggle
