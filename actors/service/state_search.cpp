// state_query ─► find_records ─► state_fetcher ─► the bytes, or the same again after a pause

#include "actors/service/state_search.hpp"

#include <algorithm>

#include "actors/guard.hpp"
#include "actors/service/running_node.hpp"
#include "actors/state/state_fetcher.hpp"

namespace waggle {

namespace {

constexpr milliseconds lookup_timeout = 10s;
constexpr milliseconds pause_min = 50ms;
constexpr milliseconds pause_max = 2s;

/// Whether a donor may yet be found after this failure: its record is under way, or those found
/// first are older, or gone.
bool may_come(ec why) {
  return why == ec::no_donor || why == ec::not_found || why == ec::epoch_mismatch
         || why == ec::not_ready || why == ec::unreachable || why == ec::peer_lost
         || why == ec::shutting_down;
}

} // namespace

state_search::state_search(caf::actor_config& cfg, const started_node& node)
  : state_search_base(cfg), ctx_(node.ctx), dht_(node.parts.dht), links_(node.parts.switchboard),
    node_(node.node), pause_(pause_min) {
  end_on_exception(this, ctx_);
}

void state_search::on_exit() {
  dht_ = nullptr;
  links_ = nullptr;
  node_ = nullptr;
}

state_search::behavior_type state_search::make_behavior() {
  monitor(node_);
  set_down_handler([this](const caf::down_msg&) {
    end(failure{ec::shutting_down, "this peer has left the run"});
  });
  return {
    [this](const state_query& query) -> caf::result<fetched_version> {
      wanted_ = query;
      until_ = clock().now() + query.timeout;
      promise_ = make_response_promise<fetched_version>();
      look();
      return promise_;
    },
    [this](look_again) { look(); },
  };
}

milliseconds state_search::left() const {
  return std::max(1ms, std::chrono::ceil<milliseconds>(until_ - clock().now()));
}

void state_search::look() {
  find_records who{record_kind::owned, state_publisher::key_of(wanted_.name), true,
                   std::min(left(), lookup_timeout)};
  request(dht_, who.timeout + dht_margin, who)
    .then([this](const found_records& found) { fetch(found); },
          [this](const caf::error& why) { look_later(why_unanswered(why)); });
}

void state_search::fetch(const found_records& found) {
  auto donors = state_publisher::donors_in(found, wanted_.version_min, ctx_.record.id,
                                           random_source{entropy_seed()});
  if (donors.all.empty() && donors.refusing > 0)
    return end(
      failure{ec::not_owner, "the peers that have " + wanted_.name
                               + " share it with nobody now: " + std::to_string(donors.refusing)});
  if (donors.all.empty())
    return look_later({ec::no_donor, "no other peer has version "
                                       + std::to_string(wanted_.version_min) + " of " + wanted_.name
                                       + ", or a later one"});
  fetch_state question;
  question.donors = std::move(donors.all);
  question.branch = state_publisher::branch_of(wanted_.name);
  question.epoch_min = epoch_id{wanted_.version_min};
  question.deadline = left();
  fetch_config how;
  how.download.bytes_max = wanted_.bytes_max;
  how.compare = wanted_.equal_on_all ? state_comparison::content : state_comparison::none;
  auto fetcher = spawn<state_fetcher>(ctx_, how, links_);
  request(fetcher, question.deadline + 1s, question)
    .then(
      [this](const fetched_state& got) {
        fetched_version out{got.epoch.value(), std::vector<std::byte>(got.state->size()),
                            got.donor};
        auto read = got.state->read(0, out.bytes);
        end(read ? result<fetched_version>{std::move(out)} : read.error());
      },
      [this, fetcher](const caf::error& why) {
        send_exit(fetcher, caf::exit_reason::user_shutdown);
        look_later(why_unanswered(why));
      });
}

void state_search::look_later(const failure& why) {
  if (!may_come(why.code) || left() <= pause_min)
    return end(why);
  delayed_send(this, std::min(pause_, left() / 2), look_again{});
  pause_ = std::min(2 * pause_, pause_max);
}

void state_search::end(result<fetched_version> with) {
  if (promise_.pending() && with)
    promise_.deliver(std::move(*with));
  else if (promise_.pending())
    promise_.deliver(to_caf(with.error()));
  quit();
}

} // namespace waggle
